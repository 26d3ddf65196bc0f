#include "vta/sim/dma.h"

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vta {

absl::Status CheckTransfer(const Instruction& i) {
  if (i.x_size == 0) return absl::OkStatus();
  const bool is_store = i.op == Opcode::kStore;
  const bool is_out = static_cast<Memory>(i.memory) == Memory::kOut;
  const bool padded = i.y_pad_0 != 0 || i.y_pad_1 != 0 || i.x_pad_0 != 0 || i.x_pad_1 != 0;
  if (is_out == is_store && !(is_store && padded)) return absl::OkStatus();
  return support::InvalidArgument(
      "vta.sim.illegal",
      support::StrCat("expected a load, or a store of out without padding, found ",
                      Disassemble(i)));
}

std::vector<ByteRange> RowsInDram(const Isa& isa, const Instruction& i) {
  std::vector<ByteRange> rows;
  if (i.x_size == 0) return rows;
  const int64_t bytes = isa.InfoOf(static_cast<Memory>(i.memory)).element_bytes;
  for (int64_t y = 0; y < i.y_size; ++y) {
    const int64_t first = i.dram_base + y * i.x_stride;
    rows.push_back({first * bytes, (first + i.x_size) * bytes});
  }
  return rows;
}

}  // namespace tilewright::vta
