// Unique: the different elements of a tensor, where each comes first, which one each element is,
// and how often it comes. Of a constant they are known at import; else a run finds how many there
// are.
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

// A list that only a run knows: sorted, equal elements are neighbours.
class RunTimeUnique {
 public:
  RunTimeUnique(Composer& c, ValueId x, int64_t length) : c_(c), x_(x), length_(length) {}

  Result Run(bool sorted) {
    Sort();
    const Dim count = CountOfTrue(c_, sorted ? first_ : FirstInOrder(), 0);
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
    return c_.Done(At(x_, indices));
  }

  Composer& c_;
  const ValueId x_;
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
    if (c.Rank(x) > 1 && n.Find("axis") != nullptr) {
      return n.Error("dynamic", "expected a constant operand, or no axis, found others");
    }
    x = c.Flat(x);
    const int64_t length = c.Shape(x)[0];
    TW_TRY(c.status());
    if (length < 1 || length > kMostSorted) {
      return n.Error("too_large", StrCat("expected 1 to ", kMostSorted,
                                         " elements where they are only known when the model runs, "
                                         "found ",
                                         length));
    }
    return RunTimeUnique(c, x, length).Run(sorted != 0);
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
