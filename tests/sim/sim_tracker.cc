#include "tests/sim/sim_tracker.h"

#include <utility>

#include "deploy/support/strings.h"

namespace tilewright::sim {

using support::StatusText;

namespace {

constexpr int64_t kTickNs = 200 * kMs;

template <typename T>
T Value(absl::StatusOr<T> result) {
  TW_CHECK(result.ok()) << StatusText(result.status());
  return *std::move(result);
}

}  // namespace

// The real database in memory (what it committed survives the process), with faults in front.
class SimTracker::Store final : public tracker::PoolStore {
 public:
  explicit Store(SimTracker* owner)
      : owner_(owner), real_(Value(tracker::TrackerStore::Open(":memory:"))) {}

  absl::StatusOr<tracker::Snapshot> Load() override {
    TW_ASSIGN(tracker::Snapshot snapshot, real_->Load());
    snapshot.epoch += static_cast<uint64_t>(starts_);
    if (owner_->bugs.forgets_outbox) snapshot.outbox.clear();
    return snapshot;
  }

  absl::Status Commit(const tracker::Changes& changes) override {
    if (owner_->disk_full) {
      return support::ResourceExhausted("sql.commit.full", "no space left (simulated)");
    }
    if (!owner_->bugs.acks_before_commit) return real_->Commit(changes);
    if (late_) TW_TRY(real_->Commit(*late_));
    late_ = std::make_unique<tracker::Changes>(changes);
    return absl::OkStatus();
  }

  // What was only in memory dies with the process.
  void ProcessDied() { late_.reset(); }
  void ProcessStarts() { ++starts_; }

 private:
  SimTracker* owner_;
  std::unique_ptr<tracker::TrackerStore> real_;
  std::unique_ptr<tracker::Changes> late_;
  int starts_ = -1;
};

SimTracker::SimTracker(SimWorld* world, std::string dir)
    : world_(world), node_(world->AddNode("tracker")), dir_(std::move(dir)) {
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
  rounds_ = Value(tracker::TrackerRounds::Create({}, options, store_.get(), world_->clock(node_)));
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
