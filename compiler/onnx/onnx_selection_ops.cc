// Operators that give as many elements as a condition on their values holds for: Compress,
// NonZero, NonMaxSuppression. Constant operands say how many, or the model states it, or a
// run finds it.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using op::Dim;
using support::StrCat;
using Ints = std::vector<int64_t>;

// The positions at which a constant list of bools holds.
std::optional<Ints> KnownPositions(NodeReader& n, ValueId flags) {
  const Value& value = n.importer().ValueOf(flags);
  if (value.constant == nullptr) return std::nullopt;
  const absl::StatusOr<op::RefTensor> held = op::FromBytes(value.type, value.constant->view());
  if (!held.ok()) return std::nullopt;
  Ints positions;
  for (size_t i = 0; i < held->values.size(); ++i) {
    if (held->values[i] != 0) positions.push_back(static_cast<int64_t>(i));
  }
  return positions;
}

}  // namespace

Dim CountOfTrue(Composer& c, ValueId flags, int64_t axis) {
  if (!c.ok()) return 1;
  if (const std::optional<Ints> known = KnownPositions(c.node(), flags)) {
    return static_cast<int64_t>(known->size());
  }
  const Dim length = c.Dims(flags)[0];
  const ValueId count = c.Reduce("sum", c.Cast(flags, ir::kI64), {0});
  const Dim found = c.FoundSize(count, axis, c.Most(length));
  if (!found.is_constant() || !length.is_constant() || found.value() <= length.value())
    return found;
  c.Fail("shape", StrCat("expected a result of at most ", length.value(), " elements, found ",
                         found.value(), " stated"));
  return 1;
}

ValueId PositionsOfTrue(Composer& c, ValueId flags, const Dim& count) {
  if (!c.ok()) return kNone;
  const Dim length = c.Dims(flags)[0];
  if (const std::optional<Ints> known = KnownPositions(c.node(), flags)) {
    Ints first = *known;
    first.resize(static_cast<size_t>(count.value()), length.value());
    return c.Integers({count.value()}, first);
  }
  const std::optional<int64_t> longest = c.Most(length);
  if (!longest) return c.Fail("open_size", StrCat("expected a range of sizes", kGiveNumbers));
  // As many elements as have at most j true ones up to and with them come before number j.
  const ValueId up_to = Cumulative(c, "sum", c.Cast(flags, ir::kI64), 0, false, false);
  const int64_t steps = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(1, *longest)));
  return c.Op("search_sorted", {up_to, c.Counting(ir::kI64, count, 0, 1)}, {{"steps", steps}});
}

absl::StatusOr<int64_t> AxisOrFlat(NodeReader& n, Composer& c, ValueId* x) {
  if (n.Find("axis") != nullptr) return ReadAxis(n, 0, c.Rank(*x));
  *x = c.Flat(*x);
  TW_TRY(c.status());
  return 0;
}

// The slices along an axis, or elements, whose condition holds.
Result ImportCompress(NodeReader& n) {
  Composer c(n);
  ValueId x = c.Input(0);
  const ValueId condition = c.Input(1);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t axis, AxisOrFlat(n, c, &x));
  const Dim length = c.Dims(x)[axis];
  const std::optional<Ints> known = KnownPositions(n, condition);
  const bool list = c.TypeOf(condition).dtype.is_bool() && c.Rank(condition) == 1;
  const Dim more = list ? c.Dims(condition)[0] - length : Dim(1);
  if (known ? !known->empty() && length.is_constant() && known->back() >= length.value()
            : more.is_constant() && more.value() > 0) {
    return n.Error("shape", "expected a list of bools not longer than the axis, found another");
  }
  const ValueId positions = PositionsOfTrue(c, condition, CountOfTrue(c, condition, axis));
  return c.Done(c.Op("gather", {x, positions}, {{"axis", axis}}));
}

// Positions of elements other than 0, a row per dimension, in row-major order.
Result ImportNonZero(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0);
  TW_TRY(c.status());
  const std::vector<Dim> shape = c.Dims(x);
  const int64_t rank = c.Rank(x);
  const ir::DType type = c.TypeOf(x).dtype;
  if (rank < 1) return n.Error("rank", "expected one dimension at least, found a scalar");
  if (n.importer().IsEmpty(x)) return c.Done(c.Empty(ir::kI64, {rank, 0}));
  ValueId flags = c.Flat(x);
  if (!type.is_bool()) flags = c.Op("not", {c.Op("equal", {flags, c.Scalar(0, type)})});
  const Dim count = CountOfTrue(c, flags, 1);
  TW_TRY(c.status());
  if (count == Dim(0)) return c.Done(c.Empty(ir::kI64, {rank, 0}));
  ValueId rest = PositionsOfTrue(c, flags, count);
  std::vector<ValueId> rows;  // the last dimension's first
  for (int64_t d = rank - 1; d >= 0; --d) {
    const ValueId size = c.SizeOf(shape[static_cast<size_t>(d)], ir::kI64);
    rows.push_back(c.ReshapeTo(d == 0 ? rest : c.Op("mod", {rest, size}), {1, count}));
    if (d > 0) rest = c.Div(rest, size);
  }
  std::ranges::reverse(rows);
  return c.Done(c.Concat(std::move(rows), 0));
}

namespace {

// Boxes [batches,boxes,4] as their low and high ends and their areas, [batches,5,boxes].
ValueId SidesOf(Composer& c, ValueId boxes, bool centered) {
  ValueId part[4], low[2], high[2];
  for (int64_t k = 0; k < 4; ++k) part[k] = c.Slice(boxes, 2, k, 1);
  for (int d = 0; d < 2; ++d) {
    if (centered) {
      const ValueId half = c.Mul(part[2 + d], c.Scalar(0.5, ir::kF32));
      low[d] = c.Sub(part[d], half);
      high[d] = c.Add(part[d], half);
    } else {  // two corners, in any order
      low[d] = c.Op("min", {part[d], part[2 + d]});
      high[d] = c.Op("max", {part[d], part[2 + d]});
    }
  }
  const ValueId area = c.Mul(c.Sub(high[0], low[0]), c.Sub(high[1], low[1]));
  return c.Transpose(c.Concat({low[0], low[1], high[0], high[1], area}, 2), {0, 2, 1});
}

ValueId OptionalNumber(Composer& c, int input, double fallback, ir::DType type) {
  if (!c.node().HasInput(input)) return c.Scalar(fallback, type);
  const ValueId id = c.Input(input);
  if (c.Count(id) != 1) return c.Fail("shape", "expected single numbers");
  return c.Cast(c.Reshape(id, {}), type);
}

}  // namespace

// Rows of batch, class and box.
Result ImportNonMaxSuppression(NodeReader& n) {
  Composer c(n);
  const ValueId boxes = c.Input(0), scores = c.Input(1);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t centered, n.Int("center_point_box", 0));
  const std::vector<Dim> shape = c.Dims(scores);
  if (c.Rank(boxes) == 3 && !c.Dims(boxes)[2].is_constant()) (void)c.Shape(boxes);
  TW_TRY(c.status());
  if (shape.size() != 3 || c.Rank(boxes) != 3 || c.Dims(boxes)[2] != Dim(4) || centered < 0 ||
      centered > 1) {
    return n.Error("shape",
                   StrCat("expected boxes [batches,boxes,4] and scores "
                          "[batches,classes,boxes], found ",
                          op::ToText(c.TypeOf(boxes)), " and ", op::ToText(c.TypeOf(scores))));
  }
  const ValueId most = OptionalNumber(c, 2, 0, ir::kI64);
  const ValueId limit = OptionalNumber(c, 3, 0, ir::kF32);
  const ValueId least = OptionalNumber(c, 4, -HUGE_VAL, ir::kF32);
  TW_TRY(c.status());
  const std::optional<Ints> stated = n.StatedShape();
  const std::optional<double> known_most = n.importer().ConstantScalar(most);
  const std::optional<int64_t> boxes_most = c.Most(shape[2]);
  if (!boxes_most) return n.Error("open_size", StrCat("expected a range of sizes", kGiveNumbers));
  int64_t picks = *boxes_most;
  if (stated && !stated->empty())
    picks = std::min(picks, (*stated)[0] + 1);  // a run refuses the last
  // Exporters write the largest integer for "all", which no double holds.
  if (known_most) {
    picks = static_cast<int64_t>(std::clamp(*known_most, 0.0, static_cast<double>(picks)));
  }
  if (picks == 0) return c.Done(c.Empty(ir::kI64, {0, 3}));
  const ValueId found = c.Op("pick_boxes", {SidesOf(c, boxes, centered != 0), scores, limit, least},
                             {{"picks", picks}});
  const ValueId chosen = c.Op("and", {c.Op("less_equal", {c.Number(0), found}),
                                      c.Op("less", {c.Counting(ir::kI64, picks, 2, 3), most})});
  const ValueId valid = c.Flat(chosen);
  const Dim count = CountOfTrue(c, valid, 0);
  TW_TRY(c.status());
  if (count == Dim(0)) return c.Done(c.Empty(ir::kI64, {0, 3}));
  const ValueId rows = PositionsOfTrue(c, valid, count);
  const ValueId classes = c.SizeOf(shape[1], ir::kI64);
  const ValueId of_picks = c.Div(rows, c.Number(picks));
  const ValueId batch = c.Div(of_picks, classes), of_class = c.Op("mod", {of_picks, classes});
  const ValueId box = c.Op("gather", {c.Flat(found), rows}, {{"axis", int64_t{0}}});
  std::vector<ValueId> columns;
  for (const ValueId column : {batch, of_class, box}) {
    columns.push_back(c.ReshapeTo(column, {count, 1}));
  }
  return c.Done(c.Concat(std::move(columns), 1));
}

}  // namespace tilewright::graph::onnx
