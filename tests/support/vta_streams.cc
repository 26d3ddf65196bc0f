#include "tests/support/vta_streams.h"

#include <cstring>

#include "deploy/support/rng.h"

namespace tilewright::tests {

using vta::Instruction;
using vta::Isa;
using vta::Memory;
using vta::Opcode;

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

Instruction Move(Opcode op, Memory memory, int64_t sram, int64_t dram, int64_t count) {
  Instruction i{.op = op};
  i.memory = static_cast<int64_t>(memory);
  i.sram_base = sram, i.dram_base = dram;
  i.y_size = 1, i.x_size = i.x_stride = count;
  return i;
}

Instruction Once(Opcode op, int64_t uops) {
  Instruction i{.op = op};
  i.uop_end = uops;
  i.iter_out = i.iter_in = 1;
  return i;
}

void PutUops(const Isa& isa, const std::vector<vta::MicroOp>& uops, size_t offset,
             std::vector<uint8_t>* dram) {
  for (size_t u = 0; u < uops.size(); ++u) {
    auto word = isa.EncodeUop(uops[u]);
    ASSERT_TRUE(word.ok()) << word.status();
    ASSERT_LE(offset + (u + 1) * sizeof *word, dram->size());
    std::memcpy(dram->data() + offset + u * sizeof *word, &*word, sizeof *word);
  }
}

namespace {

// Where the operands of a product are in DRAM, as elements of their memories. The micro-ops, one a
// thread, come first.
struct ProductPlaces {
  int64_t weights, inputs, results, bytes;

  ProductPlaces(const Isa& isa, const ProductShape& s) {
    const int64_t inp = isa.config().block, wgt = inp * inp;
    weights = (4 * s.threads + wgt - 1) / wgt;
    const int64_t first_input = (weights + s.threads * s.steps) * wgt;
    inputs = first_input / inp;
    results = inputs + s.steps * s.rows;
    bytes = (results + s.tiles * s.threads * s.rows) * inp;
  }
};

Instruction ProductLoop(const ProductShape& s, int64_t thread, Opcode op) {
  Instruction i = Once(op);
  i.uop_begin = thread, i.uop_end = thread + 1;
  i.iter_in = s.rows, i.dst_factor_in = 1;
  return i;
}

void AddStep(const ProductShape& s, const ProductPlaces& at, int64_t thread, int64_t tile,
             int64_t step, std::vector<Instruction>* stream) {
  const bool first = tile == 0 && step == 0;
  const bool last = tile == s.tiles - 1 && step == s.steps - 1;
  Instruction inp =
      Move(Opcode::kLoad, Memory::kInp, thread * s.rows, at.inputs + step * s.rows, s.rows);
  inp.pop_next = first ? 0 : 1;
  Instruction wgt =
      Move(Opcode::kLoad, Memory::kWgt, thread, at.weights + thread * s.steps + step, 1);
  wgt.push_next = 1;
  Instruction gemm = ProductLoop(s, thread, Opcode::kGemm);
  gemm.src_factor_in = 1;
  gemm.pop_prev = 1;
  gemm.push_prev = last ? 0 : 1;
  stream->insert(stream->end(), {inp, wgt, gemm});
}

void AddResult(const ProductShape& s, const ProductPlaces& at, int64_t thread, int64_t tile,
               std::vector<Instruction>* stream) {
  Instruction shift = ProductLoop(s, thread, Opcode::kAlu);
  shift.operation = static_cast<int64_t>(vta::AluOp::kShr);
  shift.use_imm = 1, shift.imm = 5, shift.push_next = 1;
  Instruction store = Move(Opcode::kStore, Memory::kOut, thread * s.rows,
                           at.results + (tile * s.threads + thread) * s.rows, s.rows);
  store.pop_prev = store.push_prev = 1;
  stream->insert(stream->end(), {shift, store});
}

}  // namespace

VtaCase ThreadedProduct(const Isa& isa, const ProductShape& s) {
  const ProductPlaces at(isa, s);
  VtaCase made;
  made.dram.resize(static_cast<size_t>(at.bytes));
  support::Rng rng(3);
  for (uint8_t& byte : made.dram) byte = static_cast<uint8_t>(rng.NextU64());
  std::vector<vta::MicroOp> uops;
  for (int64_t t = 0; t < s.threads; ++t)
    uops.push_back({.dst = t * s.rows, .src = t * s.rows, .wgt = t});
  PutUops(isa, uops, 0, &made.dram);
  std::vector<Instruction>& stream = made.stream;
  stream.push_back(Move(Opcode::kLoad, Memory::kUop, 0, 0, s.threads));
  for (int64_t tile = 0; tile < s.tiles; ++tile) {
    for (int64_t t = 0; t < s.threads; ++t) {
      Instruction reset = ProductLoop(s, t, Opcode::kGemm);
      reset.reset = 1, reset.pop_next = tile > 0 ? 1 : 0;
      stream.push_back(reset);
    }
    for (int64_t k = 0; k < s.steps; ++k) {
      for (int64_t t = 0; t < s.threads; ++t) AddStep(s, at, t, tile, k, &stream);
    }
    for (int64_t t = 0; t < s.threads; ++t) AddResult(s, at, t, tile, &stream);
  }
  for (int64_t t = 1; t < s.threads; ++t) {
    Instruction wait = Move(Opcode::kLoad, Memory::kUop, 0, 0, 0);
    wait.pop_next = 1;
    stream.push_back(wait);
  }
  Instruction finish{.op = Opcode::kFinish};
  finish.pop_next = 1;
  stream.push_back(finish);
  return made;
}

}  // namespace tilewright::tests
