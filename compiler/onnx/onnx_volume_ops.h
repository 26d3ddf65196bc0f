// Windows over one to three spatial dimensions, made of the two-dimensional rows, or of tables that
// say which elements a window has. Part of the import.
#pragma once

#include <vector>

#include "compiler/onnx/onnx_composer.h"

namespace tilewright::graph::onnx {

// Attributes of a window operator, one entry per spatial dimension; pads: begins, then ends.
struct WindowAttrs {
  std::vector<int64_t> kernel, strides, pads, dilations;
};

// x [n,c,d,h,w] by w [o,c/groups,kd,kh,kw]: the taps along the depth are channels of one
// convolution over images. `bias` may be kNone.
ValueId Conv3d(Composer& c, ValueId x, ValueId w, ValueId bias, const WindowAttrs& window,
               int64_t groups);
// x [n,c,d,h,w] by w [c,o/groups,kd,kh,kw]: a convolution of x with zeros between its elements.
ValueId ConvTranspose3d(Composer& c, ValueId x, ValueId w, ValueId bias, const WindowAttrs& window,
                        const std::vector<int64_t>& output_padding, int64_t groups);
// kind max, or avg with `include_pad`. Exact: windows are products of intervals, so that a maximum
// or a mean over one is that of its rows, then of what they give.
ValueId PoolNd(Composer& c, ValueId x, const std::string& kind, bool include_pad,
               const WindowAttrs& window);

// Padding of images [n,c,...] that depends on their open sizes: a node of its own in front of the
// window operator.
class OpenPads {
 public:
  explicit OpenPads(std::vector<op::Dim> shape);
  // As auto_pad SAME says for spatial dimension `d`. REQUIRES: windows cover at least a stride.
  void SetSame(size_t d, int64_t stride, int64_t covered, bool more_in_front);
  // x with `value` around it; x itself where nothing was set.
  absl::StatusOr<ValueId> Apply(NodeReader& n, ValueId x, double value) const;

 private:
  std::vector<op::Dim> shape_, pads_;
};

inline constexpr int64_t kOpenSize = -1;  // of a dimension that is an expression
// The attributes of a window operator over an input of this spatial size, with padding modes
// resolved. `kernel` is empty unless another operand gives the size of the window. Padding that
// depends on an open size (kOpenSize in `input`) goes to `open`, or is refused where that is null.
absl::StatusOr<WindowAttrs> ReadWindow(NodeReader& n, const std::vector<int64_t>& input,
                                       std::vector<int64_t> kernel, OpenPads* open = nullptr);
// The number below all others of the type.
double Lowest(ir::DType type);
// Where the largest element of each window is, as its position in the whole of `x`; the spatial
// dimensions in column-major order if `column_major`.
ValueId PlacesOfMax(Composer& c, ValueId x, const WindowAttrs& window, bool column_major);

}  // namespace tilewright::graph::onnx
