// Resize and Upsample: along each axis a table of positions, and of weights where several count.
// The tables are built from the scale by small graph operators in f64. They are constants, and
// folded, where the scale is one; else the module computes them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "compiler/graph/onnx_composer.h"
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
  int64_t axis, from, to;
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
  ValueId Less(ValueId a, ValueId b) { return c_.Op("less", {a, b}); }
  ValueId Either(ValueId a, ValueId b) { return c_.Op("or", {a, b}); }

  // The position in the operand of each position of the result: f64[to].
  ValueId Positions(const ResizeAxis& a) {
    const ValueId i = c_.Counting(ir::kF64, a.to, 0, 1);
    const std::string& mode = attrs_.coordinates;
    const double from = static_cast<double>(a.from);
    const ValueId length = c_.Mul(a.scale, Number(from));  // of the result, before rounding
    if (mode == "asymmetric") return c_.Div(i, a.scale);
    if (mode == "align_corners" || mode == "tf_crop_and_resize") {
      // One element: the first corner, or the middle of the region.
      const bool crop = mode == "tf_crop_and_resize";
      const ValueId span =
          crop ? c_.Mul(c_.Sub(a.end, a.start), Number(from - 1)) : Number(from - 1);
      const ValueId intervals =
          crop ? Number(static_cast<double>(a.to - 1)) : c_.Sub(length, Number(1));
      if (crop && a.to == 1) {
        const ValueId middle = c_.Mul(c_.Add(a.start, a.end), Number((from - 1) / 2));
        return c_.Add(i, middle);
      }
      if (!crop && a.to == 1) return i;
      const ValueId at = c_.Div(c_.Mul(i, span), intervals);
      return crop ? c_.Add(at, c_.Mul(a.start, Number(from - 1))) : at;
    }
    const ValueId middle = c_.Div(c_.Add(i, Number(0.5)), a.scale);
    if (mode == "tf_half_pixel_for_nn") return middle;
    if (mode == "pytorch_half_pixel" && a.to == 1) return i;
    const ValueId at = c_.Sub(middle, Number(0.5));
    if (mode != "half_pixel_symmetric") return at;
    const ValueId adjusted = c_.Div(Number(static_cast<double>(a.to)), length);
    return c_.Add(at, c_.Mul(c_.Sub(Number(1), adjusted), Number(from / 2)));
  }

  ValueId Along(ValueId x, const ResizeAxis& a) {
    const ValueId at = Positions(a);
    if (attrs_.coordinates == "tf_crop_and_resize") NoteOutside(x, a, at);
    if (attrs_.mode == "nearest") return Gathered(x, a, Nearest(a, at));
    return Weighted(x, a, at);
  }

  // Results whose position is outside of the operand get a value of their own.
  void NoteOutside(ValueId x, const ResizeAxis& a, ValueId at) {
    const ValueId last = Number(static_cast<double>(a.from - 1));
    std::vector<int64_t> shape(c_.Shape(x).size(), 1);
    if (!c_.ok()) return;
    shape[a.axis] = a.to;
    const ValueId flags = c_.Reshape(Either(Less(at, Number(0)), Less(last, at)), shape);
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
    const double last = static_cast<double>(a.from - 1);
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
    const ValueId beyond = c_.Reshape(c_.Sub(at, floor), {a.to, 1});
    ValueId distance = c_.Sub(steps, beyond);
    if (attrs_.antialias) distance = c_.Mul(distance, c_.Op("min", {a.scale, Number(1)}));
    ValueId weights = Kernel(distance);
    const ValueId positions = c_.Add(c_.Reshape(floor, {a.to, 1}), steps);
    if (attrs_.exclude_outside) {
      const ValueId last = Number(static_cast<double>(a.from - 1));
      const ValueId outside = Either(Less(positions, Number(0)), Less(last, positions));
      weights = c_.Op("where", {outside, Number(0), weights});
    }
    if (attrs_.exclude_outside || attrs_.antialias) {
      weights = c_.Div(weights, c_.Reduce("sum", weights, {1}));
    }
    if (!c_.ok()) return kNone;
    const int64_t rank = c_.Rank(x);
    std::vector<int64_t> shape(static_cast<size_t>(rank) + 1, 1);
    shape[a.axis] = a.to;
    shape[a.axis + 1] = taps;
    weights = c_.Reshape(c_.Cast(weights, c_.TypeOf(x).dtype), shape);
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
    shape_ = c_.Shape(x);
    TW_ASSIGN(axes_, n_.Ints("axes", {}));
    for (int64_t& axis : axes_) {
      if (axis < 0) axis += c_.Rank(x);
      if (axis < 0 || axis >= c_.Rank(x)) return n_.Error("axes", "expected axes of the operand");
    }
    if (axes_.empty()) {
      axes_.resize(shape_.size());
      std::iota(axes_.begin(), axes_.end(), 0);
    }
    ValueId factors = kNone;
    if (in_.sizes >= 0) {
      TW_ASSIGN(factors, FactorsFromSizes());
    } else {
      TW_ASSIGN(factors, Scales());
    }
    return Axes(factors);
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
    TW_TRY(c_.status());
    if (c_.Shape(factors) == std::vector<int64_t>{count()}) return factors;
    return n_.Error("shape", StrCat("expected ", count(), " scales or sizes, found ",
                                    op::ToText(c_.TypeOf(factors))));
  }

  Result FactorsFromSizes() {
    TW_ASSIGN(const ValueId sizes, Checked(c_.Cast(c_.Input(in_.sizes), ir::kF64)));
    std::vector<double> lengths;
    for (int64_t axis : axes_) lengths.push_back(static_cast<double>(shape_[axis]));
    ValueId factors = c_.Div(sizes, c_.Constant(ir::kF64, {count()}, std::move(lengths)));
    if (attrs_.policy == "stretch") return c_.Done(factors);
    factors = c_.Reduce(attrs_.policy == "not_larger" ? "min" : "max", factors, {0});
    return c_.Done(c_.Broadcast(factors, {count()}));
  }

  absl::StatusOr<std::vector<ResizeAxis>> Axes(ValueId factors) {
    std::vector<ResizeAxis> result;
    const bool crops = attrs_.coordinates == "tf_crop_and_resize";
    if (crops && in_.roi < 0) return n_.Error("inputs", "expected a region of interest");
    ValueId roi = kNone;
    if (crops) roi = c_.Cast(c_.Input(in_.roi), ir::kF64);
    if (c_.ok() && crops && c_.TypeOf(roi).elements() != 2 * count()) {
      c_.Fail("shape", "expected a start and an end per axis in the region of interest");
    }
    TW_TRY(c_.status());
    for (int64_t i = 0; i < count(); ++i) {
      auto number = [&](ValueId list, int64_t at) {
        return c_.Reshape(c_.Slice(list, 0, at, 1), {});
      };
      ResizeAxis a{axes_[i], shape_[axes_[i]], 0, number(factors, i), -1, -1, 0};
      if (crops) a.start = number(roi, i), a.end = number(roi, i + count());
      TW_TRY(c_.status());
      TW_ASSIGN(a.to, Length(a));
      const double from = static_cast<double>(a.from), to = static_cast<double>(a.to);
      a.least_scale = (to - 0.5) / from;
      if (std::optional<double> scale = n_.importer().ConstantScalar(a.scale)) {
        a.least_scale = *scale;
        if (*scale == 1 && a.from == a.to && !crops) continue;
      }
      result.push_back(a);
    }
    return result;
  }

  // The size of the result along an axis.
  absl::StatusOr<int64_t> Length(const ResizeAxis& a) {
    const std::optional<double> scale = n_.importer().ConstantScalar(a.scale);
    std::optional<double> span = 1;
    if (a.start >= 0 && in_.sizes < 0) {
      span = n_.importer().ConstantScalar(c_.Sub(a.end, a.start));
    }
    double length = 0;
    if (scale && span) {
      length = *scale * static_cast<double>(a.from) * *span;
      // A scale is an f32: 1.3 of 10 elements are 13, not 12.99...
      length = in_.sizes >= 0 ? std::floor(length + 0.5) : std::floor(static_cast<float>(length));
    } else {
      const std::optional<std::vector<int64_t>> stated = n_.StatedShape();
      if (!stated || stated->size() != shape_.size()) {
        return n_.Error("dynamic",
                        "expected constant scales or sizes, or a result of a shape that the "
                        "model states, found others");
      }
      length = static_cast<double>((*stated)[a.axis]);
      ExpectLength(a, (*stated)[a.axis]);
    }
    if (length >= 1 && length <= kMaxSize) return static_cast<int64_t>(length);
    return n_.Error("shape", StrCat("expected a result of 1 to ", kMaxSize,
                                    " elements along each axis, found ", length));
  }

  // The same as Length, for numbers that only a run knows.
  void ExpectLength(const ResizeAxis& a, int64_t stated) {
    ValueId length = c_.Mul(a.scale, c_.Scalar(static_cast<double>(a.from), ir::kF64));
    if (a.start >= 0 && in_.sizes < 0) length = c_.Mul(length, c_.Sub(a.end, a.start));
    if (in_.sizes >= 0) length = c_.Add(length, c_.Scalar(0.5, ir::kF64));
    if (in_.sizes < 0) length = c_.Cast(c_.Cast(length, ir::kF32), ir::kF64);
    c_.ExpectSizes(c_.Op("floor", {length}), {stated});
  }

  NodeReader& n_;
  Composer& c_;
  const ResizeAttrs& attrs_;
  const ResizeInputs in_;
  std::vector<int64_t> shape_, axes_;
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
