// The tracker of a simulated fleet: its real state machine, rounds, calls and database, on a
// virtual clock and a disk that can fail.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "deploy/daemon/blob_store.h"
#include "deploy/support/file.h"
#include "tests/sim/sim_oracle.h"
#include "tests/sim/sim_world.h"
#include "tracker/tracker_calls.h"
#include "tracker/tracker_rounds.h"
#include "tracker/tracker_store.h"

namespace tilewright::sim {

// Mistakes that somebody could make in the tracker; each must be caught (planted_bugs_test.cc).
struct TrackerBugs {
  bool acks_before_commit = false;  // commits reach the disk one round late
  bool forgets_outbox = false;      // updates live in memory only
  // What a start reads back is not what was written.
  bool forgets_attempts = false;      // of items that wait
  bool forgets_tokens = false;        // of devices
  bool forgets_dispositions = false;  // of results
  bool late_dispositions = false;     // they reach the disk one round after their results
  bool wall_clock_leases = false;     // time is read from the clock on the wall
};

class SimTracker {
 public:
  SimTracker(SimWorld* world, std::string dir);
  ~SimTracker();

  void Start();
  void Crash();
  // Its database is gone; artifacts stay.
  void LoseDatabase();
  // Artifacts that nothing needs, or a fault: some are gone.
  void LoseArtifacts(double share);

  // A call that arrived. REQUIRES: it is up.
  void Post(tracker::LoopCall call);

  int node() const { return node_; }
  daemon::BlobStore* blobs() { return blobs_.get(); }
  // Null while it is down.
  tracker::DevicePool* pool() { return rounds_ == nullptr ? nullptr : &rounds_->pool(); }
  tracker::PoolStore* store();
  // Counts the databases.
  int database() const { return database_; }
  tracker::Now now();
  CommitOracle& oracle() { return oracle_; }

  bool disk_full = false;
  bool draining = false;
  TrackerBugs bugs;
  tracker::PoolOptions options;

 private:
  class Store;
  class WallClock;
  void Round();
  void PlanRound(int64_t delay_ns);

  SimWorld* world_;
  int node_;
  std::string dir_;
  int database_ = 1;
  std::unique_ptr<daemon::BlobStore> blobs_;
  std::unique_ptr<Store> store_;  // the database: outlives the process
  std::unique_ptr<WallClock> wall_clock_;
  CommitOracle oracle_;
  std::unique_ptr<tracker::TrackerRounds> rounds_;
  std::vector<tracker::LoopCall> incoming_;
  bool round_planned_ = false;
  int64_t tick_ns_ = 0;  // when the last planned tick is due
};

}  // namespace tilewright::sim
