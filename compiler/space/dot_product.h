// Reductions that a processor's dot products of four bytes compute (x86 vpdpbusd, ARM udot), or of
// two bf16 (x86 vdpbf16ps): what schedules and search rules turn into the tensor intrinsics
// generic.dot4 and generic.dot2_bf16, or where the machine has one, into an intrinsic for a tile of
// them. Pure; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/target/machine.h"

namespace tilewright::space {

// Sums of products of a word each, C[.., j] += A[.., k] * B[.., j, k] with k in 0..4 of bytes, in
// 0..2 of bf16: the iterator j, and the tensor intrinsic's name without its lanes.
struct DotProduct {
  int lane_axis = -1;
  // A spatial iterator along which B moves and A does not, like j: blocks of output channels. -1
  // where there is none.
  int block_axis = -1;
  // Spatial iterators along which A moves and B does not. None where A is read under a condition.
  std::vector<int> row_axes = {};
  // The reduction iterator along which A continues with the next word; -1: there is none.
  int group_axis = -1;
  ir::DType data = {};  // of A
  std::string intrinsic;
};
// Returns nullopt if the block has another form.
std::optional<DotProduct> FindDotProduct(const ir::StmtNode& block);
// The same of bytes alone, which all devices have.
std::optional<DotProduct> FindByteDots(const ir::StmtNode& block);

// Sums of products of bytes whose terms are neighbours in both factors, with constant weights in
// rows of terms: C[.., j] += A[.., k] * B[j, k], with k the last iterator, of a multiple of four
// terms. They are dot products of a copy of B with words of four terms, [k/4, j, k%4].
struct ByteRows {
  int64_t columns = 0;    // of C
  ir::Buffer weights;     // B
  std::string intrinsic;  // its name without its lanes
};
// Returns nullopt if the block has another form.
std::optional<ByteRows> FindByteRows(const ir::StmtNode& block);

// Whether the machine has an instruction for dot products of two floats of this type.
bool HasPairDots(ir::DType type, const target::Machine& machine);

// Whether the machine has the instruction of a tensor intrinsic.
bool HasFeatures(const ir::TensorIntrinsic& row, const target::Machine& machine);

// A tensor intrinsic that computes such sums for a tile of rows, columns (lanes) and groups of four
// terms.
struct DotTile {
  std::string intrinsic;
  int64_t rows = 1, columns = 1, groups = 1;
};
// Returns nullopt if the machine has no such instruction for these operands.
std::optional<DotTile> FindDotTile(const DotProduct& dot, const target::Machine& machine);

}  // namespace tilewright::space
