#include "tracker/tracker_rounds.h"

#include <algorithm>
#include <utility>

#include "deploy/support/failpoint.h"

namespace tilewright::tracker {
namespace {

constexpr int64_t kMsNs = 1'000'000;

}  // namespace

absl::Status TrackerStopping() {
  return support::Unavailable("tracker.stopping", "the tracker is about to stop; come back");
}

absl::StatusOr<std::unique_ptr<TrackerRounds>> TrackerRounds::Create(RoundOptions options,
                                                                     PoolOptions pool_options,
                                                                     PoolStore* store,
                                                                     support::Clock* clock) {
  auto rounds =
      std::unique_ptr<TrackerRounds>(new TrackerRounds(options, pool_options, store, clock));
  TW_TRY(rounds->Rebuild());
  return rounds;
}

Now TrackerRounds::ReadClock() { return {clock_->NowNs(), clock_->WallMicros()}; }

absl::Status TrackerRounds::Rebuild() {
  TW_ASSIGN(Snapshot snapshot, store_->Load());
  pool_ = std::make_unique<DevicePool>(pool_options_, std::move(snapshot), ReadClock());
  ++rebuilds_;
  return absl::OkStatus();
}

void TrackerRounds::TakeIn(LoopCall call, Now now, bool draining, std::vector<Finished>* finished) {
  absl::Status status = dead_.ok() ? call.apply(*pool_, now) : TrackerStopping();
  if (!status.ok() || !call.poll) {
    finished->push_back({std::move(call.finish), std::move(status)});
    return;
  }
  if (!call.key.empty()) {
    for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
      if (it->call.key != call.key) continue;
      PollContext context{pool_.get(), now, false, draining, true};
      it->call.poll(context);
      finished->push_back({std::move(it->call.finish), absl::OkStatus()});
      waiting_.erase(it);
      break;
    }
  }
  Waiting waiting;
  waiting.deadline_ns =
      now.mono_ns + std::clamp<int64_t>(call.wait_ms, 0, options_.max_wait_ms) * kMsNs;
  waiting.call = std::move(call);
  waiting_.push_back(std::move(waiting));
}

void TrackerRounds::PollWaiting(bool all, Now now, bool draining, std::vector<Finished>* finished) {
  PollContext context{pool_.get(), now, now.mono_ns >= no_grants_before_ns_ && !draining, draining,
                      false};
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const bool due = it->deadline_ns <= now.mono_ns || draining || !dead_.ok();
    if (it->call.cancelled && it->call.cancelled()) {
      finished->push_back(
          {std::move(it->call.finish), support::Cancelled("rpc.cancelled", "the client is gone")});
      it = waiting_.erase(it);
      continue;
    }
    if (!all && !it->fresh && !due) {
      ++it;
      continue;
    }
    it->fresh = false;
    if (!dead_.ok()) {
      finished->push_back({std::move(it->call.finish), TrackerStopping()});
      it = waiting_.erase(it);
      continue;
    }
    const PollResult result = it->call.poll(context);
    if (result != PollResult::kAnswer && !due) {
      if (result == PollResult::kSoon) {
        it->deadline_ns = std::min(it->deadline_ns, now.mono_ns + options_.soon_ms * kMsNs);
      }
      ++it;
      continue;
    }
    finished->push_back({std::move(it->call.finish), absl::OkStatus()});
    it = waiting_.erase(it);
  }
}

absl::Status TrackerRounds::CommitRound() {
  const Changes changes = pool_->TakeChanges();
  if (changes.empty()) return absl::OkStatus();
  const int64_t start_ns = clock_->NowNs();
  const absl::Status status = store_->Commit(changes);
  if (on_commit_) on_commit_(static_cast<double>(clock_->NowNs() - start_ns) * 1e-9, status);
  if (status.ok()) return status;
  no_grants_before_ns_ = clock_->NowNs() + options_.after_failure_ms * kMsNs;
  dead_ = Rebuild();
  return status;
}

absl::Status TrackerRounds::Round(std::vector<LoopCall> calls, bool draining) {
  const Now now = ReadClock();
  std::vector<Finished> finished;
  const PoolStats before = pool_->stats(now);
  pool_->Tick(now);
  support::HitFailpoint(support::Failpoint::tracker_round_ticked);
  // Expiries can make work for waiting agents and updates for waiting consumers.
  const PoolStats after = pool_->stats(now);
  const bool ticked = before.queued != after.queued || before.outbox != after.outbox ||
                      before.devices_dispatchable != after.devices_dispatchable;
  const bool news = !calls.empty() || ticked;
  for (LoopCall& call : calls) TakeIn(std::move(call), now, draining, &finished);
  support::HitFailpoint(support::Failpoint::tracker_round_taken);
  PollWaiting(news, now, draining, &finished);
  support::HitFailpoint(support::Failpoint::tracker_round_polled);
  const absl::Status committed = dead_.ok() ? CommitRound() : TrackerStopping();
  support::HitFailpoint(support::Failpoint::tracker_round_committed);
  for (Finished& call : finished) {
    // An error of the call's own stands: nothing of it had to be committed.
    call.finish(call.status.ok() ? committed : call.status);
  }
  support::HitFailpoint(support::Failpoint::tracker_round_answered);
  return dead_;
}

void TrackerRounds::FinishAll() {
  for (Waiting& waiting : std::exchange(waiting_, {})) waiting.call.finish(TrackerStopping());
}

}  // namespace tilewright::tracker
