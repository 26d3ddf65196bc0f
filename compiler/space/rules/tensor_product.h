// A product of matrices that a tensor intrinsic of the machine computes: what the rule tensor_tiles
// applies to. Pure functions; plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/target/machine.h"

namespace tilewright::space {

// A product of the machine, and its loads of fragments. Without loads it reads its factors where
// they are in shared memory.
struct Fragments {
  std::string product, load_a, load_b;
  int64_t rows = 0, columns = 0, terms = 0;
  int64_t threads = 0;  // that have the fragments together

  bool reads_shared() const { return load_a.empty(); }
};

// A factor of a product: which buffer, and the dimensions that its matrix has there.
struct Operand {
  ir::Buffer buffer;
  size_t own = 0, terms = 0;  // of rows (A) or columns (B); of terms

  int64_t bytes() const { return buffer->dtype.bytes(); }
  size_t inner() const { return std::max(own, terms); }
  size_t outer() const { return std::min(own, terms); }
};

struct TensorProduct {
  Operand a, b;
  size_t rows = 0, columns = 0, terms = 0;  // iterators
  bool a_first = true;                      // in the program
  Fragments fragments;
};

// Returns the block as a product of matrices whose rows and columns are its last two spatial
// iterators. There is one for each intrinsic of the machine that computes it and that it half fills
// at least. Empty: it is no such product.
std::vector<TensorProduct> FindTensorProducts(const ir::StmtNode& block,
                                              const target::Machine& machine);

}  // namespace tilewright::space
