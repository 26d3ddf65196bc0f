// The one thread that owns the tracker's rounds (tracker_rounds.h) and its database. Handlers hand
// it calls and return. Post is thread-safe; the rest belongs to the thread that made the object.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "deploy/daemon/blob_store.h"
#include "deploy/support/clock.h"
#include "deploy/support/mutex.h"
#include "deploy/support/status.h"
#include "tracker/tracker_metrics.h"
#include "tracker/tracker_rounds.h"

namespace tilewright::tracker {

struct LoopOptions {
  RoundOptions rounds;
  int64_t tick_ms = 100;
  int64_t max_artifact_bytes = int64_t{20} << 30;  // beyond which unused artifacts are dropped
  int64_t collect_every_ms = 30'000;
};

class TrackerLoop {
 public:
  // Loads the store's state. Nothing runs before Start.
  static absl::StatusOr<std::unique_ptr<TrackerLoop>> Create(
      LoopOptions options, PoolOptions pool_options, PoolStore* store, daemon::BlobStore* blobs,
      support::Clock* clock, TrackerMetrics* metrics);
  ~TrackerLoop();

  // Calls `fatal`, at most once, if the state cannot be loaded again: then the process must end.
  void Start(std::function<void(absl::Status)> fatal);

  // Queues a call. After Stop it finishes the call immediately, with unavailable
  // (tracker.stopping).
  void Post(LoopCall call);

  // From now on the tracker grants nothing and answers every long poll immediately.
  void Drain();

  // Finishes all calls and ends the thread. Idempotent.
  void Stop();

 private:
  TrackerLoop(LoopOptions options, std::unique_ptr<TrackerRounds> rounds, daemon::BlobStore* blobs,
              support::Clock* clock, TrackerMetrics* metrics);
  void Run();
  void Round(std::vector<LoopCall> calls);
  void UpdateMetrics(Now now);
  void CollectArtifacts(Now now);

  const LoopOptions options_;
  const std::unique_ptr<TrackerRounds> rounds_;
  daemon::BlobStore* const blobs_;
  support::Clock* const clock_;
  TrackerMetrics* const metrics_;
  int64_t rebuilds_ = 0;
  int64_t next_collect_ns_ = 0;
  int64_t next_metrics_ns_ = 0;
  bool fatal_told_ = false;
  std::function<void(absl::Status)> fatal_;
  std::atomic<bool> draining_{false};
  std::thread thread_;

  support::Mutex mutex_;
  support::CondVar wake_;
  std::vector<LoopCall> incoming_ TW_GUARDED_BY(mutex_);
  bool stopping_ TW_GUARDED_BY(mutex_) = false;
  bool stopped_ TW_GUARDED_BY(mutex_) = false;
};

}  // namespace tilewright::tracker
