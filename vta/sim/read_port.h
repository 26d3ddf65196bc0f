// The timing of reads from DRAM: one channel that the fetch and all loads share. Times are cycles.
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "vta/sim/dma.h"

namespace tilewright::vta {

inline int64_t BeatsOf(const ByteRange& bytes, int64_t bytes_per_beat) {
  if (bytes.begin >= bytes.end) return 0;
  return (bytes.end - 1) / bytes_per_beat - bytes.begin / bytes_per_beat + 1;
}

class ReadPort {
 public:
  // `outstanding` requests may wait for their last beat.
  ReadPort(int64_t latency, int64_t outstanding) : latency_(latency), outstanding_(outstanding) {}

  // The first cycle that takes another request: one a cycle, and not more than may be outstanding.
  int64_t Accepts() const {
    const auto limit = static_cast<size_t>(outstanding_);
    return ends_.size() < limit ? next_ : std::max(next_, ends_[ends_.size() - limit]);
  }

  // Takes a request and returns the cycle of its first beat. The first beat comes `latency` cycles
  // after the request, or as soon as those before it are served: a beat a cycle, in order.
  // REQUIRES: now >= Accepts().
  int64_t Read(int64_t now, int64_t beats) {
    const int64_t first = std::max(now + latency_, free_);
    free_ = first + beats;
    next_ = now + 1;
    beats_ += beats;
    ends_.push_back(free_);
    if (ends_.size() > static_cast<size_t>(outstanding_)) ends_.pop_front();
    return first;
  }

  int64_t beats() const { return beats_; }

 private:
  const int64_t latency_, outstanding_;
  int64_t next_ = 0;          // the first cycle after the last request
  int64_t free_ = 0;          // the first cycle without a beat
  std::deque<int64_t> ends_;  // of the last requests, as many as may be outstanding
  int64_t beats_ = 0;
};

}  // namespace tilewright::vta
