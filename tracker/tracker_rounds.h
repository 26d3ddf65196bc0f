// Turns calls into answers, in rounds. A round applies all waiting calls, answers the long polls
// that have an event, commits once, and only then sends the answers. If the commit fails, every
// answer of the round becomes an error and the state machine is rebuilt from the store: memory is
// never ahead of the disk. Without threads, gRPC or files of its own. The loop (tracker_loop.h)
// drives it with the system's clock, the simulation with a virtual one. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "tracker/device_pool.h"
#include "tracker/pool_store.h"

namespace tilewright::tracker {

// The arguments of a poll.
struct PollContext {
  DevicePool* pool = nullptr;
  Now now;
  bool may_grant = true;
  bool draining = false;    // the tracker is about to stop: answer so
  bool superseded = false;  // the client has called again: answer as little as possible
};

enum class PollResult {
  kWait,    // no answer before an event for the caller
  kIdle,    // no answer before an event for the caller, or before there is work
  kSoon,    // nothing new, but an earlier answer may be lost: answer within a second
  kAnswer,  // there is an answer now
};

// One call of a client on its way through the rounds. The functions run on the caller of Round,
// `finish` exactly once.
struct LoopCall {
  // Takes the request in. An error ends the call with it.
  std::function<absl::Status(DevicePool&, Now)> apply;
  // Writes the response. Null: answer after apply.
  std::function<PollResult(const PollContext&)> poll;
  std::function<void(const absl::Status&)> finish;
  // Whether the client is gone. Null: never.
  std::function<bool()> cancelled;
  int64_t wait_ms = 0;  // how long the call may wait for an answer
  // When another call with the same key arrives, a waiting call is answered with what there is.
  std::string key;
  // Agent or consumer: the call is polled again after an event for it (DevicePool::TakeNews).
  std::string about;
};

struct RoundOptions {
  int64_t max_wait_ms = 20'000;     // no call is held longer
  int64_t soon_ms = 1000;           // how long PollResult::kSoon waits
  int64_t after_failure_ms = 1000;  // nothing is granted for this long after a failed commit
};

// The error of calls that come too late: unavailable (tracker.stopping).
absl::Status TrackerStopping();

class TrackerRounds {
 public:
  // Loads the store's state. Store and clock are not owned.
  static absl::StatusOr<std::unique_ptr<TrackerRounds>> Create(RoundOptions options,
                                                               PoolOptions pool_options,
                                                               PoolStore* store,
                                                               support::Clock* clock);

  // Runs one round with these calls and those that wait. Call it for new calls and at least ten
  // times a second. Returns an error if the state could not be loaded again after a failed commit:
  // this call and all later ones then finish with an error.
  absl::Status Round(std::vector<LoopCall> calls, bool draining);

  // Finishes what waits with TrackerStopping.
  void FinishAll();

  // Called after each commit with its seconds and status.
  void set_on_commit(std::function<void(double, const absl::Status&)> on_commit) {
    on_commit_ = std::move(on_commit);
  }
  // Tells which ended work items go out once more, because their consumer asked for them again.
  void set_on_delivered_again(std::function<void(const std::set<std::string>&)> on_delivered) {
    on_delivered_again_ = std::move(on_delivered);
  }

  DevicePool& pool() { return *pool_; }
  // Pools made since the start beyond the first one: each began its counters at zero.
  int64_t rebuilds() const { return rebuilds_; }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }

 private:
  struct Waiting {
    LoopCall call;
    int64_t deadline_ns = 0;
    bool fresh = true;
    bool idle = false;  // it could take work
  };
  struct Finished {
    std::function<void(const absl::Status&)> finish;
    absl::Status status;
  };

  TrackerRounds(RoundOptions options, PoolOptions pool_options, PoolStore* store,
                support::Clock* clock)
      : options_(options), pool_options_(pool_options), store_(store), clock_(clock) {}
  Now ReadClock();
  void TakeIn(LoopCall call, Now now, bool draining, std::vector<Finished>* finished);
  void PollWaiting(Now now, bool draining, std::vector<Finished>* finished);
  // Whether a waiting call could have something to say now.
  bool WorthAsking(const Waiting& waiting, const std::set<std::string>& news) const;
  void Forget(std::list<Waiting>::iterator waiting);
  absl::Status DeliverAgain();
  // Ok: committed. Otherwise the pool was rebuilt (or everything is over).
  absl::Status CommitRound();
  absl::Status Rebuild();

  const RoundOptions options_;
  const PoolOptions pool_options_;
  PoolStore* const store_;
  support::Clock* const clock_;
  std::function<void(double, const absl::Status&)> on_commit_;
  std::function<void(const std::set<std::string>&)> on_delivered_again_;
  std::unique_ptr<DevicePool> pool_;
  std::list<Waiting> waiting_;  // in the order of their arrival
  std::unordered_map<std::string, std::list<Waiting>::iterator> by_key_;
  bool ask_all_ = false;  // the pool is a new one
  int64_t next_look_ns_ = 0;
  int64_t no_grants_before_ns_ = 0;
  int64_t rebuilds_ = -1;
  absl::Status dead_;
};

}  // namespace tilewright::tracker
