#include "tracker/tracker_rounds.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "deploy/support/failpoint.h"

namespace tilewright::tracker {
namespace {

constexpr int64_t kMsNs = 1'000'000;
// How often all waiting calls are looked through for clients that are gone.
constexpr int64_t kLookEveryNs = 1'000 * kMsNs;

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
  ask_all_ = true;
  return absl::OkStatus();
}

void TrackerRounds::TakeIn(LoopCall call, Now now, bool draining, std::vector<Finished>* finished) {
  absl::Status status = dead_.ok() ? call.apply(*pool_, now) : TrackerStopping();
  if (!status.ok() || !call.poll) {
    finished->push_back({std::move(call.finish), std::move(status)});
    return;
  }
  if (const auto older = by_key_.find(call.key); older != by_key_.end()) {
    PollContext context{pool_.get(), now, false, draining, true};
    older->second->call.poll(context);
    finished->push_back({std::move(older->second->call.finish), absl::OkStatus()});
    Forget(older->second);
  }
  Waiting waiting;
  waiting.deadline_ns =
      now.mono_ns + std::clamp<int64_t>(call.wait_ms, 0, options_.max_wait_ms) * kMsNs;
  waiting.call = std::move(call);
  waiting_.push_back(std::move(waiting));
  const std::string& key = waiting_.back().call.key;
  if (!key.empty()) by_key_.emplace(key, std::prev(waiting_.end()));
}

void TrackerRounds::Forget(std::list<Waiting>::iterator waiting) {
  if (!waiting->call.key.empty()) by_key_.erase(waiting->call.key);
  waiting_.erase(waiting);
}

bool TrackerRounds::WorthAsking(const Waiting& waiting, const std::set<std::string>& news) const {
  return waiting.fresh || ask_all_ || (waiting.idle && pool_->HasWork()) ||
         (!news.empty() && news.count(waiting.call.about) != 0);
}

void TrackerRounds::PollWaiting(Now now, bool draining, std::vector<Finished>* finished) {
  PollContext context{pool_.get(), now, now.mono_ns >= no_grants_before_ns_ && !draining, draining,
                      false};
  const bool look = now.mono_ns >= next_look_ns_;
  if (look) next_look_ns_ = now.mono_ns + kLookEveryNs;
  const std::set<std::string> news = pool_->TakeNews();
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto waiting = it++;
    const bool due = waiting->deadline_ns <= now.mono_ns || draining || !dead_.ok();
    const bool ask = due || WorthAsking(*waiting, news);
    if (!ask && !look) continue;
    LoopCall& call = waiting->call;
    if (call.cancelled && call.cancelled()) {
      finished->push_back(
          {std::move(call.finish), support::Cancelled("rpc.cancelled", "the client is gone")});
      Forget(waiting);
      continue;
    }
    if (!ask) continue;
    waiting->fresh = false;
    if (!dead_.ok()) {
      finished->push_back({std::move(call.finish), TrackerStopping()});
      Forget(waiting);
      continue;
    }
    const PollResult result = call.poll(context);
    waiting->idle = result != PollResult::kWait;
    if (result != PollResult::kAnswer && !due) {
      if (result == PollResult::kSoon) {
        waiting->deadline_ns =
            std::min(waiting->deadline_ns, now.mono_ns + options_.soon_ms * kMsNs);
      }
      continue;
    }
    finished->push_back({std::move(call.finish), absl::OkStatus()});
    Forget(waiting);
  }
  ask_all_ = false;
}

absl::Status TrackerRounds::DeliverAgain() {
  const std::set<std::string> items = pool_->TakeAskedAgain();
  for (const std::string& item : items) {
    TW_ASSIGN(std::vector<ResultRow> results, store_->LoadResults(item));
    pool_->DeliverAgain(item, std::move(results), ReadClock());
  }
  if (!items.empty() && on_delivered_again_) on_delivered_again_(items);
  return absl::OkStatus();
}

absl::Status TrackerRounds::CommitRound() {
  absl::Status status = DeliverAgain();
  const Changes changes = pool_->TakeChanges();
  if (status.ok() && changes.empty()) return absl::OkStatus();
  const int64_t start_ns = clock_->NowNs();
  if (status.ok()) status = store_->Commit(changes);
  if (on_commit_) on_commit_(static_cast<double>(clock_->NowNs() - start_ns) * 1e-9, status);
  if (status.ok()) return status;
  no_grants_before_ns_ = clock_->NowNs() + options_.after_failure_ms * kMsNs;
  dead_ = Rebuild();
  return status;
}

absl::Status TrackerRounds::Round(std::vector<LoopCall> calls, bool draining) {
  const Now now = ReadClock();
  std::vector<Finished> finished;
  pool_->Tick(now);
  support::HitFailpoint(support::Failpoint::tracker_round_ticked);
  for (LoopCall& call : calls) TakeIn(std::move(call), now, draining, &finished);
  support::HitFailpoint(support::Failpoint::tracker_round_taken);
  PollWaiting(now, draining, &finished);
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
  by_key_.clear();
  for (Waiting& waiting : std::exchange(waiting_, {})) waiting.call.finish(TrackerStopping());
}

}  // namespace tilewright::tracker
