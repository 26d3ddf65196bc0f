// Operators that look for, count or sort along an axis: ArgMax, ArgMin, TopK, Hardmax, CumSum.
#include <algorithm>

#include "compiler/graph/onnx_conversions.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;
using Ints = std::vector<int64_t>;

ValueId Positions(NodeReader& n, Ints shape, const Ints& values, const std::string& name) {
  const op::RefTensor tensor = op::FromIntegers({ir::kI64, std::move(shape)}, values);
  return n.importer().Constant(name, tensor.type, op::ToBytes(tensor));
}

// The elements of x at positions along the axis: a gather from x as one list.
Result TakeAlong(NodeReader& n, ValueId x, ValueId positions, size_t axis,
                 const std::string& name) {
  Importer& importer = n.importer();
  const Ints from = importer.TypeOf(x).shape, to = importer.TypeOf(positions).shape;
  int64_t inner = 1;
  for (size_t d = axis + 1; d < from.size(); ++d) inner *= from[d];
  // Where each row of the result begins.
  Ints starts;
  const int64_t elements = importer.TypeOf(positions).elements();
  for (int64_t e = 0; e < elements; ++e) {
    starts.push_back(e / (to[axis] * inner) * from[axis] * inner + e % inner);
  }
  TW_ASSIGN(const ValueId scaled,
            importer.Emit("mul", {positions, Positions(n, {}, {inner}, PartName(n, "_stride"))}, {},
                          PartName(n, "_scaled")));
  TW_ASSIGN(const ValueId at,
            importer.Emit("add", {scaled, Positions(n, to, starts, PartName(n, "_starts"))}, {},
                          PartName(n, "_offsets")));
  TW_ASSIGN(const ValueId list,
            Reshaped(n, x, {importer.TypeOf(x).elements()}, PartName(n, "_list")));
  return importer.Emit("gather", {list, at}, {{"axis", int64_t{0}}}, name);
}

// x moved by `steps` along the axis, to its end or its beginning; zeros come in.
Result ShiftedAlong(NodeReader& n, ValueId x, int64_t axis, int64_t steps, bool to_end,
                    const std::string& name) {
  const Ints shape = n.importer().TypeOf(x).shape;
  Ints pads(2 * shape.size(), 0);
  pads[axis + (to_end ? 0 : static_cast<int64_t>(shape.size()))] = steps;
  TW_ASSIGN(x, n.importer().Emit("pad", {x}, {{"pads", pads}}, name + "_longer"));
  return Sliced(n, x, axis, to_end ? 0 : steps, 1, shape[axis], name);
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

Result ImportTopK(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const int64_t rank = static_cast<int64_t>(n.importer().TypeOf(x).shape.size());
  TW_ASSIGN(const int64_t axis, ReadAxis(n, -1, rank));
  TW_ASSIGN(const int64_t largest, n.Int("largest", 1));
  Ints k;
  if (n.importer().opset() >= 10) {
    TW_ASSIGN(k, n.InputInts(1, "k"));
  } else {
    TW_ASSIGN(const int64_t count, n.Int("k", 0));
    k = {count};
  }
  if (k.size() != 1) return n.Error("inputs", "expected one number as k, found another count");
  // Not sorted may be any order: the sorted one is as good.
  TW_ASSIGN(const ValueId positions,
            n.importer().Emit("top_k", {x}, {{"axis", axis}, {"k", k[0]}, {"largest", largest}},
                              PartName(n, "_positions")));
  TW_TRY(n.BindOutput(1, positions));
  return TakeAlong(n, x, positions, static_cast<size_t>(axis), n.output_name());
}

Result ImportHardmax(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  Importer& importer = n.importer();
  const op::TensorType type = importer.TypeOf(x);
  const int64_t rank = static_cast<int64_t>(type.shape.size());
  const bool rows = importer.opset() < 13;  // older versions take all that follows the axis
  TW_ASSIGN(int64_t axis, ReadAxis(n, rows ? 1 : -1, rank));
  Ints shape = type.shape;
  if (rows) {
    int64_t outer = 1;
    for (int64_t d = 0; d < axis; ++d) outer *= shape[d];
    shape = {outer, type.elements() / outer};
    axis = 1;
    TW_ASSIGN(x, Reshaped(n, x, shape, PartName(n, "_rows")));
  }
  TW_ASSIGN(const ValueId best,
            importer.Emit("arg_reduce", {x}, {{"axis", axis}}, PartName(n, "_best")));
  Ints along(shape.size(), 1), values;
  along[axis] = shape[axis];
  for (int64_t k = 0; k < shape[axis]; ++k) values.push_back(k);
  TW_ASSIGN(const ValueId hit,
            importer.Emit("equal", {Positions(n, along, values, PartName(n, "_axis")), best}, {},
                          PartName(n, "_hit")));
  const op::Attrs to = {{"dtype", ir::TypeName(type.dtype)}};
  if (!rows) return importer.Emit("cast", {hit}, to, n.output_name());
  TW_ASSIGN(const ValueId ones, importer.Emit("cast", {hit}, to, PartName(n, "_ones")));
  return Reshaped(n, ones, type.shape, n.output_name());
}

// Sums of the last 1, 2, 4, … elements: each step adds what the one before has, shifted.
Result ImportCumSum(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  TW_ASSIGN(const Ints axes, n.InputInts(1, "axis"));
  TW_ASSIGN(const int64_t exclusive, n.Int("exclusive", 0));
  TW_ASSIGN(const int64_t reverse, n.Int("reverse", 0));
  Importer& importer = n.importer();
  const int64_t rank = static_cast<int64_t>(importer.TypeOf(x).shape.size());
  if (axes.size() != 1 || axes[0] < -rank || axes[0] >= rank) {
    return n.Error("axis", StrCat("expected one axis of rank ", rank, ", found [",
                                  support::Join(axes, ","), "]"));
  }
  const int64_t axis = axes[0] < 0 ? axes[0] + rank : axes[0];
  const int64_t length = importer.TypeOf(x).shape[axis];
  const bool to_end = reverse == 0;
  if (exclusive != 0) {
    TW_ASSIGN(x, ShiftedAlong(n, x, axis, 1, to_end, PartName(n, "_before")));
  }
  for (int64_t steps = 1; steps < length; steps *= 2) {
    TW_ASSIGN(const ValueId shifted,
              ShiftedAlong(n, x, axis, steps, to_end, PartName(n, StrCat("_shift", steps))));
    TW_ASSIGN(x, importer.Emit("add", {x, shifted}, {}, PartName(n, StrCat("_sum", steps))));
  }
  return importer.Emit("identity", {x}, {}, n.output_name());
}

}  // namespace tilewright::graph::onnx
