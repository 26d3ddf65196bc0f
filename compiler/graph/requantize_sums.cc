// quantize(relu?(dequantize(sums))) → cast(requantize(relu?(sums))), where the sums are those of a
// dense layer of signed bytes in whole blocks of the matrix unit, and the result is i8 with zero
// point 0. The scale of each channel becomes a whole number over a power of two.
#include <algorithm>
#include <cmath>

#include "compiler/graph/forward_rewriter.h"
#include "compiler/graph/graph_passes.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

// The largest multiplier has so many bits but for a few: shifts are multiples of kShiftStep, so
// that layers of one shape are few tasks.
constexpr int kMultiplierBits = 30, kShiftStep = 4, kMaxShift = 60;

class SumRequantizer : public ForwardRewriter {
 public:
  SumRequantizer(Graph g, const GraphPassContext& ctx)
      : ForwardRewriter(std::move(g), ctx.fold_max_bytes), block_(ctx.matrix_block) {}

 private:
  struct Multipliers {
    int64_t shift = 0;
    std::vector<double> values;  // of the channels
  };

  absl::StatusOr<bool> IsZero(ValueId id) const {
    TW_ASSIGN(const auto known, Known(id));
    return known &&
           std::all_of(known->values.begin(), known->values.end(), [](double v) { return v == 0; });
  }

  // Whether the unit computes these sums.
  bool OnUnit(ValueId sums) const {
    const Node* layer = Before(sums);
    if (layer != nullptr && layer->op == "add" && IsConstant(g_, layer->inputs[1]))
      layer = Before(layer->inputs[0]);
    if (layer == nullptr || layer->op != "dense") return false;
    const op::TensorType &x = TypeOf(layer->inputs[0]), &result = TypeOf(layer->outputs[0]);
    return x.dtype == ir::kI8 && TypeOf(layer->inputs[1]).dtype == ir::kI8 &&
           IsConstant(g_, layer->inputs[1]) && x.shape.size() >= 2 && x.size(-1) % block_ == 0 &&
           result.size(-1) % block_ == 0;
  }

  static std::optional<Multipliers> MultipliersOf(const std::vector<double>& scales) {
    const double largest = *std::max_element(scales.begin(), scales.end());
    const double least = *std::min_element(scales.begin(), scales.end());
    if (!(least > 0) || !std::isfinite(largest)) return std::nullopt;
    int exponent = 0;  // of the next power of two
    std::frexp(largest, &exponent);
    const int shift = std::min(kMaxShift, (kMultiplierBits - exponent) / kShiftStep * kShiftStep);
    if (shift < 0 || exponent > kMultiplierBits) return std::nullopt;
    Multipliers made{.shift = shift, .values = {}};
    for (const double scale : scales)
      made.values.push_back(std::nearbyint(std::ldexp(scale, shift)));
    return made;
  }

  absl::StatusOr<bool> Rewrite(const Node& node) override {
    if (node.op != "quantize" || TypeOf(node.outputs[0]).dtype != ir::kI8) return false;
    TW_ASSIGN(const auto one, KnownNumber(node.inputs[1]));
    TW_ASSIGN(const bool centred, IsZero(node.inputs[2]));
    if (one != 1 || !centred) return false;
    const Node* relu = Before(node.inputs[0], "relu");
    const Node* from = Before(relu != nullptr ? relu->inputs[0] : node.inputs[0], "dequantize");
    if (from == nullptr || TypeOf(from->inputs[0]).dtype != ir::kI32) return false;
    TW_ASSIGN(const bool plain, IsZero(from->inputs[2]));
    ValueId sums = from->inputs[0];
    if (!plain || !OnUnit(sums)) return false;
    const std::vector<int64_t> shape = TypeOf(sums).sizes();
    TW_ASSIGN(const auto scale, Known(from->inputs[1]));
    const auto scales = scale ? PerChannel(*scale, TypeOf(sums).shape, -1) : std::nullopt;
    const auto multipliers = scales ? MultipliersOf(*scales) : std::nullopt;
    if (!multipliers) return false;
    if (relu != nullptr) {
      TW_ASSIGN(sums, Emit(node.name + "_relu", "relu", {sums}));
    }
    const ValueId multiplier =
        AddRounded(&g_, node.name + "_multiplier", {ir::kI32, {shape.back()}}, multipliers->values);
    TW_ASSIGN(const ValueId steps, Emit(node.name + "_steps", "requantize", {sums, multiplier},
                                        {{"shift", multipliers->shift}}));
    Define(node, "cast", {steps}, {{"dtype", std::string("i8")}});
    return true;
  }

  const int64_t block_;
};

}  // namespace

absl::StatusOr<Graph> RequantizeSums(Graph g, const GraphPassContext& ctx) {
  if (ctx.matrix_block == 0) return g;
  return SumRequantizer(std::move(g), ctx).Run();
}

}  // namespace tilewright::graph
