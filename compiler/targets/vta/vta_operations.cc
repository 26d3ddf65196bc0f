// What becomes instructions: matrix and ALU operations with their loops, loads and stores.
#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "compiler/ir/expr_parts.h"
#include "compiler/ir/visit.h"
#include "compiler/targets/vta/vta_emitter.h"

namespace tilewright::vta {

namespace {

using ir::Stmt;
using ir::TensorMatch;
using ir::TensorOp;
using support::StrCat;
using vta::Memory;

constexpr int kDramSpace = -1;

struct AluForm {
  vta::AluOp op;
  bool immediate;
};
std::optional<AluForm> AluFormOf(std::string_view name) {
  constexpr std::string_view kPrefix = "vta.alu.", kImmediate = ".imm";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  bool immediate = name.ends_with(kImmediate);
  if (immediate) name.remove_suffix(kImmediate.size());
#define TW_VTA_ALU_OP(Name, text, value, what) \
  if (name == text) return AluForm{vta::AluOp::k##Name, immediate};
#include "vta/isa/isa.def"
  return std::nullopt;
}

// The field imm for the constants of an operation, or what is wrong with them.
struct Immediate {
  int64_t field = 0;
  std::string wrong = {};
};
Immediate ImmediateOf(vta::AluOp op, const std::vector<int64_t>& values, const Config& config) {
  const int64_t value = values.at(0);
  const auto log2 = [](int64_t power) -> Immediate {
    if (power > 0 && std::has_single_bit(static_cast<uint64_t>(power)))
      return {.field = std::countr_zero(static_cast<uint64_t>(power))};
    return {.wrong = StrCat("expected a power of two, found ", power)};
  };
  if (op == vta::AluOp::kShr) return log2(value);
  if (op == vta::AluOp::kRequantise) {
    if (value >= 0 && value <= vta::kMaxRequantiseShift) return {.field = value};
    return {.wrong =
                StrCat("expected a shift of 0 to ", vta::kMaxRequantiseShift, ", found ", value)};
  }
  const int64_t limit = int64_t{1} << (config.imm_bits - 1);
  if (value >= -limit && value < limit) return {.field = value};
  return {.wrong = StrCat("expected ", config.imm_bits, " signed bits, found ", value)};
}

}  // namespace

absl::Status VtaEmitter::EmitGemm(const TensorMatch& match, const std::vector<VtaLoopStep>& steps,
                                  const std::array<int64_t, 3>& base, const Stmt& nest) {
  if (match.reset) {
    cleared_.Clear(steps, base[0]);
    return absl::OkStatus();
  }
  const std::vector<VtaRegion> regions = {RegionOf(Memory::kAcc, steps, base[0], 0, true),
                                          RegionOf(Memory::kInp, steps, base[1], 1, false),
                                          RegionOf(Memory::kWgt, steps, base[2], 2, false)};
  if (cleared_.TakeIfAll(steps, base[0])) return AddFirstProducts(steps, base, regions, nest);
  return AddLoops({.op = vta::Opcode::kGemm}, steps, base, regions, nest);
}

// The product with an identity matrix, which the first of them loads.
absl::Status VtaEmitter::EmitWiden(const std::vector<VtaLoopStep>& steps,
                                   const std::array<int64_t, 3>& base, const Stmt& nest) {
  const int64_t identity = IdentityPlace();
  const VtaRegion matrix{static_cast<int>(Memory::kWgt), identity, identity + 1, false};
  if (!has_identity_) {
    has_identity_ = true;
    vta::Instruction load{.op = vta::Opcode::kLoad};
    load.memory = static_cast<int64_t>(Memory::kWgt);
    load.sram_base = identity;
    load.dram_base = program_.constant_offset() / isa_.InfoOf(Memory::kWgt).element_bytes;
    load.y_size = load.x_size = load.x_stride = 1;
    VtaRegion loaded = matrix;
    loaded.is_write = true;
    TW_TRY(Add(load, {loaded}, nest));
  }
  const VtaRegion sums = RegionOf(Memory::kAcc, steps, base[0], 0, true);
  vta::Instruction gemm{.op = vta::Opcode::kGemm};
  gemm.overwrite = 1;
  return AddLoops(gemm, steps, {base[0], base[1], identity},
                  {sums, RegionOf(Memory::kInp, steps, base[1], 1, false), matrix}, nest);
}

// A maximum in place; its reset is the least number: -1 shifted to the left.
absl::Status VtaEmitter::EmitMaxInto(const TensorMatch& match,
                                     const std::vector<VtaLoopStep>& steps,
                                     const std::array<int64_t, 3>& base, const Stmt& nest) {
  const VtaRegion sums = RegionOf(Memory::kAcc, steps, base[0], 0, true);
  vta::Instruction alu{.op = vta::Opcode::kAlu};
  std::vector<VtaLoopStep> moved = steps;
  for (VtaLoopStep& s : moved) {
    if (match.reset) s.step[1] = s.step[0];
    s.step[2] = 0;
  }
  if (!match.reset) {
    alu.operation = static_cast<int64_t>(vta::AluOp::kMax);
    return AddLoops(alu, moved, {base[0], base[1], 0},
                    {sums, RegionOf(Memory::kAcc, steps, base[1], 1, false)}, nest);
  }
  TW_TRY(Clear(steps, base[0], nest));
  constexpr int64_t kSignBit = 31;
  alu.use_imm = 1;
  for (const auto& [operation, imm] :
       {std::pair(vta::AluOp::kAdd, int64_t{-1}), std::pair(vta::AluOp::kShr, -kSignBit)}) {
    alu.operation = static_cast<int64_t>(operation);
    alu.imm = imm;
    TW_TRY(AddLoops(alu, moved, {base[0], base[0], 0}, {sums}, nest));
  }
  return absl::OkStatus();
}

absl::Status VtaEmitter::EmitAlu(const TensorMatch& match, const std::vector<VtaLoopStep>& steps,
                                 std::array<int64_t, 3> base, const Stmt& nest) {
  if (match.intrinsic->name == kWiden) return EmitWiden(steps, base, nest);
  if (match.intrinsic->name == kMaxInto) return EmitMaxInto(match, steps, base, nest);
  std::optional<AluForm> form = AluFormOf(match.intrinsic->name);
  TW_CHECK(form.has_value()) << match.intrinsic->name;
  vta::Instruction alu{.op = vta::Opcode::kAlu};
  alu.operation = static_cast<int64_t>(form->op);
  alu.use_imm = form->immediate ? 1 : 0;
  if (!match.immediates.empty()) {
    const Immediate imm = ImmediateOf(form->op, match.immediates, isa_.config());
    if (!imm.wrong.empty()) return Bad("immediate", imm.wrong, nest);
    alu.imm = imm.field;
  }
  // dst = src op other: the instruction works on dst, so src must be there already.
  std::vector<VtaRegion> regions = {RegionOf(Memory::kAcc, steps, base[0], 0, true)};
  auto same = [&](size_t k) {
    bool equal = base[0] == base[k];
    for (const VtaLoopStep& s : steps) equal = equal && (s.extent < 2 || s.step[0] == s.step[k]);
    return equal;
  };
  std::vector<VtaLoopStep> moved = steps;
  auto use_as_source = [&](size_t k, std::vector<VtaLoopStep>* to, std::array<int64_t, 3>* at) {
    (*at)[1] = base[k];
    for (size_t l = 0; l < steps.size(); ++l) (*to)[l].step[1] = steps[l].step[k];
    (*at)[2] = 0;
    for (VtaLoopStep& s : *to) s.step[2] = 0;
  };
  std::array<int64_t, 3> at = base;
  size_t other = form->immediate ? 1 : 2;
  if (!same(1) && !form->immediate && same(2)) {
    other = 1;  // all operations of two tensors commute
  } else if (!same(1)) {
    TW_TRY(Clear(steps, base[0], nest));
    vta::Instruction copy{.op = vta::Opcode::kAlu};
    copy.operation = static_cast<int64_t>(vta::AluOp::kAdd);
    use_as_source(1, &moved, &at);
    std::vector<VtaRegion> both = regions;
    both.push_back(RegionOf(Memory::kAcc, steps, base[1], 1, false));
    TW_TRY(AddLoops(copy, moved, at, std::move(both), nest));
  }
  use_as_source(other, &moved, &at);
  if (form->immediate) {
    at[1] = at[0];
    for (VtaLoopStep& s : moved) s.step[1] = s.step[0];
  } else {
    regions.push_back(RegionOf(Memory::kAcc, steps, base[other], other, false));
  }
  return AddLoops(alu, moved, at, std::move(regions), nest);
}

// The iterations that a conjunction of conditions on single loops allows.
absl::Status VtaEmitter::NarrowToGuard(const ir::Expr& guard, const Stmt& nest,
                                       std::vector<TransferDim>* dims) {
  for (const ir::Expr& part : ir::Conjuncts(guard)) {
    TransferDim* moves = nullptr;
    for (TransferDim& dim : *dims) {
      if (dim.var == nullptr || !ir::UsesVar(part, dim.var)) continue;
      if (moves != nullptr) {
        return Bad("padding",
                   StrCat("expected conditions on one loop each, found ", ir::Print(part)), nest);
      }
      moves = &dim;
    }
    if (moves == nullptr) {
      return Bad("padding", StrCat("expected a condition on a loop, found ", ir::Print(part)),
                 nest);
    }
    int64_t& value = values_[moves->var.get()];
    const int64_t first = value;
    int64_t begin = moves->extent, end = 0, count = 0;
    for (int64_t i = 0; i < moves->extent; ++i) {
      value = first + i;
      TW_ASSIGN(const int64_t inside, Value(part));
      if (inside == 0) continue;
      begin = std::min(begin, i);
      end = i + 1;
      ++count;
    }
    value = first;
    if (count != end - std::min(begin, end)) {
      return Bad("padding", StrCat("expected one range of iterations, found ", ir::Print(part)),
                 nest);
    }
    moves->valid_begin = std::max(moves->valid_begin, begin);
    moves->valid_end = std::min(moves->valid_end, end);
  }
  for (const TransferDim& dim : *dims) {
    if (dim.valid_begin >= dim.valid_end)
      return Bad("padding", "expected some elements of the image, found padding alone", nest);
  }
  return absl::OkStatus();
}

namespace {

// Loops whose iterations lie without gaps on both sides are one loop.
std::vector<TransferDim> Joined(const std::vector<TransferDim>& dims) {
  std::vector<TransferDim> joined;  // innermost first
  for (size_t d = dims.size(); d-- > 0;) {
    TransferDim dim = dims[d];
    if (dim.extent == 1) continue;
    if (!joined.empty()) {
      TransferDim& inner = joined.back();
      const bool follows = dim.chip == inner.extent * inner.chip &&
                           dim.dram == inner.extent * inner.dram && dim.is_whole() &&
                           inner.is_whole();
      if (follows) {
        inner.extent *= dim.extent;
        inner.valid_end = inner.extent;
        continue;
      }
    }
    joined.push_back(dim);
  }
  std::reverse(joined.begin(), joined.end());
  return joined;
}

// Loops of more iterations than an instruction can have are two.
std::vector<TransferDim> Cut(const std::vector<TransferDim>& dims, int64_t most) {
  std::vector<TransferDim> cut;
  for (TransferDim dim : dims) {
    int64_t parts = 1;
    while (dim.is_whole() && (dim.extent > parts * most || dim.extent % parts != 0)) ++parts;
    const int64_t part = dim.extent / parts;
    if (parts > 1) cut.push_back({parts, part * dim.chip, part * dim.dram, 0, parts, dim.var});
    if (dim.is_whole()) dim.extent = dim.valid_end = part;
    cut.push_back(dim);
  }
  return cut;
}

}  // namespace

absl::Status VtaEmitter::EmitTransfer(const TensorMatch& match, const std::vector<Stmt>& loops,
                                      const std::vector<VtaLoopStep>& steps,
                                      const std::array<int64_t, 3>& base, const Stmt& nest) {
  const size_t on_chip = match.intrinsic->op == TensorOp::kStore ? 1 : 0, in_dram = 1 - on_chip;
  TransferRows rows{.is_store = on_chip == 1};
  rows.held = places_[match.operands[on_chip].buffer.get()].memory;
  rows.chip = base[on_chip];
  rows.dram = base[in_dram];
  std::vector<TransferDim> dims;
  for (size_t l = 0; l < loops.size(); ++l) {
    dims.push_back({.extent = steps[l].extent,
                    .chip = steps[l].step[on_chip],
                    .dram = steps[l].step[in_dram],
                    .valid_end = steps[l].extent,
                    .var = loops[l]->var});
  }
  const int64_t per_unit = ElementsPerUnit(rows.held);
  const size_t inner = rows.held == Memory::kWgt ? 2 : 1;  // loops over an element
  for (size_t l = 0; l + inner < match.extents.size(); ++l) {
    const int64_t extent = match.extents[l];
    const int64_t chip = match.operands[on_chip].strides[l];
    const int64_t dram = match.operands[in_dram].strides[l];
    for (const int64_t stride : {chip, dram}) {
      if (extent == 1 || stride % per_unit == 0) continue;
      return Bad("alignment",
                 StrCat("expected multiples of ", per_unit, " elements, found ", stride), nest);
    }
    dims.push_back(
        {.extent = extent, .chip = chip / per_unit, .dram = dram / per_unit, .valid_end = extent});
  }
  if (match.operands[in_dram].guard != nullptr)
    TW_TRY(NarrowToGuard(match.operands[in_dram].guard, nest, &dims));
  const int64_t most = (int64_t{1} << isa_.config().size_bits) - 1;
  dims = Cut(Joined(dims), most);
  if (!dims.empty() && dims.back().chip == 1 && dims.back().dram == 1) {
    rows.x = dims.back();
    dims.pop_back();
  }
  if (!dims.empty() && dims.back().chip == rows.x.extent && dims.back().dram <= most) {
    rows.y = dims.back();
    dims.pop_back();
  }
  return EmitRows(rows, dims, nest);
}

// An instruction for each iteration of the outer loops.
absl::Status VtaEmitter::EmitRows(const TransferRows& rows, std::span<const TransferDim> outer,
                                  const Stmt& nest) {
  if (!outer.empty()) {
    const TransferDim& loop = outer.front();
    if (!loop.is_whole())
      return Bad("padding", "expected padding of rows and columns, found another", nest);
    for (int64_t i = 0; i < loop.extent; ++i) {
      TransferRows part = rows;
      part.chip += i * loop.chip;
      part.dram += i * loop.dram;
      TW_TRY(EmitRows(part, outer.subspan(1), nest));
    }
    return absl::OkStatus();
  }
  const TransferDim &y = rows.y, &x = rows.x;
  const Memory memory = rows.is_store ? Memory::kOut : rows.held;
  vta::Instruction move{.op = rows.is_store ? vta::Opcode::kStore : vta::Opcode::kLoad};
  move.memory = static_cast<int64_t>(memory);
  move.sram_base = rows.chip;
  move.dram_base = rows.dram + y.valid_begin * y.dram + x.valid_begin * x.dram;
  move.y_size = y.valid_end - y.valid_begin;
  move.x_size = x.valid_end - x.valid_begin;
  move.x_stride = move.y_size > 1 ? y.dram : move.x_size;
  move.y_pad_0 = y.valid_begin;
  move.y_pad_1 = y.extent - y.valid_end;
  move.x_pad_0 = x.valid_begin;
  move.x_pad_1 = x.extent - x.valid_end;
  const int64_t most = (int64_t{1} << isa_.config().pad_bits) - 1;
  for (const int64_t pad : {move.y_pad_0, move.y_pad_1, move.x_pad_0, move.x_pad_1}) {
    if (pad > most) return Bad("padding", StrCat("expected at most ", most, ", found ", pad), nest);
  }
  const int64_t bytes = isa_.InfoOf(memory).element_bytes;
  const int64_t end = move.dram_base + (move.y_size - 1) * move.x_stride + move.x_size;
  const int64_t units = y.extent * x.extent;
  return Add(move,
             {{static_cast<int>(rows.held), rows.chip, rows.chip + units, !rows.is_store},
              {kDramSpace, move.dram_base * bytes, end * bytes, rows.is_store}},
             nest);
}

}  // namespace tilewright::vta
