// How the axes of a tensor lie in memory, in the notation of oneDNN: capitals are axes, from the
// outermost; a number with a small letter is a block that is cut off the inner end of its axis. A
// tensor of the layout "OIHW16i16o" has the dimensions [o/16, i/16, h, w, 16, 16]. Zeros fill an
// axis up to a whole block. The only place that knows what a layout means. Immutable values;
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/op/tensor_type.h"

namespace tilewright::op {

// Pairs of dimensions that must have equal sizes.
using DimEqualities = std::vector<std::pair<Dim, Dim>>;

// A place along an axis in digits, the first counts the most: `value` of a loop with `extent` steps
// (of the first digit it does not matter).
struct Digit {
  ir::Expr value;
  int64_t extent = 0;
};
using Place = std::vector<Digit>;
// The number that the digits make; 0 of none.
ir::Expr Join(std::span<const Digit> digits);

class Layout {
 public:
  // The axes themselves, in order.
  explicit Layout(std::string_view axes);
  // `axes`: the letters of the axes in the order of sizes and places, "OIHW". An axis that the text
  // leaves out has a size of 1. op.layout.syntax.
  static absl::StatusOr<Layout> Parse(std::string_view text, std::string_view axes);
  std::string ToText() const;
  bool operator==(const Layout&) const = default;

  size_t rank() const { return pieces_.size(); }  // of the tensor in memory
  bool Has(char axis) const;
  // The dimension of the tensor in memory that counts blocks of this axis. REQUIRES: Has(axis).
  size_t Dimension(char axis) const;
  // The blocks of an axis, outermost first; none where it is not cut.
  std::vector<int64_t> Blocks(char axis) const;
  int64_t Block(char axis) const;  // their product
  bool is_cut() const;             // some axis has blocks
  // Whether it has every axis once, and no blocks.
  bool IsOrder() const { return rank() == axes_.size() && !is_cut(); }
  // What has a value for each axis, in the order of memory. REQUIRES: IsOrder().
  template <typename T>
  std::vector<T> Ordered(const std::vector<T>& of_axes) const {
    std::vector<T> ordered;
    for (const Piece& piece : pieces_) ordered.push_back(of_axes[piece.axis]);
    return ordered;
  }
  // The layout of a transpose, whose dimension i is dimension perm[i] of a tensor of this one.
  Layout Transposed(std::span<const int64_t> perm) const;

  // The sizes of the axes from the dimensions in memory, those that fill blocks counted; nothing
  // where they are not of this layout. Adds to `equal` what holds only for some sizes.
  std::optional<std::vector<Dim>> SizesOf(const std::vector<Dim>& stored,
                                          DimEqualities* equal) const;
  // The dimensions in memory of axes of these sizes, blocks filled.
  std::vector<int64_t> Stored(const std::vector<int64_t>& sizes) const;
  // Where in memory the element of these places lies, one for each axis. Digits go to blocks as
  // they are where their extents allow it.
  std::vector<ir::Expr> Index(std::span<const Place> places) const;
  // For each axis, the offset in elements that each step along it adds.
  std::vector<std::vector<int64_t>> Offsets(const std::vector<int64_t>& sizes) const;

 private:
  struct Piece {
    size_t axis;
    int64_t block;  // 0: what the blocks leave of the axis
    bool operator==(const Piece&) const = default;
  };
  size_t AxisOf(char letter) const;  // npos where there is none

  std::string axes_;
  std::vector<Piece> pieces_;
};

// Elements of `element` bytes of axes of these sizes from one layout to another of the same axes;
// zeros where blocks are filled.
std::string Repack(std::string_view bytes, const Layout& from, const Layout& to,
                   const std::vector<int64_t>& sizes, int64_t element);
std::vector<double> Repack(const std::vector<double>& values, const Layout& from, const Layout& to,
                           const std::vector<int64_t>& sizes);

}  // namespace tilewright::op
