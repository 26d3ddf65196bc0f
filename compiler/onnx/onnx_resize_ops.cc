// Resize and Upsample: along each axis a table of positions, and of weights where several count.
// The tables are built from the scale by small graph operators in f64. They are constants, and
// folded, where the scale is one; else the module computes them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

constexpr double kMaxSize = 1 << 24;
constexpr int64_t kMaxTaps = 1 << 16;

struct ResizeAttrs {
  std::string mode, coordinates, nearest, policy;
  double cubic_a = -0.75, extrapolation = 0;
  bool antialias = false, exclude_outside = false;
};

// What happens along one axis. Values are f64[]; kNone where there is no region of interest.
struct ResizeAxis {
  int64_t axis;
  op::Dim from, to;
  ValueId scale, start, end;
  double least_scale;  // a bound that holds for every scale that gives `to`
};

class ResizeBuilder {
 public:
  ResizeBuilder(Composer& c, const ResizeAttrs& attrs) : c_(c), attrs_(attrs) {}

  ValueId Run(ValueId x, const std::vector<ResizeAxis>& axes) {
    const ir::DType type = c_.TypeOf(x).dtype;
    const bool whole = attrs_.mode != "nearest" && !type.is_float();
    if (whole) x = c_.Cast(x, ir::kF32);
    for (const ResizeAxis& axis : axes) {
      if (c_.ok()) x = Along(x, axis);
    }
    if (outside_ != kNone) {
      const ValueId fill = c_.Scalar(attrs_.extrapolation, c_.TypeOf(x).dtype);
      x = c_.Op("where", {outside_, fill, x});
    }
    return c_.Cast(x, type);
  }

 private:
  ValueId Number(double value) { return c_.Scalar(value, ir::kF64); }
  ValueId Size(const op::Dim& size) { return c_.SizeOf(size, ir::kF64); }
  ValueId Last(const ResizeAxis& a) { return Size(a.from - op::Dim(1)); }
  ValueId Less(ValueId a, ValueId b) { return c_.Op("less", {a, b}); }
  ValueId Either(ValueId a, ValueId b) { return c_.Op("or", {a, b}); }

  // The position in the operand of each position of the result: f64[to].
  ValueId Positions(const ResizeAxis& a) {
    const ValueId i = c_.Counting(ir::kF64, a.to, 0, 1);
    const std::string& mode = attrs_.coordinates;
    const ValueId from = Size(a.from);
    const ValueId length = c_.Mul(a.scale, from);  // of the result, before rounding
    if (mode == "asymmetric") return c_.Div(i, a.scale);
    if (mode == "align_corners") {
      const ValueId at = c_.Div(c_.Mul(i, Last(a)), c_.Sub(length, Number(1)));
      return IfOne(a, i, at);  // the first corner
    }
    if (mode == "tf_crop_and_resize") {
      const ValueId middle = c_.Mul(c_.Add(a.start, a.end), c_.Div(Last(a), Number(2)));
      const ValueId span = c_.Mul(c_.Sub(a.end, a.start), Last(a));
      const ValueId at = c_.Div(c_.Mul(i, span), Size(a.to - op::Dim(1)));
      return IfOne(a, c_.Add(i, middle), c_.Add(at, c_.Mul(a.start, Last(a))));
    }
    const ValueId middle = c_.Div(c_.Add(i, Number(0.5)), a.scale);
    if (mode == "tf_half_pixel_for_nn") return middle;
    const ValueId at = c_.Sub(middle, Number(0.5));
    if (mode == "pytorch_half_pixel") return IfOne(a, i, at);
    if (mode != "half_pixel_symmetric") return at;
    const ValueId adjusted = c_.Div(Size(a.to), length);
    return c_.Add(at, c_.Mul(c_.Sub(Number(1), adjusted), c_.Div(from, Number(2))));
  }

  // What a result of one element has instead of the positions of more.
  ValueId IfOne(const ResizeAxis& a, ValueId one, ValueId more) {
    if (a.to.is_constant()) return a.to.value() == 1 ? one : more;
    const std::optional<int64_t> least = c_.node().importer().Bound(a.to, false);
    if (least && *least > 1) return more;
    return c_.Op("where", {c_.Op("equal", {Size(a.to), Number(1)}), one, more});
  }

  ValueId Along(ValueId x, const ResizeAxis& a) {
    const ValueId at = Positions(a);
    if (attrs_.coordinates == "tf_crop_and_resize") NoteOutside(x, a, at);
    if (attrs_.mode == "nearest") return Gathered(x, a, Nearest(a, at));
    return Weighted(x, a, at);
  }

  // Results whose position is outside of the operand get a value of their own.
  void NoteOutside(ValueId x, const ResizeAxis& a, ValueId at) {
    if (!c_.ok()) return;
    std::vector<op::Dim> shape(static_cast<size_t>(c_.Rank(x)), 1);
    shape[a.axis] = a.to;
    const ValueId flags = c_.ReshapeTo(Either(Less(at, Number(0)), Less(Last(a), at)), shape);
    outside_ = outside_ == kNone ? flags : Either(outside_, flags);
  }

  ValueId Nearest(const ResizeAxis& a, ValueId at) {
    const std::string& mode = attrs_.nearest;
    if (mode == "floor") return c_.Op("floor", {at});
    if (mode == "ceil") return c_.Op("ceil", {at});
    if (mode == "simple") {  // Resize of opset 10: up where the axis shrinks
      return c_.Op("where", {Less(a.scale, Number(1)), c_.Op("ceil", {at}), c_.Op("floor", {at})});
    }
    if (mode == "round_prefer_ceil") return c_.Op("floor", {c_.Add(at, Number(0.5))});
    return c_.Op("ceil", {c_.Sub(at, Number(0.5))});
  }

  // Positions as clamped indices of the operand.
  ValueId Indices(const ResizeAxis& a, ValueId positions) {
    if (!a.from.is_constant()) {
      const ValueId inside = c_.Op("max", {c_.Op("min", {positions, Last(a)}), Number(0)});
      return c_.Cast(inside, ir::kI64);
    }
    const double last = static_cast<double>(a.from.value() - 1);
    return c_.Cast(c_.Op("clip", {positions}, {{"min", 0.0}, {"max", last}}), ir::kI64);
  }

  ValueId Gathered(ValueId x, const ResizeAxis& a, ValueId positions) {
    const ValueId indices = Indices(a, positions);
    const std::optional<std::vector<int64_t>> known =
        c_.ok() ? c_.node().importer().ConstantInts(indices) : std::nullopt;
    bool same = known && a.from == a.to;
    for (size_t i = 0; same && i < known->size(); ++i) {
      same = (*known)[i] == static_cast<int64_t>(i);
    }
    return same ? x : c_.Op("gather", {x, indices}, {{"axis", a.axis}});
  }

  // The weight of an element at this distance: a triangle, or the cubic of the attribute's slope.
  ValueId Kernel(ValueId distance) {
    const ValueId d = c_.Op("abs", {distance});
    if (attrs_.mode == "linear") return c_.Op("max", {c_.Sub(Number(1), d), Number(0)});
    const double k = attrs_.cubic_a;
    auto polynomial = [&](double d3, double d2, double d1, double d0) {
      ValueId value = c_.Add(c_.Mul(d, Number(d3)), Number(d2));
      value = c_.Add(c_.Mul(value, d), Number(d1));
      return c_.Add(c_.Mul(value, d), Number(d0));
    };
    const ValueId near = polynomial(k + 2, -(k + 3), 0, 1);
    const ValueId far = polynomial(k, -5 * k, 8 * k, -4 * k);
    const ValueId tail = c_.Op("where", {Less(d, Number(2)), far, Number(0)});
    return c_.Op("where", {c_.Op("less_equal", {d, Number(1)}), near, tail});
  }

  // The sum of the elements around each position, each by its weight.
  ValueId Weighted(ValueId x, const ResizeAxis& a, ValueId at) {
    const double support = attrs_.mode == "linear" ? 1 : 2;
    const double least = attrs_.antialias ? std::min(1.0, a.least_scale) : 1;
    const int64_t first = static_cast<int64_t>(std::floor(-support / least)) + 1;
    const int64_t taps = static_cast<int64_t>(std::ceil(support / least)) - first + 1;
    if (taps > kMaxTaps) return c_.Fail("too_large", "expected a smaller ratio of sizes");
    std::vector<double> numbers(static_cast<size_t>(taps));
    std::iota(numbers.begin(), numbers.end(), static_cast<double>(first));
    const ValueId floor = c_.Op("floor", {at});
    const ValueId steps = c_.Constant(ir::kF64, {1, taps}, std::move(numbers));
    const ValueId beyond = c_.ReshapeTo(c_.Sub(at, floor), {a.to, 1});
    ValueId distance = c_.Sub(steps, beyond);
    if (attrs_.antialias) distance = c_.Mul(distance, c_.Op("min", {a.scale, Number(1)}));
    ValueId weights = Kernel(distance);
    const ValueId positions = c_.Add(c_.ReshapeTo(floor, {a.to, 1}), steps);
    if (attrs_.exclude_outside) {
      const ValueId outside = Either(Less(positions, Number(0)), Less(Last(a), positions));
      weights = c_.Op("where", {outside, Number(0), weights});
    }
    if (attrs_.exclude_outside || attrs_.antialias) {
      weights = c_.Div(weights, c_.Reduce("sum", weights, {1}));
    }
    if (!c_.ok()) return kNone;
    std::vector<op::Dim> shape(static_cast<size_t>(c_.Rank(x)) + 1, 1);
    shape[a.axis] = a.to;
    shape[a.axis + 1] = taps;
    weights = c_.ReshapeTo(c_.Cast(weights, c_.TypeOf(x).dtype), shape);
    x = c_.Op("gather", {x, Indices(a, positions)}, {{"axis", a.axis}});
    return c_.Reduce("sum", c_.Mul(x, weights), {a.axis + 1}, false);
  }

  Composer& c_;
  const ResizeAttrs& attrs_;
  ValueId outside_ = kNone;
};

absl::StatusOr<ResizeAttrs> ReadResizeAttrs(NodeReader& n) {
  ResizeAttrs a;
  const bool old = n.importer().opset() < 11;
  TW_ASSIGN(a.mode, n.String("mode", "nearest"));
  if (n.op_type() == "Upsample" && a.mode == "bilinear") a.mode = "linear";  // opset 1
  TW_ASSIGN(a.coordinates,
            n.String("coordinate_transformation_mode", old ? "asymmetric" : "half_pixel"));
  const bool resize_10 = old && n.op_type() == "Resize";
  TW_ASSIGN(a.nearest, n.String("nearest_mode", resize_10 ? "simple"
                                                : old     ? "floor"
                                                          : "round_prefer_floor"));
  TW_ASSIGN(a.policy, n.String("keep_aspect_ratio_policy", "stretch"));
  TW_ASSIGN(a.cubic_a, n.Float("cubic_coeff_a", -0.75));
  TW_ASSIGN(a.extrapolation, n.Float("extrapolation_value", 0));
  TW_ASSIGN(const int64_t antialias, n.Int("antialias", 0));
  TW_ASSIGN(const int64_t exclude, n.Int("exclude_outside", 0));
  a.antialias = antialias != 0 && a.mode != "nearest";
  a.exclude_outside = exclude != 0;
  auto one_of = [](const std::string& value, std::initializer_list<std::string_view> known) {
    return std::find(known.begin(), known.end(), value) != known.end();
  };
  if (!one_of(a.mode, {"nearest", "linear", "cubic"}) ||
      !one_of(a.coordinates,
              {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners",
               "asymmetric", "tf_crop_and_resize", "tf_half_pixel_for_nn"}) ||
      !one_of(a.nearest, {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"}) ||
      !one_of(a.policy, {"stretch", "not_larger", "not_smaller"})) {
    return n.Error("attribute", "expected a mode of Resize's definition, found another");
  }
  return a;
}

// The inputs by their meaning: their positions changed with the versions.
struct ResizeInputs {
  int roi = -1, scales = -1, sizes = -1;
};
ResizeInputs InputsOf(NodeReader& n) {
  if (n.op_type() == "Upsample" || n.importer().opset() < 11) return {-1, 1, -1};
  ResizeInputs in{1, 2, 3};
  // An empty tensor is as good as none.
  auto given = [&](int i) {
    if (!n.HasInput(i)) return false;
    Result id = n.Input(i);
    return !id.ok() || !n.importer().IsEmpty(*id);
  };
  if (!given(1)) in.roi = -1;
  if (!given(2)) in.scales = -1;
  if (!given(3)) in.sizes = -1;
  return in;
}

class ResizeReader {
 public:
  ResizeReader(NodeReader& n, Composer& c, const ResizeAttrs& attrs)
      : n_(n), c_(c), attrs_(attrs), in_(InputsOf(n)) {}

  absl::StatusOr<std::vector<ResizeAxis>> Run(ValueId x) {
    shape_ = c_.Dims(x);
    TW_ASSIGN(axes_, n_.Ints("axes", {}));
    for (int64_t& axis : axes_) {
      if (axis < 0) axis += c_.Rank(x);
      if (axis < 0 || axis >= c_.Rank(x)) return n_.Error("axes", "expected axes of the operand");
    }
    if (axes_.empty()) {
      axes_.resize(shape_.size());
      std::iota(axes_.begin(), axes_.end(), 0);
    }
    if (in_.sizes < 0) {
      TW_ASSIGN(const ValueId scales, Scales());
      return Axes(Apart(scales));
    }
    if (attrs_.policy == "stretch") {
      TW_ASSIGN(sizes_, Sizes());
      TW_ASSIGN(const std::vector<ValueId> ratios, Ratios());
      return Axes(ratios);
    }
    TW_ASSIGN(const ValueId factors, FactorsFromSizes());
    return Axes(Apart(factors));
  }

 private:
  int64_t count() const { return static_cast<int64_t>(axes_.size()); }

  // f64[axes]: the scale of each axis.
  Result Scales() {
    if (in_.scales >= 0 && n_.HasInput(in_.scales)) {
      return Checked(c_.Cast(c_.Input(in_.scales), ir::kF64));
    }
    std::vector<double> scales;
    if (const pb::AttributeProto* list = n_.Find("scales")) {
      scales.assign(list->floats().begin(), list->floats().end());
    } else {  // opset 1
      TW_ASSIGN(const double height, n_.Float("height_scale", 0));
      TW_ASSIGN(const double width, n_.Float("width_scale", 0));
      scales = {1, 1, height, width};
    }
    const int64_t size = static_cast<int64_t>(scales.size());
    return Checked(c_.Constant(ir::kF64, {size}, std::move(scales)));
  }

  Result Checked(ValueId factors) {
    const std::vector<int64_t> shape = c_.Shape(factors);
    TW_TRY(c_.status());
    if (shape == std::vector<int64_t>{count()}) return factors;
    return n_.Error("shape", StrCat("expected ", count(), " scales or sizes, found ",
                                    op::ToText(c_.TypeOf(factors))));
  }

  Result FactorsFromSizes() {
    TW_ASSIGN(const ValueId sizes, Checked(c_.Cast(c_.Input(in_.sizes), ir::kF64)));
    std::vector<ValueId> lengths;
    for (int64_t axis : axes_) {
      lengths.push_back(c_.Reshape(c_.SizeOf(shape_[axis], ir::kF64), {1}));
    }
    ValueId factors = c_.Div(sizes, c_.Concat(std::move(lengths), 0));
    if (attrs_.policy == "stretch") return c_.Done(factors);
    factors = c_.Reduce(attrs_.policy == "not_larger" ? "min" : "max", factors, {0});
    return c_.Done(c_.Broadcast(factors, {count()}));
  }

  // Each element of a list as a scalar.
  std::vector<ValueId> Apart(ValueId list) {
    std::vector<ValueId> numbers;
    for (int64_t i = 0; i < count(); ++i) {
      numbers.push_back(c_.Reshape(c_.Slice(list, 0, i, 1), {}));
    }
    return numbers;
  }

  // Per axis; those that only a run knows are found.
  absl::StatusOr<std::vector<op::Dim>> Sizes() {
    if (!n_.IsDynamic(in_.sizes)) return n_.InputDims(in_.sizes, "sizes");
    TW_ASSIGN(const ValueId list, Checked(c_.Cast(c_.Input(in_.sizes), ir::kI64)));
    std::vector<op::Dim> sizes;
    for (int64_t i = 0; i < count(); ++i) {
      const std::optional<op::Dim> known = n_.importer().KnownElement(list, i);
      sizes.push_back(known ? *known : c_.FoundSize(c_.Slice(list, 0, i, 1), axes_[i], {}));
    }
    TW_TRY(c_.status());
    return sizes;
  }

  // Sizes that are known, or expressions: the scales are numbers where they are the same at all
  // sizes.
  absl::StatusOr<std::vector<ValueId>> Ratios() {
    if (static_cast<int64_t>(sizes_.size()) != count()) {
      return n_.Error("shape",
                      StrCat("expected ", count(), " sizes, found ", op::DimsText(sizes_)));
    }
    std::vector<ValueId> ratios;
    for (size_t i = 0; i < sizes_.size(); ++i) {
      const op::Dim& from = shape_[static_cast<size_t>(axes_[i])];
      const std::optional<op::Dim> ratio = sizes_[i].DivideExactly(from);
      ratios.push_back(ratio && ratio->is_constant()
                           ? c_.SizeOf(*ratio, ir::kF64)
                           : c_.Div(c_.SizeOf(sizes_[i], ir::kF64), c_.SizeOf(from, ir::kF64)));
    }
    TW_TRY(c_.status());
    return ratios;
  }

  absl::StatusOr<std::vector<ResizeAxis>> Axes(const std::vector<ValueId>& factors) {
    std::vector<ResizeAxis> result;
    const bool crops = attrs_.coordinates == "tf_crop_and_resize";
    if (crops && in_.roi < 0) return n_.Error("inputs", "expected a region of interest");
    ValueId roi = kNone;
    if (crops) roi = c_.Cast(c_.Input(in_.roi), ir::kF64);
    if (crops && c_.Count(roi) != 2 * count()) {
      c_.Fail("shape", "expected a start and an end per axis in the region of interest");
    }
    TW_TRY(c_.status());
    const auto number = [&](int64_t at) { return c_.Reshape(c_.Slice(roi, 0, at, 1), {}); };
    for (int64_t i = 0; i < count(); ++i) {
      ResizeAxis a{axes_[i], shape_[axes_[i]], 0, factors[i], kNone, kNone, 0};
      if (crops) a.start = number(i), a.end = number(i + count());
      TW_TRY(c_.status());
      TW_ASSIGN(a.to, Length(a));
      TW_ASSIGN(a.least_scale, LeastScale(a));
      if (n_.importer().ConstantScalar(a.scale) == 1 && a.from == a.to && !crops) continue;
      result.push_back(a);
    }
    return result;
  }

  absl::StatusOr<double> LeastScale(const ResizeAxis& a) {
    if (const std::optional<double> scale = n_.importer().ConstantScalar(a.scale)) return *scale;
    const std::optional<int64_t> to = n_.importer().Bound(a.to, false);
    const std::optional<int64_t> from = n_.importer().Bound(a.from, true);
    if (!to || !from)
      return n_.Error("open_size", StrCat("expected ranges of sizes", kGiveNumbers));
    return (std::max<double>(static_cast<double>(*to), 1) - 0.5) / static_cast<double>(*from);
  }

  // The size of the result along an axis.
  absl::StatusOr<op::Dim> Length(const ResizeAxis& a) {
    const std::optional<double> scale = n_.importer().ConstantScalar(a.scale);
    if (!sizes_.empty()) {
      const auto at = std::find(axes_.begin(), axes_.end(), a.axis) - axes_.begin();
      return InRange(sizes_[static_cast<size_t>(at)]);
    }
    std::optional<double> span = 1;
    if (a.start >= 0 && in_.sizes < 0) {
      span = n_.importer().ConstantScalar(c_.Sub(a.end, a.start));
    }
    if (!a.from.is_constant()) return OpenLength(a, scale, span);
    if (scale && span) {
      const double length = *scale * static_cast<double>(a.from.value()) * *span;
      // A scale is an f32: 1.3 of 10 elements are 13, not 12.99...
      const double whole =
          in_.sizes >= 0 ? std::floor(length + 0.5) : std::floor(static_cast<float>(length));
      if (whole >= 1 && whole <= kMaxSize) return op::Dim(static_cast<int64_t>(whole));
      return n_.Error("shape", StrCat("expected a result of 1 to ", kMaxSize,
                                      " elements along each axis, found ", whole));
    }
    const op::Dim found = c_.FoundSize(LengthAtRunTime(a), a.axis, {});
    TW_TRY(c_.status());
    return InRange(found);
  }

  absl::StatusOr<op::Dim> InRange(const op::Dim& length) {
    const int64_t number = length.constant().value_or(1);
    if (number >= 1 && number <= static_cast<int64_t>(kMaxSize)) return length;
    return n_.Error("shape", StrCat("expected a result of 1 to ", kMaxSize,
                                    " elements along each axis, found ", number));
  }

  // An open size times a number of few bits: p / 2^k is exact, also as the f32 that ONNX rounds to.
  absl::StatusOr<op::Dim> OpenLength(const ResizeAxis& a, std::optional<double> scale,
                                     std::optional<double> span) {
    constexpr double kExact = 1 << 24;  // whole numbers that an f32 holds
    const double factor = scale && span && in_.sizes < 0 ? *scale * *span : 0;
    for (int64_t divisor = 1; divisor <= 1 << 12; divisor *= 2) {
      const double times = factor * static_cast<double>(divisor);
      if (times < 1 || times >= kExact || times != std::floor(times)) continue;
      const std::optional<int64_t> most = n_.importer().Bound(a.from, true);
      if (!most || static_cast<double>(*most) * times > kExact) break;
      const op::Dim length = (a.from * op::Dim(static_cast<int64_t>(times))).FloorDiv(divisor);
      const std::optional<int64_t> least = n_.importer().Bound(length, false);
      if (least && *least >= (n_.importer().MayBeNothing(a.from) ? 0 : 1)) return length;
      return n_.Error("shape", StrCat("expected a result with elements at all sizes, found ",
                                      length.ToText(), kGiveNumbers));
    }
    return n_.Error("open_size",
                    StrCat("expected sizes, or scales of which every multiple is exact (2, 0.5, "
                           "1.25), of an open dimension, found others",
                           kGiveNumbers));
  }

  // The same as Length, for numbers that only a run knows.
  ValueId LengthAtRunTime(const ResizeAxis& a) {
    ValueId length = c_.Mul(a.scale, c_.SizeOf(a.from, ir::kF64));
    if (a.start >= 0 && in_.sizes < 0) length = c_.Mul(length, c_.Sub(a.end, a.start));
    if (in_.sizes >= 0) length = c_.Add(length, c_.Scalar(0.5, ir::kF64));
    if (in_.sizes < 0) length = c_.Cast(c_.Cast(length, ir::kF32), ir::kF64);
    return c_.Cast(c_.Op("floor", {length}), ir::kI64);
  }

  NodeReader& n_;
  Composer& c_;
  const ResizeAttrs& attrs_;
  const ResizeInputs in_;
  std::vector<op::Dim> shape_;
  std::vector<int64_t> axes_;
  std::vector<op::Dim> sizes_;  // of the result, per axis, where the node gives them
};

}  // namespace

Result ImportResize(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0);
  TW_TRY(c.status());
  TW_ASSIGN(const ResizeAttrs attrs, ReadResizeAttrs(n));
  TW_ASSIGN(const std::vector<ResizeAxis> axes, ResizeReader(n, c, attrs).Run(x));
  const ValueId y = ResizeBuilder(c, attrs).Run(x, axes);
  return c.Done(y == x ? c.Op("identity", {x}) : y);
}

}  // namespace tilewright::graph::onnx
