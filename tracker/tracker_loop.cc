#include "tracker/tracker_loop.h"

#include <algorithm>
#include <utility>

#include "deploy/daemon/daemon_log.h"
#include "deploy/daemon/systemd.h"
#include "deploy/support/strings.h"

namespace tilewright::tracker {
namespace {

constexpr int64_t kMsNs = 1'000'000;
constexpr int64_t kMetricsEveryNs = kSecondNs;
constexpr int64_t kIdsInLog = 20;  // of one event

}  // namespace

TrackerLoop::TrackerLoop(LoopOptions options, std::unique_ptr<TrackerRounds> rounds,
                         daemon::BlobStore* blobs, support::Clock* clock, TrackerMetrics* metrics)
    : options_(options),
      rounds_(std::move(rounds)),
      blobs_(blobs),
      clock_(clock),
      metrics_(metrics) {
  rounds_->set_on_commit([this](double seconds, const absl::Status& status) {
    metrics_->ObserveCommit(seconds, status.ok());
    if (status.ok()) return;
    daemon::LogError("tracker.commit.failed",
                     {{"slug", support::Slug(status)}, {"error", support::StatusText(status)}});
  });
  rounds_->set_on_delivered_again([](const std::set<std::string>& items) {
    const std::vector<std::string> first(
        items.begin(), std::next(items.begin(), std::min<int64_t>(kIdsInLog, items.size())));
    daemon::LogWarning("work.delivered.again", {{"work_items", static_cast<int64_t>(items.size())},
                                                {"ids", support::Join(first, " ")}});
  });
}

absl::StatusOr<std::unique_ptr<TrackerLoop>> TrackerLoop::Create(
    LoopOptions options, PoolOptions pool_options, PoolStore* store, daemon::BlobStore* blobs,
    support::Clock* clock, TrackerMetrics* metrics) {
  TW_ASSIGN(std::unique_ptr<TrackerRounds> rounds,
            TrackerRounds::Create(options.rounds, pool_options, store, clock));
  return std::unique_ptr<TrackerLoop>(
      new TrackerLoop(options, std::move(rounds), blobs, clock, metrics));
}

TrackerLoop::~TrackerLoop() { Stop(); }

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
  call.finish(TrackerStopping());
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
    daemon::BeatWatchdog();
  }
  std::vector<LoopCall> late;
  {
    support::MutexLock lock(mutex_);
    late = std::exchange(incoming_, {});
  }
  for (LoopCall& call : late) call.finish(TrackerStopping());
  rounds_->FinishAll();
}

void TrackerLoop::Round(std::vector<LoopCall> calls) {
  const absl::Status dead = rounds_->Round(std::move(calls), draining_.load());
  if (!dead.ok()) {
    if (fatal_ && !std::exchange(fatal_told_, true)) fatal_(dead);
    return;
  }
  const Now now{clock_->NowNs(), clock_->WallMicros()};
  UpdateMetrics(now);
  CollectArtifacts(now);
}

void TrackerLoop::UpdateMetrics(Now now) {
  if (std::exchange(rebuilds_, rounds_->rebuilds()) != rounds_->rebuilds()) metrics_->Reset();
  for (const double seconds : rounds_->pool().TakeWaits()) metrics_->ObserveWait(seconds);
  if (now.mono_ns < next_metrics_ns_) return;
  next_metrics_ns_ = now.mono_ns + kMetricsEveryNs;
  metrics_->Update(rounds_->pool().stats(now), rounds_->waiting(), blobs_->total_bytes());
}

void TrackerLoop::CollectArtifacts(Now now) {
  if (now.mono_ns < next_collect_ns_) return;
  next_collect_ns_ = now.mono_ns + options_.collect_every_ms * kMsNs;
  if (blobs_->total_bytes() <= options_.max_artifact_bytes) return;
  const int64_t removed =
      blobs_->Collect(options_.max_artifact_bytes,
                      [this](const std::string& hex) { return rounds_->pool().References(hex); });
  daemon::LogInfo("tracker.artifacts.collected",
                  {{"removed", removed}, {"bytes_left", blobs_->total_bytes()}});
}

}  // namespace tilewright::tracker
