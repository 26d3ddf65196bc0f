#include "compiler/quantize/ranges.h"

#include <algorithm>
#include <cmath>

#include "deploy/support/strings.h"

namespace tilewright::quantize {
namespace {

using Bins = std::vector<Histogram::Bin>;

constexpr int kBins = 8192;
// Steps in which a bound moves towards 0 in the search for the least error.
constexpr int kSteps = 64;

// Squared error of all numbers if 256 integers stand for this range.
double SquaredError(const Bins& bins, const Range& range) {
  const double scale = (range.high - range.low) / kIntegerSteps;
  if (!(scale > 0)) return INFINITY;
  const double zero = std::nearbyint(-range.low / scale);
  double sum = 0;
  for (const Histogram::Bin& bin : bins) {
    const double q =
        std::clamp(std::nearbyint(bin.centre / scale) + zero, 0.0, double{kIntegerSteps});
    const double error = (q - zero) * scale - bin.centre;
    sum += error * error * static_cast<double>(bin.count);
  }
  return sum;
}

// Moves one bound after the other towards 0, twice.
Range LeastError(const Bins& bins, const Range& whole) {
  Range best = whole;
  double least = SquaredError(bins, whole);
  for (int turn = 0; turn < 4; ++turn) {
    const bool upper = turn % 2 == 0;
    const Range from = best;
    for (int step = 1; step <= kSteps; ++step) {
      Range tried = from;
      const double share = static_cast<double>(step) / kSteps;
      (upper ? tried.high : tried.low) = share * (upper ? whole.high : whole.low);
      const double error = SquaredError(bins, tried);
      if (error >= least) continue;
      least = error;
      best = tried;
    }
  }
  return best;
}

// The bounds that leave `outside` numbers out below and above.
Range Cut(const Bins& bins, const Range& whole, double below, double above) {
  Range range = whole;
  double seen = 0;
  for (const Histogram::Bin& bin : bins) {
    seen += static_cast<double>(bin.count);
    if (seen <= below) continue;
    range.low = std::clamp(bin.centre, whole.low, 0.0);
    break;
  }
  seen = 0;
  for (auto bin = bins.rbegin(); bin != bins.rend(); ++bin) {
    seen += static_cast<double>(bin->count);
    if (seen <= above) continue;
    range.high = std::clamp(bin->centre, 0.0, whole.high);
    break;
  }
  return range;
}

}  // namespace

absl::StatusOr<RangeChoice> ParseRangeChoice(std::string_view text) {
  RangeChoice choice;
  constexpr std::string_view kPercentile = "percentile";
  if (text == "minmax") {
    choice.rule = RangeRule::kMinMax;
    return choice;
  }
  if (text == "mse") return choice;
  choice.rule = RangeRule::kPercentile;
  if (text == kPercentile) return choice;
  if (text.starts_with("percentile=")) {
    const auto percent = support::ParseDouble(text.substr(kPercentile.size() + 1));
    if (percent && *percent > 50 && *percent <= 100) {
      choice.percentile = *percent;
      return choice;
    }
  }
  return support::InvalidArgument(
      "quantize.ranges.unknown",
      support::StrCat("expected minmax, mse, percentile or percentile=P with P above 50 and at "
                      "most 100, found ",
                      support::Quote(text)));
}

std::string RangeChoiceText(const RangeChoice& choice) {
  if (choice.rule == RangeRule::kMinMax) return "minmax";
  if (choice.rule == RangeRule::kMse) return "mse";
  return support::StrCat("percentile=", support::FormatDouble(choice.percentile));
}

Histogram::Histogram() : counts_(kBins, 0) {}

// Neighbours become one bin until the numbers up to this magnitude have one.
void Histogram::Grow(double magnitude) {
  while (magnitude >= std::ldexp(1.0, exponent_)) {
    std::vector<int64_t> wide(kBins, 0);
    for (int i = 0; i < kBins; ++i) wide[kBins / 4 + i / 2] += counts_[i];
    counts_ = std::move(wide);
    ++exponent_;
  }
}

void Histogram::Add(std::span<const float> values) {
  double low = min_, high = max_;
  for (const float value : values) {
    if (!std::isfinite(value)) continue;
    low = std::min<double>(low, value);
    high = std::max<double>(high, value);
  }
  min_ = low;
  max_ = high;
  Grow(std::max(-low, high));
  const double bins_per_unit = std::ldexp(kBins / 2, -exponent_);
  for (const float value : values) {
    if (!std::isfinite(value)) {
      finite_ = false;
      continue;
    }
    ++count_;
    if (value == 0) {
      ++zeros_;
      continue;
    }
    const int bin = static_cast<int>(std::floor(value * bins_per_unit)) + kBins / 2;
    ++counts_[static_cast<size_t>(std::clamp(bin, 0, kBins - 1))];
  }
}

std::vector<Histogram::Bin> Histogram::bins() const {
  std::vector<Bin> found;
  const double width = std::ldexp(1.0, exponent_) / (kBins / 2);
  for (int i = 0; i < kBins; ++i) {
    if (i == kBins / 2 && zeros_ > 0) found.push_back({0, zeros_});
    if (counts_[i] == 0) continue;
    // The outermost bins may reach beyond what was seen.
    found.push_back({std::clamp((i - kBins / 2 + 0.5) * width, min_, max_), counts_[i]});
  }
  return found;
}

Range ChooseRange(const Histogram& histogram, const RangeChoice& choice) {
  const Range whole{histogram.min(), histogram.max()};
  if (choice.rule == RangeRule::kMinMax) return whole;
  const Bins bins = histogram.bins();
  if (choice.rule == RangeRule::kMse) return LeastError(bins, whole);
  const double outside = static_cast<double>(histogram.count()) * (100 - choice.percentile) / 100;
  // Numbers of one sign have one end only.
  if (whole.low == 0) return Cut(bins, whole, 0, outside);
  if (whole.high == 0) return Cut(bins, whole, outside, 0);
  return Cut(bins, whole, outside / 2, outside / 2);
}

Range Union(const Range& a, const Range& b) {
  return {std::min(a.low, b.low), std::max(a.high, b.high)};
}

}  // namespace tilewright::quantize
