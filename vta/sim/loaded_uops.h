// The micro-op memory as a stream fills it. Micro-ops are loaded and used by one module, in the
// order of the stream, so what an instruction finds there is known without running the stream. A
// value type; not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "vta/isa/isa.h"

namespace tilewright::vta {

class LoadedUops {
 public:
  // `isa` and the DRAM image at the start, `dram`, outlive it.
  LoadedUops(const Isa& isa, std::span<const uint8_t> dram)
      : isa_(isa), dram_(dram), uops_(static_cast<size_t>(isa.config().uop)) {}

  // Does what the instruction does to the memory: nothing, unless it loads micro-ops. Elements
  // outside of the memory or the image are left out.
  void Apply(const Instruction& instruction);

  // The whole memory.
  std::span<const MicroOp> uops() const { return uops_; }

 private:
  const Isa& isa_;
  const std::span<const uint8_t> dram_;
  std::vector<MicroOp> uops_;
};

}  // namespace tilewright::vta
