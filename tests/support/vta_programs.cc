#include "tests/support/vta_programs.h"

#include "tests/support/vta_streams.h"

namespace tilewright::tests {

using vta::AluOp;
using vta::Instruction;
using vta::Memory;
using vta::Opcode;

vta::Program ScaleProgram(const vta::Config& config, int64_t vectors, int64_t factor) {
  constexpr int64_t kAlignment = 1024;
  const int64_t in_bytes = vectors * config.block * 4, out_bytes = vectors * config.block;
  const auto round_up = [](int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; };
  vta::Program program;
  program.name = "scale";
  program.params = {{"x", 0, in_bytes}, {"y", round_up(in_bytes), out_bytes}};
  program.uop_offset = round_up(in_bytes) + round_up(out_bytes);
  program.uops = {{.dst = 0, .src = 0, .wgt = 0}};
  program.image_bytes = program.uop_offset + 4;
  const auto alu = [&](AluOp operation, int64_t imm) {
    Instruction i = Once(Opcode::kAlu);
    i.operation = static_cast<int64_t>(operation);
    i.use_imm = 1, i.imm = imm;
    i.iter_in = vectors, i.dst_factor_in = i.src_factor_in = 1;
    return i;
  };
  Instruction add = alu(AluOp::kAdd, 5);
  add.push_next = 1;
  Instruction store =
      Move(Opcode::kStore, Memory::kOut, 0, program.params[1].offset / config.block, vectors);
  store.pop_prev = store.push_prev = 1;
  Instruction finish{.op = Opcode::kFinish};
  finish.pop_next = 1;
  program.stream = {Move(Opcode::kLoad, Memory::kUop, 0, program.uop_offset / 4, 1),
                    Move(Opcode::kLoad, Memory::kAcc, 0, 0, vectors),
                    alu(AluOp::kMul, factor),
                    add,
                    store,
                    finish};
  return program;
}

std::vector<int8_t> Scaled(const std::vector<int32_t>& x, int64_t factor) {
  std::vector<int8_t> y;
  for (const int32_t value : x) y.push_back(static_cast<int8_t>(value * factor + 5));
  return y;
}

std::string CodeBytes(const vta::Config& config, const std::vector<vta::Program>& programs) {
  auto bytes = vta::SerializeCode({config, programs});
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  return bytes.ok() ? *bytes : "";
}

}  // namespace tilewright::tests
