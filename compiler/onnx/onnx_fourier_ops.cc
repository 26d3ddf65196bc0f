// Spectra: discrete Fourier transforms (DFT, STFT) as products with constant tables.
// A long transform is split in two along a factor of its length, as Cooley and Tukey do.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "compiler/onnx/onnx_composer.h"
#include "compiler/onnx/onnx_run_time_choice.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

constexpr int64_t kDirectTable = int64_t{1} << 20;   // entries up to which one product is used
constexpr int64_t kLargestTable = int64_t{1} << 24;  // entries: lengths with a large prime factor
constexpr int64_t kMaxFramePlaces = int64_t{1} << 23;

// The angle of bin `k` at point `j` of a transform: its multiple of 2 pi / points is reduced first.
double Angle(int64_t j, int64_t k, int64_t points, bool inverse) {
  const double turn = static_cast<double>(j * k % points) / static_cast<double>(points);
  return (inverse ? 2 : -2) * std::numbers::pi * turn;
}

// [points * parts, bins * 2]: what each part (real, imaginary) of a point adds to each part of a
// bin. The table of an inverse transform divides by the number of points.
ValueId FourierTable(Composer& c, ir::DType type, int64_t points, int64_t parts, int64_t bins,
                     bool inverse) {
  if (points > kLargestTable || points * parts > kLargestTable / (2 * bins)) {
    return c.Fail("too_large",
                  StrCat("expected a length without large prime factors, found ", points));
  }
  const double scale = inverse ? 1.0 / static_cast<double>(points) : 1.0;
  std::vector<double> table;
  table.reserve(static_cast<size_t>(points * parts * bins * 2));
  for (int64_t j = 0; j < points; ++j) {
    for (int64_t part = 0; part < parts; ++part) {
      for (int64_t k = 0; k < bins; ++k) {
        const double angle = Angle(j, k, points, inverse);
        const double real = std::cos(angle) * scale, imaginary = std::sin(angle) * scale;
        table.push_back(part == 0 ? real : -imaginary);
        table.push_back(part == 0 ? imaginary : real);
      }
    }
  }
  return c.Constant(type, {points * parts, bins * 2}, std::move(table));
}

// Signals are [rows, points, parts]; the number of rows may be open.
op::Dim RowsOf(Composer& c, ValueId x) { return c.Dims(x)[0]; }
int64_t PointsOf(Composer& c, ValueId x) { return c.Dims(x)[1].value(); }
int64_t PartsOf(Composer& c, ValueId x) { return c.Dims(x)[2].value(); }

// x [rows, points, parts] to [rows, bins, 2] by one product.
ValueId Directly(Composer& c, ValueId x, int64_t bins, bool inverse) {
  if (!c.ok()) return kNone;
  const op::Dim rows = RowsOf(c, x);
  const int64_t points = PointsOf(c, x), parts = PartsOf(c, x);
  const ValueId table = FourierTable(c, c.TypeOf(x).dtype, points, parts, bins, inverse);
  const ValueId lines = c.ReshapeTo(x, {rows, points * parts});
  return c.ReshapeTo(c.MatMul(lines, table), {rows, bins, 2});
}

// The product of complex numbers x [rows, b, a, 2] with e^(i angle(j, k)) of b * a points.
ValueId Turned(Composer& c, ValueId x, int64_t b, int64_t a, bool inverse) {
  if (!c.ok()) return kNone;
  std::vector<double> cosines, sines;
  for (int64_t j = 0; j < b; ++j) {
    for (int64_t k = 0; k < a; ++k) {
      const double angle = Angle(j, k, a * b, inverse);
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
  }
  const ir::DType type = c.TypeOf(x).dtype;
  const ValueId cosine = c.Constant(type, {1, b, a, 1}, std::move(cosines));
  const ValueId sine = c.Constant(type, {1, b, a, 1}, std::move(sines));
  const ValueId real = c.Slice(x, 3, 0, 1), imaginary = c.Slice(x, 3, 1, 1);
  return c.Concat({c.Sub(c.Mul(real, cosine), c.Mul(imaginary, sine)),
                   c.Add(c.Mul(real, sine), c.Mul(imaginary, cosine))},
                  3);
}

// All bins of x [rows, points, 2]. Of points = a * b, point j1 * b + j2 and bin k1 + a * k2:
// transforms of a points over j1, a turn by j2 * k1, then transforms of b points over j2.
ValueId ComplexTransform(Composer& c, ValueId x, bool inverse) {
  if (!c.ok()) return kNone;
  const op::Dim rows = RowsOf(c, x);
  const int64_t points = PointsOf(c, x);
  int64_t a = 1;
  for (int64_t d = 2; d <= points / d; ++d) {
    if (points % d == 0) a = d;
  }
  if (a == 1 || points * 4 <= kDirectTable / points) return Directly(c, x, points, inverse);
  const int64_t b = points / a;
  x = c.Transpose(c.ReshapeTo(x, {rows, a, b, 2}), {0, 2, 1, 3});
  x = ComplexTransform(c, c.ReshapeTo(x, {rows * b, a, 2}), inverse);
  x = Turned(c, c.ReshapeTo(x, {rows, b, a, 2}), b, a, inverse);
  x = c.ReshapeTo(c.Transpose(x, {0, 2, 1, 3}), {rows * a, b, 2});
  x = c.ReshapeTo(ComplexTransform(c, x, inverse), {rows, a, b, 2});
  return c.ReshapeTo(c.Transpose(x, {0, 2, 1, 3}), {rows, points, 2});
}

// The first `bins` bins of x [rows, points, parts].
ValueId Transform(Composer& c, ValueId x, int64_t bins, bool inverse) {
  if (!c.ok()) return kNone;
  const int64_t points = PointsOf(c, x), parts = PartsOf(c, x);
  if (points * parts <= kDirectTable / (2 * bins)) return Directly(c, x, bins, inverse);
  if (parts == 1) x = c.Op("pad", {x}, {{"pads", std::vector<int64_t>{0, 0, 0, 0, 0, 1}}});
  return c.Slice(ComplexTransform(c, x, inverse), 1, 0, bins);
}

// x [rows, points, parts] cut, or with zeros at its end.
ValueId Resized(Composer& c, ValueId x, int64_t points) {
  if (!c.ok()) return kNone;
  const int64_t more = points - PointsOf(c, x);
  if (more <= 0) return c.Slice(x, 1, 0, points);
  return c.Op("pad", {x}, {{"pads", std::vector<int64_t>{0, 0, 0, 0, more, 0}}});
}

// The real signal [rows, points, 1] whose first bins are x [rows, points / 2 + 1, 2]; the others
// are their conjugates.
ValueId RealInverse(Composer& c, ValueId x, int64_t points) {
  std::vector<double> places, signs;
  for (int64_t k = 0; k < points; ++k) {
    const bool mirrored = k > points / 2;
    places.push_back(static_cast<double>(mirrored ? points - k : k));
    signs.insert(signs.end(), {1, mirrored ? -1.0 : 1.0});
  }
  const ir::DType type = c.TypeOf(x).dtype;
  x = c.Op("gather", {x, c.Constant(ir::kI64, {points}, std::move(places))},
           {{"axis", int64_t{1}}});
  x = c.Mul(x, c.Constant(type, {1, points, 2}, std::move(signs)));
  return c.Slice(Transform(c, x, points, true), 2, 0, 1);
}

// A constant number, or `fallback` where the node leaves the input out.
absl::StatusOr<int64_t> NumberIn(NodeReader& n, int input, std::string_view what,
                                 int64_t fallback) {
  if (!n.HasInput(input)) return fallback;
  TW_ASSIGN(const std::vector<int64_t> values, n.InputInts(input, what));
  if (values.size() == 1) return values[0];
  return n.Error("shape", StrCat("expected one number as ", what, ", found ", values.size()));
}

absl::Status CheckSignal(Composer& c, ValueId x, bool onesided, bool inverse) {
  NodeReader& n = c.node();
  const op::TensorType type = c.TypeOf(x);
  const int64_t parts = type.shape.empty() ? 0 : c.FixedSize(x, type.rank() - 1);
  TW_TRY(c.status());
  if (type.shape.size() < 2 || (parts != 1 && parts != 2) || !type.dtype.is_float()) {
    return n.Error("shape", StrCat("expected floats with one (real) or two (complex) parts in the "
                                   "last dimension, found ",
                                   op::ToText(type)));
  }
  if (!onesided || (parts == 2) == inverse) return absl::OkStatus();
  return n.Error("attribute",
                 StrCat("expected onesided 0, or a signal that is ", inverse ? "complex" : "real",
                        ", found onesided 1 and ", op::ToText(type)));
}

// What a DFT node does, but for its axis.
struct Dft {
  ValueId x = kNone;
  bool inverse = false, onesided = false;
  bool to_real() const { return inverse && onesided; }
  // Sizes along the axis of the result, by the points of the transform.
  int64_t Bins(int64_t points) const { return onesided && !inverse ? points / 2 + 1 : points; }
};

ValueId DftAlong(Composer& c, const Dft& dft, int64_t axis, int64_t points) {
  ValueId x = dft.x;
  const op::TensorType type = c.TypeOf(x);
  const int64_t rank = type.rank();
  // The axis next to the parts, all others as rows.
  std::vector<int64_t> perm(type.shape.size());
  std::iota(perm.begin(), perm.end(), 0);
  std::swap(perm[static_cast<size_t>(axis)], perm[static_cast<size_t>(rank - 2)]);
  x = c.Transpose(x, perm);
  if (type.dtype.bits == 16) x = c.Cast(x, ir::kF32);
  std::vector<op::Dim> shape = c.Dims(x);
  const size_t outer = shape.size() - 2;
  const std::optional<op::Dim> rows = op::Dim::Product(std::span(shape).first(outer));
  if (!rows) return c.Fail("open_size", StrCat("expected fewer open sizes", kGiveNumbers));
  x = c.ReshapeTo(x, {*rows, shape[outer], shape.back()});
  x = Resized(c, x, dft.to_real() ? points / 2 + 1 : points);
  x = dft.to_real() ? RealInverse(c, x, points) : Transform(c, x, dft.Bins(points), dft.inverse);
  if (!c.ok()) return kNone;
  shape[outer] = c.Dims(x)[1];
  shape[outer + 1] = c.Dims(x)[2];
  return c.Cast(c.Transpose(c.ReshapeTo(x, shape), perm), type.dtype);
}

// The points along an axis: the length that the node states, else that of the signal.
absl::StatusOr<int64_t> PointsAlong(Composer& c, const Dft& dft, int64_t axis) {
  NodeReader& n = c.node();
  const int64_t size = c.FixedSize(dft.x, axis);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t points,
            NumberIn(n, 1, "dft_length", dft.to_real() ? 2 * (size - 1) : size));
  if (points >= 1 && points <= int64_t{1} << 24) return points;
  return n.Error("attribute", StrCat("expected a dft_length in 1 to 16777216, found ", points));
}

// An axis that is an input of the model: the module computes the result along each axis that gives
// the stated shape, and chooses.
Result DftAtRunTime(Composer& c, const Dft& dft) {
  NodeReader& n = c.node();
  const std::vector<int64_t> shape = c.Shape(dft.x);
  const ValueId given = c.Reshape(c.Cast(c.Input(2), ir::kI64), {});
  TW_TRY(c.status());
  const auto rank = static_cast<int64_t>(shape.size());
  const ValueId axis =
      c.Op("where", {c.Op("less", {given, c.Number(0)}), c.Add(given, c.Number(rank)), given});
  const std::optional<std::vector<int64_t>> stated = n.StatedShape();
  RunTimeChoice choice(c);
  for (int64_t a = 0; stated && a < rank - 1; ++a) {
    const absl::StatusOr<int64_t> points = PointsAlong(c, dft, a);
    if (!points.ok()) continue;  // no transform along this one
    std::vector<int64_t> result = shape;
    result[static_cast<size_t>(a)] = dft.Bins(*points);
    result.back() = dft.to_real() ? 1 : 2;
    if (result != *stated) continue;
    const ValueId wanted = c.Op("equal", {axis, c.Number(a)});
    choice.Add(wanted, DftAlong(c, dft, a, *points));
  }
  if (choice.empty()) {
    return n.Error(
        "dynamic",
        "expected a constant dft_length, and a constant axis or a stated shape that one gives");
  }
  return choice.Done(StrCat("axes of ", n.label(), " that give the stated shape"));
}

}  // namespace

Result ImportDft(NodeReader& n) {
  Composer c(n);
  Dft dft;
  dft.x = c.Input(0);
  TW_TRY(c.status());
  const op::TensorType type = c.TypeOf(dft.x);
  TW_ASSIGN(const int64_t inverse, n.Int("inverse", 0));
  TW_ASSIGN(const int64_t onesided, n.Int("onesided", 0));
  dft.inverse = inverse != 0, dft.onesided = onesided != 0;
  TW_TRY(CheckSignal(c, dft.x, dft.onesided, dft.inverse));
  TW_ASSIGN(int64_t axis, n.Int("axis", 1));
  if (n.importer().opset() >= 20) {
    if (n.IsDynamic(2)) return DftAtRunTime(c, dft);
    TW_ASSIGN(axis, NumberIn(n, 2, "axis", -2));
  }
  if (axis < 0) axis += type.rank();
  if (axis < 0 || axis >= type.rank() - 1) {
    return n.Error(
        "axis", StrCat("expected an axis of the signal, found ", axis, " of ", op::ToText(type)));
  }
  TW_ASSIGN(const int64_t points, PointsAlong(c, dft, axis));
  return c.Done(DftAlong(c, dft, axis, points));
}

namespace {

struct Stft {
  ValueId x = kNone, window = kNone;
  bool onesided = true;

  int64_t Bins(int64_t points) const { return onesided ? points / 2 + 1 : points; }
};

// Where the elements of all frames are in a signal, i64 [frames * points]; `step` is a number of
// the graph.
ValueId FramePlaces(Composer& c, const op::Dim& frames, int64_t points, ValueId step) {
  const ValueId first = c.Mul(c.Counting(ir::kI64, frames, 0, 2), step);
  const ValueId places = c.Add(first, c.Counting(ir::kI64, points, 1, 2));
  return c.ReshapeTo(places, {frames * op::Dim(points)});
}
// The same as a constant.
ValueId FramePlaces(Composer& c, int64_t frames, int64_t points, int64_t step) {
  std::vector<double> places;
  for (int64_t f = 0; f < frames; ++f) {
    for (int64_t j = 0; j < points; ++j) places.push_back(static_cast<double>(f * step + j));
  }
  return c.Constant(ir::kI64, {frames * points}, std::move(places));
}

// [n, frames, bins, 2] of the frames that begin at `places`.
ValueId SpectraAt(Composer& c, const Stft& stft, ValueId places, const op::Dim& frames,
                  int64_t points) {
  const op::TensorType type = c.TypeOf(stft.x);
  ValueId x = type.dtype.bits == 16 ? c.Cast(stft.x, ir::kF32) : stft.x;
  x = c.Op("gather", {x, places}, {{"axis", int64_t{1}}});
  x = c.ReshapeTo(x, {type.shape[0] * frames, points, type.shape[2]});
  if (stft.window != kNone) {
    x = c.Mul(x, c.Reshape(c.Cast(stft.window, c.TypeOf(x).dtype), {1, points, 1}));
  }
  const int64_t bins = stft.Bins(points);
  x = c.ReshapeTo(Transform(c, x, bins, false), {type.shape[0], frames, bins, 2});
  return c.Cast(x, type.dtype);
}

// A frame_step or a frame_length that are inputs of the model. The stated shape says how many
// frames there are, and leaves at most two lengths of them: the module computes the result for
// each, and chooses.
Result StftAtRunTime(Composer& c, const Stft& stft) {
  NodeReader& n = c.node();
  const std::optional<std::vector<int64_t>> stated = n.StatedShape();
  const int64_t length = c.FixedSize(stft.x, 1);
  const int64_t own = stft.window == kNone ? -1 : c.FixedSize(stft.window, 0);
  const ValueId step = c.Op("max", {c.Reshape(c.Cast(c.Input(1), ir::kI64), {}), c.Number(1)});
  const ValueId given = n.HasInput(3) ? c.Reshape(c.Cast(c.Input(3), ir::kI64), {}) : c.Number(own);
  TW_TRY(c.status());
  RunTimeChoice choice(c);
  if (stated && stated->size() == 4) {
    const int64_t frames = (*stated)[1], bins = (*stated)[2];
    const int64_t longest = stft.onesided ? 2 * bins - 1 : bins;
    for (int64_t points = std::max<int64_t>(1, stft.onesided ? longest - 1 : longest);
         points <= std::min(longest, length); ++points) {
      if (own >= 0 && own != points) continue;
      if (frames < 1 || frames > kMaxFramePlaces / points) continue;
      // The last frame ends inside of the signal, and no other fits behind it.
      const ValueId last = c.Div(c.Number(length - points), step);
      const ValueId wanted = c.Op("and", {c.Op("equal", {given, c.Number(points)}),
                                          c.Op("equal", {last, c.Number(frames - 1)})});
      const ValueId places =
          c.Op("min", {FramePlaces(c, op::Dim(frames), points, step), c.Number(length - 1)});
      choice.Add(wanted, SpectraAt(c, stft, places, op::Dim(frames), points));
    }
  }
  if (choice.empty()) {
    return n.Error("dynamic",
                   "expected a constant frame_step and frame_length, or a stated shape that one "
                   "gives");
  }
  return choice.Done(StrCat("frames of ", n.label(), " that give the stated shape"));
}

}  // namespace

Result ImportStft(NodeReader& n) {
  Composer c(n);
  Stft stft;
  stft.x = c.Input(0);
  TW_TRY(c.status());
  const op::TensorType type = c.TypeOf(stft.x);
  TW_ASSIGN(const int64_t onesided, n.Int("onesided", 1));
  stft.onesided = onesided != 0;
  TW_TRY(CheckSignal(c, stft.x, stft.onesided, false));
  stft.window = c.OptionalInput(2);
  TW_TRY(c.status());
  const bool bad_window = stft.window != kNone && c.Rank(stft.window) != 1;
  const bool good_rank = type.shape.size() == 3;
  if (good_rank && !bad_window && (n.IsDynamic(1) || n.IsDynamic(3))) return StftAtRunTime(c, stft);
  const int64_t own = stft.window == kNone || bad_window ? -1 : c.Shape(stft.window)[0];
  TW_ASSIGN(const int64_t step, NumberIn(n, 1, "frame_step", 0));
  TW_ASSIGN(const int64_t points, NumberIn(n, 3, "frame_length", own));
  const op::Dim length = good_rank ? type.shape[1] : op::Dim(0);
  const int64_t shortest = n.importer().Bound(length, false).value_or(0);
  if (!length.is_constant() && points > shortest) {
    return n.Error("open_size", StrCat("expected signals that are as long as a frame of ", points,
                                       " at all sizes, found ", op::ToText(type)));
  }
  if (bad_window || step < 1 || points < 1 || points > shortest || (own >= 0 && own != points)) {
    return n.Error("shape", StrCat("expected a signal [n, length, parts], a frame_step of at least "
                                   "1, and a window and frame_length of one length inside of it, "
                                   "found ",
                                   op::ToText(type), ", ", step, ", ", own, " and ", points));
  }
  const op::Dim frames = (length - op::Dim(points)).FloorDiv(step) + op::Dim(1);
  const std::optional<int64_t> most = c.Most(frames);
  if (!most || *most > kMaxFramePlaces / points) {
    return n.Error("too_large", StrCat("expected at most ", kMaxFramePlaces,
                                       " elements in all frames, found more"));
  }
  const ValueId places = frames.is_constant() ? FramePlaces(c, frames.value(), points, step)
                                              : FramePlaces(c, frames, points, c.Number(step));
  return c.Done(SpectraAt(c, stft, places, frames, points));
}

}  // namespace tilewright::graph::onnx
