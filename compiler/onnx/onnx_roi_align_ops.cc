// RoiAlign: regions of images, each as a grid of bins, which have the mean, or the largest, of
// samples. Each sample has four neighbours ("taps") with a weight each; what they hold is gathered.
// Numbers and sizes of images and regions may be open.
#include <cmath>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using op::Dim;
using support::StrCat;

constexpr int64_t kMostSamples = 256;  // of a bin along one dimension

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
  const bool fine = a.height >= 1 && a.width >= 1 && a.samples >= 0 && a.samples <= 64 &&
                    a.height <= 4096 && a.width <= 4096 && (a.max || mode == "avg") &&
                    (a.half_pixel || place == "output_half_pixel");
  if (fine) return a;
  return n.Error("attribute",
                 StrCat("expected output sizes in 1 to 4096, sampling_ratio in 0 to "
                        "64 and known modes, found ",
                        a.height, "x", a.width, ", ", a.samples, ", ", mode, " and ", place));
}

// Along one dimension of the regions, for each sample [regions, outputs * samples, 1]: two places,
// their weights, and whether the sample is on the image. Where regions have samples of their own
// number: that number [regions, 1, 1], and whether a sample counts.
struct RegionTaps {
  int64_t samples = 0;  // of a bin
  ValueId at = kNone, weight = kNone, inside = kNone;
  ValueId count = kNone, counts = kNone;
};

class RoiAligner {
 public:
  explicit RoiAligner(NodeReader& n) : n_(n), c_(n) {}

  Result Run() {
    x_ = c_.Input(0), regions_ = c_.Cast(c_.Input(1), ir::kF32);
    images_ = c_.Cast(c_.Input(2), ir::kI64);
    TW_TRY(c_.status());
    TW_ASSIGN(a_, ReadRoiAttrs(n_));
    shape_ = c_.Dims(x_);
    if (c_.Rank(regions_) == 2) c_.FixedSize(regions_, 1);
    TW_TRY(c_.status());
    if (shape_.size() != 4 || c_.Rank(regions_) != 2 || c_.Dims(regions_)[1] != Dim(4) ||
        c_.Rank(images_) != 1 || !c_.TypeOf(x_).dtype.is_float()) {
      return n_.Error(
          "shape", StrCat("expected images [n,c,h,w], regions [r,4] and an image number "
                          "for each, found ",
                          op::ToText(c_.TypeOf(x_)), ", ", op::ToText(c_.TypeOf(regions_)), " and ",
                          op::ToText(c_.TypeOf(images_))));
    }
    count_ = c_.Dims(regions_)[0];
    TW_ASSIGN(tall_, TapsOf(1, a_.height, shape_[2]));
    TW_ASSIGN(wide_, TapsOf(0, a_.width, shape_[3]));
    const ValueId samples = Samples();
    const ValueId bins = a_.max ? Largest(samples) : Mean(samples);
    return c_.Done(c_.Transpose(bins, {1, 0, 2, 3}));
  }

 private:
  ValueId Real(double value) { return c_.Scalar(value, ir::kF32); }
  ValueId Real(const Dim& value) { return c_.SizeOf(value, ir::kF32); }

  // How many samples a bin may need along a dimension of this size: as many as there are elements
  // in it, if the region is the whole image, and one for what rounding adds.
  absl::StatusOr<int64_t> MostSamples(int64_t outputs, const Dim& size) {
    if (a_.samples > 0) return a_.samples;
    const int64_t most = n_.importer().Bound(size, true).value_or(kMostSamples * outputs);
    const int64_t samples = (most + outputs - 1) / outputs + 1;
    if (samples <= kMostSamples) return samples;
    return n_.Error(
        "too_large",
        StrCat("expected images of which a bin has at most ", kMostSamples,
               " samples along a dimension where sampling_ratio is 0, found ", samples));
  }

  // The edges of regions are x1, y1, x2, y2.
  absl::StatusOr<RegionTaps> TapsOf(int64_t edge, int64_t outputs, const Dim& size) {
    RegionTaps taps;
    TW_ASSIGN(taps.samples, MostSamples(outputs, size));
    const auto scaled = [&](int64_t k) {
      const ValueId side = c_.ReshapeTo(c_.Slice(regions_, 1, k, 1), {count_, 1, 1});
      return c_.Sub(c_.Mul(side, Real(a_.scale)), Real(a_.half_pixel ? 0.5 : 0.0));
    };
    const ValueId from = scaled(edge);
    ValueId length = c_.Sub(scaled(edge + 2), from);
    if (!a_.half_pixel) length = c_.Op("max", {length, Real(1.0)});
    const ValueId at = a_.samples > 0 ? c_.Add(from, EvenSteps(length, outputs))
                                      : c_.Add(from, OwnSteps(length, outputs, &taps));
    const ValueId last = Real(size - Dim(1));
    // A little outside counts as the border, further outside as nothing.
    taps.inside = c_.Op(
        "and", {c_.Op("less_equal", {Real(-1.0), at}), c_.Op("less_equal", {at, Real(size)})});
    const ValueId place = c_.Op("min", {c_.Op("max", {at, Real(0.0)}), last});
    const ValueId floor = c_.Op("floor", {place});
    const ValueId pair = c_.Constant(ir::kF32, {1, 1, 2}, {0, 1});
    taps.weight = c_.Sub(Real(1.0), c_.Op("abs", {c_.Sub(pair, c_.Sub(place, floor))}));
    taps.at = c_.Cast(c_.Op("min", {c_.Add(floor, pair), last}), ir::kI64);
    TW_TRY(c_.status());
    return taps;
  }

  // For each sample of all bins, from the region's begin.
  ValueId EvenSteps(ValueId length, int64_t outputs) {
    const int64_t all = outputs * a_.samples;
    std::vector<double> middles;
    for (int64_t s = 0; s < all; ++s) middles.push_back(static_cast<double>(s) + 0.5);
    const ValueId steps = c_.Constant(ir::kF32, {1, all, 1}, std::move(middles));
    return c_.Mul(steps, c_.Div(length, Real(static_cast<double>(all))));
  }

  // The same where a bin has as many samples as elements, rounded up. Of the most that there may
  // be, those behind this number do not count; runs with larger regions are refused.
  ValueId OwnSteps(ValueId length, int64_t outputs, RegionTaps* taps) {
    const ValueId bin = c_.Div(length, Real(static_cast<double>(outputs)));
    taps->count = c_.Op("max", {c_.Op("ceil", {bin}), Real(0.0)});
    const double most = static_cast<double>(taps->samples);
    const ValueId beyond = c_.Op("max", {c_.Sub(taps->count, Real(most)), Real(0.0)});
    c_.ExpectSizes(c_.Reduce("max", beyond, {0, 1, 2}, false), {0},
                   StrCat("samples of ", n_.label(), " in a bin, beyond ", taps->samples));
    std::vector<double> bins, middles;
    for (int64_t s = 0; s < outputs * taps->samples; ++s) {
      bins.push_back(static_cast<double>(s / taps->samples));
      middles.push_back(static_cast<double>(s % taps->samples) + 0.5);
    }
    const std::vector<int64_t> shape = {1, outputs * taps->samples, 1};
    const ValueId own = c_.Constant(ir::kF32, shape, std::move(middles));
    taps->counts = c_.Op("less", {own, taps->count});
    const ValueId step = c_.Div(bin, c_.Op("max", {taps->count, Real(1.0)}));
    return c_.Add(c_.Mul(c_.Constant(ir::kF32, shape, std::move(bins)), bin), c_.Mul(own, step));
  }

  // Values of rows and of columns of samples as [regions, rows, columns, taps, taps].
  ValueId OfRows(ValueId v, int64_t taps) {
    return c_.ReshapeTo(v, {count_, a_.height * tall_.samples, 1, taps, 1});
  }
  ValueId OfColumns(ValueId v, int64_t taps) {
    return c_.ReshapeTo(v, {count_, 1, a_.width * wide_.samples, 1, taps});
  }

  // The weighted taps, [channels, regions, height, samples, width, samples, 4].
  ValueId Samples() {
    const Dim &batch = shape_[0], &channels = shape_[1], &columns = shape_[3];
    const Dim pixels = shape_[2] * columns;
    const ValueId row = c_.Mul(OfRows(tall_.at, 2), c_.SizeOf(columns, ir::kI64));
    const ValueId first =
        c_.Mul(c_.ReshapeTo(images_, {count_, 1, 1, 1, 1}), c_.SizeOf(pixels, ir::kI64));
    const ValueId at = c_.Add(c_.Add(row, OfColumns(wide_.at, 2)), first);
    ValueId weight = c_.Mul(OfRows(tall_.weight, 2), OfColumns(wide_.weight, 2));
    const ValueId inside = c_.Op("and", {OfRows(tall_.inside, 1), OfColumns(wide_.inside, 1)});
    weight = c_.Op("where", {inside, weight, Real(0.0)});
    const Dim all = count_ * Dim(a_.height * tall_.samples * a_.width * wide_.samples * 4);
    const ValueId planes = c_.ReshapeTo(c_.Transpose(x_, {1, 0, 2, 3}), {channels, batch * pixels});
    const ValueId taps = c_.Op("gather", {planes, c_.ReshapeTo(at, {all})}, {{"axis", int64_t{1}}});
    const ValueId y = c_.Mul(taps, c_.Cast(c_.ReshapeTo(weight, {1, all}), Type()));
    return c_.ReshapeTo(y,
                        {channels, count_, a_.height, tall_.samples, a_.width, wide_.samples, 4});
  }

  // Of a sample: whether it counts, [1, regions, height, samples, width, samples, 1].
  ValueId Counts() {
    const ValueId both = c_.Op("and", {OfRows(tall_.counts, 1), OfColumns(wide_.counts, 1)});
    return c_.ReshapeTo(both, {1, count_, a_.height, tall_.samples, a_.width, wide_.samples, 1});
  }
  // How many samples count in a bin, [1, regions, 1, 1].
  ValueId Count() { return c_.ReshapeTo(c_.Mul(tall_.count, wide_.count), {1, count_, 1, 1}); }

  ValueId Mean(ValueId samples) {
    if (a_.samples > 0) {
      const double count = static_cast<double>(a_.samples * a_.samples);
      return c_.Mul(c_.Reduce("sum", samples, {3, 5, 6}, false), c_.Scalar(1 / count, Type()));
    }
    samples = c_.Op("where", {Counts(), samples, c_.Scalar(0, Type())});
    const ValueId count = c_.Op("max", {Count(), Real(1.0)});
    return c_.Div(c_.Reduce("sum", samples, {3, 5, 6}, false), c_.Cast(count, Type()));
  }

  // Of the weighted taps, as ONNX defines it. A bin without samples has 0.
  ValueId Largest(ValueId samples) {
    if (a_.samples > 0) return c_.Reduce("max", samples, {3, 5, 6}, false);
    samples = c_.Op("where", {Counts(), samples, c_.Scalar(-HUGE_VAL, Type())});
    const ValueId some = c_.Op("less", {Real(0.5), Count()});
    return c_.Op("where",
                 {some, c_.Reduce("max", samples, {3, 5, 6}, false), c_.Scalar(0, Type())});
  }

  ir::DType Type() { return c_.TypeOf(x_).dtype; }

  NodeReader& n_;
  Composer c_;
  RoiAttrs a_;
  ValueId x_ = kNone, regions_ = kNone, images_ = kNone;
  std::vector<Dim> shape_;  // of x
  Dim count_;               // of regions
  RegionTaps tall_, wide_;
};

}  // namespace

Result ImportRoiAlign(NodeReader& n) { return RoiAligner(n).Run(); }

}  // namespace tilewright::graph::onnx
