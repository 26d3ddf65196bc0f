#include "tracker/tracker_loop.h"

#include <algorithm>
#include <utility>

#include "deploy/daemon/daemon_log.h"
#include "deploy/support/strings.h"

namespace tilewright::tracker {
namespace {

constexpr int64_t kMsNs = 1'000'000;
constexpr int64_t kMetricsEveryNs = kSecondNs;

absl::Status Stopping() {
  return support::Unavailable("tracker.stopping", "the tracker is about to stop; come back");
}

}  // namespace

TrackerLoop::TrackerLoop(LoopOptions options, PoolOptions pool_options, TrackerStore* store,
                         daemon::BlobStore* blobs, support::Clock* clock, TrackerMetrics* metrics)
    : options_(options),
      pool_options_(pool_options),
      store_(store),
      blobs_(blobs),
      clock_(clock),
      metrics_(metrics) {}

absl::StatusOr<std::unique_ptr<TrackerLoop>> TrackerLoop::Create(
    LoopOptions options, PoolOptions pool_options, TrackerStore* store, daemon::BlobStore* blobs,
    support::Clock* clock, TrackerMetrics* metrics) {
  auto loop = std::unique_ptr<TrackerLoop>(
      new TrackerLoop(options, pool_options, store, blobs, clock, metrics));
  TW_TRY(loop->Rebuild());
  return loop;
}

TrackerLoop::~TrackerLoop() { Stop(); }

Now TrackerLoop::ReadClock() { return {clock_->NowNs(), clock_->WallMicros()}; }

absl::Status TrackerLoop::Rebuild() {
  TW_ASSIGN(Snapshot snapshot, store_->Load());
  pool_ = std::make_unique<DevicePool>(pool_options_, std::move(snapshot), ReadClock());
  return absl::OkStatus();
}

void TrackerLoop::Start(std::function<void(absl::Status)> fatal) {
  fatal_ = std::move(fatal);
  thread_ = std::thread([this] { Run(); });
}

void TrackerLoop::Post(LoopCall call) {
  {
    support::MutexLock lock(mutex_);
    if (!stopping_) {
      incoming_.push_back(std::move(call));
      wake_.NotifyOne();
      return;
    }
  }
  call.finish(Stopping());
}

void TrackerLoop::Drain() {
  draining_.store(true);
  wake_.NotifyOne();
}

void TrackerLoop::Stop() {
  {
    support::MutexLock lock(mutex_);
    if (stopped_) return;
    stopping_ = true;
    stopped_ = true;
  }
  wake_.NotifyOne();
  if (thread_.joinable()) thread_.join();
}

void TrackerLoop::Run() {
  bool stopping = false;
  while (!stopping) {
    std::vector<LoopCall> calls;
    {
      support::MutexLock lock(mutex_);
      if (incoming_.empty() && !stopping_) wake_.WaitForMs(mutex_, options_.tick_ms);
      calls = std::exchange(incoming_, {});
      stopping = stopping_;
    }
    Round(std::move(calls));
  }
  std::vector<LoopCall> late;
  {
    support::MutexLock lock(mutex_);
    late = std::exchange(incoming_, {});
  }
  for (LoopCall& call : late) call.finish(Stopping());
  for (Waiting& waiting : waiting_) waiting.call.finish(Stopping());
  waiting_.clear();
}

void TrackerLoop::TakeIn(LoopCall call, Now now, std::vector<Finished>* finished) {
  absl::Status status = dead_ ? Stopping() : call.apply(*pool_, now);
  if (!status.ok() || !call.poll) {
    finished->push_back({std::move(call.finish), std::move(status)});
    return;
  }
  if (!call.key.empty()) {
    for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
      if (it->call.key != call.key) continue;
      PollContext context{pool_.get(), now, false, draining_.load(), true};
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

void TrackerLoop::PollWaiting(bool all, Now now, std::vector<Finished>* finished) {
  PollContext context{pool_.get(), now, now.mono_ns >= no_grants_before_ns_, draining_.load(),
                      false};
  if (context.draining) context.may_grant = false;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const bool due = it->deadline_ns <= now.mono_ns || context.draining || dead_;
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
    if (dead_) {
      finished->push_back({std::move(it->call.finish), Stopping()});
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

absl::Status TrackerLoop::CommitRound() {
  Changes more = pool_->TakeChanges();
  if (more.empty()) return absl::OkStatus();
  const int64_t start_ns = clock_->NowNs();
  absl::Status status = store_->Commit(more);
  metrics_->ObserveCommit(static_cast<double>(clock_->NowNs() - start_ns) * 1e-9, status.ok());
  if (status.ok()) return status;
  daemon::LogError("tracker.commit.failed",
                   {{"slug", support::Slug(status)}, {"error", support::StatusText(status)}});
  no_grants_before_ns_ = clock_->NowNs() + options_.after_failure_ms * kMsNs;
  const absl::Status rebuilt = Rebuild();
  if (!rebuilt.ok()) {
    dead_ = true;
    if (fatal_) fatal_(rebuilt);
  }
  metrics_->Reset();
  return status;
}

void TrackerLoop::Round(std::vector<LoopCall> calls) {
  const Now now = ReadClock();
  std::vector<Finished> finished;
  const PoolStats before = pool_->stats(now);
  pool_->Tick(now);
  // Expiries can make work for waiting agents and updates for waiting consumers.
  const PoolStats after = pool_->stats(now);
  const bool ticked = before.queued != after.queued || before.outbox != after.outbox ||
                      before.devices_dispatchable != after.devices_dispatchable;
  const bool news = !calls.empty() || ticked;
  for (LoopCall& call : calls) TakeIn(std::move(call), now, &finished);
  PollWaiting(news, now, &finished);
  const absl::Status committed = dead_ ? Stopping() : CommitRound();
  for (Finished& call : finished) {
    // An error of the call's own stands: nothing of it had to be committed.
    call.finish(call.status.ok() ? committed : call.status);
  }
  if (dead_) return;
  for (const double seconds : pool_->TakeWaits()) metrics_->ObserveWait(seconds);
  if (now.mono_ns >= next_metrics_ns_) {
    next_metrics_ns_ = now.mono_ns + kMetricsEveryNs;
    metrics_->Update(pool_->stats(now), static_cast<int64_t>(waiting_.size()),
                     blobs_->total_bytes());
  }
  CollectArtifacts(now);
}

void TrackerLoop::CollectArtifacts(Now now) {
  if (now.mono_ns < next_collect_ns_) return;
  next_collect_ns_ = now.mono_ns + options_.collect_every_ms * kMsNs;
  if (blobs_->total_bytes() <= options_.max_artifact_bytes) return;
  const int64_t removed =
      blobs_->Collect(options_.max_artifact_bytes,
                      [this](const std::string& hex) { return pool_->References(hex); });
  daemon::LogInfo("tracker.artifacts.collected",
                  {{"removed", removed}, {"bytes_left", blobs_->total_bytes()}});
}

}  // namespace tilewright::tracker
