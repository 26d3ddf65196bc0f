#include "compiler/op/winograd.h"

#include <functional>
#include <limits>
#include <optional>

#include "compiler/op/conv_shape.h"
#include "compiler/op/winograd_form.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using ir::Expr;
using ir::Int;
using ir::Load;

const WinogradForm& Form() { return WinogradF4(); }

// The stages, one after the other. Tiles are numbered over batch, rows and columns.
class Stages {
 public:
  Stages(ir::FunctionBuilder& b, const std::string& name, std::span<const ir::Buffer> inputs,
         const ConvShape& c, const ImageSizes& sizes)
      : b_(b),
        name_(name),
        x_(inputs[0]),
        w_(inputs[1]),
        c_(c),
        sizes_(sizes),
        rows_(Form().Tiles(sizes.out_height)),
        columns_(Form().Tiles(sizes.out_width)),
        tiles_(sizes.batch * rows_ * columns_),
        type_(x_->dtype) {}

  ir::Buffer Filter() {
    ir::Buffer half =
        b_.Compute(name_ + "_filter_rows", type_,
                   ShapeExprs(b_, {Form().points, kWinogradTaps, c_.in_channels, c_.out_channels}),
                   {"a", "s", "ic", "oc"}, [&](const std::vector<ir::Var>& v) {
                     return WinogradTransform(Form().filter, v[0], [&](int r) {
                       const Place at[] = {{{v[3]}}, {{v[2]}}, {{Int(r)}}, {{v[1]}}};
                       return Load(w_, c_.weights.Index(at));
                     });
                   });
    return b_.Compute(
        name_ + "_filter", type_,
        ShapeExprs(b_, {Form().points, Form().points, c_.in_channels, c_.out_channels}),
        {"a", "b", "ic", "oc"}, [&](const std::vector<ir::Var>& v) {
          return WinogradTransform(Form().filter, v[1],
                                   [&](int s) { return Load(half, {v[0], Int(s), v[2], v[3]}); });
        });
  }

  ir::Buffer Input() {
    ir::Buffer half = b_.Compute(
        name_ + "_tile_rows", type_,
        ShapeExprs(b_, {Form().points, Form().points, c_.in_channels, tiles_}),
        {"a", "s", "ic", "p"}, [&](const std::vector<ir::Var>& v) {
          Expr column = ir::FloorMod(v[3], Int(columns_)) * Int(Form().tile) + v[1];
          Expr row = ir::FloorMod(ir::FloorDiv(v[3], Int(columns_)), Int(rows_)) * Int(Form().tile);
          Expr image = ir::FloorDiv(v[3], Int(rows_ * columns_));
          return WinogradTransform(Form().input, v[0], [&](int r) {
            return Pixel(image, v[2], row + Int(r - c_.h.pad_begin), column - Int(c_.w.pad_begin));
          });
        });
    return b_.Compute(name_ + "_tile", type_,
                      ShapeExprs(b_, {Form().points, Form().points, c_.in_channels, tiles_}),
                      {"a", "b", "ic", "p"}, [&](const std::vector<ir::Var>& v) {
                        return WinogradTransform(Form().input, v[1], [&](int s) {
                          return Load(half, {v[0], Int(s), v[2], v[3]});
                        });
                      });
  }

  ir::Buffer Products(const ir::Buffer& filter, const ir::Buffer& input) {
    const ir::Axis ic = b_.ReduceAxis("ic", Int(c_.in_channels));
    return b_.Reduce(
        name_ + "_products", type_,
        ShapeExprs(b_, {Form().points, Form().points, c_.out_channels, tiles_}),
        {"a", "b", "oc", "p"}, {ic}, ir::Combiner::kSum, [&](const std::vector<ir::Var>& v) {
          return Load(input, {v[0], v[1], ic.var, v[3]}) * Load(filter, {v[0], v[1], ic.var, v[2]});
        });
  }

  ir::Buffer Output(const ir::Buffer& products, const ir::Buffer& bias,
                    const std::vector<Dim>& shape) {
    ir::Buffer half =
        b_.Compute(name_ + "_out_rows", type_,
                   ShapeExprs(b_, {Form().tile, Form().points, c_.out_channels, tiles_}),
                   {"i", "b", "oc", "p"}, [&](const std::vector<ir::Var>& v) {
                     return WinogradTransform(Form().output, v[0], [&](int a) {
                       return Load(products, {Int(a), v[1], v[2], v[3]});
                     });
                   });
    return b_.Compute(
        name_, type_, ShapeExprs(b_, shape), {"n", "oc", "oh", "ow"},
        [&](const std::vector<ir::Var>& v) {
          Expr tile = (v[0] * Int(rows_) + ir::FloorDiv(v[2], Int(Form().tile))) * Int(columns_) +
                      ir::FloorDiv(v[3], Int(Form().tile));
          Expr sum =
              WinogradTransform(Form().output, ir::FloorMod(v[3], Int(Form().tile)), [&](int s) {
                return Load(half, {ir::FloorMod(v[2], Int(Form().tile)), Int(s), v[1], tile});
              });
          return bias == nullptr ? sum : sum + Load(bias, {v[1]});
        });
  }

 private:
  Expr Pixel(const Expr& image, const Expr& channel, const Expr& row, const Expr& column) const {
    // Tiles stick out at the far side even where nothing is padded.
    Expr inside =
        row >= Int(0) && row < Int(sizes_.height) && column >= Int(0) && column < Int(sizes_.width);
    return ir::Select(inside, Load(x_, {image, channel, row, column}), ir::Zero(type_));
  }

  ir::FunctionBuilder& b_;
  const std::string& name_;
  ir::Buffer x_, w_;
  const ConvShape& c_;
  const ImageSizes sizes_;
  int64_t rows_, columns_, tiles_;
  ir::DType type_;
};

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
// by the root of the channels that are added up, so not where it saves little, nor for many
// channels: ‖a−e‖/‖e‖ is 4.6e-6 for 256 of them (F(4×4) 2.6e-6, direct 6e-7).
bool F5Pays(const ConvShape& c) {
  constexpr double kWorthwhile = 0.85;
  constexpr int64_t kMostChannels = 256;
  const auto products = [&](const WinogradForm& form) {
    return static_cast<double>(form.Products(c.out_height.value(), c.out_width.value()));
  };
  return c.in_channels <= kMostChannels &&
         products(WinogradF5()) < kWorthwhile * products(WinogradF4());
}

// The shape of a convolution that has the form of F(4×4).
std::optional<ConvShape> ShapeOf(std::span<const TensorType> inputs, const Attrs& attrs) {
  absl::StatusOr<ConvShape> c = ConvShapeOf(inputs, attrs);
  if (!c.ok() || !inputs[0].fixed() || inputs[0].dtype != ir::kF32 || c->groups != 1 ||
      !c->has_winograd_window()) {
    return std::nullopt;
  }
  if (c->in_blocks() && (inputs.size() > 2 || !HasBlocksOfOneSize(*c))) return std::nullopt;
  return *std::move(c);
}

std::vector<ir::Buffer> ComputeBlocks(const ComputeArgs& a, const ConvShape& c,
                                      const WinogradForm& form) {
  return ComputeWinogradBlocked(a.b, a.name, form, a.inputs[0], a.inputs[1],
                                {c.h.pad_begin, c.w.pad_begin}, a.outputs[0]);
}

absl::StatusOr<std::vector<ir::Buffer>> ComputeInBlocks(const ComputeArgs& a,
                                                        const WinogradForm& form) {
  const std::optional<ConvShape> c = ShapeOf(a.input_types, a.attrs);
  if (!c || !c->in_blocks()) return NoForm(a);
  return ComputeBlocks(a, *c, form);
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
  return c && c->in_blocks() && F5Pays(*c);
}

absl::StatusOr<std::vector<ir::Buffer>> ComputeWinograd(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  const std::optional<ConvShape> c = ShapeOf(types, attrs);
  if (!c) return NoForm(a);
  if (c->in_blocks()) return ComputeBlocks(a, *c, WinogradF4());
  Stages stages(b, name, inputs, *c, ImageSizes(types[0], outputs[0]));
  ir::Buffer filter = stages.Filter();
  ir::Buffer products = stages.Products(filter, stages.Input());
  return std::vector<ir::Buffer>{
      stages.Output(products, inputs.size() > 2 ? inputs[2] : nullptr, outputs[0].shape)};
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
