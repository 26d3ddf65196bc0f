// Tells a device that became slower from noise. What is watched is the time of a fixed kernel that
// is measured before and after each candidate (the baseline), in batches of 16 (eight candidates, a
// grant). A batch counts with a low quantile, since disturbances only ever add time; two batches in
// a row beyond the median of the last eight are a shift. The numbers were chosen on recorded noise
// (tests/unit/baseline_noise.txt): devices of the fleet wander by 3 % over many batches, but hardly
// from one to the next. A device that slows down by less than that per batch is not found.
//
// Pure; not thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <vector>

namespace tilewright::tracker {

struct DriftOptions {
  size_t batch = 16;     // baselines
  size_t memory = 8;     // batches that the reference rests on; nothing is judged before
  double shift = 0.028;  // relative to the reference: more is slower
  int batches = 2;       // in a row
};

enum class Drift { kNone, kSlower, kFaster };

class DriftDetector {
 public:
  explicit DriftDetector(DriftOptions options = {}) : options_(options) {}

  // More baselines, all of one unit; those that are not positive are left out. The worst that the
  // batches completed by them say. kFaster: the reference was slow; it is learned anew.
  Drift Add(const std::vector<double>& baselines);

  // Whether these alone are beyond the history. False while that is being learned.
  bool Slower(std::vector<double> baselines) const;

  // The usual time; 0 while it is being learned.
  double reference() const;
  // Of the last batch to the reference; 1 while that is being learned.
  double last_ratio() const { return last_ratio_; }
  // The device is another one (new fingerprint), or a person says that it is well.
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
