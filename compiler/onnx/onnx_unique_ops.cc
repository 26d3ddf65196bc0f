// Unique: the different elements of a tensor, or slices along an axis, where each comes first,
// which one each element is, and how often it comes. Of a constant they are known at import; else a
// run finds how many there are.
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

constexpr int64_t kMostSorted = int64_t{1} << 15;  // elements, of which all pairs are compared
constexpr int64_t kMostPairs = int64_t{1} << 24;   // elements of all pairs of slices

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

// Whether neighbours differ; NaN is one number.
ValueId Differ(Composer& c, ValueId a, ValueId b) {
  const ValueId differ = c.Op("not", {c.Op("equal", {a, b})});
  if (!c.TypeOf(a).dtype.is_float()) return differ;
  const auto is_number = [&](ValueId x) { return c.Op("equal", {x, x}); };
  return c.Op("and", {differ, c.Op("or", {is_number(a), is_number(b)})});
}

// For each slice along an axis how many are less: the first element in which two differ decides.
// Equal slices have equal numbers.
ValueId SlicesBelow(Composer& c, ValueId x, int64_t axis) {
  std::vector<int64_t> perm = {axis};
  for (int64_t d = 0; d < c.Rank(x); ++d) {
    if (d != axis) perm.push_back(d);
  }
  const int64_t slices = c.FixedSize(x, axis);
  const int64_t each = c.Elements(x).is_constant() ? c.Elements(x).value() / slices : 1;
  x = c.ReshapeTo(c.Transpose(x, perm), {slices, each});
  const ValueId own = c.Reshape(x, {slices, 1, each}), other = c.Reshape(x, {1, slices, each});
  const ValueId differ = Differ(c, own, other);
  ValueId less = c.Op("less", {other, own});
  if (c.TypeOf(x).dtype.is_float()) {  // NaN comes last
    const ValueId is_nan = c.Op("not", {c.Op("equal", {own, own})});
    less = c.Op("and", {differ, c.Op("or", {less, is_nan})});
  }
  const ValueId so_far = Cumulative(c, "prod", c.Cast(c.Op("not", {differ}), ir::kI64), 2,
                                    /*exclusive=*/true, /*reverse=*/false);
  const ValueId decides = c.Mul(so_far, c.Cast(less, ir::kI64));
  return c.Reshape(c.Reduce("sum", decides, {1, 2}), {slices});
}

// A list that only a run knows: sorted, equal elements are neighbours.
class RunTimeUnique {
 public:
  RunTimeUnique(Composer& c, ValueId x, int64_t length) : c_(c), x_(x), from_(x), length_(length) {}
  // The slices of `from` along an axis, of which x has the order.
  RunTimeUnique(Composer& c, ValueId x, int64_t length, ValueId from, int64_t axis)
      : c_(c), x_(x), from_(from), axis_(axis), length_(length) {}

  Result Run(bool sorted) {
    Sort();
    const Dim count = CountOfTrue(c_, sorted ? first_ : FirstInOrder(), axis_);
    return sorted ? BySize(count) : ByPlace(count);
  }

 private:
  ValueId At(ValueId list, ValueId places) {
    return c_.Op("gather", {list, places}, {{"axis", int64_t{0}}});
  }
  ValueId Order(ValueId list) {
    return c_.Op("top_k", {list}, {{"axis", int64_t{0}}, {"k", length_}, {"largest", int64_t{0}}});
  }
  // Number j of a list of `count` places, the length of all behind the last.
  ValueId Counts(ValueId places, const Dim& count) {
    const ValueId next = c_.Add(c_.Counting(ir::kI64, count, 0, 1), c_.Number(1));
    const ValueId inside = c_.Op("less", {next, c_.SizeOf(count, ir::kI64)});
    const ValueId end = c_.Op("where", {inside, At(places, next), c_.Number(length_)});
    return c_.Sub(end, places);
  }

  void Sort() {
    order_ = Order(x_);
    // NaN comes first there, and last here.
    if (c_.TypeOf(x_).dtype.is_float()) {
      const ValueId is_nan = c_.Op("not", {c_.Op("equal", {x_, x_})});
      const ValueId nans = c_.Reduce("sum", c_.Cast(is_nan, ir::kI64), {0});
      const ValueId turned = c_.Add(c_.Counting(ir::kI64, length_, 0, 1), nans);
      order_ = At(order_, c_.Op("mod", {turned, c_.Number(length_)}));
    }
    rank_ = Order(order_);  // the inverse permutation
    const ValueId sorted = At(x_, order_);
    const ValueId place = c_.Counting(ir::kI64, length_, 0, 1);
    const ValueId before = At(sorted, c_.Op("max", {c_.Sub(place, c_.Number(1)), c_.Number(0)}));
    first_ = c_.Op("or", {Differ(c_, sorted, before), c_.Op("equal", {place, c_.Number(0)})});
    group_ =
        c_.Sub(Cumulative(c_, "sum", c_.Cast(first_, ir::kI64), 0, false, false), c_.Number(1));
  }
  // Of each element of the operand, whether it is the first of its value.
  ValueId FirstInOrder() { return At(first_, rank_); }

  Result BySize(const Dim& count) {
    const ValueId places = PositionsOfTrue(c_, first_, count);
    return Bind(At(order_, places), At(group_, rank_), Counts(places, count));
  }
  Result ByPlace(const Dim& count) {
    const ValueId first = FirstInOrder();
    const ValueId places = PositionsOfTrue(c_, first, count);
    const ValueId number =
        c_.Sub(Cumulative(c_, "sum", c_.Cast(first, ir::kI64), 0, false, false), c_.Number(1));
    const ValueId groups = PositionsOfTrue(c_, first_, count);
    const ValueId own_group = At(group_, rank_);
    const ValueId first_of_group = At(order_, At(groups, own_group));
    const ValueId counts = At(Counts(groups, count), At(own_group, places));
    return Bind(places, At(number, first_of_group), counts);
  }

  Result Bind(ValueId indices, ValueId inverse, ValueId counts) {
    TW_TRY(c_.status());
    TW_TRY(c_.node().BindOutput(1, indices));
    TW_TRY(c_.node().BindOutput(2, inverse));
    TW_TRY(c_.node().BindOutput(3, counts));
    return c_.Done(c_.Op("gather", {from_, indices}, {{"axis", axis_}}));
  }

  Composer& c_;
  const ValueId x_, from_;
  const int64_t axis_ = 0;
  const int64_t length_;
  // The sorting permutation and its inverse; in sorted order, whether an element is the first of
  // its value, and the number of its value.
  ValueId order_ = kNone, rank_ = kNone, first_ = kNone, group_ = kNone;
};

}  // namespace

Result ImportUnique(NodeReader& n) {
  Composer c(n);
  ValueId x = c.Input(0);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t sorted, n.Int("sorted", 1));
  const Value& value = n.importer().ValueOf(x);
  if (value.constant == nullptr) {
    TW_ASSIGN(const int64_t axis, AxisOrFlat(n, c, &x));
    const int64_t length = c.FixedSize(x, axis);
    const Dim elements = c.Elements(x);
    TW_TRY(c.status());
    const bool list = c.Rank(x) == 1;
    if (length < 1 || length > kMostSorted ||
        (!list && (!elements.is_constant() || elements.value() > kMostPairs / length))) {
      return n.Error("too_large",
                     StrCat("expected 1 to ", kMostSorted, " elements or slices, and ", kMostPairs,
                            " elements in all pairs of slices, where they "
                            "are only known when the model runs, found ",
                            op::ToText(c.TypeOf(x))));
    }
    if (list) return RunTimeUnique(c, x, length).Run(sorted != 0);
    return RunTimeUnique(c, SlicesBelow(c, x, axis), length, x, axis).Run(sorted != 0);
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
  const ValueId indices = c.Integers({count}, first);
  TW_TRY(n.BindOutput(1, indices));
  TW_TRY(n.BindOutput(2, c.Integers({shape[axis]}, inverse)));
  TW_TRY(n.BindOutput(3, c.Integers({count}, counts)));
  return c.Done(c.Op("gather", {x, indices}, {{"axis", axis}}));
}

}  // namespace tilewright::graph::onnx
