#include "tests/sim/sim_tracker.h"

#include <map>
#include <utility>

#include "deploy/support/strings.h"

namespace tilewright::sim {

using support::StatusText;

// The real database in memory (what it committed survives the process), with faults in front.
class SimTracker::Store final : public tracker::PoolStore {
 public:
  explicit Store(SimTracker* owner)
      : owner_(owner), real_(Value(tracker::TrackerStore::Open(":memory:"))) {}

  absl::StatusOr<tracker::Snapshot> Load() override {
    TW_ASSIGN(tracker::Snapshot snapshot, real_->Load());
    snapshot.epoch += static_cast<uint64_t>(starts_);
    Forget(&snapshot);
    return snapshot;
  }

  absl::Status Commit(const tracker::Changes& changes) override {
    if (owner_->disk_full) {
      return support::ResourceExhausted("sql.commit.full", "no space left (simulated)");
    }
    if (owner_->bugs.late_dispositions) return Write(WithLateDispositions(changes));
    if (!owner_->bugs.acks_before_commit) return Write(changes);
    if (late_) TW_TRY(Write(*late_));
    late_ = std::make_unique<tracker::Changes>(changes);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<tracker::ResultRow>> LoadResults(const std::string& item) override {
    return real_->LoadResults(item);
  }

  // What was only in memory dies with the process.
  void ProcessDied() {
    late_.reset();
    late_items_.clear();
  }
  void ProcessStarts() { ++starts_; }

 private:
  absl::Status Write(const tracker::Changes& changes) {
    TW_TRY(real_->Commit(changes));
    owner_->oracle_.Committed(changes);
    return absl::OkStatus();
  }

  void Forget(tracker::Snapshot* snapshot) const {
    const TrackerBugs& bugs = owner_->bugs;
    if (bugs.forgets_outbox) snapshot->outbox.clear();
    for (tracker::WorkRow& row : snapshot->items) {
      if (bugs.forgets_attempts && row.state == v1::WORK_STATE_QUEUED) row.attempts.clear();
      for (tracker::Attempt& attempt : row.attempts) {
        if (bugs.forgets_dispositions) attempt.disposition = v1::DISPOSITION_UNSPECIFIED;
      }
    }
    for (tracker::DeviceRow& row : snapshot->devices) {
      if (bugs.forgets_tokens) row.last_token = 0;
    }
  }

  tracker::Changes WithLateDispositions(tracker::Changes changes) {
    std::map<std::string, tracker::WorkRow> late = std::exchange(late_items_, {});
    for (tracker::WorkRow& row : changes.items) {
      late.erase(row.item.name());
      for (const tracker::ResultRow& result : changes.results) {
        if (result.result.work_item() == row.item.name()) late_items_[row.item.name()] = row;
      }
      if (late_items_.count(row.item.name()) == 0) continue;
      for (tracker::Attempt& attempt : row.attempts) {
        for (const tracker::ResultRow& result : changes.results) {
          const bool its = result.result.work_item() == row.item.name() &&
                           result.result.attempt() == attempt.number;
          if (its) attempt.disposition = v1::DISPOSITION_UNSPECIFIED;
        }
      }
    }
    for (auto& [name, row] : late) changes.items.push_back(std::move(row));
    return changes;
  }

  SimTracker* owner_;
  std::unique_ptr<tracker::TrackerStore> real_;
  std::unique_ptr<tracker::Changes> late_;
  std::map<std::string, tracker::WorkRow> late_items_;
  int starts_ = -1;
};

class SimTracker::WallClock final : public support::Clock {
 public:
  explicit WallClock(support::Clock* real) : real_(real) {}
  int64_t NowNs() override { return real_->WallMicros() * 1000; }
  int64_t WallMicros() override { return real_->WallMicros(); }

 private:
  support::Clock* real_;
};

SimTracker::SimTracker(SimWorld* world, std::string dir)
    : world_(world),
      node_(world->AddNode("tracker")),
      dir_(std::move(dir)),
      oracle_(world, tracker::PoolOptions().lease_ttl_ns) {
  wall_clock_ = std::make_unique<WallClock>(world_->clock(node_));
  blobs_ = Value(daemon::BlobStore::Open(support::PathJoin(dir_, "blobs")));
  store_ = std::make_unique<Store>(this);
}

SimTracker::~SimTracker() = default;

tracker::PoolStore* SimTracker::store() { return store_.get(); }

tracker::Now SimTracker::now() {
  support::Clock* clock = world_->clock(node_);
  return {clock->NowNs(), clock->WallMicros()};
}

void SimTracker::Start() {
  world_->Boot(node_);
  store_->ProcessStarts();
  draining = false;
  incoming_.clear();
  round_planned_ = false;
  rounds_ = Value(tracker::TrackerRounds::Create(
      {}, options, store_.get(),
      bugs.wall_clock_leases ? wall_clock_.get() : world_->clock(node_)));
  world_->Tell("tracker starts");
  Round();
}

void SimTracker::Crash() {
  world_->Tell("tracker dies");
  world_->Kill(node_);
  store_->ProcessDied();
  rounds_.reset();
  incoming_.clear();
}

void SimTracker::LoseDatabase() {
  world_->Tell("the tracker's database is lost");
  TW_CHECK(rounds_ == nullptr) << "the tracker runs";
  store_ = std::make_unique<Store>(this);
  oracle_.NewDatabase();
  ++database_;
}

void SimTracker::LoseArtifacts(double share) {
  blobs_->Collect(0, [&](const std::string&) { return !world_->rng().Bernoulli(share); });
}

void SimTracker::Post(tracker::LoopCall call) {
  incoming_.push_back(std::move(call));
  if (!round_planned_) {
    round_planned_ = true;
    world_->After(node_, world_->Between(0, kMs), [this] {
      round_planned_ = false;
      Round();
    });
  }
}

void SimTracker::Round() {
  const absl::Status status = rounds_->Round(std::exchange(incoming_, {}), draining);
  if (!status.ok()) world_->Fail("tracker: " + StatusText(status));
  const absl::Status rules = rounds_->pool().CheckInvariants();
  if (!rules.ok()) world_->Fail("tracker: " + StatusText(rules));
  PlanRound(kTickNs);
}

// The tick after this round; a round meanwhile plans its own, and this one then does nothing.
void SimTracker::PlanRound(int64_t delay_ns) {
  const int64_t due_ns = world_->now_ns() + delay_ns;
  tick_ns_ = due_ns;
  world_->After(node_, delay_ns, [this, due_ns] {
    if (tick_ns_ == due_ns) Round();
  });
}

}  // namespace tilewright::sim
