#include "tracker/drift_detector.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tilewright::tracker {
namespace {

// The quantile that a batch counts with.
constexpr double kQuick = 0.4;
// So many batches in a row must be quicker before the reference is doubted: the quick ones are the
// better measurement, but a new level is learned only once.
constexpr int kFasterBatches = 4;

// The value below which `share` of the values lie. REQUIRES: not empty.
double Quantile(std::vector<double> values, double share) {
  const auto at = static_cast<size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

double LevelOf(std::vector<double> baselines) {
  std::erase_if(baselines, [](double ns) { return !std::isfinite(ns) || ns <= 0; });
  return baselines.empty() ? 0 : Quantile(std::move(baselines), kQuick);
}

}  // namespace

double DriftDetector::reference() const {
  return learned() ? Quantile({history_.begin(), history_.end()}, 0.5) : 0;
}

bool DriftDetector::Slower(std::vector<double> baselines) const {
  const double level = LevelOf(std::move(baselines));
  return learned() && level > reference() * (1 + options_.shift);
}

Drift DriftDetector::Add(const std::vector<double>& baselines) {
  Drift worst = Drift::kNone;
  for (const double one : baselines) {
    if (!std::isfinite(one) || one <= 0) continue;
    pending_.push_back(one);
    if (pending_.size() < options_.batch) continue;
    const Drift drift = AddBatch(LevelOf(std::exchange(pending_, {})));
    if (worst != Drift::kSlower && drift != Drift::kNone) worst = drift;
  }
  return worst;
}

Drift DriftDetector::AddBatch(double level) {
  const double usual = reference();
  last_ratio_ = usual > 0 ? level / usual : 1;
  const double shift = last_ratio_ - 1;
  slower_ = shift > options_.shift ? slower_ + 1 : 0;
  faster_ = shift < -options_.shift ? faster_ + 1 : 0;
  if (slower_ >= options_.batches) {
    slower_ = 0;  // the next alarm needs as many again
    return Drift::kSlower;
  }
  if (slower_ > 0) return Drift::kNone;
  if (faster_ >= kFasterBatches) {
    Reset();
    history_.push_back(level);
    return Drift::kFaster;
  }
  if (faster_ > 0) return Drift::kNone;
  history_.push_back(level);
  if (history_.size() > options_.memory) history_.pop_front();
  return Drift::kNone;
}

void DriftDetector::Reset() {
  pending_.clear();
  history_.clear();
  slower_ = 0;
  faster_ = 0;
  last_ratio_ = 1;
}

}  // namespace tilewright::tracker
