#include "compiler/op/winograd.h"

#include <limits>
#include <optional>

#include "compiler/op/conv_shape.h"
#include "compiler/op/winograd_builder.h"
#include "compiler/op/winograd_form.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

absl::Status NoForm(const ComputeArgs& a) {
  return OpError("conv2d", "winograd",
                 "expected f32, a 3x3 kernel, stride and dilation 1 and one group, found " +
                     ToText(a.input_types[0]) + " and " + ToText(a.input_types[1]));
}

// Blocks of input channels and of output channels have one size, and weights lie to match.
bool HasBlocksOfOneSize(const ConvShape& c) {
  const int64_t block = c.in_block();
  return c.data.rank() == 5 &&
         c.weights ==
             Layout::Parse(support::StrCat("OIHW", block, "i", block, "o"), "OIHW").value();
}

// Five outputs a tile where three tiles do what four of F(4×4) would (14 = 5+5+4). Less accurate,
// by the root of the channels that are added up, so not for many: ‖a−e‖/‖e‖ is 4.6e-6 for 256 of
// them (F(4×4) 2.6e-6, direct 6e-7).
bool F5SavesProducts(const ConvShape& c) {
  constexpr int64_t kMostAccurateChannels = 256;
  if (!c.out_height.is_constant() || !c.out_width.is_constant()) return false;
  const int64_t height = c.out_height.value(), width = c.out_width.value();
  return c.in_channels <= kMostAccurateChannels &&
         WinogradF5().Products(height, width) < WinogradF4().Products(height, width);
}

// The shape of a convolution that has the form of F(4×4).
std::optional<ConvShape> ShapeOf(std::span<const TensorType> inputs, const Attrs& attrs) {
  absl::StatusOr<ConvShape> c = ConvShapeOf(inputs, attrs);
  if (!c.ok() || inputs[0].dtype != ir::kF32 || c->groups != 1 || !c->has_winograd_window()) {
    return std::nullopt;
  }
  // One number for each tile of a batch of images wants fixed sizes; blocks keep tiles in a grid.
  const bool fits =
      c->in_blocks() ? inputs.size() == 2 && HasBlocksOfOneSize(*c) : inputs[0].fixed();
  return fits ? std::optional(*std::move(c)) : std::nullopt;
}

absl::StatusOr<std::vector<ir::Buffer>> ComputeInBlocks(const ComputeArgs& a,
                                                        const WinogradForm& form) {
  const std::optional<ConvShape> c = ShapeOf(a.input_types, a.attrs);
  if (!c || !c->in_blocks()) return NoForm(a);
  return ComputeWinogradStages(a, *c, form);
}

}  // namespace

bool WinogradApplies(std::span<const TensorType> inputs, const Attrs& attrs) {
  return ShapeOf(inputs, attrs).has_value();
}
bool WinogradF2Applies(std::span<const TensorType> inputs, const Attrs& attrs) {
  const std::optional<ConvShape> c = ShapeOf(inputs, attrs);
  return c && c->in_blocks();
}
bool WinogradF5Applies(std::span<const TensorType> inputs, const Attrs& attrs) {
  const std::optional<ConvShape> c = ShapeOf(inputs, attrs);
  return c && c->in_blocks() && F5SavesProducts(*c);
}

absl::StatusOr<std::vector<ir::Buffer>> ComputeWinograd(const ComputeArgs& a) {
  const std::optional<ConvShape> c = ShapeOf(a.input_types, a.attrs);
  if (!c) return NoForm(a);
  return ComputeWinogradStages(a, *c, WinogradF4());
}
absl::StatusOr<std::vector<ir::Buffer>> ComputeWinogradF2(const ComputeArgs& a) {
  return ComputeInBlocks(a, WinogradF2());
}
absl::StatusOr<std::vector<ir::Buffer>> ComputeWinogradF5(const ComputeArgs& a) {
  return ComputeInBlocks(a, WinogradF5());
}

double WinogradErrorBound(int64_t channels, double max_x, double max_w) {
  constexpr double kOutputRow = 19, kInputRow = 10;
  constexpr double kTransformTerms = 26;  // terms of the five other sums, two per side
  double n = static_cast<double>(channels) + kTransformTerms;
  double nu = n * std::numeric_limits<float>::epsilon() / 2;
  return nu / (1 - nu) * kOutputRow * kOutputRow * kInputRow * kInputRow *
         static_cast<double>(channels) * max_x * max_w;
}

}  // namespace tilewright::op
