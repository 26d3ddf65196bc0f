#include "compiler/targets/vta/vta_codegen.h"

#include <algorithm>

#include "compiler/ir/expr_parts.h"
#include "compiler/ir/numeric.h"
#include "compiler/targets/backend.h"
#include "compiler/targets/vta/vta_emitter.h"
#include "compiler/targets/vta/vta_first_product.h"
#include "compiler/targets/vta/vta_memories.h"
#include "compiler/targets/vta/vta_order.h"
#include "compiler/targets/vta/vta_shared_loads.h"
#include "compiler/targets/vta/vta_slices.h"
#include "deploy/support/clock.h"

namespace tilewright::vta {

namespace {

using ir::Buffer;
using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;
using ir::TensorMatch;
using ir::TensorOp;
using ir::TensorOperandMatch;
using support::StrCat;
using vta::Memory;

constexpr transform::PassRow kPasses[] = {
    {"lower_blocks", transform::LowerBlocks},
    {"compact_buffers", transform::CompactBuffers},
    {"share_loads", ShareLoads},
    {"inject_virtual_threads", transform::InjectVirtualThreads},
    {"simplify", transform::SimplifyFunction},
};

}  // namespace

absl::StatusOr<int64_t> VtaEmitter::Value(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kIntImm:
      return e->int_value;
    case ExprKind::kVar:
      if (auto it = values_.find(e.get()); it != values_.end()) return it->second;
      break;
    case ExprKind::kCast: {
      if (!e->args[0]->dtype.is_int() || !e->dtype.is_int()) break;
      TW_ASSIGN(int64_t value, Value(e->args[0]));
      return ir::WrapInt(value, e->dtype);
    }
    case ExprKind::kNot: {
      TW_ASSIGN(int64_t value, Value(e->args[0]));
      return value == 0 ? 1 : 0;
    }
    case ExprKind::kSelect: {
      TW_ASSIGN(int64_t condition, Value(e->args[0]));
      return Value(e->args[condition != 0 ? 1 : 2]);
    }
    default: {
      if (e->args.size() != 2 || e->args[0]->dtype.is_float()) break;
      TW_ASSIGN(int64_t a, Value(e->args[0]));
      TW_ASSIGN(int64_t b, Value(e->args[1]));
      int64_t result = 0;
      if (ir::EvalIntBinary(e->kind, e->args[0]->dtype, a, b, &result)) return result;
      break;
    }
  }
  return support::InvalidArgument(
      "codegen.vta.extent",
      StrCat("expected an expression over the loops around it, found ", ir::Print(e)));
}

absl::Status VtaEmitter::Add(const vta::Instruction& instruction, std::vector<VtaRegion> regions,
                             const Stmt& s) {
  TW_TRY(ClearNow(regions, s));
  TW_TRY(CheckLength(events_.size() + 1, s));
  events_.push_back({instruction, std::move(regions)});
  return absl::OkStatus();
}

absl::Status VtaEmitter::CheckLength(size_t instructions, const Stmt& s) {
  if (instructions <= static_cast<size_t>(kMaxInstructions)) return absl::OkStatus();
  return Bad("extent", StrCat("expected at most ", kMaxInstructions, " instructions, found more"),
             s);
}

absl::Status VtaEmitter::Walk(const Stmt& s) {
  switch (s->kind) {
    case StmtKind::kFor:
      return WalkFor(s);
    case StmtKind::kSeq:
      for (const Stmt& child : s->stmts) TW_TRY(Walk(child));
      return absl::OkStatus();
    case StmtKind::kAlloc:
      return WalkAlloc(s);
    case StmtKind::kIf: {
      TW_ASSIGN(int64_t condition, Value(s->condition));
      if (condition != 0) return Walk(s->body);
      return s->else_body == nullptr ? absl::OkStatus() : Walk(s->else_body);
    }
    case StmtKind::kLet: {
      TW_ASSIGN(int64_t value, Value(s->value));
      values_[s->var.get()] = value;
      return Walk(s->body);
    }
    default:
      return Bad("form", "expected tensor intrinsics of the accelerator, found another statement",
                 s);
  }
}

namespace {

// The statements of sequences in sequences.
std::vector<Stmt> Flattened(const Stmt& s) {
  if (s->kind != StmtKind::kSeq) return {s};
  std::vector<Stmt> all;
  for (const Stmt& child : s->stmts) {
    const std::vector<Stmt> parts = Flattened(child);
    all.insert(all.end(), parts.begin(), parts.end());
  }
  return all;
}

}  // namespace

absl::Status VtaEmitter::WalkFor(const Stmt& s) {
  std::vector<Stmt> loops;
  Stmt at = s;
  while (at->kind == StmtKind::kFor && ir::TensorNameOf(*at).empty()) {
    loops.push_back(at);
    at = at->body;
  }
  if (at->kind == StmtKind::kFor) return EmitNest(loops, at);
  const std::vector<Stmt> parts = Flattened(at);
  TW_ASSIGN(const bool begins, BeginsSums(loops, parts));
  if (begins) {
    for (const Stmt& nest : parts) TW_TRY(EmitNest(loops, nest));
    return absl::OkStatus();
  }
  TW_ASSIGN(int64_t min, Value(s->range.min));
  TW_ASSIGN(int64_t extent, Value(s->range.extent));
  for (int64_t i = 0; i < extent; ++i) {
    values_[s->var.get()] = min + i;
    TW_TRY(Walk(s->body));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> VtaEmitter::UnitOf(const TensorOperandMatch& operand, Memory held,
                                           const Stmt& s) {
  auto place = places_.find(operand.buffer.get());
  TW_CHECK(place != places_.end()) << operand.buffer->name;
  TW_ASSIGN(int64_t base, Value(operand.base));
  const int64_t per_unit = ElementsPerUnit(held);
  if (base % per_unit != 0) {
    return Bad("alignment",
               StrCat(operand.buffer->name, ": expected a multiple of ", per_unit,
                      " elements, found ", base),
               s);
  }
  const VtaPlace& at = place->second;
  const int64_t first =
      at.in_dram ? at.offset / (per_unit * operand.buffer->dtype.bytes()) : at.offset;
  return first + base / per_unit;
}

absl::StatusOr<std::vector<Memory>> VtaEmitter::MemoriesOf(const TensorMatch& match,
                                                           const Stmt& nest) {
  const bool is_store = match.intrinsic->op == TensorOp::kStore;
  const bool transfer = is_store || match.intrinsic->op == TensorOp::kLoad;
  const size_t in_dram = !transfer ? match.operands.size() : is_store ? 0 : 1;
  std::vector<Memory> memories;
  for (size_t k = 0; k < match.operands.size(); ++k) {
    const Buffer& buffer = match.operands[k].buffer;
    auto place = places_.find(buffer.get());
    if (place == places_.end() || place->second.in_dram != (k == in_dram)) {
      return Bad("memory",
                 StrCat("expected ", k == in_dram ? "a parameter in DRAM" : "an allocated buffer",
                        ", found ", buffer->name),
                 nest);
    }
    memories.push_back(place->second.memory);
  }
  if (transfer) memories[in_dram] = memories[1 - in_dram];
  return memories;
}

namespace {

// Whether every operand is linear in the loops, whatever the values of other variables are.
bool IsLinear(const std::vector<Stmt>& loops, const TensorMatch& match) {
  std::vector<ir::Var> vars;
  for (const Stmt& l : loops) vars.push_back(l->var);
  return std::all_of(match.operands.begin(), match.operands.end(), [&](const auto& operand) {
    return ir::CoefficientsOf(operand.base, vars).has_value();
  });
}

}  // namespace

// The steps of the loops around a nest in each operand. False when some operand is not linear in
// them.
absl::StatusOr<bool> VtaEmitter::StepsOf(const std::vector<Stmt>& loops, const TensorMatch& match,
                                         const Stmt& nest, std::vector<VtaLoopStep>* steps,
                                         std::array<int64_t, 3>* base) {
  TW_ASSIGN(const std::vector<Memory> memories, MemoriesOf(match, nest));
  const auto unit_of = [&](size_t k) { return UnitOf(match.operands[k], memories[k], nest); };
  for (const Stmt& l : loops) {
    TW_ASSIGN(int64_t min, Value(l->range.min));
    TW_ASSIGN(int64_t extent, Value(l->range.extent));
    values_[l->var.get()] = min;
    steps->push_back({.extent = extent});
  }
  const size_t operands = match.operands.size();
  for (size_t k = 0; k < operands; ++k) {
    TW_ASSIGN((*base)[k], unit_of(k));
    for (size_t l = 0; l < loops.size(); ++l) {
      if ((*steps)[l].extent < 2) continue;
      int64_t& value = values_[loops[l]->var.get()];
      ++value;
      TW_ASSIGN(int64_t next, unit_of(k));
      --value;
      (*steps)[l].step[k] = next - (*base)[k];
    }
  }
  if (IsLinear(loops, match)) return true;
  // Every point, so that an index with divisions is not taken for a linear one.
  std::vector<int64_t> point(loops.size(), 0);
  bool linear = true;
  for (bool more = true; more && linear;) {
    for (size_t k = 0; linear && k < operands; ++k) {
      int64_t expected = (*base)[k];
      for (size_t l = 0; l < loops.size(); ++l) expected += point[l] * (*steps)[l].step[k];
      TW_ASSIGN(int64_t found, unit_of(k));
      linear = found == expected;
    }
    more = false;
    for (size_t l = loops.size(); l-- > 0 && !more;) {
      more = ++point[l] < (*steps)[l].extent;
      ++values_[loops[l]->var.get()];
      if (more) break;
      values_[loops[l]->var.get()] -= point[l];
      point[l] = 0;
    }
  }
  for (size_t l = 0; l < loops.size(); ++l) values_[loops[l]->var.get()] -= point[l];
  return linear;
}

absl::Status VtaEmitter::EmitNest(const std::vector<Stmt>& loops, const Stmt& nest) {
  const std::string_view name = ir::TensorNameOf(*nest);
  auto known = matches_.find(nest.get());
  if (known == matches_.end()) {
    TW_ASSIGN(TensorMatch found, ir::MatchTensor(nest, name));
    known = matches_.emplace(nest.get(), std::move(found)).first;
  }
  const TensorMatch& match = known->second;
  TensorOp op = match.intrinsic->op;
  bool transfer = op == TensorOp::kLoad || op == TensorOp::kStore;
  if (!transfer && op != TensorOp::kGemm && op != TensorOp::kAlu) {
    return Bad("form", StrCat("expected an intrinsic of the accelerator, found ", name), nest);
  }
  // The innermost loop of every description is over the lanes.
  if (match.extents.back() != lanes()) {
    return Bad("block",
               StrCat("expected ", lanes(), " lanes, found ", match.extents.back(), " of ", name),
               nest);
  }
  std::vector<VtaLoopStep> steps;
  std::array<int64_t, 3> base = {};
  TW_ASSIGN(bool linear, StepsOf(loops, match, nest, &steps, &base));
  for (const VtaLoopStep& step : steps) {
    if (step.extent == 0) return absl::OkStatus();
  }
  if (linear) {
    if (transfer) return EmitTransfer(match, loops, steps, base, nest);
    return op == TensorOp::kGemm ? EmitGemm(match, steps, base, nest)
                                 : EmitAlu(match, steps, base, nest);
  }
  // The outermost loop is written out.
  const Stmt& outer = loops[0];
  TW_ASSIGN(int64_t min, Value(outer->range.min));
  TW_ASSIGN(int64_t extent, Value(outer->range.extent));
  for (int64_t i = 0; i < extent; ++i) {
    values_[outer->var.get()] = min + i;
    TW_TRY(EmitNest({loops.begin() + 1, loops.end()}, nest));
  }
  return absl::OkStatus();
}

absl::StatusOr<Program> VtaEmitter::Run() {
  if (function_.stage != ir::Stage::kLoops) {
    return support::InvalidArgument("codegen.vta.stage",
                                    StrCat(function_.name, ": expected stage loops"));
  }
  if (!function_.size_params.empty()) {
    return support::InvalidArgument("codegen.vta.extent",
                                    StrCat(function_.name, ": expected constant sizes, found ",
                                           function_.size_params[0]->name));
  }
  nests_ = MarkedNests(function_.body);
  TW_TRY(PlaceParams());
  TW_TRY(Walk(function_.body));
  MoveOperationsForward(&events_);
  SliceFirstProduct(isa_, &uops_, &events_);
  SliceStores(isa_, &uops_, &events_);
  program_.name = function_.name;
  program_.uops = uops_.all();
  program_.image_bytes = program_.uop_offset + uops_.size() * 4;
  PlaceMicroOps(isa_, program_.uop_offset / 4, uops_.size(), &events_);
  TW_TRY(CheckLength(events_.size(), function_.body));
  events_.push_back({vta::Instruction{.op = vta::Opcode::kFinish}, {}});
  TW_TRY(DeriveVtaTokens(&events_));
  for (const VtaEvent& e : events_) program_.stream.push_back(e.instruction);
  return std::move(program_);
}

std::span<const transform::PassRow> Pipeline() { return kPasses; }

absl::StatusOr<codegen::Artifact> Generate(const codegen::Request& request) {
  TW_ASSIGN(const Config config, ConfigOf(request.target.cpu, request.target.machine.matrix));
  return GenerateFor(config, request);
}

absl::StatusOr<codegen::Artifact> GenerateFor(const Config& config,
                                              const codegen::Request& request) {
  if (request.functions.empty())
    return support::InvalidArgument("codegen.function.none", "expected at least one function");
  support::SystemClock clock;
  const int64_t start_ns = clock.NowNs();
  codegen::Artifact artifact;
  artifact.format = kCodeFormat;
  TW_ASSIGN(const Isa isa, Isa::Make(config));
  CodeObject code{.config = config, .programs = {}};
  std::string listing;
  for (const ir::Function& f : request.functions) {
    TW_ASSIGN(Program program, VtaEmitter(isa, f).Run());
    listing += program.Listing();
    code.programs.push_back(std::move(program));
    artifact.programs.push_back(codegen::WholeFunction(f, /*workspace_bytes=*/0));
  }
  TW_ASSIGN(artifact.bytes, SerializeCode(code));
  TW_TRY(codegen::WriteDump(request.options, request.functions[0].name, ".vta", listing));
  artifact.codegen_seconds = static_cast<double>(clock.NowNs() - start_ns) * 1e-9;
  return artifact;
}

constinit const targets::Backend kBackend = {
    .pipeline = Pipeline,
    .generate = Generate,
    .toolchain = [] { return std::string("vta-isa-4"); },
    .alignment = 1024,  // of an element of any memory of any configuration
    .on_device = true,
};

}  // namespace tilewright::vta
