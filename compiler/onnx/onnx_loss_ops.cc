// Losses, which models that were exported with them give next to their results: a graph computes
// them, and no gradients.
#include <algorithm>
#include <optional>

#include "compiler/onnx/onnx_composer.h"
#include "compiler/onnx/onnx_conversions.h"
#include "compiler/onnx/onnx_norm_ops.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

// -scores[n, target[n, d...], d...] by the weight of its class, for all n and d. `scores`
// [N, C, D...] are logarithms of probabilities; a target that is ignored has weight 0.
Result LossOf(NodeReader& n, Composer& c, ValueId scores) {
  ValueId target = c.Cast(c.Input(1), ir::kI64);
  TW_ASSIGN(const std::string reduction, n.String("reduction", "mean"));
  if (reduction != "none" && reduction != "sum" && reduction != "mean") {
    return n.Error("attribute", "expected reduction none, sum or mean, found another");
  }
  TW_TRY(c.status());
  if (c.Rank(scores) < 2 || c.Rank(target) != c.Rank(scores) - 1) {
    return n.Error("shape",
                   StrCat("expected scores of classes along dimension 1 and targets without "
                          "it, found ",
                          op::ToText(c.TypeOf(scores)), " and ", op::ToText(c.TypeOf(target))));
  }
  const std::vector<op::Dim> shape = c.Dims(target);
  ValueId ignored = kNone;
  if (n.Find("ignore_index") != nullptr) {
    TW_ASSIGN(const int64_t index, n.Int("ignore_index", 0));
    ignored = c.Op("equal", {target, c.Number(index)});
    target = c.Op("where", {ignored, c.Number(0), target});
  }
  std::vector<op::Dim> one_class = shape;
  one_class.insert(one_class.begin() + 1, 1);
  const ValueId picked =
      c.Op("gather_elements", {scores, c.ReshapeTo(target, one_class)}, {{"axis", int64_t{1}}});
  ValueId loss = c.Op("neg", {c.ReshapeTo(picked, shape)});
  const ir::DType type = c.TypeOf(scores).dtype;
  const ValueId own = c.OptionalInput(2);
  ValueId weight = kNone;
  if (own != kNone) weight = c.Op("gather", {own, target}, {{"axis", int64_t{0}}});
  if (ignored != kNone) {
    const ValueId one = weight == kNone ? c.Scalar(1, type) : weight;
    weight = c.Op("where", {ignored, c.Scalar(0, type), one});
  }
  if (weight != kNone) loss = c.Mul(loss, weight);
  if (reduction == "none") return c.Done(loss);
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < c.Rank(loss); ++d) axes.push_back(d);
  if (weight == kNone) return c.Done(c.Reduce(reduction, loss, axes, false));
  const ValueId sum = c.Reduce("sum", loss, axes, false);
  if (reduction == "sum") return c.Done(sum);
  return c.Done(c.Div(sum, c.Reduce("sum", weight, axes, false)));
}

}  // namespace

Result ImportNegativeLogLikelihoodLoss(NodeReader& n) {
  Composer c(n);
  return LossOf(n, c, c.Input(0));
}

Result ImportSoftmaxCrossEntropyLoss(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0);
  TW_TRY(c.status());
  if (c.Rank(x) < 2) return n.Error("shape", "expected scores of classes along dimension 1");
  const ValueId scores = LogSoftmaxAlong(c, x, 1);
  TW_TRY(c.status());
  if (n.HasOutput(1)) TW_TRY(n.BindOutput(1, scores));
  return LossOf(n, c, scores);
}

}  // namespace tilewright::graph::onnx
