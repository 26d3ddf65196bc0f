// Detects that a device became slower, and ignores noise. Input is the time of the baseline, a
// fixed kernel that is measured before and after each candidate, in batches of 16 (eight
// candidates, one grant). A batch counts by a low quantile, since disturbances only add time. Two
// batches in a row beyond the median of the last eight are a shift. The numbers were chosen on
// recorded noise (tests/unit/baseline_noise.txt): devices drift by 3 % over many batches, but
// little from one batch to the next. A slow-down of less than that per batch is not found.
//
// Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

namespace tilewright::tracker {

struct DriftOptions {
  size_t batch = 16;     // baselines
  size_t memory = 8;     // batches behind the reference; without them there is no verdict
  double shift = 0.028;  // relative to the reference: more is slower
  int batches = 2;       // in a row
};

enum class Drift { kNone, kSlower, kFaster };

class DriftDetector {
 public:
  explicit DriftDetector(DriftOptions options = {}) : options_(options) {}

  // Adds baselines of one unit; those that are not positive are ignored. Returns the worst verdict
  // of the batches that they complete. kFaster: the reference was too slow and is learned again.
  Drift Add(const std::vector<double>& baselines);

  // Whether these baselines alone are beyond the reference. False while that is being learned.
  bool Slower(std::vector<double> baselines) const;

  // The usual time; 0 while it is being learned.
  double reference() const;
  // Ratio of the last batch to the reference; 1 while that is being learned.
  double last_ratio() const { return last_ratio_; }
  // For another device (new fingerprint), or one that a person declares healthy.
  void Reset();

 private:
  Drift AddBatch(double level);
  bool learned() const { return history_.size() >= options_.memory; }

  DriftOptions options_;
  std::vector<double> pending_;  // of the batch that is not complete
  std::deque<double> history_;
  int slower_ = 0;
  int faster_ = 0;
  double last_ratio_ = 1;
};

}  // namespace tilewright::tracker
