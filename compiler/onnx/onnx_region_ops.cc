// Windows whose places the module computes: DeformConv and MaxRoiPool.
#include <algorithm>
#include <cmath>

#include "compiler/onnx/onnx_volume_ops.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using op::Dim;
using support::StrCat;

constexpr int64_t kMaxWindowPlaces = int64_t{1} << 22;

// What a deformable convolution is made of. Places are [images * offset_groups, taps, results].
struct Deformed {
  WindowAttrs window;
  int64_t groups = 1, offset_groups = 1;
  std::vector<int64_t> w;
  std::vector<Dim> x, outputs;  // shapes; outputs: rows, columns
  int64_t channels = 0;
  int64_t taps() const { return w[2] * w[3]; }
  Dim results() const { return outputs[0] * outputs[1]; }
  Dim lists() const { return x[0] * Dim(offset_groups); }
};

absl::StatusOr<Deformed> ReadDeformed(Composer& c, ValueId x, ValueId w, ValueId offset,
                                      ValueId mask) {
  NodeReader& n = c.node();
  Deformed d;
  d.x = c.Dims(x);
  d.w = c.Shape(w);
  TW_TRY(c.status());
  if (d.x.size() != 4 || d.w.size() != 4 || !c.TypeOf(x).dtype.is_float()) {
    return n.Error("rank", StrCat("expected images [n,c,h,w] and a weight of rank 4, found ",
                                  op::ToText(c.TypeOf(x)), " and ", op::ToText(c.TypeOf(w))));
  }
  d.channels = c.FixedSize(x, 1);
  TW_TRY(c.status());
  const auto size = [&](size_t s) { return d.x[s].constant().value_or(kOpenSize); };
  TW_ASSIGN(d.window, ReadWindow(n, {size(2), size(3)}, {d.w[2], d.w[3]}));
  TW_ASSIGN(d.groups, n.Int("group", 1));
  TW_ASSIGN(d.offset_groups, n.Int("offset_group", 1));
  for (size_t s = 0; s < 2; ++s) {
    const Dim room = d.x[2 + s] + Dim(d.window.pads[s] + d.window.pads[s + 2] -
                                      d.window.dilations[s] * (d.window.kernel[s] - 1) - 1);
    if (n.importer().Bound(room, true).value_or(0) < 0) {
      return n.Error("shape", "expected a window that fits into the padded image");
    }
    d.outputs.push_back(room.FloorDiv(d.window.strides[s]) + Dim(1));
  }
  const bool groups = d.groups >= 1 && d.offset_groups >= 1 && d.channels == d.w[1] * d.groups &&
                      d.w[0] % d.groups == 0 && d.channels % d.offset_groups == 0;
  const int64_t lists = groups ? d.offset_groups * d.taps() : 0;
  const auto fits = [&](ValueId id, int64_t parts) {
    if (id == kNone) return true;
    const std::vector<Dim> own = c.Dims(id);
    const std::vector<Dim> wanted = {d.x[0], lists * parts, d.outputs[0], d.outputs[1]};
    bool same = own.size() == wanted.size();
    for (size_t i = 0; same && i < own.size(); ++i) {
      same = (own[i] - wanted[i]).constant().value_or(0) == 0;  // others settle with the graph
    }
    return same;
  };
  if (!groups || !fits(offset, 2) || !fits(mask, 1)) {
    return n.Error("shape", StrCat("expected groups of the channels, and two offsets for each tap "
                                   "and each result, found ",
                                   op::ToText(c.TypeOf(x)), ", ", op::ToText(c.TypeOf(w)), " and ",
                                   op::ToText(c.TypeOf(offset))));
  }
  const std::optional<int64_t> most = c.Most(d.results());
  if (!most || d.taps() > kMaxWindowPlaces / *most) {
    return n.Error("too_large", StrCat("expected at most ", kMaxWindowPlaces,
                                       " elements in all windows of an image, found more"));
  }
  return d;
}

// Along one dimension of the image: two places for each tap and result, how much each counts.
struct Line {
  ValueId at = kNone, weight = kNone;  // [lists, taps * results, 2]
};

Line DeformedLine(Composer& c, const Deformed& d, ValueId offset, size_t dim) {
  // A tap's place in the first window, and how far the window of a result is from it.
  std::vector<double> taps;
  for (int64_t tap = 0; tap < d.taps(); ++tap) {
    const int64_t k = dim == 0 ? tap / d.w[3] : tap % d.w[3];
    taps.push_back(static_cast<double>(k * d.window.dilations[dim] - d.window.pads[dim]));
  }
  const Dim places = Dim(d.taps()) * d.results();
  const ir::DType type = c.TypeOf(offset).dtype;
  const ValueId steps = c.Mul(c.Counting(type, d.outputs[dim], dim == 0 ? 1 : 2, 3),
                              c.Scalar(static_cast<double>(d.window.strides[dim]), type));
  const ValueId base = c.BroadcastTo(c.Add(steps, c.Constant(type, {d.taps(), 1, 1}, taps)),
                                     {d.taps(), d.outputs[0], d.outputs[1]});
  const ValueId parts = c.ReshapeTo(offset, {d.lists(), d.taps(), 2, d.results()});
  const ValueId own = c.Slice(parts, 2, static_cast<int64_t>(dim), 1);
  const ValueId place =
      c.Add(c.ReshapeTo(own, {d.lists(), places, 1}), c.ReshapeTo(base, {1, places, 1}));
  const ValueId floor = c.Op("floor", {place});
  const ValueId pair = c.Constant(type, {1, 1, 2}, {0, 1});
  const ValueId near = c.Add(floor, pair);
  const ValueId last = c.SizeOf(d.x[2 + dim] - Dim(1), type), first = c.Scalar(0, type);
  const ValueId inside =
      c.Op("and", {c.Op("less_equal", {first, near}), c.Op("less_equal", {near, last})});
  const ValueId distance = c.Op("abs", {c.Sub(pair, c.Sub(place, floor))});
  Line line;
  line.weight = c.Op("where", {inside, c.Sub(c.Scalar(1, type), distance), c.Scalar(0, type)});
  line.at = c.Cast(c.Op("min", {c.Op("max", {near, first}), last}), ir::kI64);
  return line;
}

}  // namespace

// A convolution whose windows read at places moved by offsets, between elements; zeros are around
// the image.
Result ImportDeformConv(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0), w = c.Input(1);
  ValueId offset = c.Input(2);
  const ValueId bias = c.OptionalInput(3), mask = c.OptionalInput(4);
  TW_TRY(c.status());
  TW_ASSIGN(const Deformed d, ReadDeformed(c, x, w, offset, mask));
  const ir::DType type = c.TypeOf(x).dtype;
  if (type.bits == 16) offset = c.Cast(offset, ir::kF32);
  const Dim places = Dim(d.taps()) * d.results(), four = places * Dim(4);
  const int64_t channels = d.channels / d.offset_groups;
  const Line tall = DeformedLine(c, d, offset, 0), wide = DeformedLine(c, d, offset, 1);
  const auto rows = [&](ValueId v) { return c.ReshapeTo(v, {d.lists(), places, 2, 1}); };
  const auto columns = [&](ValueId v) { return c.ReshapeTo(v, {d.lists(), places, 1, 2}); };
  ValueId at = c.Add(c.Mul(rows(tall.at), c.SizeOf(d.x[3], ir::kI64)), columns(wide.at));
  const ValueId weight = c.Mul(rows(tall.weight), columns(wide.weight));
  at = c.BroadcastTo(c.ReshapeTo(at, {d.lists(), 1, four}), {d.lists(), channels, four});
  const ValueId image = c.ReshapeTo(x, {d.lists(), channels, d.x[2] * d.x[3]});
  ValueId y = c.Op("gather_elements", {image, at}, {{"axis", int64_t{2}}});
  y = c.Mul(c.ReshapeTo(y, {d.lists(), channels, places, 4}),
            c.Cast(c.ReshapeTo(weight, {d.lists(), 1, places, 4}), type));
  y = c.Reduce("sum", y, {3}, false);
  if (mask != kNone) y = c.Mul(y, c.ReshapeTo(mask, {d.lists(), 1, places}));
  y = c.ReshapeTo(y, {d.x[0], d.groups, d.w[1] * d.taps(), d.results()});
  y = c.MatMul(c.Reshape(w, {1, d.groups, d.w[0] / d.groups, d.w[1] * d.taps()}), y);
  y = c.ReshapeTo(y, {d.x[0], d.w[0], d.outputs[0], d.outputs[1]});
  if (bias != kNone) y = c.Add(y, c.Reshape(bias, {1, d.w[0], 1, 1}));
  return c.Done(y);
}

namespace {

// The number nearest to v, halves away from zero.
ValueId Nearest(Composer& c, ValueId v) {
  const ValueId half = c.Scalar(0.5, ir::kF32);
  return c.Op("where", {c.Op("less", {v, c.Scalar(0, ir::kF32)}), c.Op("ceil", {c.Sub(v, half)}),
                        c.Op("floor", {c.Add(v, half)})});
}

// Along one dimension of the image: which elements each bin has, and whether it has none.
struct Bins {
  ValueId inside = kNone;  // [regions, bins, size]
  ValueId empty = kNone;   // [regions, bins, 1]
};

Bins BinsOf(Composer& c, ValueId from, ValueId to, int64_t bins, const Dim& size) {
  const auto real = [&](double value) { return c.Scalar(value, ir::kF32); };
  const ValueId first = Nearest(c, from), last = Nearest(c, to);
  const ValueId length = c.Op("max", {c.Add(c.Sub(last, first), real(1)), real(1)});
  const ValueId bin = c.Div(length, real(static_cast<double>(bins)));
  const ValueId number = c.Counting(ir::kF32, bins, 1, 3);
  const auto limited = [&](ValueId v) {
    return c.Op("min", {c.Op("max", {c.Add(v, first), real(0)}), c.SizeOf(size, ir::kF32)});
  };
  const ValueId begin = limited(c.Op("floor", {c.Mul(number, bin)}));
  const ValueId end = limited(c.Op("ceil", {c.Mul(c.Add(number, real(1)), bin)}));
  const ValueId at = c.Counting(ir::kF32, size, 2, 3);
  return {c.Op("and", {c.Op("less_equal", {begin, at}), c.Op("less", {at, end})}),
          c.Op("less_equal", {end, begin})};
}

}  // namespace

// The largest element of each bin of each region; 0 where a bin has none. A bin is a product of
// intervals: the maximum over its columns, then over its rows.
Result ImportMaxRoiPool(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0), regions = c.Cast(c.Input(1), ir::kF32);
  TW_TRY(c.status());
  TW_ASSIGN(const std::vector<int64_t> pooled, n.Ints("pooled_shape", {}));
  TW_ASSIGN(const double scale, n.Float("spatial_scale", 1));
  const std::vector<Dim> s = c.Dims(x), r = c.Dims(regions);
  if (r.size() == 2) c.FixedSize(regions, 1);
  TW_TRY(c.status());
  const bool fine = pooled.size() == 2 && std::min(pooled[0], pooled[1]) >= 1 &&
                    std::max(pooled[0], pooled[1]) <= 4096;
  if (!fine || s.size() != 4 || r.size() != 2 || r[1] != Dim(5) || !c.TypeOf(x).dtype.is_float()) {
    return n.Error("shape", StrCat("expected images [n,c,h,w], regions [r,5] and a pooled_shape "
                                   "of two numbers in 1 to 4096, found ",
                                   op::ToText(c.TypeOf(x)), ", ", op::ToText(c.TypeOf(regions)),
                                   " and [", support::Join(pooled, ","), "]"));
  }
  const auto column = [&](int64_t k) {
    return c.ReshapeTo(c.Slice(regions, 1, k, 1), {r[0], 1, 1});
  };
  const auto side = [&](int64_t k) { return c.Mul(column(k), c.Scalar(scale, ir::kF32)); };
  const Bins wide = BinsOf(c, side(1), side(3), pooled[1], s[3]);
  const Bins tall = BinsOf(c, side(2), side(4), pooled[0], s[2]);
  const ValueId image = c.Cast(c.ReshapeTo(column(0), {r[0]}), ir::kI64);
  const ir::DType type = c.TypeOf(x).dtype;
  const ValueId lowest = c.Scalar(-HUGE_VAL, type);
  ValueId y = c.Op("gather", {x, image}, {{"axis", int64_t{0}}});
  y = c.Op("where", {c.ReshapeTo(wide.inside, {r[0], 1, 1, pooled[1], s[3]}),
                     c.ReshapeTo(y, {r[0], s[1], s[2], 1, s[3]}), lowest});
  y = c.ReshapeTo(c.Reduce("max", y, {4}, false), {r[0], s[1], 1, s[2], pooled[1]});
  y = c.Op("where", {c.ReshapeTo(tall.inside, {r[0], 1, pooled[0], s[2], 1}), y, lowest});
  y = c.Reduce("max", y, {3}, false);
  const ValueId none = c.Op("or", {c.ReshapeTo(tall.empty, {r[0], 1, pooled[0], 1}),
                                   c.ReshapeTo(wide.empty, {r[0], 1, 1, pooled[1]})});
  return c.Done(c.Op("where", {none, c.Scalar(0, type), y}));
}

}  // namespace tilewright::graph::onnx
