// Reductions of all forms, and what is made of them: norms, logarithms of sums, LogSoftmax.
#include <algorithm>
#include <limits>
#include <map>

#include "compiler/onnx/onnx_composer.h"
#include "compiler/onnx/onnx_norm_ops.h"
#include "compiler/onnx/onnx_sizes.h"
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

struct ReduceAxes {
  std::vector<int64_t> axes;
  bool none = false;  // reduce over no axis at all
};

constexpr size_t kMaxChoices = 16;  // sets of axes, each of which is computed

// The sets of axes, of at most `count` each, that give the shape that the model states for the
// result. One set for all that reduce the same elements.
std::vector<ReduceAxes> AxesFromResult(NodeReader& n, const std::vector<int64_t>& shape,
                                       size_t count, bool keepdims) {
  const std::optional<std::vector<int64_t>> stated = n.StatedShape();
  const size_t rank = shape.size();
  std::map<std::vector<int64_t>, ReduceAxes> found;  // by the axes of more than one element
  for (uint64_t set = 0; stated && rank <= 12 && set < uint64_t{1} << rank; ++set) {
    std::vector<int64_t> result, axes, long_axes;
    for (size_t d = 0; d < rank; ++d) {
      const bool reduced = (set >> d & 1) != 0;
      if (reduced) axes.push_back(static_cast<int64_t>(d));
      if (reduced && shape[d] != 1) long_axes.push_back(static_cast<int64_t>(d));
      if (!reduced || keepdims) result.push_back(reduced ? 1 : shape[d]);
    }
    const bool fits = keepdims ? axes.size() <= count : axes.size() == count;
    if (fits && result == *stated) found.try_emplace(long_axes, ReduceAxes{axes, axes.empty()});
  }
  std::vector<ReduceAxes> sets;
  for (auto& [key, axes] : found) sets.push_back(std::move(axes));
  return sets;
}

absl::StatusOr<ReduceAxes> ReadReduceAxes(NodeReader& n, ValueId x) {
  const int64_t rank = static_cast<int64_t>(n.importer().TypeOf(x).shape.size());
  ReduceAxes result;
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
  std::vector<op::Dim> shape;
  const int64_t rank = c.Rank(x);
  for (int64_t d = 0; d < rank; ++d) {
    const bool reduced =
        r.axes.empty() || std::find(r.axes.begin(), r.axes.end(), d) != r.axes.end();
    if (!reduced) shape.push_back(c.Dims(x)[d]);
  }
  return c.ReshapeTo(kept, shape);
}

}  // namespace

namespace {

// One reduction of all its forms, as `n` names it.
ValueId Reduced(Composer& c, ValueId x, const ReduceAxes& r, bool keepdims) {
  NodeReader& n = c.node();
  const ir::DType type = c.TypeOf(x).dtype;
  if (n.op_type() == "ReduceLogSumExp") return LogSumExp(c, x, r, keepdims);
  const ReduceForm* form = std::find_if(std::begin(kForms), std::end(kForms),
                                        [&](auto& f) { return f.onnx == n.op_type(); });
  TW_CHECK(form != std::end(kForms)) << n.op_type();
  std::string_view kind = form->kind;
  // The larger of two truth values is "or"; the largest of none is false.
  if (type.is_bool()) {
    if (n.importer().IsEmpty(x)) kind = kind == "max" ? "sum" : "prod";
    x = c.Cast(x, ir::kI32);
  }
  if (form->before == "square") x = c.Mul(x, x);
  if (form->before == "abs") x = c.Op("abs", {x});
  x = r.none ? c.Op("identity", {x}) : c.Reduce(kind, x, r.axes, keepdims);
  if (!form->after.empty()) x = c.Op(form->after, {x});
  return c.Cast(x, type);
}

// Axes that are an input of the model: the module computes the result for each set of them that
// gives the stated shape, and chooses.
Result ReduceAtRunTime(NodeReader& n, ValueId x, bool keepdims) {
  Composer c(n);
  const ValueId axes = c.Input(1);
  TW_TRY(c.status());
  const std::vector<int64_t> shape = c.Shape(x);
  const int64_t count = c.Count(axes);
  TW_TRY(c.status());
  const std::vector<ReduceAxes> sets =
      AxesFromResult(n, shape, static_cast<size_t>(count), keepdims);
  if (sets.empty() || sets.size() > kMaxChoices) {
    return n.Error("dynamic", StrCat("expected constant axes, or a stated shape of the result that "
                                     "1 to ",
                                     kMaxChoices, " sets of axes give, found ", sets.size()));
  }
  const int64_t rank = c.Rank(x);
  const ValueId named = NamedDimensions(c, 1, rank);
  const std::vector<int64_t> stated = *n.StatedShape();
  if (keepdims) {
    const ValueId reduced = c.Op("equal", {named, c.Number(1)});
    c.ExpectSizes(c.Op("where", {reduced, c.Number(1), c.SizesOf({shape.begin(), shape.end()})}),
                  stated);
  } else {
    ExpectKept(c, named, shape, stated);
  }
  ValueId value = Reduced(c, x, sets[0], keepdims);
  for (size_t s = 1; s < sets.size(); ++s) {
    ValueId chosen = kNone;
    for (int64_t d = 0; d < rank; ++d) {
      if (shape[d] == 1) continue;
      const std::vector<int64_t>& set = sets[s].axes;
      const bool wanted = std::find(set.begin(), set.end(), d) != set.end();
      const ValueId mine = c.Reshape(c.Slice(named, 0, d, 1), {});
      const ValueId fits = c.Op("equal", {mine, c.Number(wanted ? 1 : 0)});
      chosen = chosen == kNone ? fits : c.Op("and", {chosen, fits});
    }
    value = c.Op("where", {chosen, Reduced(c, x, sets[s], keepdims), value});
  }
  return c.Done(value);
}

}  // namespace

Result ImportReduce(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  TW_ASSIGN(const int64_t keep, n.Int("keepdims", 1));
  if (n.IsDynamic(1)) return ReduceAtRunTime(n, x, keep != 0);
  TW_ASSIGN(const ReduceAxes r, ReadReduceAxes(n, x));
  Composer c(n);
  return c.Done(Reduced(c, x, r, keep != 0));
}

ValueId LogSoftmaxAlong(Composer& c, ValueId x, int64_t axis) {
  const ValueId shifted = c.Sub(x, c.Reduce("max", x, {axis}));
  const ValueId sum = c.Reduce("sum", c.Op("exp", {shifted}), {axis});
  return c.Sub(shifted, c.Op("log", {sum}));
}

// Before opset 13 over all dimensions from the axis on.
Result ImportLogSoftmax(NodeReader& n) {
  Composer c(n);
  ValueId x = c.Input(0);
  TW_TRY(c.status());
  const std::vector<op::Dim> shape = c.Dims(x);
  const int64_t rank = c.Rank(x);
  const bool rows = n.importer().opset() < 13;
  TW_ASSIGN(int64_t axis, ReadAxis(n, rows ? 1 : -1, rank));
  if (rows) {
    op::Dim outer = 1, inner = 1;
    for (int64_t d = 0; d < rank; ++d) {
      op::Dim& side = d < axis ? outer : inner;
      side = side * shape[d];
    }
    x = c.ReshapeTo(x, {outer, inner});
    axis = 1;
  }
  return c.Done(c.ReshapeTo(LogSoftmaxAlong(c, x, axis), shape));
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
