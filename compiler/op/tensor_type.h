// The type of a tensor: its element type and its dimensions, which may be expressions over size
// variables. Constant dimensions are the usual case: who needs numbers asks for `size` and `sizes`.
// Plain values; thread-safe.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "compiler/ir/ir.h"
#include "deploy/support/dim.h"

namespace tilewright::op {

// Dimensions are expressions over size variables, here as everywhere.
using support::Dim;
using support::DimsText;
using support::Sizes;

struct TensorType {
  TensorType() = default;
  TensorType(ir::DType dtype, std::vector<Dim> shape) : dtype(dtype), shape(std::move(shape)) {}
  TensorType(ir::DType dtype, const std::vector<int64_t>& sizes)
      : dtype(dtype), shape(sizes.begin(), sizes.end()) {}
  TensorType(ir::DType dtype, std::initializer_list<int64_t> sizes)
      : dtype(dtype), shape(sizes.begin(), sizes.end()) {}
  bool operator==(const TensorType&) const = default;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  bool fixed() const;  // no dimension is an expression

  // REQUIRES: this dimension is a number. Negative axes count from the end.
  int64_t size(int64_t axis) const { return shape[axis < 0 ? axis + rank() : axis].value(); }
  // REQUIRES: fixed(); for the last two, CheckType was ok (the product fits).
  std::vector<int64_t> sizes() const;
  int64_t elements() const;
  int64_t bytes() const;

  ir::DType dtype = ir::kF32;
  // Outermost first; none of a scalar. Variables stand for sizes of at least 2 where they
  // broadcast: what broadcasts is written as 1.
  std::vector<Dim> shape;
};
using TensorTypes = std::vector<TensorType>;

// Returns nullopt where the expression is too long (Dim::Product).
std::optional<Dim> BytesOf(const TensorType& type);
// Whether both have the same number of elements at all sizes.
bool SameElements(const TensorType& a, const TensorType& b);
std::string ToText(const TensorType& type);  // "f32[1,4,84,84]", "f32[N,4]"
// Largest tensor that types may describe; keeps all index arithmetic far from overflow.
inline constexpr int64_t kMaxTensorBytes = int64_t{1} << 40;
// Dimensions >= 1, rank <= 16, a product below kMaxTensorBytes (op.type.*). Takes an expression as
// 1, the smallest size that it may have.
absl::Status CheckType(const TensorType& type);

}  // namespace tilewright::op
