// One part of a job that waits for what the machine is short of: room on the disk, say. It tries
// again after growing pauses, for as long as it takes. Knows no clock. A plain value; one owner.
#pragma once

#include <cstdint>
#include <utility>

#include "deploy/support/backoff.h"
#include "deploy/support/shortage.h"

namespace tilewright::jobs {

class ShortageWait {
 public:
  explicit ShortageWait(support::Backoff pauses) : pauses_(std::move(pauses)) {}

  // Another try failed. REQUIRES: shortage is not kNone.
  void Failed(support::Shortage shortage, int64_t now_ns) {
    shortage_ = shortage;
    next_try_ns_ = now_ns + pauses_.NextNs();
  }
  // A try succeeded, or the part turns to something else.
  void Over() {
    shortage_ = support::Shortage::kNone;
    next_try_ns_ = 0;
    pauses_.Reset();
  }

  bool TooEarly(int64_t now_ns) const { return now_ns < next_try_ns_; }
  // What is missing. kNone: the part does not wait.
  support::Shortage shortage() const { return shortage_; }
  bool waits() const { return shortage_ != support::Shortage::kNone; }

 private:
  support::Backoff pauses_;
  support::Shortage shortage_ = support::Shortage::kNone;
  int64_t next_try_ns_ = 0;
};

}  // namespace tilewright::jobs
