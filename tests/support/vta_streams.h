// Instruction streams of the accelerator for tests: an Isa that must exist, instructions with the
// fields that a test cares about, and a matrix product with and without virtual threads. Pure
// functions.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "vta/isa/isa.h"

namespace tilewright::tests {

// REQUIRES: the configuration can exist (the test fails).
vta::Isa IsaOf(const vta::Config& config);
// REQUIRES: every instruction can be encoded (the test fails).
std::vector<vta::Word128> Encoded(const vta::Isa& isa, const std::vector<vta::Instruction>& stream);

// A load or store of one row of `count` elements.
vta::Instruction Move(vta::Opcode op, vta::Memory memory, int64_t sram, int64_t dram,
                      int64_t count);
// A gemm or alu that runs the micro-ops [0, uops) once.
vta::Instruction Once(vta::Opcode op, int64_t uops = 1);

// A stream and the DRAM image that it starts from.
struct VtaCase {
  std::vector<vta::Instruction> stream;
  std::vector<uint8_t> dram;
};

// Sets the DRAM bytes from `offset` to micro-ops.
void PutUops(const vta::Isa& isa, const std::vector<vta::MicroOp>& uops, size_t offset,
             std::vector<uint8_t>* dram);

// One product of a micro-op. It is at DRAM 0, and for a block of n one input at n, its weights at
// n * n, the result, shifted right by 3, at 2 * n * n.
struct OneProduct : VtaCase {
  size_t n;

  explicit OneProduct(int64_t block);
  int8_t Expected(size_t out) const;
  bool IsIn(const std::vector<uint8_t>& image) const;
};

// 2 x 2 accumulators with a border of zeros above and to the left, loaded and stored as the results
// 24 to 32 of DRAM.
VtaCase PaddedLoad(const vta::Isa& isa);

// One requantisation of every lane of `values` by its multiplier. The result is the element of out
// at 8 of DRAM.
VtaCase Requantisation(const vta::Isa& isa, const std::vector<int32_t>& values,
                       const std::vector<int32_t>& multipliers, int64_t shift);

// For each of `tiles` and each thread: `rows` accumulators are cleared, `steps` times a tile of
// inputs and one of weights is loaded and multiplied, and the results are shifted and stored. Each
// thread has its part of the memories; a part is loaded again when its last product is done. So the
// loads of one thread run during the products of the other, and one thread hides nothing.
struct ProductShape {
  int64_t threads = 2, tiles = 1, steps = 1, rows = 1;
};
VtaCase ThreadedProduct(const vta::Isa& isa, const ProductShape& shape);

}  // namespace tilewright::tests
