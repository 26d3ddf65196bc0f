#include "vta/sim/loaded_uops.h"

#include <cstring>

#include "vta/sim/dma.h"

namespace tilewright::vta {

void LoadedUops::Apply(const Instruction& i) {
  if (i.op != Opcode::kLoad || static_cast<Memory>(i.memory) != Memory::kUop) return;
  constexpr auto kBytes = int64_t{sizeof(uint32_t)};
  const auto load = [&](int64_t sram, int64_t from) {
    const bool inside = (from + 1) * kBytes <= static_cast<int64_t>(dram_.size());
    if (!inside || sram >= static_cast<int64_t>(uops_.size())) return absl::OkStatus();
    uint32_t word = 0;
    if (from >= 0) std::memcpy(&word, dram_.data() + from * kBytes, sizeof word);
    uops_[static_cast<size_t>(sram)] = isa_.DecodeUop(word);
    return absl::OkStatus();
  };
  ForEachElement(i, load).IgnoreError();  // `load` has none
}

}  // namespace tilewright::vta
