// Operators that read images at computed places: GridSample, AffineGrid. Each position of
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

op::Dim Product(const std::vector<op::Dim>& shape, size_t from, size_t less = 0) {
  op::Dim product = 1;
  for (size_t d = from; d + less < shape.size(); ++d) product = product * shape[d];
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
    shape_ = c_.Dims(x_);
    const std::vector<op::Dim> at = c_.Dims(grid);
    const int64_t dims = c_.Rank(x_) - 2;
    if (!at.empty()) c_.FixedSize(grid, c_.Rank(grid) - 1);
    TW_TRY(c_.status());
    if (dims < 1 || dims > 3 || at.size() != shape_.size() || at.back() != op::Dim(dims) ||
        (at[0] - shape_[0]).constant().value_or(0) != 0) {
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
    positions_ = Product(at, 1, 1);
    std::vector<Taps> taps;
    for (int64_t d = 0; d < dims; ++d) {
      // The last number of a position is that of the first dimension.
      const ValueId part = c_.Slice(grid, static_cast<int64_t>(at.size()) - 1, dims - 1 - d, 1);
      taps.push_back(TapsOf(c_.Cast(c_.ReshapeTo(part, {at[0], positions_, 1}), type_),
                            shape_[static_cast<size_t>(d) + 2]));
    }
    const ValueId y = Sum(taps);
    std::vector<op::Dim> result = {shape_[0], shape_[1]};
    result.insert(result.end(), at.begin() + 1, at.end() - 1);
    return c_.Done(c_.ReshapeTo(y, result));
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

  // (size + more) * factor
  ValueId Length(const op::Dim& size, double more, double factor) {
    if (size.is_constant()) return Real((static_cast<double>(size.value()) + more) * factor);
    return c_.Mul(c_.Add(c_.SizeOf(size, type_), Real(more)), Real(factor));
  }
  ValueId OnImage(ValueId at, const op::Dim& size) {
    return c_.Op("min", {c_.Op("max", {at, Real(0)}), Length(size, -1, 1)});
  }

  // Places mirrored at the borders of the image until they are inside. An image of one element
  // whose borders are its centre has a span of 0: all places are that element.
  ValueId Reflected(ValueId at, const op::Dim& size) {
    const double low = align_ ? 0 : -0.5, less = align_ ? -1 : 0;
    const ValueId twice = Length(size, less, 2);
    const ValueId from_low = c_.Sub(at, Real(low));
    const ValueId turns = c_.Op("floor", {c_.Div(from_low, c_.Op("max", {twice, Real(1)}))});
    const ValueId in_turn = c_.Sub(from_low, c_.Mul(turns, twice));
    return c_.Add(c_.Op("min", {in_turn, c_.Sub(twice, in_turn)}), Real(low));
  }

  // Places beyond the outer sides of the image moved to its outer elements.
  ValueId Moved(ValueId at, const op::Dim& size) {
    const ValueId low = Real(align_ ? 0 : -0.5), high = Length(size, align_ ? -1 : -0.5, 1);
    const ValueId beyond = c_.Op("or", {c_.Op("less", {at, low}), c_.Op("less", {high, at})});
    return c_.Op("where", {beyond, OnImage(at, size), at});
  }

  // From -1 to 1: the centres of the outer elements, or their outer sides.
  ValueId PlaceOf(ValueId position, const op::Dim& size) {
    const ValueId from_low = c_.Add(position, Real(1));
    if (align_) return c_.Mul(from_low, Length(size, -1, 0.5));
    return c_.Div(c_.Sub(c_.Mul(from_low, Length(size, 0, 1)), Real(1)), Real(2));
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
  Taps TapsOf(ValueId position, const op::Dim& size) {
    ValueId at = PlaceOf(position, size);
    if (mode_ == "nearest") at = c_.Op("round", {at});
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
                                  c_.Op("less_equal", {taps.at, Length(size, -1, 1)})});
    }
    taps.at = c_.Cast(OnImage(taps.at, size), ir::kI64);
    return taps;
  }

  // A value per tap along dimension d of all taps of a position: [batch, positions, ..taps.., ..].
  ValueId Along(ValueId value, size_t d, size_t dims) {
    if (value == kNone || !c_.ok()) return kNone;
    std::vector<op::Dim> shape = {shape_[0], positions_};
    shape.resize(2 + dims, 1);
    shape[2 + d] = c_.Dims(value)[2];
    return c_.ReshapeTo(value, shape);
  }

  ValueId Sum(const std::vector<Taps>& taps) {
    ValueId at = kNone, weight = kNone, inside = kNone;
    const auto join = [&](ValueId all, ValueId part, std::string_view row) {
      return all == kNone || part == kNone ? part : c_.Op(row, {all, part});
    };
    for (size_t d = 0; d < taps.size(); ++d) {
      const ValueId stride = c_.SizeOf(Product(shape_, d + 3), ir::kI64);
      at = join(at, c_.Mul(Along(taps[d].at, d, taps.size()), stride), "add");
      weight = join(weight, Along(taps[d].weight, d, taps.size()), "mul");
      inside = join(inside, Along(taps[d].inside, d, taps.size()), "and");
    }
    if (!c_.ok()) return kNone;
    const op::Dim count = Product(c_.Dims(at), 2);  // of taps
    const std::vector<op::Dim> list = {shape_[0], 1, positions_ * count};
    const ValueId image = c_.ReshapeTo(x_, {shape_[0], shape_[1], Product(shape_, 2)});
    at = c_.BroadcastTo(c_.ReshapeTo(at, list), {shape_[0], shape_[1], positions_ * count});
    ValueId y = c_.Op("gather_elements", {image, at}, {{"axis", int64_t{2}}});
    const ir::DType type = c_.TypeOf(x_).dtype;
    if (inside != kNone) {
      y = c_.Op("where", {c_.ReshapeTo(inside, list), y, c_.Scalar(0, type)});
    }
    if (weight == kNone) return y;
    y = c_.Mul(y, c_.Cast(c_.ReshapeTo(weight, list), type));
    return c_.Reduce("sum", c_.ReshapeTo(y, {shape_[0], shape_[1], positions_, count}), {3}, false);
  }

  NodeReader& n_;
  Composer c_;
  std::string mode_, padding_;
  bool align_ = false;
  ir::DType type_ = ir::kF32;  // of places and weights
  ValueId x_ = kNone;
  std::vector<op::Dim> shape_;  // of x
  op::Dim positions_;           // of an image
};

}  // namespace

Result ImportGridSample(NodeReader& n) { return GridSampler(n).Run(); }

namespace {

// The sizes that AffineGrid states, [batch, channels, d.., h, w], without the channels.
std::vector<op::Dim> GridSizes(Composer& c, int64_t dims, const op::Dim& batch) {
  NodeReader& n = c.node();
  const ValueId given = c.Input(1);
  if (!c.ok()) return {};
  if (!c.TypeOf(given).fixed() || c.TypeOf(given).elements() != dims + 2) {
    c.Fail("shape", StrCat("expected a size of ", dims + 2, " numbers, found ",
                           op::ToText(c.TypeOf(given))));
    return {};
  }
  if (!n.IsDynamic(1)) {
    std::vector<op::Dim> sizes = *n.importer().ConstantDims(given);
    sizes.erase(sizes.begin() + 1);
    return sizes;
  }
  // The result is [batch, d.., h, w, dims].
  const ValueId all = c.Cast(given, ir::kI64);
  const ValueId found =
      c.Concat({c.Slice(all, 0, 0, 1), c.Slice(all, 0, 2, dims), c.SizesOf({dims})}, 0);
  std::vector<Composer::SizeBound> bounds(static_cast<size_t>(dims) + 2);
  if (batch.is_constant()) bounds[0].known = batch;
  bounds.back().known = dims;
  std::vector<op::Dim> sizes = c.FoundShape(found, bounds);
  sizes.pop_back();
  return sizes;
}

// Along one dimension of the grid: the centres of the elements of an image from -1 to 1, or places
// from its first to its last element.
ValueId GridLine(Composer& c, const op::Dim& size, bool align, int64_t axis, int64_t rank,
                 ir::DType type) {
  const auto real = [&](double value) { return c.Scalar(value, type); };
  const ValueId i = c.Counting(type, size, axis, rank);
  if (!align) {
    const ValueId twice = c.Add(c.Mul(i, real(2)), real(1));
    return c.Sub(c.Div(twice, c.SizeOf(size, type)), real(1));
  }
  const ValueId last = c.Op("max", {c.SizeOf(size - op::Dim(1), type), real(1)});
  return c.Sub(c.Div(c.Mul(i, real(2)), last), real(1));
}

}  // namespace

// Positions on a regular grid from -1 to 1, each moved by the matrix of its image.
Result ImportAffineGrid(NodeReader& n) {
  constexpr int64_t kMostPoints = int64_t{1} << 26;
  Composer c(n);
  const ValueId theta = c.Input(0);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t align, n.Int("align_corners", 0));
  const std::vector<op::Dim> matrix = c.Dims(theta);
  for (int64_t axis = 1; axis < c.Rank(theta); ++axis) c.FixedSize(theta, axis);
  TW_TRY(c.status());
  const int64_t dims = matrix.size() == 3 ? matrix[1].constant().value_or(0) : 0;
  if (dims < 2 || dims > 3 || matrix[2] != op::Dim(dims + 1)) {
    return n.Error("shape", StrCat("expected a matrix of 2 x 3 or 3 x 4 for each image, found ",
                                   op::ToText(c.TypeOf(theta))));
  }
  const std::vector<op::Dim> size = GridSizes(c, dims, matrix[0]);
  TW_TRY(c.status());
  const std::optional<op::Dim> points = op::Dim::Product(std::span(size).subspan(1));
  const std::optional<int64_t> most = points ? c.Most(*points) : std::nullopt;
  if (!most || *most < 1 || *most > kMostPoints ||
      (size[0] - matrix[0]).constant().value_or(0) != 0) {
    return n.Error("shape", StrCat("expected an image for each matrix, of at most ", kMostPoints,
                                   " elements, found ", op::DimsText(size)));
  }
  // Rows of the matrix and columns of the grid are in the order w, h, d.
  const ir::DType type = c.TypeOf(theta).dtype, wide = type.bits == 16 ? ir::kF32 : type;
  std::vector<op::Dim> image(size.begin() + 1, size.end());
  image.push_back(1);
  std::vector<ValueId> columns;
  for (int64_t d = dims - 1; d >= 0; --d) {
    const ValueId line =
        GridLine(c, size[static_cast<size_t>(d) + 1], align != 0, d, dims + 1, wide);
    columns.push_back(c.BroadcastTo(c.Cast(line, type), image));
  }
  columns.push_back(c.BroadcastTo(c.Scalar(1, type), image));
  const ValueId grid = c.ReshapeTo(c.Concat(std::move(columns), dims), {*points, dims + 1});
  const ValueId moved = c.MatMul(grid, c.Transpose(theta, {0, 2, 1}));
  std::vector<op::Dim> shape = {matrix[0]};
  shape.insert(shape.end(), size.begin() + 1, size.end());
  shape.push_back(dims);
  return c.Done(c.ReshapeTo(moved, shape));
}

}  // namespace tilewright::graph::onnx
