// How loops around an operation become instructions with micro-ops.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "compiler/ir/structural.h"
#include "compiler/targets/vta/vta_emitter.h"

namespace tilewright::vta {

namespace {

using ir::Stmt;
using ir::StmtKind;
using ir::TensorMatch;
using ir::TensorOp;
using vta::Memory;

// The loops with more than one iteration, outermost first. Two of them are one, of `most`
// iterations at most, if every operand continues from the inner one to the outer one's next
// iteration: so fewer become micro-ops.
std::vector<VtaLoopStep> JoinedLoops(const std::vector<VtaLoopStep>& steps, int64_t most) {
  std::vector<VtaLoopStep> joined;  // innermost first
  for (size_t l = steps.size(); l-- > 0;) {
    const VtaLoopStep& outer = steps[l];
    if (outer.extent < 2) continue;
    bool continues = !joined.empty() && joined.back().extent * outer.extent <= most;
    for (size_t k = 0; continues && k < outer.step.size(); ++k)
      continues = outer.step[k] == joined.back().extent * joined.back().step[k];
    if (continues) {
      joined.back().extent *= outer.extent;
    } else {
      joined.push_back(outer);
    }
  }
  std::reverse(joined.begin(), joined.end());
  return joined;
}

LoopPlan PlanLoops(const std::vector<VtaLoopStep>& steps, const std::array<int64_t, 3>& base,
                   const Config& config) {
  const int64_t most = (int64_t{1} << config.iter_bits) - 1;
  std::vector<VtaLoopStep> loops = JoinedLoops(steps, most);
  // The two longest are loops of the instruction.
  std::vector<size_t> order(loops.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return loops[a].extent > loops[b].extent; });
  std::vector<size_t> kept(order.begin(), order.begin() + std::min<size_t>(2, order.size()));
  std::sort(kept.begin(), kept.end());
  LoopPlan plan;
  if (kept.size() == 2) plan.out = loops[kept[0]];
  if (!kept.empty()) plan.in = loops[kept.back()];
  // The others are written out as micro-ops; those that stay at one sum are outermost.
  for (size_t k = kept.size(); k-- > 0;)
    loops.erase(loops.begin() + static_cast<std::ptrdiff_t>(kept[k]));
  std::stable_partition(loops.begin(), loops.end(), [](const auto& l) { return l.step[0] == 0; });
  plan.uops = {{.dst = base[0], .src = base[1], .wgt = base[2]}};
  for (const VtaLoopStep& loop : loops) {
    if (loop.step[0] != 0) plan.sums *= static_cast<size_t>(loop.extent);
    std::vector<vta::MicroOp> wider;
    for (const vta::MicroOp& u : plan.uops) {
      for (int64_t i = 0; i < loop.extent; ++i) {
        wider.push_back(
            {u.dst + i * loop.step[0], u.src + i * loop.step[1], u.wgt + i * loop.step[2]});
      }
    }
    plan.uops = std::move(wider);
  }
  return plan;
}

}  // namespace

VtaRegion RegionOf(Memory memory, const std::vector<VtaLoopStep>& steps, int64_t base,
                   size_t operand, bool is_write) {
  VtaRegion region{static_cast<int>(memory), base, base + 1, is_write};
  for (const VtaLoopStep& s : steps) {
    int64_t far = (s.extent - 1) * s.step[operand];
    (far < 0 ? region.begin : region.end) += far;
  }
  return region;
}

absl::Status VtaEmitter::AddPart(vta::Instruction instruction, const LoopPlan& plan,
                                 std::span<const vta::MicroOp> uops,
                                 const std::vector<VtaRegion>& regions, const Stmt& s) {
  instruction.iter_out = plan.out.extent;
  instruction.iter_in = plan.in.extent;
  instruction.dst_factor_out = plan.out.step[0];
  instruction.dst_factor_in = plan.in.step[0];
  instruction.src_factor_out = plan.out.step[1];
  instruction.src_factor_in = plan.in.step[1];
  instruction.wgt_factor_out = plan.out.step[2];
  instruction.wgt_factor_in = plan.in.step[2];
  // Sums and elements do not depend on the order of micro-ops, so parts may follow each other.
  const auto capacity = static_cast<size_t>(isa_.InfoOf(Memory::kUop).elements);
  for (size_t first = 0; first < uops.size(); first += capacity) {
    const auto part = uops.subspan(first, std::min(capacity, uops.size() - first));
    instruction.uop_begin = uops_.At(part);
    instruction.uop_end = instruction.uop_begin + static_cast<int64_t>(part.size());
    TW_TRY(Add(instruction, regions, s));
  }
  return absl::OkStatus();
}

absl::Status VtaEmitter::AddLoops(const vta::Instruction& instruction,
                                  const std::vector<VtaLoopStep>& steps,
                                  const std::array<int64_t, 3>& base,
                                  const std::vector<VtaRegion>& regions, const Stmt& s) {
  const LoopPlan plan = PlanLoops(steps, base, isa_.config());
  return AddPart(instruction, plan, plan.uops, regions, s);
}

// The first product of each sum overwrites it, the others are added: the loops that stay at one sum
// are at their start, then further on.
absl::Status VtaEmitter::AddFirstProducts(const std::vector<VtaLoopStep>& steps,
                                          const std::array<int64_t, 3>& base,
                                          const std::vector<VtaRegion>& regions, const Stmt& s) {
  const LoopPlan plan = PlanLoops(steps, base, isa_.config());
  const auto stays = [](const VtaLoopStep& loop) { return loop.extent > 1 && loop.step[0] == 0; };
  vta::Instruction gemm{.op = vta::Opcode::kGemm};
  LoopPlan first = plan;
  if (stays(plan.out)) first.out = {};
  if (stays(plan.in)) first.in = {};
  if (plan.uops.size() <= static_cast<size_t>(isa_.InfoOf(Memory::kUop).elements))
    uops_.At(plan.uops);  // so that the parts of it are beside each other
  const auto uops = std::span(plan.uops);
  gemm.overwrite = 1;
  TW_TRY(AddPart(gemm, first, uops.first(plan.sums), regions, s));
  gemm.overwrite = 0;
  TW_TRY(AddPart(gemm, first, uops.subspan(plan.sums), regions, s));
  const auto add_rest = [&](const VtaLoopStep& loop, LoopPlan rest) {
    for (vta::MicroOp& u : rest.uops) u.src += loop.step[1], u.wgt += loop.step[2];
    return AddPart(gemm, rest, rest.uops, regions, s);
  };
  if (stays(plan.in)) {
    LoopPlan rest = plan;
    if (stays(plan.out)) rest.out = {};
    --rest.in.extent;
    TW_TRY(add_rest(plan.in, std::move(rest)));
  }
  if (stays(plan.out)) {
    LoopPlan rest = plan;
    --rest.out.extent;
    TW_TRY(add_rest(plan.out, std::move(rest)));
  }
  return absl::OkStatus();
}

// Zeros where the loops write their first operand.
absl::Status VtaEmitter::Clear(std::vector<VtaLoopStep> steps, int64_t base, const Stmt& nest) {
  vta::Instruction clear{.op = vta::Opcode::kGemm};
  clear.reset = 1;
  for (VtaLoopStep& s : steps) s.step[1] = s.step[2] = 0;
  return AddLoops(clear, steps, {base, 0, 0}, {RegionOf(Memory::kAcc, steps, base, 0, true)}, nest);
}

absl::Status VtaEmitter::ClearNow(const std::vector<VtaRegion>& regions, const Stmt& s) {
  const int64_t most = (int64_t{1} << isa_.config().iter_bits) - 1;
  for (const VtaRegion& region : regions) {
    if (region.space != static_cast<int>(Memory::kAcc)) continue;
    while (const auto run = cleared_.Take(region.begin, region.end)) {
      for (int64_t at = run->begin; at < run->end; at += most)
        TW_TRY(Clear({{.extent = std::min(most, run->end - at), .step = {1}}}, at, s));
    }
  }
  return absl::OkStatus();
}

namespace {

// Whether the first operand is another unit at every point of the loops.
bool MovesEverywhere(std::vector<VtaLoopStep> steps) {
  const auto size = [](const VtaLoopStep& s) { return std::abs(s.step[0]); };
  std::sort(steps.begin(), steps.end(),
            [&](const auto& a, const auto& b) { return size(a) < size(b); });
  int64_t reach = 0;  // of the loops with smaller steps
  for (const VtaLoopStep& step : steps) {
    if (step.extent < 2) continue;
    if (size(step) <= reach) return false;
    reach += (step.extent - 1) * size(step);
  }
  return true;
}

}  // namespace

absl::StatusOr<bool> VtaEmitter::BeginsSums(const std::vector<Stmt>& loops,
                                            const std::vector<Stmt>& nests) {
  const size_t threads = nests.size() / 2;
  if (threads == 0 || nests.size() % 2 != 0) return false;
  std::vector<TensorMatch> matches;
  for (const Stmt& nest : nests) {
    if (nest->kind != StmtKind::kFor || ir::TensorNameOf(*nest).empty()) return false;
    TW_ASSIGN(TensorMatch match, ir::MatchTensor(nest, ir::TensorNameOf(*nest)));
    if (match.intrinsic->op != TensorOp::kGemm) return false;
    matches.push_back(std::move(match));
  }
  std::vector<VtaLoopStep> steps;
  int64_t first = 0;  // the sum of the first thread where the loops start
  for (size_t t = 0; t < threads; ++t) {
    const TensorMatch &reset = matches[t], &product = matches[threads + t];
    if (!reset.reset || product.reset || reset.operands[0].buffer != product.operands[0].buffer ||
        !ir::StructuralEqual(reset.operands[0].base, product.operands[0].base)) {
      return false;
    }
    std::vector<VtaLoopStep> own;
    std::array<int64_t, 3> base = {};
    TW_ASSIGN(const bool linear, StepsOf(loops, product, nests[threads + t], &own, &base));
    if (!linear) return false;
    if (t == 0) {
      steps = own;
      first = base[0];
    } else if (t == 1) {  // threads are one more loop
      steps.push_back({.extent = static_cast<int64_t>(threads), .step = {base[0] - first}});
    } else if (base[0] != first + static_cast<int64_t>(t) * steps.back().step[0]) {
      return false;
    }
    for (size_t l = 0; l < own.size(); ++l) {
      if (own[l].step[0] != steps[l].step[0]) return false;
    }
  }
  return MovesEverywhere(std::move(steps));
}

}  // namespace tilewright::vta
