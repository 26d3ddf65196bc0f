// Fragments in kernels: matrices that the threads of a warp, or of a group of warps, keep together
// in their registers. By the IR each thread has them whole (scopes.def), all of these threads the
// same ones; the code generator hands their elements out. What it has to know is which fragment an
// access names, and that all of these threads come to it. Pure functions over immutable IR;
// thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/ir/tensor_intrinsics.h"

namespace tilewright::codegen {

// Of a buffer of constant size; 0: it has none.
int64_t ElementsOf(const ir::BufferNode& buffer);

// How the fragments of a buffer lie in it: each has so many rows and columns, so far apart.
struct FragmentLayout {
  std::array<int64_t, 2> extents = {1, 1}, strides = {0, 0};  // of rows, of columns
  int64_t count = 0;                                          // fragments of the buffer

  bool operator==(const FragmentLayout&) const = default;
  // Returns the number of the fragment that begins at element `base`; nullopt if none does.
  std::optional<int64_t> NumberOf(const ir::Expr& base) const;
};

// A shared buffer that products read where it is: rows of so many elements.
struct SharedFactor {
  int64_t row = 0, rows = 0;
};

// What the products of a kernel say about its buffers.
struct KernelFragments {
  int threads = 0;  // along x, that have the fragments; 0: the kernel has none
  std::map<const ir::BufferNode*, FragmentLayout> layouts = {};
  // Those that want their elements placed in a way of their own (SharedFactorWords::place).
  std::map<const ir::BufferNode*, SharedFactor> placed = {};
};

// codegen.fragments.layout: two products disagree, or a buffer is no whole number of fragments.
absl::StatusOr<KernelFragments> FindFragments(const ir::Function& kernel);

// The stride of an operand's rows, whose elements are neighbours; nullopt if it has no such rows.
std::optional<int64_t> RowOf(const ir::TensorOperandMatch& operand, size_t rows, size_t columns);

// The layout and the first element of one operand of a match: `rows` and `columns` are loops of
// the description.
FragmentLayout LayoutOf(const ir::TensorMatch& match, size_t operand, size_t rows, size_t columns);

// Whether a statement does nothing but products, loads and maps of fragments.
bool HasOnlyFragments(const ir::Stmt& s);

}  // namespace tilewright::codegen
