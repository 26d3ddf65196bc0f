// The tracker's Prometheus metrics, fed by its loop. Used from one thread.
#pragma once

#include <cstdint>

#include "deploy/daemon/metrics.h"
#include "tracker/device_pool.h"

namespace tilewright::tracker {

class TrackerMetrics {
 public:
  explicit TrackerMetrics(daemon::Metrics* metrics);

  // Levels and counters of the pool, as of now.
  void Update(const PoolStats& stats, int64_t waiting_calls, int64_t artifact_bytes);
  void ObserveCommit(double seconds, bool ok);
  void ObserveWait(double seconds);
  // The pool was rebuilt: its counters start at zero again.
  void Reset() { last_ = PoolStats(); }

 private:
  daemon::Metrics* metrics_;
  prometheus::Histogram& commit_seconds_;
  prometheus::Histogram& wait_seconds_;
  PoolStats last_;
};

}  // namespace tilewright::tracker
