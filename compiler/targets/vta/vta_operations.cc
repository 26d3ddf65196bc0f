// What becomes instructions: matrix and ALU operations with their loops, loads and stores.
#include <algorithm>
#include <bit>
#include <optional>

#include "compiler/targets/vta/vta_emitter.h"

namespace tilewright::vta {

namespace {

using ir::Stmt;
using ir::TensorMatch;
using ir::TensorOp;
using ir::TensorOperandMatch;
using support::StrCat;
using vta::Memory;

constexpr int kDramSpace = -1;

// The units that an operand touches while the loops run.
VtaRegion RegionOf(Memory memory, const std::vector<VtaLoopStep>& steps, int64_t base,
                   size_t operand, bool is_write) {
  VtaRegion region{static_cast<int>(memory), base, base + 1, is_write};
  for (const VtaLoopStep& s : steps) {
    int64_t far = (s.extent - 1) * s.step[operand];
    (far < 0 ? region.begin : region.end) += far;
  }
  return region;
}

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
    const int64_t scale = values.at(1);
    if (value == scale / 2) return log2(scale);
    return {.wrong = StrCat("expected half of ", scale, ", found ", value)};
  }
  const int64_t limit = int64_t{1} << (config.imm_bits - 1);
  if (value >= -limit && value < limit) return {.field = value};
  return {.wrong = StrCat("expected ", config.imm_bits, " signed bits, found ", value)};
}

}  // namespace

int64_t VtaEmitter::UopsAt(const std::vector<vta::MicroOp>& wanted) {
  auto found =
      std::search(program_.uops.begin(), program_.uops.end(), wanted.begin(), wanted.end());
  int64_t at = found - program_.uops.begin();
  if (found == program_.uops.end()) {
    program_.uops.insert(program_.uops.end(), wanted.begin(), wanted.end());
  }
  return at;
}

absl::Status VtaEmitter::AddLoops(vta::Instruction instruction,
                                  const std::vector<VtaLoopStep>& steps,
                                  const std::array<int64_t, 3>& base,
                                  std::vector<VtaRegion> regions, const Stmt& s) {
  std::vector<VtaLoopStep> loops;
  for (const VtaLoopStep& step : steps) {
    if (step.extent > 1) loops.push_back(step);
  }
  // The two longest are loops of the instruction, the others are written out as micro-ops.
  std::vector<size_t> order(loops.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return loops[a].extent > loops[b].extent; });
  std::vector<size_t> kept(order.begin(), order.begin() + std::min<size_t>(2, order.size()));
  std::sort(kept.begin(), kept.end());
  VtaLoopStep out, in;
  if (kept.size() == 2) out = loops[kept[0]];
  if (!kept.empty()) in = loops[kept.back()];
  std::vector<vta::MicroOp> uops = {{.dst = base[0], .src = base[1], .wgt = base[2]}};
  for (size_t l = 0; l < loops.size(); ++l) {
    if (std::find(kept.begin(), kept.end(), l) != kept.end()) continue;
    std::vector<vta::MicroOp> wider;
    for (const vta::MicroOp& u : uops) {
      for (int64_t i = 0; i < loops[l].extent; ++i) {
        wider.push_back({u.dst + i * loops[l].step[0], u.src + i * loops[l].step[1],
                         u.wgt + i * loops[l].step[2]});
      }
    }
    uops = std::move(wider);
  }
  instruction.uop_begin = UopsAt(uops);
  instruction.uop_end = instruction.uop_begin + static_cast<int64_t>(uops.size());
  instruction.iter_out = out.extent;
  instruction.iter_in = in.extent;
  instruction.dst_factor_out = out.step[0];
  instruction.dst_factor_in = in.step[0];
  instruction.src_factor_out = out.step[1];
  instruction.src_factor_in = in.step[1];
  instruction.wgt_factor_out = out.step[2];
  instruction.wgt_factor_in = in.step[2];
  return Add(instruction, std::move(regions), s);
}

absl::Status VtaEmitter::EmitGemm(const TensorMatch& match, const std::vector<VtaLoopStep>& steps,
                                  const std::array<int64_t, 3>& base, const Stmt& nest) {
  vta::Instruction gemm{.op = vta::Opcode::kGemm};
  gemm.reset = match.reset ? 1 : 0;
  std::vector<VtaRegion> regions = {RegionOf(Memory::kAcc, steps, base[0], 0, true)};
  if (!match.reset) {
    regions.push_back(RegionOf(Memory::kInp, steps, base[1], 1, false));
    regions.push_back(RegionOf(Memory::kWgt, steps, base[2], 2, false));
  }
  return AddLoops(gemm, steps, base, std::move(regions), nest);
}

absl::Status VtaEmitter::EmitAlu(const TensorMatch& match, const std::vector<VtaLoopStep>& steps,
                                 std::array<int64_t, 3> base, const Stmt& nest) {
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
    vta::Instruction clear{.op = vta::Opcode::kGemm};
    clear.reset = 1;
    std::array<int64_t, 3> only = {base[0], 0, 0};
    std::vector<VtaLoopStep> dst_only = steps;
    for (VtaLoopStep& s : dst_only) s.step[1] = s.step[2] = 0;
    TW_TRY(AddLoops(clear, dst_only, only, regions, nest));
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

absl::Status VtaEmitter::EmitTransfer(const TensorMatch& match, const Stmt& nest) {
  const bool is_store = match.intrinsic->op == TensorOp::kStore;
  const TensorOperandMatch& on_chip = match.operands[is_store ? 1 : 0];
  const TensorOperandMatch& in_dram = match.operands[is_store ? 0 : 1];
  auto place = places_.find(in_dram.buffer.get());
  if (place == places_.end() || !place->second.in_dram) {
    return Bad("memory", StrCat("expected a parameter in DRAM, found ", in_dram.buffer->name),
               nest);
  }
  TW_ASSIGN(int64_t sram, UnitOf(on_chip, nest));
  TW_ASSIGN(int64_t dram, Value(in_dram.base));
  const Memory held = places_[on_chip.buffer.get()].memory;
  const Memory memory = is_store ? Memory::kOut : held;
  const int64_t per_unit = ElementsPerUnit(held);
  const int64_t unit_bytes = isa_.InfoOf(memory).element_bytes;
  const int64_t first_byte = place->second.offset + dram * in_dram.buffer->dtype.bytes();
  // Rows of rows, or one row; a row with gaps in DRAM is as good as a column.
  const size_t inner = held == Memory::kWgt ? 2 : 1;  // loops over an element
  const size_t x_loop = match.extents.size() - inner - 1;
  const bool column = x_loop == 0 && in_dram.strides[0] != ElementsPerUnit(held);
  const int64_t ny = x_loop == 1 || column ? match.extents[0] : 1;
  const int64_t nx = column ? 1 : match.extents[x_loop];
  const int64_t chip_y = on_chip.strides[0], chip_x = on_chip.strides[x_loop];
  const int64_t dram_y = in_dram.strides[0], dram_x = in_dram.strides[x_loop];
  for (int64_t stride :
       {ny > 1 ? chip_y : 0, nx > 1 ? chip_x : 0, ny > 1 ? dram_y : 0, nx > 1 ? dram_x : 0, dram}) {
    if (stride % per_unit != 0) {
      return Bad("alignment",
                 StrCat("expected multiples of ", per_unit, " elements, found ", stride), nest);
    }
  }
  // Rows that lie without gaps on the chip are one instruction; else one a row, or one an element.
  bool x_joins = nx == 1 || (chip_x == per_unit && dram_x == per_unit);
  bool y_joins = ny == 1 || (x_joins && chip_y == nx * per_unit);
  const int64_t rows = y_joins ? 1 : ny, pieces = x_joins ? 1 : nx;
  for (int64_t y = 0; y < rows; ++y) {
    for (int64_t x = 0; x < pieces; ++x) {
      vta::Instruction move{.op = is_store ? vta::Opcode::kStore : vta::Opcode::kLoad};
      const int64_t offset = y * chip_y + x * chip_x;
      const int64_t byte = first_byte + (y * dram_y + x * dram_x) * in_dram.buffer->dtype.bytes();
      move.memory = static_cast<int64_t>(memory);
      move.sram_base = sram + offset / per_unit;
      move.dram_base = byte / unit_bytes;
      move.y_size = y_joins ? ny : 1;
      move.x_size = x_joins ? nx : 1;
      move.x_stride = move.y_size > 1 ? dram_y / per_unit : move.x_size;
      const int64_t units = move.y_size * move.x_size;
      const int64_t last_byte =
          byte + ((move.y_size - 1) * move.x_stride + move.x_size) * unit_bytes;
      TW_TRY(Add(move,
                 {{static_cast<int>(held), move.sram_base, move.sram_base + units, !is_store},
                  {kDramSpace, byte, last_byte, is_store}},
                 nest));
    }
  }
  return absl::OkStatus();
}

}  // namespace tilewright::vta
