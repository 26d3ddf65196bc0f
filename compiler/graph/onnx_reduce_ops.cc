// Reductions of all forms, and what is made of them: norms, logarithms of sums, LogSoftmax.
#include <algorithm>
#include <limits>

#include "compiler/graph/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

// What happens to each element, how elements are combined, and what happens to the result.
struct ReduceForm {
  std::string_view onnx, before, kind, after;
};
constexpr ReduceForm kForms[] = {
    {"ReduceL1", "abs", "sum", ""},           {"ReduceL2", "square", "sum", "sqrt"},
    {"ReduceLogSum", "", "sum", "log"},       {"ReduceMax", "", "max", ""},
    {"ReduceMean", "", "mean", ""},           {"ReduceMin", "", "min", ""},
    {"ReduceProd", "", "prod", ""},           {"ReduceSum", "", "sum", ""},
    {"ReduceSumSquare", "square", "sum", ""},
};

// Axes that are only known when the model runs, found from the result's shape that the model
// states. Several answers are possible where a reduced dimension is gone: those are refused.
absl::StatusOr<std::vector<int64_t>> AxesFromResult(NodeReader& n,
                                                    const std::vector<int64_t>& shape,
                                                    bool keepdims) {
  const std::optional<std::vector<int64_t>> stated = n.StatedShape();
  const size_t rank = shape.size();
  std::vector<std::vector<int64_t>> found;
  for (uint64_t set = 0; stated && rank <= 12 && set < uint64_t{1} << rank; ++set) {
    std::vector<int64_t> result, axes;
    bool trivial = false;  // a dimension of 1 counts as reduced or not, the numbers are the same
    for (size_t d = 0; d < rank; ++d) {
      const bool reduced = (set >> d & 1) != 0;
      if (reduced) axes.push_back(static_cast<int64_t>(d));
      trivial = trivial || (reduced && keepdims && shape[d] == 1);
      if (!reduced || keepdims) result.push_back(reduced ? 1 : shape[d]);
    }
    if (!trivial && result == *stated) found.push_back(axes);
  }
  if (found.size() == 1) return found[0];
  return n.Error("dynamic",
                 "expected constant axes, or axes that follow from the result's stated shape, "
                 "found others");
}

struct ReduceAxes {
  std::vector<int64_t> axes;
  bool none = false;  // reduce over no axis at all
};

absl::StatusOr<ReduceAxes> ReadReduceAxes(NodeReader& n, ValueId x, bool keepdims) {
  const std::vector<int64_t> shape = n.importer().TypeOf(x).shape;
  const int64_t rank = static_cast<int64_t>(shape.size());
  ReduceAxes result;
  if (n.IsDynamic(1)) {
    TW_ASSIGN(result.axes, AxesFromResult(n, shape, keepdims));
    result.none = result.axes.empty();
    return result;
  }
  TW_ASSIGN(result.axes, ReadAxes(n, 1, rank));
  TW_ASSIGN(const int64_t noop, n.Int("noop_with_empty_axes", 0));
  result.none = rank == 0 || (result.axes.empty() && noop != 0);
  return result;
}

ValueId LogSumExp(Composer& c, ValueId x, const ReduceAxes& r, bool keepdims) {
  if (r.none) return c.Op("log", {c.Op("exp", {x})});
  const ir::DType type = c.TypeOf(x).dtype;
  const ValueId max = c.Reduce("max", x, r.axes);
  // An infinite maximum would make inf - inf.
  const double limit = type == ir::kF64   ? std::numeric_limits<double>::max()
                       : type == ir::kF32 ? std::numeric_limits<float>::max()
                                          : 65504;
  const ValueId shift = c.Op("clip", {max}, {{"min", -limit}, {"max", limit}});
  const ValueId sum = c.Reduce("sum", c.Op("exp", {c.Sub(x, shift)}), r.axes);
  const ValueId kept = c.Add(c.Op("log", {sum}), shift);
  if (keepdims) return kept;
  std::vector<int64_t> shape;
  const int64_t rank = c.Rank(x);
  for (int64_t d = 0; d < rank; ++d) {
    const bool reduced =
        r.axes.empty() || std::find(r.axes.begin(), r.axes.end(), d) != r.axes.end();
    if (!reduced) shape.push_back(c.Shape(x)[d]);
  }
  return c.Reshape(kept, shape);
}

}  // namespace

Result ImportReduce(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  TW_ASSIGN(const int64_t keep, n.Int("keepdims", 1));
  const bool keepdims = keep != 0;
  TW_ASSIGN(const ReduceAxes r, ReadReduceAxes(n, x, keepdims));
  Composer c(n);
  const ir::DType type = c.TypeOf(x).dtype;
  if (n.op_type() == "ReduceLogSumExp") return c.Done(LogSumExp(c, x, r, keepdims));
  const ReduceForm* form = std::find_if(std::begin(kForms), std::end(kForms),
                                        [&](auto& f) { return f.onnx == n.op_type(); });
  TW_CHECK(form != std::end(kForms)) << n.op_type();
  // The larger of two truth values is "or".
  if (type.is_bool()) x = c.Cast(x, ir::kI32);
  if (form->before == "square") x = c.Mul(x, x);
  if (form->before == "abs") x = c.Op("abs", {x});
  x = r.none ? c.Op("identity", {x}) : c.Reduce(form->kind, x, r.axes, keepdims);
  if (!form->after.empty()) x = c.Op(form->after, {x});
  return c.Done(c.Cast(x, type));
}

// x - max - log(sum(exp(x - max))). Before opset 13 over all dimensions from the axis on.
Result ImportLogSoftmax(NodeReader& n) {
  Composer c(n);
  ValueId x = c.Input(0);
  TW_TRY(c.status());
  const std::vector<int64_t> shape = c.Shape(x);
  const int64_t rank = c.Rank(x);
  const bool rows = n.importer().opset() < 13;
  TW_ASSIGN(int64_t axis, ReadAxis(n, rows ? 1 : -1, rank));
  if (rows) {
    int64_t outer = 1, inner = 1;
    for (int64_t d = 0; d < rank; ++d) (d < axis ? outer : inner) *= shape[d];
    x = c.Reshape(x, {outer, inner});
    axis = 1;
  }
  const ValueId shifted = c.Sub(x, c.Reduce("max", x, {axis}));
  const ValueId sum = c.Reduce("sum", c.Op("exp", {shifted}), {axis});
  return c.Done(c.Reshape(c.Sub(shifted, c.Op("log", {sum})), shape));
}

// Sum divided by the number of operands.
Result ImportMean(NodeReader& n) {
  Composer c(n);
  ValueId sum = c.Input(0);
  for (int i = 1; i < n.num_inputs(); ++i) sum = c.Add(sum, c.Input(i));
  if (n.num_inputs() == 1) return c.Done(c.Op("identity", {sum}));
  return c.Done(c.Div(sum, c.Scalar(n.num_inputs(), c.TypeOf(sum).dtype)));
}

}  // namespace tilewright::graph::onnx
