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

OneProduct::OneProduct(int64_t block) : n(static_cast<size_t>(block)) {
  dram.resize(2 * n * n + n);
  for (size_t i = 0; i < n; ++i) dram[n + i] = static_cast<uint8_t>(i - n / 2);
  for (size_t i = 0; i < n * n; ++i) dram[n * n + i] = static_cast<uint8_t>(i * 7);
  Instruction uop = Move(Opcode::kLoad, Memory::kUop, 0, 0, 1);
  Instruction inp = Move(Opcode::kLoad, Memory::kInp, 0, 1, 1);
  Instruction wgt = Move(Opcode::kLoad, Memory::kWgt, 0, 1, 1);
  wgt.push_next = 1;
  Instruction reset = Once(Opcode::kGemm);
  reset.reset = 1;
  Instruction gemm = reset;
  gemm.reset = 0, gemm.pop_prev = 1;
  Instruction shift = Once(Opcode::kAlu);
  shift.operation = static_cast<int64_t>(vta::AluOp::kShr), shift.use_imm = 1, shift.imm = 3;
  shift.push_next = 1;
  Instruction store = Move(Opcode::kStore, Memory::kOut, 0, 2 * block, 1);
  store.pop_prev = store.push_prev = 1;
  Instruction finish{.op = Opcode::kFinish};
  finish.pop_next = 1;
  stream = {uop, inp, wgt, reset, gemm, shift, store, finish};
}

int8_t OneProduct::Expected(size_t out) const {
  int32_t sum = 0;
  for (size_t in = 0; in < n; ++in)
    sum += static_cast<int8_t>(dram[n + in]) * static_cast<int8_t>(dram[n * n + n * out + in]);
  return static_cast<int8_t>(sum >> 3);
}

bool OneProduct::IsIn(const std::vector<uint8_t>& image) const {
  for (size_t o = 0; o < n; ++o) {
    if (static_cast<int8_t>(image[2 * n * n + o]) != Expected(o)) return false;
  }
  return true;
}

VtaCase PaddedLoad(const Isa& isa) {
  Instruction load = Move(Opcode::kLoad, Memory::kAcc, 0, 0, 2);
  load.y_size = 2, load.x_stride = 3, load.y_pad_0 = load.x_pad_0 = 1;
  Instruction touch = Once(Opcode::kAlu);  // acc + 0 over nine elements, so that out has them too
  touch.iter_in = 9, touch.dst_factor_in = 1;
  touch.operation = static_cast<int64_t>(vta::AluOp::kAdd), touch.use_imm = 1, touch.push_next = 1;
  Instruction store = Move(Opcode::kStore, Memory::kOut, 0, 24, 9);
  store.pop_prev = store.push_prev = 1;
  Instruction finish{.op = Opcode::kFinish};
  finish.pop_next = 1;
  // Six accumulators are as large as 24 results, which follow them; then the micro-op, which is 0.
  const auto n = static_cast<size_t>(isa.config().block);
  Instruction uop = Move(Opcode::kLoad, Memory::kUop, 0, static_cast<int64_t>(33 * n / 4), 1);
  VtaCase made{{uop, load, touch, store, finish}, std::vector<uint8_t>(33 * n + 4)};
  for (size_t e = 0; e < 6; ++e) {
    for (size_t l = 0; l < n; ++l) made.dram[4 * (e * n + l)] = static_cast<uint8_t>(e + 1);
  }
  return made;
}

VtaCase Requantisation(const Isa& isa, const std::vector<int32_t>& values,
                       const std::vector<int32_t>& multipliers, int64_t shift) {
  const auto n = static_cast<size_t>(isa.config().block);
  // The two accumulators, then the result in place of the next four elements of out, the micro-op.
  VtaCase made;
  made.dram.resize(4 * n * 3 + 4);
  std::memcpy(made.dram.data(), values.data(), 4 * n);
  std::memcpy(made.dram.data() + 4 * n, multipliers.data(), 4 * n);
  PutUops(isa, {{.dst = 0, .src = 1}}, 12 * n, &made.dram);
  Instruction scale = Once(Opcode::kAlu);
  scale.operation = static_cast<int64_t>(vta::AluOp::kRequantise), scale.imm = shift;
  Instruction again = Once(Opcode::kAlu);  // acc has the result, too
  again.operation = static_cast<int64_t>(vta::AluOp::kAdd), again.use_imm = 1, again.push_next = 1;
  Instruction store = Move(Opcode::kStore, Memory::kOut, 0, 8, 1);
  store.pop_prev = store.push_prev = 1;
  Instruction finish{.op = Opcode::kFinish};
  finish.pop_next = 1;
  made.stream = {Move(Opcode::kLoad, Memory::kUop, 0, static_cast<int64_t>(3 * n), 1),
                 Move(Opcode::kLoad, Memory::kAcc, 0, 0, 2),
                 scale,
                 again,
                 store,
                 finish};
  return made;
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
