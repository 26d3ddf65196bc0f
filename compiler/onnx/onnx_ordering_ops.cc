// Operators that look for, count, sort or sum along an axis.
#include <algorithm>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;
using Ints = std::vector<int64_t>;

constexpr int64_t kMaxChosenRank = 8;

// The elements of x at positions along the axis: a gather from x as one list.
Result TakeAlong(NodeReader& n, ValueId x, ValueId positions, size_t axis,
                 const std::string& name) {
  Importer& importer = n.importer();
  if (!importer.TypeOf(x).fixed()) {
    const op::Attrs along = {{"axis", static_cast<int64_t>(axis)}};
    return importer.Emit("gather_elements", {x, positions}, along, name);
  }
  const Ints from = importer.TypeOf(x).sizes(), to = importer.TypeOf(positions).sizes();
  int64_t inner = 1;
  for (size_t d = axis + 1; d < from.size(); ++d) inner *= from[d];
  // Where each row of the result begins.
  Ints starts;
  const int64_t elements = importer.TypeOf(positions).elements();
  for (int64_t e = 0; e < elements; ++e) {
    starts.push_back(e / (to[axis] * inner) * from[axis] * inner + e % inner);
  }
  TW_ASSIGN(const ValueId scaled,
            importer.Emit("mul", {positions, Composer(n).Integers({}, {inner})}, {},
                          PartName(n, "_scaled")));
  TW_ASSIGN(const ValueId at, importer.Emit("add", {scaled, Composer(n).Integers(to, starts)}, {},
                                            PartName(n, "_offsets")));
  TW_ASSIGN(const ValueId list,
            Reshaped(n, x, {importer.TypeOf(x).elements()}, PartName(n, "_list")));
  return importer.Emit("gather", {list, at}, {{"axis", int64_t{0}}}, name);
}

// How many elements TopK gives.
absl::StatusOr<op::Dim> CountOfTopK(NodeReader& n, int64_t axis, const op::Dim& along) {
  if (n.importer().opset() < 10) {
    TW_ASSIGN(const int64_t k, n.Int("k", 0));
    return op::Dim(k);
  }
  if (n.IsDynamic(1)) {
    Composer c(n);
    // The model may state the shape of either result.
    const int output = n.HasOutput(1) && !n.StatedShape(0) && n.StatedShape(1) ? 1 : 0;
    const op::Dim k = c.FoundSize(c.Input(1), axis, c.Most(along), output);
    TW_TRY(c.status());
    return k;
  }
  TW_ASSIGN(const std::vector<op::Dim> k, n.InputDims(1, "k"));
  if (k.size() == 1) return k[0];
  return n.Error("inputs", "expected one number as k, found another count");
}

}  // namespace

Result ImportArg(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const int64_t rank = static_cast<int64_t>(n.importer().TypeOf(x).shape.size());
  TW_ASSIGN(const int64_t axis, ReadAxis(n, 0, rank));
  TW_ASSIGN(const int64_t keepdims, n.Int("keepdims", 1));
  TW_ASSIGN(const int64_t last, n.Int("select_last_index", 0));
  const std::string kind = n.op_type() == "ArgMax" ? "max" : "min";
  return n.importer().Emit("arg_reduce", {x},
                           {{"axis", axis}, {"keepdims", keepdims}, {"kind", kind}, {"last", last}},
                           n.output_name());
}

namespace {

// The first `count` of all elements in their order. An open axis is continued by elements that
// come last, so that it always has as many as the largest count.
Result TopOpen(NodeReader& n, ValueId x, int64_t axis, int64_t largest, const op::Dim& count) {
  Composer c(n);
  const std::vector<op::Dim> dims = c.Dims(x);
  const std::optional<int64_t> most = c.Most(dims[axis].is_constant() ? dims[axis] : count);
  const ir::DType type = c.TypeOf(x).dtype;
  if (!most || (!dims[axis].is_constant() && !type.is_float())) {
    return n.Error("open_size", StrCat("expected a constant k of an open size", kGiveNumbers));
  }
  if (!dims[axis].is_constant()) {
    const ValueId last = c.Scalar(largest != 0 ? -INFINITY : INFINITY, type);
    x = Continued(c, x, axis, *most, last);
  }
  const ValueId all = c.Op("top_k", {x}, {{"axis", axis}, {"k", *most}, {"largest", largest}});
  const ValueId positions = c.Slice(all, axis, 0, count);
  TW_TRY(c.status());
  TW_TRY(n.BindOutput(1, positions));
  return c.Done(c.Op("gather_elements", {x, positions}, {{"axis", axis}}));
}

}  // namespace

Result ImportTopK(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const int64_t rank = static_cast<int64_t>(n.importer().TypeOf(x).shape.size());
  TW_ASSIGN(const int64_t axis, ReadAxis(n, -1, rank));
  TW_ASSIGN(const int64_t largest, n.Int("largest", 1));
  const op::Dim along = n.importer().TypeOf(x).shape[axis];
  TW_ASSIGN(const op::Dim count, CountOfTopK(n, axis, along));
  if (!count.is_constant()) return TopOpen(n, x, axis, largest, count);
  const int64_t k = count.value();
  if (k == 0) {
    op::TensorType none = n.importer().TypeOf(x);
    none.shape[axis] = 0;
    if (!none.fixed()) {
      return n.Error("open_size", StrCat("expected k of at least 1 of ",
                                         op::ToText(n.importer().TypeOf(x)), ", found 0"));
    }
    TW_TRY(n.BindOutput(1, Composer(n).Integers(none.sizes(), {})));
    return n.importer().Constant(n.output_name(), none, "");
  }
  // Not sorted may be any order: the sorted one is as good.
  TW_ASSIGN(const ValueId positions,
            n.importer().Emit("top_k", {x}, {{"axis", axis}, {"k", k}, {"largest", largest}},
                              PartName(n, "_positions")));
  TW_TRY(n.BindOutput(1, positions));
  return TakeAlong(n, x, positions, static_cast<size_t>(axis), n.output_name());
}

Result ImportHardmax(NodeReader& n) {
  Composer c(n);
  ValueId x = c.Input(0);
  TW_TRY(c.status());
  const op::TensorType type = c.TypeOf(x);
  const int64_t rank = c.Rank(x);
  const bool rows = n.importer().opset() < 13;  // older versions take all that follows the axis
  TW_ASSIGN(int64_t axis, ReadAxis(n, rows ? 1 : -1, rank));
  if (rows) {
    op::Dim outer = 1, inner = 1;
    for (int64_t d = 0; d < rank; ++d) {
      op::Dim& side = d < axis ? outer : inner;
      side = side * type.shape[d];
    }
    x = c.ReshapeTo(x, {outer, inner});
    axis = 1;
  }
  const ValueId best = c.Op("arg_reduce", {x}, {{"axis", axis}});
  TW_TRY(c.status());
  const ValueId places = c.Counting(ir::kI64, c.Dims(x)[axis], axis, c.Rank(x));
  const ValueId hit = c.Cast(c.Op("equal", {places, best}), type.dtype);
  return c.Done(c.ReshapeTo(hit, type.shape));
}

// CumSum and CumProd.
Result ImportCumulative(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t exclusive, n.Int("exclusive", 0));
  TW_ASSIGN(const int64_t reverse, n.Int("reverse", 0));
  const int64_t rank = c.Rank(x);
  const auto along = [&](int64_t axis) {
    const bool sum = n.op_type() == "CumSum";
    return Cumulative(c, sum ? "sum" : "prod", x, axis, exclusive != 0, reverse != 0);
  };
  if (!n.IsDynamic(1)) {
    TW_ASSIGN(const Ints axes, n.InputInts(1, "axis"));
    if (axes.size() != 1 || axes[0] < -rank || axes[0] >= rank) {
      return n.Error("axis", StrCat("expected one axis of rank ", rank, ", found [",
                                    support::Join(axes, ","), "]"));
    }
    return c.Done(c.Op("identity", {along(axes[0] < 0 ? axes[0] + rank : axes[0])}));
  }
  // An axis that is an input of the model: the module computes all of them, and chooses.
  const ValueId given = c.Cast(c.Input(1), ir::kI64);
  if (rank < 1 || rank > kMaxChosenRank || c.Count(given) != 1) {
    return n.Error("axis", StrCat("expected one axis of a tensor of rank 1 to ", kMaxChosenRank,
                                  ", found others"));
  }
  const ValueId axis = c.Reshape(given, {});
  ValueId result = along(0);
  for (int64_t d = 1; d < rank; ++d) {
    const auto is = [&](int64_t number) {
      return c.Op("equal", {axis, c.Scalar(static_cast<double>(number), ir::kI64)});
    };
    result = c.Op("where", {c.Op("or", {is(d), is(d - rank)}), along(d), result});
  }
  return c.Done(c.Op("identity", {result}));
}

}  // namespace tilewright::graph::onnx
