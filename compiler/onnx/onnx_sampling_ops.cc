// Operators that read images at computed places: GridSample, RoiAlign, AffineGrid. Each position of
// the result has a list of places ("taps") with a weight for each; what they hold is gathered, and
// summed.
#include <algorithm>
#include <cmath>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;
using Ints = std::vector<int64_t>;

constexpr double kCubicSlope = -0.75;

int64_t Product(const Ints& shape, size_t from) {
  int64_t product = 1;
  for (size_t d = from; d < shape.size(); ++d) product *= shape[d];
  return product;
}

// The taps of all positions along one dimension: places, weights, and whether the place is inside.
struct Taps {
  ValueId at = kNone, weight = kNone, inside = kNone;
};

class GridSampler {
 public:
  explicit GridSampler(NodeReader& n) : n_(n), c_(n) {}

  Result Run() {
    x_ = c_.Input(0);
    const ValueId grid = c_.Input(1);
    TW_TRY(c_.status());
    TW_TRY(ReadAttrs());
    shape_ = c_.Shape(x_);
    const Ints at = c_.Shape(grid);
    const int64_t dims = c_.Rank(x_) - 2;
    if (dims < 1 || dims > 3 || at.size() != shape_.size() || at.back() != dims ||
        at[0] != shape_[0]) {
      return n_.Error("shape",
                      StrCat("expected images of one to three dimensions and a position "
                             "of each for every result, found ",
                             op::ToText(c_.TypeOf(x_)), " and ", op::ToText(c_.TypeOf(grid))));
    }
    type_ = c_.TypeOf(grid).dtype;
    if (!type_.is_float() || (mode_ != "nearest" && !c_.TypeOf(x_).dtype.is_float())) {
      return n_.Error("type", StrCat("expected floats, found ", op::ToText(c_.TypeOf(x_)), " and ",
                                     op::ToText(c_.TypeOf(grid))));
    }
    if (type_.bits == 16) type_ = ir::kF32;
    positions_ = Product(at, 1) / dims;
    std::vector<Taps> taps;
    for (int64_t d = 0; d < dims; ++d) {
      // The last number of a position is that of the first dimension.
      const ValueId part = c_.Slice(grid, static_cast<int64_t>(at.size()) - 1, dims - 1 - d, 1);
      taps.push_back(TapsOf(c_.Cast(c_.Reshape(part, {at[0], positions_, 1}), type_),
                            shape_[static_cast<size_t>(d) + 2]));
    }
    const ValueId y = Sum(taps);
    Ints result = {shape_[0], shape_[1]};
    result.insert(result.end(), at.begin() + 1, at.end() - 1);
    return c_.Done(c_.Reshape(y, result));
  }

 private:
  absl::Status ReadAttrs() {
    TW_ASSIGN(mode_, n_.String("mode", n_.importer().opset() < 20 ? "bilinear" : "linear"));
    TW_ASSIGN(padding_, n_.String("padding_mode", "zeros"));
    TW_ASSIGN(const int64_t align, n_.Int("align_corners", 0));
    align_ = align != 0;
    if (mode_ == "bilinear") mode_ = "linear";  // the names of opset 16
    if (mode_ == "bicubic") mode_ = "cubic";
    const bool known = (mode_ == "linear" || mode_ == "nearest" || mode_ == "cubic") &&
                       (padding_ == "zeros" || padding_ == "border" || padding_ == "reflection");
    if (known) return absl::OkStatus();
    return n_.Error("attribute",
                    StrCat("expected mode linear, nearest or cubic and padding_mode zeros, border "
                           "or reflection, found ",
                           support::Quote(mode_), " and ", support::Quote(padding_)));
  }

  ValueId Real(double value) { return c_.Scalar(value, type_); }

  // Places mirrored at the borders of the image until they are inside.
  ValueId Reflected(ValueId at, int64_t size) {
    const double low = align_ ? 0 : -0.5;
    const double span = static_cast<double>(size) - (align_ ? 1 : 0);
    if (span == 0) return c_.Mul(at, Real(0));
    const ValueId from_low = c_.Sub(at, Real(low));
    const ValueId turns = c_.Op("floor", {c_.Div(from_low, Real(2 * span))});
    const ValueId in_turn = c_.Sub(from_low, c_.Mul(turns, Real(2 * span)));
    return c_.Add(c_.Op("min", {in_turn, c_.Sub(Real(2 * span), in_turn)}), Real(low));
  }

  // Places beyond the outer sides of the image moved to its outer elements.
  ValueId Moved(ValueId at, int64_t size) {
    const double low = align_ ? 0 : -0.5, high = static_cast<double>(size) - (align_ ? 1 : 0.5);
    const ValueId beyond =
        c_.Op("or", {c_.Op("less", {at, Real(low)}), c_.Op("less", {Real(high), at})});
    const double last = static_cast<double>(size - 1);
    return c_.Op("where", {beyond, c_.Op("clip", {at}, {{"min", 0.0}, {"max", last}}), at});
  }

  // From -1 to 1: the centres of the outer elements, or their outer sides.
  ValueId PlaceOf(ValueId position, int64_t size) {
    const double length = static_cast<double>(size);
    const ValueId from_low = c_.Add(position, Real(1));
    if (align_) return c_.Mul(from_low, Real((length - 1) / 2));
    return c_.Div(c_.Sub(c_.Mul(from_low, Real(length)), Real(1)), Real(2));
  }

  // The cubic's weight of an element at this distance.
  ValueId Cubic(ValueId distance) {
    const ValueId d = c_.Op("abs", {distance});
    const double k = kCubicSlope;
    const auto polynomial = [&](double d3, double d2, double d1, double d0) {
      ValueId value = c_.Add(c_.Mul(d, Real(d3)), Real(d2));
      value = c_.Add(c_.Mul(value, d), Real(d1));
      return c_.Add(c_.Mul(value, d), Real(d0));
    };
    return c_.Op("where", {c_.Op("less_equal", {d, Real(1)}), polynomial(k + 2, -(k + 3), 0, 1),
                           polynomial(k, -5 * k, 8 * k, -4 * k)});
  }

  // Of places [batch, positions, 1]: [batch, positions, taps].
  Taps TapsOf(ValueId position, int64_t size) {
    ValueId at = PlaceOf(position, size);
    if (mode_ == "nearest") at = c_.Op("round", {at});
    const double last = static_cast<double>(size - 1);
    const bool reflects = padding_ == "reflection";
    if (padding_ == "border") at = Moved(at, size);
    if (reflects) at = Reflected(at, size);
    Taps taps;
    if (mode_ == "nearest") {
      taps.at = at;
    } else {
      const bool linear = mode_ == "linear";
      const ValueId floor = c_.Op("floor", {at});
      const ValueId steps =
          linear ? c_.Constant(type_, {2}, {0, 1}) : c_.Constant(type_, {4}, {-1, 0, 1, 2});
      const ValueId distance = c_.Sub(steps, c_.Sub(at, floor));
      taps.weight = linear ? c_.Sub(Real(1), c_.Op("abs", {distance})) : Cubic(distance);
      taps.at = c_.Add(floor, steps);
      if (reflects) taps.at = Reflected(taps.at, size);
    }
    if (padding_ == "zeros") {
      taps.inside = c_.Op("and", {c_.Op("less_equal", {Real(0), taps.at}),
                                  c_.Op("less_equal", {taps.at, Real(last)})});
    }
    taps.at = c_.Cast(c_.Op("clip", {taps.at}, {{"min", 0.0}, {"max", last}}), ir::kI64);
    return taps;
  }

  // A value per tap along dimension d of all taps of a position: [batch, positions, ..taps.., ..].
  ValueId Along(ValueId value, size_t d, size_t dims) {
    if (value == kNone || !c_.ok()) return kNone;
    Ints shape = {shape_[0], positions_};
    shape.resize(2 + dims, 1);
    shape[2 + d] = c_.Shape(value)[2];
    return c_.Reshape(value, shape);
  }

  ValueId Sum(const std::vector<Taps>& taps) {
    ValueId at = kNone, weight = kNone, inside = kNone;
    const auto join = [&](ValueId all, ValueId part, std::string_view row) {
      return all == kNone || part == kNone ? part : c_.Op(row, {all, part});
    };
    for (size_t d = 0; d < taps.size(); ++d) {
      const ValueId stride = c_.Number(Product(shape_, d + 3));
      at = join(at, c_.Mul(Along(taps[d].at, d, taps.size()), stride), "add");
      weight = join(weight, Along(taps[d].weight, d, taps.size()), "mul");
      inside = join(inside, Along(taps[d].inside, d, taps.size()), "and");
    }
    if (!c_.ok()) return kNone;
    const int64_t count = c_.TypeOf(at).elements() / (shape_[0] * positions_);
    const Ints list = {shape_[0], 1, positions_ * count};
    const ValueId image = c_.Reshape(x_, {shape_[0], shape_[1], Product(shape_, 2)});
    at = c_.Broadcast(c_.Reshape(at, list), {shape_[0], shape_[1], positions_ * count});
    ValueId y = c_.Op("gather_elements", {image, at}, {{"axis", int64_t{2}}});
    const ir::DType type = c_.TypeOf(x_).dtype;
    if (inside != kNone) {
      y = c_.Op("where", {c_.Reshape(inside, list), y, c_.Scalar(0, type)});
    }
    if (weight == kNone) return y;
    y = c_.Mul(y, c_.Cast(c_.Reshape(weight, list), type));
    return c_.Reduce("sum", c_.Reshape(y, {shape_[0], shape_[1], positions_, count}), {3}, false);
  }

  NodeReader& n_;
  Composer c_;
  std::string mode_, padding_;
  bool align_ = false;
  ir::DType type_ = ir::kF32;  // of places and weights
  ValueId x_ = kNone;
  Ints shape_;  // of x
  int64_t positions_ = 0;
};

}  // namespace

Result ImportGridSample(NodeReader& n) { return GridSampler(n).Run(); }

namespace {

// The operand of AffineGrid, [batch, channels, d.., h, w], but for the channels.
void ExpectGrid(Composer& c, const Ints& size) {
  const ValueId wanted = c.Cast(c.Input(1), ir::kI64);
  if (!c.ok()) return;
  const auto rank = static_cast<int64_t>(size.size());
  if (c.TypeOf(wanted).elements() != rank) {
    c.Fail("shape", "expected as many sizes as the stated result has dimensions");
    return;
  }
  const ValueId channels = c.Op("equal", {c.Counting(ir::kI64, rank, 0, 1), c.Number(1)});
  c.ExpectSizes(c.Op("where", {channels, c.Number(1), wanted}), size);
}

}  // namespace

// Positions on a regular grid from -1 to 1, each moved by the matrix of its image.
Result ImportAffineGrid(NodeReader& n) {
  Composer c(n);
  const ValueId theta = c.Input(0);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t align, n.Int("align_corners", 0));
  const Ints matrix = c.Shape(theta);
  Ints size;
  if (n.IsDynamic(1)) {  // the result is [batch, d.., h, w, dimensions]
    const std::optional<Ints> stated = n.StatedShape();
    if (!stated || stated->size() < 2) {
      return n.Error("dynamic",
                     "expected a constant size, or a result of a shape that the model states");
    }
    size = *stated;
    size.back() = 1;  // channels: of no importance
    std::rotate(size.begin() + 1, size.end() - 1, size.end());
    ExpectGrid(c, size);
    TW_TRY(c.status());
  } else {
    TW_ASSIGN(size, n.InputInts(1, "size"));
  }
  const int64_t dims = static_cast<int64_t>(size.size()) - 2;
  const op::TensorType result{c.TypeOf(theta).dtype, size};
  if (dims < 2 || dims > 3 || matrix != Ints{size[0], dims, dims + 1} ||
      !op::CheckType(result).ok() || Product(size, 2) > int64_t{1} << 26) {
    return n.Error("shape",
                   StrCat("expected a matrix per image and a size of 4 or 5 numbers, found ",
                          op::ToText(c.TypeOf(theta)), " and [", support::Join(size, ","), "]"));
  }
  // Rows of the matrix and columns of the grid are in the order w, h, d.
  std::vector<double> places;
  const int64_t points = Product(size, 2);
  for (int64_t p = 0; p < points; ++p) {
    int64_t rest = p;
    for (int64_t d = dims - 1; d >= 0; --d) {
      const int64_t length = size[static_cast<size_t>(d) + 2];
      const double i = static_cast<double>(rest % length), last = static_cast<double>(length - 1);
      rest /= length;
      const double span = static_cast<double>(length);
      places.push_back(align == 0 ? (2 * i + 1) / span - 1 : length == 1 ? -1 : 2 * i / last - 1);
    }
    places.push_back(1);
  }
  const ir::DType type = c.TypeOf(theta).dtype;
  const ValueId grid = c.Constant(type, {points, dims + 1}, std::move(places));
  const ValueId moved = c.MatMul(grid, c.Transpose(theta, {0, 2, 1}));
  Ints shape = {size[0]};
  shape.insert(shape.end(), size.begin() + 2, size.end());
  shape.push_back(dims);
  return c.Done(c.Reshape(moved, shape));
}

namespace {

struct RoiAttrs {
  int64_t height = 1, width = 1, samples = 0;
  double scale = 1;
  bool half_pixel = true, max = false;
};

absl::StatusOr<RoiAttrs> ReadRoiAttrs(NodeReader& n) {
  RoiAttrs a;
  TW_ASSIGN(a.height, n.Int("output_height", 1));
  TW_ASSIGN(a.width, n.Int("output_width", 1));
  TW_ASSIGN(a.samples, n.Int("sampling_ratio", 0));
  TW_ASSIGN(a.scale, n.Float("spatial_scale", 1));
  TW_ASSIGN(const std::string mode, n.String("mode", "avg"));
  const bool old = n.importer().opset() < 16;
  TW_ASSIGN(const std::string place,
            n.String("coordinate_transformation_mode", old ? "output_half_pixel" : "half_pixel"));
  a.half_pixel = place == "half_pixel";
  a.max = mode == "max";
  if (a.samples == 0) {
    return n.Error("dynamic",
                   "expected sampling_ratio of at least 1, found 0: the number of samples would "
                   "depend on the regions, which are only known when the model runs");
  }
  const bool fine = a.height >= 1 && a.width >= 1 && a.samples >= 1 && a.samples <= 64 &&
                    a.height <= 4096 && a.width <= 4096 && (a.max || mode == "avg") &&
                    (a.half_pixel || place == "output_half_pixel");
  if (fine) return a;
  return n.Error("attribute",
                 StrCat("expected output sizes in 1 to 4096, sampling_ratio in 1 to "
                        "64 and known modes, found ",
                        a.height, "x", a.width, ", ", a.samples, ", ", mode, " and ", place));
}

// Along one dimension of the regions: two taps for each sample, [regions, outputs * samples, 2].
Taps RegionTaps(Composer& c, const RoiAttrs& a, ValueId begin, ValueId end, int64_t outputs,
                int64_t size) {
  const auto real = [&](double value) { return c.Scalar(value, ir::kF32); };
  const double offset = a.half_pixel ? 0.5 : 0;
  const ValueId from = c.Sub(c.Mul(begin, real(a.scale)), real(offset));
  ValueId length = c.Sub(c.Sub(c.Mul(end, real(a.scale)), real(offset)), from);
  if (!a.half_pixel) length = c.Op("max", {length, real(1)});
  std::vector<double> middles;
  const int64_t samples = outputs * a.samples;
  for (int64_t s = 0; s < samples; ++s) middles.push_back(static_cast<double>(s) + 0.5);
  const ValueId steps = c.Constant(ir::kF32, {1, samples, 1}, std::move(middles));
  const ValueId step = c.Div(length, real(static_cast<double>(samples)));
  const ValueId at = c.Add(from, c.Mul(steps, step));
  const double last = static_cast<double>(size - 1);
  Taps taps;
  // A little outside counts as the border, further outside as nothing.
  taps.inside = c.Op("and", {c.Op("less_equal", {real(-1), at}),
                             c.Op("less_equal", {at, real(static_cast<double>(size))})});
  const ValueId place = c.Op("clip", {at}, {{"min", 0.0}, {"max", last}});
  const ValueId floor = c.Op("floor", {place});
  const ValueId pair = c.Constant(ir::kF32, {1, 1, 2}, {0, 1});
  taps.weight = c.Sub(real(1), c.Op("abs", {c.Sub(pair, c.Sub(place, floor))}));
  taps.at = c.Cast(c.Op("min", {c.Add(floor, pair), real(last)}), ir::kI64);
  return taps;
}

}  // namespace

// Regions of images, each as a grid of bins: the mean, or the largest, of samples in each bin.
Result ImportRoiAlign(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0), regions = c.Cast(c.Input(1), ir::kF32);
  const ValueId batch = c.Cast(c.Input(2), ir::kI64);
  TW_TRY(c.status());
  TW_ASSIGN(const RoiAttrs a, ReadRoiAttrs(n));
  const Ints s = c.Shape(x), r = c.Shape(regions);
  if (s.size() != 4 || r.size() != 2 || r[1] != 4 || c.Shape(batch) != Ints{r[0]} ||
      !c.TypeOf(x).dtype.is_float()) {
    return n.Error("shape", StrCat("expected images [n,c,h,w], regions [r,4] and an image number "
                                   "for each, found ",
                                   op::ToText(c.TypeOf(x)), ", ", op::ToText(c.TypeOf(regions)),
                                   " and ", op::ToText(c.TypeOf(batch))));
  }
  const auto side = [&](int64_t k) { return c.Reshape(c.Slice(regions, 1, k, 1), {r[0], 1, 1}); };
  const Taps tall = RegionTaps(c, a, side(1), side(3), a.height, s[2]);
  const Taps wide = RegionTaps(c, a, side(0), side(2), a.width, s[3]);
  // [regions, rows, columns, 2, 2]
  const int64_t rows = a.height * a.samples, columns = a.width * a.samples;
  const auto of_rows = [&](ValueId v, int64_t taps) {
    return c.Reshape(v, {r[0], rows, 1, taps, 1});
  };
  const auto of_columns = [&](ValueId v, int64_t taps) {
    return c.Reshape(v, {r[0], 1, columns, 1, taps});
  };
  ValueId at = c.Add(c.Mul(of_rows(tall.at, 2), c.Number(s[3])), of_columns(wide.at, 2));
  const ValueId image = c.Mul(c.Reshape(batch, {r[0], 1, 1, 1, 1}), c.Number(s[2] * s[3]));
  at = c.Add(at, image);
  ValueId weight = c.Mul(of_rows(tall.weight, 2), of_columns(wide.weight, 2));
  const ValueId inside = c.Op("and", {of_rows(tall.inside, 1), of_columns(wide.inside, 1)});
  weight = c.Op("where", {inside, weight, c.Scalar(0, ir::kF32)});
  TW_TRY(c.status());
  const int64_t all = c.TypeOf(at).elements();
  const ValueId planes = c.Reshape(c.Transpose(x, {1, 0, 2, 3}), {s[1], s[0] * s[2] * s[3]});
  ValueId y = c.Op("gather", {planes, c.Reshape(at, {all})}, {{"axis", int64_t{1}}});
  y = c.Mul(y, c.Cast(c.Reshape(weight, {1, all}), c.TypeOf(x).dtype));
  y = c.Reshape(y, {s[1], r[0], a.height, a.samples, a.width, a.samples, 4});
  if (a.max) {  // of the weighted taps, as ONNX defines it
    y = c.Reduce("max", y, {3, 5, 6}, false);
  } else {
    y = c.Reduce("sum", y, {3, 5, 6}, false);
    const double count = static_cast<double>(a.samples * a.samples);
    y = c.Mul(y, c.Scalar(1 / count, c.TypeOf(x).dtype));
  }
  return c.Done(c.Transpose(y, {1, 0, 2, 3}));
}

}  // namespace tilewright::graph::onnx
