// The one thread that owns the tracker's state machine and its database. Handlers hand it calls and
// return; it takes everything that waits, applies it, answers the long polls that have news,
// commits once, and only then lets any answer out. When a commit fails, every answer of that round
// becomes an error and the state machine is rebuilt from the database: memory never runs ahead of
// the disk. Post is thread-safe; the rest belongs to the thread that made the object.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "deploy/daemon/blob_store.h"
#include "deploy/support/clock.h"
#include "deploy/support/mutex.h"
#include "deploy/support/status.h"
#include "tracker/device_pool.h"
#include "tracker/tracker_metrics.h"
#include "tracker/tracker_store.h"

namespace tilewright::tracker {

// What a waiting call is asked with.
struct PollContext {
  DevicePool* pool = nullptr;
  Now now;
  bool may_grant = true;
  bool draining = false;    // the tracker is about to stop: say so and answer
  bool superseded = false;  // the client already asks anew: answer as little as possible
};

enum class PollResult {
  kWait,    // nothing to say yet
  kSoon,    // nothing new, but something said before may not have arrived: answer within a second
  kAnswer,  // there is something to answer
};

// One call of a client on its way through the loop. The functions run on the loop's thread,
// `finish` exactly once.
struct LoopCall {
  // Takes the request in. An error ends the call with it.
  std::function<absl::Status(DevicePool&, Now)> apply;
  // Writes the response. Null: answer after apply.
  std::function<PollResult(const PollContext&)> poll;
  std::function<void(const absl::Status&)> finish;
  // The client is gone. Null: never.
  std::function<bool()> cancelled;
  int64_t wait_ms = 0;  // how long the call may wait for something to answer
  // A waiting call is answered as it is when another one with the same key arrives.
  std::string key;
};

struct LoopOptions {
  int64_t max_wait_ms = 20'000;  // no call is held longer
  int64_t tick_ms = 100;
  int64_t max_artifact_bytes = int64_t{20} << 30;  // beyond which unused artifacts are dropped
  int64_t collect_every_ms = 30'000;
  int64_t soon_ms = 1000;           // how long PollResult::kSoon waits
  int64_t after_failure_ms = 1000;  // nothing is granted for this long after a failed commit
};

class TrackerLoop {
 public:
  // Loads the store's state. Nothing runs before Start.
  static absl::StatusOr<std::unique_ptr<TrackerLoop>> Create(
      LoopOptions options, PoolOptions pool_options, TrackerStore* store, daemon::BlobStore* blobs,
      support::Clock* clock, TrackerMetrics* metrics);
  ~TrackerLoop();

  // `fatal` is called, at most once, when the state cannot be loaded again: the process must end.
  void Start(std::function<void(absl::Status)> fatal);

  // Queues a call. After Stop it is finished at once with unavailable (tracker.stopping).
  void Post(LoopCall call);

  // From now on nothing is granted and every long poll is answered at once.
  void Drain();

  // Finishes all calls and ends the thread. Idempotent.
  void Stop();

 private:
  struct Waiting {
    LoopCall call;
    int64_t deadline_ns = 0;
    bool fresh = true;
  };
  struct Finished {
    std::function<void(const absl::Status&)> finish;
    absl::Status status;
  };

  TrackerLoop(LoopOptions options, PoolOptions pool_options, TrackerStore* store,
              daemon::BlobStore* blobs, support::Clock* clock, TrackerMetrics* metrics);
  Now ReadClock();
  void Run();
  void Round(std::vector<LoopCall> calls);
  void TakeIn(LoopCall call, Now now, std::vector<Finished>* finished);
  void PollWaiting(bool all, Now now, std::vector<Finished>* finished);
  // Ok: committed. Otherwise the pool was rebuilt (or the loop is about to die).
  absl::Status CommitRound();
  absl::Status Rebuild();
  void CollectArtifacts(Now now);

  const LoopOptions options_;
  const PoolOptions pool_options_;
  TrackerStore* const store_;
  daemon::BlobStore* const blobs_;
  support::Clock* const clock_;
  TrackerMetrics* const metrics_;
  std::unique_ptr<DevicePool> pool_;
  std::list<Waiting> waiting_;
  Changes changes_;
  int64_t no_grants_before_ns_ = 0;
  int64_t next_collect_ns_ = 0;
  int64_t next_metrics_ns_ = 0;
  bool dead_ = false;
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
