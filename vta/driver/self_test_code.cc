#include "vta/driver/self_test_code.h"

#include <algorithm>

#include "deploy/runtime/device_plugin.h"
#include "deploy/support/status.h"
#include "vta/isa/code_object.h"

namespace tilewright::vta {
namespace {

constexpr int64_t kFactor = 3, kAddend = 5;

Instruction RowOf(Opcode op, Memory memory, int64_t dram_base, int64_t count) {
  Instruction i{.op = op};
  i.memory = static_cast<int64_t>(memory);
  i.dram_base = dram_base;
  i.y_size = 1;
  i.x_size = i.x_stride = count;
  return i;
}

Instruction OnVectors(AluOp operation, int64_t imm, int64_t vectors) {
  Instruction i{.op = Opcode::kAlu};
  i.operation = static_cast<int64_t>(operation);
  i.use_imm = 1;
  i.imm = imm;
  i.uop_end = i.iter_out = 1;
  i.iter_in = vectors;
  i.dst_factor_in = i.src_factor_in = 1;
  return i;
}

}  // namespace

// In parts that fit acc: load, multiply, add, store.
std::string SelfTestCode(const Config& config) {
  constexpr int64_t kNumbers = TW_WHOLE_SELF_TEST_ELEMENTS;
  Program program;
  program.name = kSelfTestProgram;
  program.params = {{"x", 0, 4 * kNumbers}, {"y", 4 * kNumbers, kNumbers}};
  program.uop_offset = 5 * kNumbers;
  program.uops = {{}};
  program.image_bytes = program.uop_offset + 4;
  const int64_t vectors = kNumbers / config.block, part = std::min(vectors, config.acc);
  program.stream.push_back(RowOf(Opcode::kLoad, Memory::kUop, program.uop_offset / 4, 1));
  for (int64_t first = 0; first < vectors; first += part) {
    program.stream.push_back(RowOf(Opcode::kLoad, Memory::kAcc, first, part));
    program.stream.push_back(OnVectors(AluOp::kMul, kFactor, part));
    // The store before must have read what this one overwrites.
    if (first > 0) program.stream.back().pop_next = 1;
    program.stream.push_back(OnVectors(AluOp::kAdd, kAddend, part));
    program.stream.back().push_next = 1;
    const int64_t result = program.params[1].offset / config.block + first;
    program.stream.push_back(RowOf(Opcode::kStore, Memory::kOut, result, part));
    program.stream.back().pop_prev = program.stream.back().push_prev = 1;
  }
  program.stream.push_back({.op = Opcode::kFinish});
  program.stream.back().pop_next = 1;
  const auto code = SerializeCode({config, {program}});
  TW_CHECK(code.ok()) << support::StatusText(code.status());
  return *code;
}

}  // namespace tilewright::vta
