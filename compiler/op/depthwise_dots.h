// Depthwise convolutions of bytes on channel blocks as dot products of four with both operands per
// lane (x86 vpdpbusd; the tensor intrinsics generic.dot4_lanes): one instruction adds four taps of
// a row for each channel of a vector, where a product of its own for each tap takes at least four.
//
// Four neighbouring pixels of a row lie side by side for each channel. A kernel narrower than four
// has room to move in such a window: with taps of 3 and stride 1, the weights (w0, w1, w2, 0) and
// (0, w0, w1, w2) make two results from it. Pure functions; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "compiler/op/op_rows.h"

namespace tilewright::op {

// Kernels of 2..4 columns without dilation along the row, and activations u8.
bool DepthwiseDotsApply(ir::DType image, const Window& columns);

// x [n, c/b, h, w, b] u8, w [c/b, kh, kw, b] i8, result [n, c/b, oh, ow, b] i32 of type `output`,
// equal to the direct form in every bit. Adds the stages
// - NAME_pad where there is padding;
// - NAME_windows [n, c/b, ih, g, b, 4]: pixels g·p·stride + 0..4 of each row, p results a window;
//   from one pixel earlier where that is an even one and a window has room;
// - NAME_taps [c/b, kh, p, b, 4]: the weights, once for each place in a window; of weights only;
// - NAME_sums [n, c/b, oh, g, p, b] and NAME.
// REQUIRES: DepthwiseDotsApply.
std::vector<ir::Buffer> ComputeDepthwiseDots(ir::FunctionBuilder& b, const std::string& name,
                                             const ir::Buffer& x, const ir::Buffer& w, Window rows,
                                             Window columns, int64_t pad_value,
                                             const TensorType& output);

}  // namespace tilewright::op
