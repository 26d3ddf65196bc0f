// What the algorithms of a 2-D convolution share: its shape, taken from operands and attributes.
// Internal to compiler/op. A value; free functions without state.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/op/op_rows.h"

namespace tilewright::op {

// Returns the attribute data_layout of `op`: channels in their order, or in blocks behind the
// image.
absl::StatusOr<Layout> ImageLayoutOf(std::string_view op, const Attrs& attrs);

// What the attributes and the kernel's size say.
struct ConvForm {
  Layout data{"NCHW"}, weights{"OIHW"};
  int64_t groups = 1;
  int64_t pad_value = 0;  // of bytes; 0 for all others
  Window h, w;

  // Whether channels lie in blocks: data and result have the dimensions [n, c, h, w, block].
  bool in_blocks() const { return data.is_cut(); }
};
struct ConvShape : ConvForm {
  // Channels that fill a block are counted.
  int64_t in_channels, out_channels, group_in;
  Dim batch, height, width, out_height, out_width;

  int64_t group_out() const { return out_channels / groups; }
  // Every channel is convolved alone.
  bool depthwise() const {
    return group_in == 1 && group_out() == 1 && (groups > 1 || !weights.Has('I'));
  }
  int64_t in_block() const { return data.Block('C'); }
  int64_t out_block() const { return in_blocks() ? weights.Block('O') : 1; }
  // Kernel, stride and dilation of Winograd's forms.
  bool has_winograd_window() const;
};
// op.conv2d.<reason> where the operands do not fit.
absl::StatusOr<ConvShape> ConvShapeOf(std::span<const TensorType> inputs, const Attrs& attrs);

}  // namespace tilewright::op
