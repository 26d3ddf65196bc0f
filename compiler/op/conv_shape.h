// What the algorithms of a 2-D convolution share: its shape, taken from operands and attributes.
// Internal to compiler/op. A value; free functions without state.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/op/op_rows.h"

namespace tilewright::op {

enum class WeightLayout : uint8_t { kOihw, kIhwo, kBlocked };

// What the attributes and the kernel's size say.
struct ConvForm {
  WeightLayout layout;
  int64_t groups;
  int64_t pad_value;  // of bytes; 0 for all others
  Window h, w;
};
struct ConvShape : ConvForm {
  int64_t in_channels, out_channels, group_in;
  Dim batch, height, width, out_height, out_width;

  int64_t group_out() const { return out_channels / groups; }
};
// op.conv2d.<reason> where the operands do not fit.
absl::StatusOr<ConvShape> ConvShapeOf(std::span<const TensorType> inputs, const Attrs& attrs);
// The element of the weights, wherever the layout has it.
ir::Expr ConvWeight(WeightLayout layout, const ir::Buffer& w, const ir::Expr& oc,
                    const ir::Expr& ic, const ir::Expr& kh, const ir::Expr& kw);

}  // namespace tilewright::op
