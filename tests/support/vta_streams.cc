#include "tests/support/vta_streams.h"

namespace tilewright::tests {

using vta::Instruction;
using vta::Isa;

Isa IsaOf(const vta::Config& config) {
  auto isa = Isa::Make(config);
  EXPECT_TRUE(isa.ok()) << isa.status();
  return *isa;
}

std::vector<vta::Word128> Encoded(const Isa& isa, const std::vector<Instruction>& stream) {
  auto words = isa.Encode(stream);
  EXPECT_TRUE(words.ok()) << words.status();
  return *words;
}

Instruction Move(vta::Opcode op, vta::Memory memory, int64_t sram, int64_t dram, int64_t count) {
  Instruction i{.op = op};
  i.memory = static_cast<int64_t>(memory);
  i.sram_base = sram, i.dram_base = dram;
  i.y_size = 1, i.x_size = i.x_stride = count;
  return i;
}

Instruction Once(vta::Opcode op, int64_t uops) {
  Instruction i{.op = op};
  i.uop_end = uops;
  i.iter_out = i.iter_in = 1;
  return i;
}

}  // namespace tilewright::tests
