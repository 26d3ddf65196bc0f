#include "compiler/targets/vta/vta_transfers.h"

#include <algorithm>

namespace tilewright::vta {

VtaEvent PartOfTransfer(const Isa& isa, const VtaEvent& whole, int64_t from, int64_t size) {
  VtaEvent part = whole;
  Instruction& i = part.instruction;
  i.sram_base += from;
  i.dram_base += from / i.x_size * i.x_stride + from % i.x_size;
  i.y_size = std::max<int64_t>(1, size / i.x_size);
  i.x_size = std::min(i.x_size, size);
  if (i.y_size == 1) i.x_stride = i.x_size;
  const int64_t bytes = isa.InfoOf(static_cast<Memory>(i.memory)).element_bytes;
  const int64_t end = i.dram_base + (i.y_size - 1) * i.x_stride + i.x_size;
  part.regions[0].begin = i.sram_base;
  part.regions[0].end = i.sram_base + size;
  part.regions[1].begin = i.dram_base * bytes;
  part.regions[1].end = end * bytes;
  return part;
}

}  // namespace tilewright::vta
