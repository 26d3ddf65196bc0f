// Operators that give as many elements as a condition on their values holds for: Compress,
// NonZero, NonMaxSuppression, Unique. A module has fixed shapes, so that number has to be known:
// from constant operands, or because the model states the shape of the result.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "compiler/graph/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;
using Ints = std::vector<int64_t>;

constexpr int64_t kMaxCompared = int64_t{1} << 28;  // positions × elements
constexpr int64_t kMaxPicks = 64;                   // boxes of one class, found one by one

absl::Status NeedsCount(NodeReader& n, std::string_view what) {
  return n.Error("dynamic", StrCat("expected ", what,
                                   ", or a result of a shape that the model states (as the type of "
                                   "an output, or in value_info), found others"));
}

ValueId IntsConstant(Composer& c, Ints shape, const Ints& values) {
  if (!c.ok()) return kNone;
  const op::RefTensor tensor = op::FromIntegers({ir::kI64, std::move(shape)}, values);
  return c.node().importer().Constant(PartName(c.node(), "_positions"), tensor.type,
                                      op::ToBytes(tensor));
}

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

// The first `count` positions at which a list of bools holds, i64[count]: as many elements as have
// at most j true ones up to and with them come before the position of number j. Positions that
// there are none for are the length of the list.
ValueId PositionsOfTrue(Composer& c, ValueId flags, int64_t count) {
  if (!c.ok()) return kNone;
  if (const std::optional<Ints> known = KnownPositions(c.node(), flags)) {
    Ints first = *known;
    first.resize(static_cast<size_t>(count), c.TypeOf(flags).elements());
    return IntsConstant(c, {count}, first);
  }
  const int64_t length = c.TypeOf(flags).elements();
  if (count > 0 && length > kMaxCompared / count) {
    return c.Fail("too_large", StrCat("expected fewer elements to choose from, found ", length,
                                      " for ", count, " of them"));
  }
  const ValueId up_to = Cumulative(c, "add", 0, c.Cast(flags, ir::kI64), 0, false, false);
  const ValueId before =
      c.Op("less_equal", {c.Reshape(up_to, {1, length}), c.Counting(ir::kI64, count, 0, 2)});
  return c.Reduce("sum", c.Cast(before, ir::kI64), {1}, false);
}

// So many of a list of bools hold.
void ExpectTrue(Composer& c, ValueId flags, int64_t count) {
  c.ExpectSizes(c.Reduce("sum", c.Cast(flags, ir::kI64), {0}), {count});
}

// The attribute axis. Without it the operand becomes a list of its elements.
absl::StatusOr<int64_t> AxisOrFlat(NodeReader& n, Composer& c, ValueId* x) {
  if (n.Find("axis") != nullptr) return ReadAxis(n, 0, c.Rank(*x));
  *x = c.Reshape(*x, {c.TypeOf(*x).elements()});
  TW_TRY(c.status());
  return 0;
}

}  // namespace

// The slices along an axis, or elements, whose condition holds.
Result ImportCompress(NodeReader& n) {
  Composer c(n);
  ValueId x = c.Input(0);
  const ValueId condition = c.Input(1);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t axis, AxisOrFlat(n, c, &x));
  const int64_t length = c.Shape(x)[axis];
  const std::optional<Ints> known = KnownPositions(n, condition);
  const std::optional<Ints> stated = n.StatedShape();
  if (!c.TypeOf(condition).dtype.is_bool() || c.Rank(condition) != 1 ||
      (known ? !known->empty() && known->back() >= length : c.Shape(condition)[0] > length)) {
    return n.Error("shape", "expected a list of bools not longer than the axis, found another");
  }
  if (!known && (!stated || static_cast<int64_t>(stated->size()) != c.Rank(x))) {
    return NeedsCount(n, "a constant condition");
  }
  const int64_t count = known ? static_cast<int64_t>(known->size()) : (*stated)[axis];
  if (count > length) return NeedsCount(n, "a constant condition");
  if (!known) ExpectTrue(c, condition, count);
  const ValueId positions = PositionsOfTrue(c, condition, count);
  return c.Done(c.Op("gather", {x, positions}, {{"axis", axis}}));
}

// Positions of elements other than 0, a row per dimension, in row-major order.
Result ImportNonZero(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0);
  TW_TRY(c.status());
  const Ints shape = c.Shape(x);
  const int64_t rank = c.Rank(x), elements = c.TypeOf(x).elements();
  const ir::DType type = c.TypeOf(x).dtype;
  if (rank < 1) return n.Error("rank", "expected one dimension at least, found a scalar");
  if (n.importer().IsEmpty(x)) return c.Done(c.Empty(ir::kI64, {rank, 0}));
  ValueId flags = c.Reshape(x, {elements});
  if (!type.is_bool()) flags = c.Op("not", {c.Op("equal", {flags, c.Scalar(0, type)})});
  TW_TRY(c.status());
  const std::optional<Ints> known = KnownPositions(n, flags);
  const std::optional<Ints> stated = n.StatedShape();
  const bool fits = stated && stated->size() == 2 && (*stated)[0] == rank;
  if (!known && !fits) return NeedsCount(n, "a constant operand");
  const int64_t count = known ? static_cast<int64_t>(known->size()) : (*stated)[1];
  if (!known) ExpectTrue(c, flags, count);
  if (count == 0) return c.Done(c.Empty(ir::kI64, {rank, 0}));
  const ValueId flat = PositionsOfTrue(c, flags, count);
  std::vector<ValueId> rows;
  int64_t stride = elements;
  for (const int64_t size : shape) {
    stride /= size;
    const ValueId whole = stride == 1 ? flat : c.Div(flat, c.Number(stride));
    const ValueId at = rows.empty() ? whole : c.Op("mod", {whole, c.Number(size)});
    rows.push_back(c.Reshape(at, {1, count}));
  }
  return c.Done(c.Concat(std::move(rows), 0));
}

namespace {

// Boxes as ranges: their sides and areas, each f32[batches, 1, boxes].
struct Boxes {
  ValueId low[2], high[2], area;
};

Boxes ReadBoxes(Composer& c, ValueId boxes, bool centered) {
  const Ints shape = c.Shape(boxes);
  ValueId part[4];
  for (int64_t k = 0; k < 4; ++k) {
    part[k] = c.Reshape(c.Slice(boxes, 2, k, 1), {shape[0], 1, shape[1]});
  }
  Boxes b;
  for (int d = 0; d < 2; ++d) {
    if (centered) {
      const ValueId half = c.Mul(part[2 + d], c.Scalar(0.5, ir::kF32));
      b.low[d] = c.Sub(part[d], half);
      b.high[d] = c.Add(part[d], half);
    } else {  // two corners, in any order
      b.low[d] = c.Op("min", {part[d], part[2 + d]});
      b.high[d] = c.Op("max", {part[d], part[2 + d]});
    }
  }
  b.area = c.Mul(c.Sub(b.high[0], b.low[0]), c.Sub(b.high[1], b.low[1]));
  return b;
}

// Which boxes overlap the one that `hit` marks in each batch and class by more than `limit`.
ValueId Overlapping(Composer& c, const Boxes& b, ValueId hit, ValueId limit) {
  const ValueId zero = c.Scalar(0, ir::kF32);
  const auto marked = [&](ValueId numbers) {
    return c.Reduce("sum", c.Op("where", {hit, numbers, zero}), {2});
  };
  ValueId common = kNone;
  for (int d = 0; d < 2; ++d) {
    const ValueId low = c.Op("max", {b.low[d], marked(b.low[d])});
    const ValueId high = c.Op("min", {b.high[d], marked(b.high[d])});
    const ValueId length = c.Op("max", {c.Sub(high, low), zero});
    common = d == 0 ? length : c.Mul(common, length);
  }
  const ValueId all = c.Sub(c.Add(b.area, marked(b.area)), common);
  // Nothing overlaps a box without an area, whatever the quotient.
  return c.Op("and", {c.Op("less", {limit, c.Div(common, all)}), c.Op("less", {zero, common})});
}

ValueId OptionalNumber(Composer& c, int input, double fallback, ir::DType type) {
  if (!c.node().HasInput(input)) return c.Scalar(fallback, type);
  const ValueId id = c.Input(input);
  if (c.ok() && c.TypeOf(id).elements() != 1) return c.Fail("shape", "expected single numbers");
  return c.Cast(c.Reshape(id, {}), type);
}

// The picks of all classes: the position of each, and whether there is one; [batches, classes,
// picks]. Each pick is the best box that no earlier one overlaps.
struct Picks {
  ValueId at, valid;
};

Picks PickBoxes(Composer& c, const Boxes& b, ValueId scores, ValueId limit, ValueId most,
                ValueId least_score, int64_t picks) {
  const Ints shape = c.Shape(scores);
  const ValueId lowest = c.Scalar(-HUGE_VAL, ir::kF32),
                numbers = c.Counting(ir::kI64, shape[2], 2, 3);
  ValueId open = least_score == kNone ? c.Broadcast(c.Scalar(1, ir::kBool), shape)
                                      : c.Op("less", {least_score, scores});
  std::vector<ValueId> at, valid;
  for (int64_t p = 0; c.ok() && p < picks; ++p) {
    const ValueId best =
        c.Op("arg_reduce", {c.Op("where", {open, scores, lowest})}, {{"axis", int64_t{2}}});
    const ValueId any = c.Reduce("max", c.Cast(open, ir::kI32), {2});
    const ValueId more = c.Op("less", {c.Number(p), most});
    at.push_back(best);
    valid.push_back(c.Op("and", {c.Op("equal", {any, c.Scalar(1, ir::kI32)}), more}));
    const ValueId hit = c.Op("equal", {numbers, best});
    const ValueId gone = c.Op("or", {hit, Overlapping(c, b, hit, limit)});
    open = c.Op("and", {open, c.Op("not", {gone})});
  }
  return {c.Concat(std::move(at), 2), c.Concat(std::move(valid), 2)};
}

}  // namespace

// Rows of batch, class and box. The picks of a class are found one by one, each against all boxes.
Result ImportNonMaxSuppression(NodeReader& n) {
  Composer c(n);
  const ValueId boxes = c.Input(0), scores = c.Input(1);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t centered, n.Int("center_point_box", 0));
  const Ints box_shape = c.Shape(boxes), shape = c.Shape(scores);
  if (box_shape.size() != 3 || shape.size() != 3 || box_shape[2] != 4 || box_shape[0] != shape[0] ||
      box_shape[1] != shape[2] || centered < 0 || centered > 1) {
    return n.Error("shape",
                   StrCat("expected boxes [batches,boxes,4] and scores "
                          "[batches,classes,boxes], found ",
                          op::ToText(c.TypeOf(boxes)), " and ", op::ToText(c.TypeOf(scores))));
  }
  const ValueId most = OptionalNumber(c, 2, 0, ir::kI64);
  const ValueId limit = OptionalNumber(c, 3, 0, ir::kF32);
  const ValueId least = n.HasInput(4) ? OptionalNumber(c, 4, 0, ir::kF32) : kNone;
  TW_TRY(c.status());
  const std::optional<Ints> stated = n.StatedShape();
  const std::optional<double> known_most = n.importer().ConstantScalar(most);
  const bool fits = stated && stated->size() == 2 && (*stated)[1] == 3;
  int64_t picks = shape[2];
  if (fits) picks = std::min(picks, (*stated)[0] + 1);  // one more: a run refuses what has it
  if (known_most) picks = std::clamp<int64_t>(static_cast<int64_t>(*known_most), 0, picks);
  if (picks == 0) return c.Done(c.Empty(ir::kI64, {0, 3}));
  if (picks > kMaxPicks) {
    return n.Error("too_large",
                   StrCat("expected a constant max_output_boxes_per_class or a stated shape of the "
                          "result that allow at most ",
                          kMaxPicks, " boxes per class, found ", picks));
  }
  const Picks found =
      PickBoxes(c, ReadBoxes(c, boxes, centered != 0), scores, limit, most, least, picks);
  TW_TRY(c.status());
  const int64_t per_batch = shape[1] * picks, all = shape[0] * per_batch;
  const ValueId valid = c.Reshape(found.valid, {all});
  TW_TRY(c.status());
  const std::optional<Ints> known = KnownPositions(n, valid);
  if (!known && !fits) return NeedsCount(n, "constant operands");
  const int64_t count = known ? static_cast<int64_t>(known->size()) : (*stated)[0];
  if (!known) ExpectTrue(c, valid, count);
  if (count == 0) return c.Done(c.Empty(ir::kI64, {0, 3}));
  const ValueId rows = PositionsOfTrue(c, valid, count);
  const ValueId batch = c.Div(rows, c.Number(per_batch));
  const ValueId of_class = c.Op("mod", {c.Div(rows, c.Number(picks)), c.Number(shape[1])});
  const ValueId box = c.Op("gather", {c.Reshape(found.at, {all}), rows}, {{"axis", int64_t{0}}});
  std::vector<ValueId> columns;
  for (const ValueId column : {batch, of_class, box}) {
    columns.push_back(c.Reshape(column, {count, 1}));
  }
  return c.Done(c.Concat(std::move(columns), 1));
}

namespace {

// Numbers that order as the elements of a tensor do; NaN comes last and is one number.
Ints OrderedKeys(const op::RefTensor& tensor) {
  Ints keys;
  if (!tensor.type.dtype.is_float()) {
    keys = op::IntegersOf(tensor);
    // Patterns of u64 in their order as signed numbers.
    if (tensor.type.dtype == ir::kU64) {
      for (int64_t& key : keys) key ^= std::numeric_limits<int64_t>::min();
    }
    return keys;
  }
  for (const double v : tensor.values) {
    const int64_t bits = std::bit_cast<int64_t>(v == 0 ? 0.0 : v);
    keys.push_back(std::isnan(v) ? std::numeric_limits<int64_t>::max()
                   : bits < 0    ? bits ^ std::numeric_limits<int64_t>::max()
                                 : bits);
  }
  return keys;
}

}  // namespace

// The different elements, or slices along an axis, of a constant; where each comes first, which one
// each element is, and how often it comes.
Result ImportUnique(NodeReader& n) {
  Composer c(n);
  ValueId x = c.Input(0);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t sorted, n.Int("sorted", 1));
  const Value& value = n.importer().ValueOf(x);
  if (value.constant == nullptr) {
    return n.Error("dynamic",
                   "expected a constant operand: how many elements differ decides about shapes, "
                   "found one that is only known when the model runs");
  }
  TW_ASSIGN(const op::RefTensor tensor, op::FromBytes(value.type, value.constant->view()));
  TW_ASSIGN(const int64_t axis, AxisOrFlat(n, c, &x));
  const Ints shape = c.Shape(x);
  int64_t inner = 1, outer = 1;
  for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d) {
    if (d != axis) (d < axis ? outer : inner) *= shape[d];
  }
  // Slices as keys, in row-major order of what they hold.
  const Ints keys = OrderedKeys(tensor);
  std::map<Ints, Ints> places;
  std::vector<const Ints*> order;
  for (int64_t k = 0; k < shape[axis]; ++k) {
    Ints key;
    for (int64_t o = 0; o < outer; ++o) {
      const auto from = keys.begin() + (o * shape[axis] + k) * inner;
      key.insert(key.end(), from, from + inner);
    }
    const auto [it, fresh] = places.try_emplace(std::move(key));
    if (fresh) order.push_back(&it->first);
    it->second.push_back(k);
  }
  if (sorted != 0) {
    std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return *a < *b; });
  }
  const int64_t count = static_cast<int64_t>(order.size());
  Ints first, counts, inverse(static_cast<size_t>(shape[axis]), 0);
  for (int64_t u = 0; u < count; ++u) {
    const Ints& at = places[*order[static_cast<size_t>(u)]];
    first.push_back(at[0]);
    counts.push_back(static_cast<int64_t>(at.size()));
    for (const int64_t k : at) inverse[static_cast<size_t>(k)] = u;
  }
  const ValueId indices = IntsConstant(c, {count}, first);
  TW_TRY(n.BindOutput(1, indices));
  TW_TRY(n.BindOutput(2, IntsConstant(c, {shape[axis]}, inverse)));
  TW_TRY(n.BindOutput(3, IntsConstant(c, {count}, counts)));
  return c.Done(c.Op("gather", {x, indices}, {{"axis", axis}}));
}

}  // namespace tilewright::graph::onnx
