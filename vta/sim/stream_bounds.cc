#include "vta/sim/stream_bounds.h"

#include <algorithm>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/sim/dma.h"
#include "vta/sim/loaded_uops.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

// The element after the last that an operand of the loops reaches; 0 if it reaches none.
int64_t EndOf(std::span<const MicroOp> uops, int64_t MicroOp::* start, int64_t steps) {
  int64_t last = -1;
  for (const MicroOp& uop : uops) last = std::max(last, uop.*start);
  return last < 0 ? 0 : last + steps + 1;
}

absl::Status CheckEnd(const Isa& isa, Memory memory, int64_t end) {
  const MemoryInfo& info = isa.InfoOf(memory);
  if (end <= info.elements) return absl::OkStatus();
  return support::InvalidArgument("vta.sim.bounds", StrCat(info.text, ": expected elements below ",
                                                           info.elements, ", found ", end - 1));
}

absl::Status CheckLoops(const Isa& isa, const Instruction& i, std::span<const MicroOp> all) {
  if (i.iter_out == 0 || i.iter_in == 0 || i.uop_begin >= i.uop_end) return absl::OkStatus();
  TW_TRY(CheckEnd(isa, Memory::kUop, i.uop_end));
  const auto uops =
      all.subspan(static_cast<size_t>(i.uop_begin), static_cast<size_t>(i.uop_end - i.uop_begin));
  const int64_t outer = i.iter_out - 1, inner = i.iter_in - 1;
  const int64_t src = outer * i.src_factor_out + inner * i.src_factor_in;
  TW_TRY(CheckEnd(isa, Memory::kAcc,
                  EndOf(uops, &MicroOp::dst, outer * i.dst_factor_out + inner * i.dst_factor_in)));
  if (i.op == Opcode::kAlu) {
    if (i.use_imm != 0) return absl::OkStatus();
    return CheckEnd(isa, Memory::kAcc, EndOf(uops, &MicroOp::src, src));
  }
  if (i.reset != 0) return absl::OkStatus();
  TW_TRY(CheckEnd(isa, Memory::kInp, EndOf(uops, &MicroOp::src, src)));
  return CheckEnd(isa, Memory::kWgt,
                  EndOf(uops, &MicroOp::wgt, outer * i.wgt_factor_out + inner * i.wgt_factor_in));
}

absl::Status CheckInstruction(const Isa& isa, const Instruction& i, std::span<const MicroOp> uops) {
  switch (i.op) {
    case Opcode::kFinish:
      return absl::OkStatus();
    case Opcode::kGemm:
    case Opcode::kAlu:
      return CheckLoops(isa, i, uops);
    case Opcode::kLoad:
    case Opcode::kStore:
      if (i.x_size == 0) return absl::OkStatus();
      return CheckEnd(isa, static_cast<Memory>(i.memory), i.sram_base + ElementsOnChip(i));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOnChipBounds(const Isa& isa, std::span<const Instruction> stream,
                               std::span<const uint8_t> dram) {
  LoadedUops uops(isa, dram);
  for (size_t index = 0; index < stream.size(); ++index) {
    const absl::Status status = CheckInstruction(isa, stream[index], uops.uops());
    if (!status.ok()) {
      return support::WithContext(status,
                                  StrCat("instruction ", index, ": ", Disassemble(stream[index])));
    }
    uops.Apply(stream[index]);
  }
  return absl::OkStatus();
}

}  // namespace tilewright::vta
