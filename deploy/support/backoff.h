// Pauses between attempts that fail: each is drawn from the upper half of a ceiling that doubles,
// so that many clients of a restarted server do not return at the same moment. Knows no clock. A
// plain value; one owner.
#pragma once

#include <algorithm>
#include <cstdint>

#include "deploy/support/rng.h"

namespace tilewright::support {

class Backoff {
 public:
  // The first ceiling and the last one. REQUIRES: 0 < first_ms <= max_ms.
  Backoff(Rng rng, int64_t first_ms, int64_t max_ms)
      : rng_(rng), first_ms_(first_ms), max_ms_(max_ms), ceiling_ms_(first_ms) {}

  // Counts a failure and returns the pause before the next attempt.
  int64_t NextMs() {
    ++failures_;
    const int64_t ceiling = ceiling_ms_;
    ceiling_ms_ = std::min(ceiling_ms_ * 2, max_ms_);
    return rng_.UniformInt(ceiling - ceiling / 2, ceiling);
  }
  int64_t NextNs() { return NextMs() * 1'000'000; }

  // An attempt succeeded.
  void Reset() {
    ceiling_ms_ = first_ms_;
    failures_ = 0;
  }
  // Failures since the last success.
  int64_t failures() const { return failures_; }

 private:
  Rng rng_;
  int64_t first_ms_;
  int64_t max_ms_;
  int64_t ceiling_ms_;
  int64_t failures_ = 0;
};

}  // namespace tilewright::support
