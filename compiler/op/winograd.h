// Winograd's form of 2-D convolution, F(4x4, 3x3): 36 products for 16 outputs instead of 144, after
// linear transforms of input tiles, filters and results. The function it makes has the operands and
// the result of conv2d. Pure functions; thread-safe.
//
// ERROR. The transforms add and subtract multiples of up to 8, and the results cancel. With
// |x| <= max_x, |w| <= max_w and unit roundoff u every output is off by at most
//   gamma(n) · 19² · 10² · channels · max_x · max_w
//   gamma(n) = n·u / (1 - n·u), n = channels + 26
// where 19, 10 and 1 are the largest absolute row sums of Aᵀ, Bᵀ and G (Higham's rule for inner
// products, applied to each of the five sums). Typical errors are four orders below: a few 1e-6 of
// the largest output, about ten times those of the direct form.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/op/op_rows.h"

namespace tilewright::op {

// Kernel 3x3, stride and dilation 1, one group, type f32. In blocks of channels: as many of input
// channels as of output channels, weights to match, no bias.
bool WinogradApplies(std::span<const TensorType> inputs, const Attrs& attrs);
// In blocks only. F2 is more accurate; F5 is where it saves products (14 = 5+5+4).
bool WinogradF2Applies(std::span<const TensorType> inputs, const Attrs& attrs);
bool WinogradF5Applies(std::span<const TensorType> inputs, const Attrs& attrs);

// Adds the stages of winograd_builder.h. op.conv2d.winograd where the form does not apply.
absl::StatusOr<std::vector<ir::Buffer>> ComputeWinograd(const ComputeArgs& a);
absl::StatusOr<std::vector<ir::Buffer>> ComputeWinogradF2(const ComputeArgs& a);
absl::StatusOr<std::vector<ir::Buffer>> ComputeWinogradF5(const ComputeArgs& a);

// The bound above.
double WinogradErrorBound(int64_t channels, double max_x, double max_w);

}  // namespace tilewright::op
