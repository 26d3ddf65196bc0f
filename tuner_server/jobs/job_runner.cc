#include "tuner_server/jobs/job_runner.h"

#include <algorithm>
#include <utility>

#include "deploy/daemon/daemon_log.h"
#include "deploy/support/backoff.h"
#include "deploy/support/failpoint.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tuner_server/jobs/search_process.h"
#include "tuner_server/jobs/tracker_dispatcher.h"
#include "tuner_server/jobs/work_items.h"

namespace tilewright::jobs {
namespace {

using support::MutexLock;

// Without events the core is told the time this often.
constexpr int64_t kTickMs = 100;
constexpr int64_t kFirstPauseMs = 500;
constexpr int64_t kMaxPauseMs = 10'000;
constexpr int kMaxOddFailures = 5;
constexpr size_t kIdsInLog = 20;  // of each kind in one event

// Failures that may end by themselves: a full or absent disk, a lock.
bool MayPass(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kAborted:
      return true;
    default:
      return false;
  }
}

std::string FirstIds(const std::vector<std::string>& names) {
  const auto count = std::min<size_t>(names.size(), kIdsInLog);
  return support::Join(std::vector<std::string>(names.begin(), names.begin() + count), " ");
}

void LogReconciled(const std::string& job, const Reconciled& reconciled) {
  daemon::LogWarning("job.reconciled",
                     {{"job", job},
                      {"ended", static_cast<int64_t>(reconciled.ended.size())},
                      {"ended_ids", FirstIds(reconciled.ended)},
                      {"unknown", static_cast<int64_t>(reconciled.unknown.size())},
                      {"unknown_ids", FirstIds(reconciled.unknown)},
                      {"foreign", static_cast<int64_t>(reconciled.foreign.size())},
                      {"foreign_ids", FirstIds(reconciled.foreign)}});
}

}  // namespace

JobRunner::JobRunner(const ServerEnvironment& environment, const log::JobRow& job,
                     std::function<void(bool)> on_change)
    : env_(environment),
      id_(job.id),
      dir_(support::PathJoin(environment.jobs_dir, job.uid)),
      model_sha256_(job.model_sha256),
      on_change_(std::move(on_change)),
      thread_([this] { Loop(); }) {}

JobRunner::~JobRunner() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  thread_.join();
}

bool JobRunner::stopping() {
  MutexLock lock(mutex_);
  return stopping_;
}

void JobRunner::Post(JobEvent event) {
  {
    MutexLock lock(mutex_);
    events_.push_back(std::move(event));
  }
  wake_.NotifyAll();
}

void JobRunner::NotifyCancelled() { Post(CancelRequested{}); }

JobSnapshot JobRunner::snapshot() {
  MutexLock lock(mutex_);
  return snapshot_;
}

JobEvent JobRunner::NextEvent() {
  MutexLock lock(mutex_);
  if (!stopping_ && events_.empty()) wake_.WaitForMs(mutex_, kTickMs);
  if (stopping_ || events_.empty()) return Tick{};
  JobEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void JobRunner::Loop() {
  int odd_failures = 0;
  support::Backoff pauses(support::Rng(support::StableHash64(dir_)), kFirstPauseMs, kMaxPauseMs);
  while (!stopping()) {
    const absl::Status status = RunOnce();
    if (status.ok() || support::Slug(status) == "job.core.ended") {
      if (stopping()) return;
      support::HitFailpoint(support::Failpoint::tuner_job_ended);
      (void)support::RemoveTree(dir_);
      support::HitFailpoint(support::Failpoint::tuner_folder_removed);
      done_ = true;
      on_change_(true);
      return;
    }
    daemon::LogError("job.storage.failed", {{"job", id_}, {"error", support::StatusText(status)}});
    PublishProblem(status);
    if (!MayPass(status) && ++odd_failures >= kMaxOddFailures) {
      GiveUp(status);
      continue;
    }
    MutexLock lock(mutex_);
    events_.clear();
    if (!stopping_) wake_.WaitForMs(mutex_, pauses.NextMs());
  }
}

absl::Status JobRunner::PrepareFolder() {
  TW_TRY(support::MakeDirs(support::PathJoin(dir_, "builds")));
  const std::string model = support::PathJoin(dir_, "model.onnx");
  if (support::FileExists(model)) return absl::OkStatus();
  TW_ASSIGN(const std::string blob, env_.blobs->Path(model_sha256_));
  if (support::LinkFile(blob, model).ok()) return absl::OkStatus();
  TW_ASSIGN(const std::string bytes, env_.blobs->Get(model_sha256_));
  return support::WriteFileAtomic(model, bytes);
}

// Ok when the job has ended, or the runner stops.
absl::Status JobRunner::RunOnce() {
  TW_TRY(PrepareFolder());
  support::HitFailpoint(support::Failpoint::tuner_folder_made);
  TW_ASSIGN(const log::JobRow job, env_.log->GetJob(id_));
  TW_ASSIGN(const v1::Job spec, SpecFromJson(job.spec_json));
  const JobEventSink sink = [this](JobEvent event) { Post(std::move(event)); };

  search::BuilderOptions builder = env_.builder;
  builder.mode = "search";
  // The ports go before the core that uses them is gone, so that none answers into a new one.
  std::unique_ptr<JobCore> core;
  SearchProcess search(builder, sink);
  const std::unique_ptr<BuildPool> builds = env_.builds->NewPool(sink);
  TrackerDispatcher dispatcher(
      env_.tracker, env_.blobs,
      DispatcherOptions{ConsumerName(job.uid), job.uid, spec.pool(), job.target}, sink);

  JobEnvironment environment;
  environment.log = env_.log;
  environment.modules = env_.modules;
  environment.blobs = env_.blobs;
  environment.clock = env_.clock;
  environment.search = &search;
  environment.builds = builds.get();
  environment.dispatcher = &dispatcher;
  environment.claims = env_.claims;
  environment.on_reconciled = [this](const Reconciled& reconciled) {
    LogReconciled(id_, reconciled);
  };
  JobCoreOptions options = env_.core;
  options.state_dir = dir_;
  TW_ASSIGN(core, JobCore::Resume(environment, options, id_));
  support::HitFailpoint(support::Failpoint::tuner_job_resumed);
  daemon::LogInfo("job.started", {{"job", id_}, {"state", log::JobStateName(core->job().state)}});
  counted_ = core->progress();
  TW_TRY(core->Start());
  Publish(*core);
  while (!core->done() && !stopping()) {
    JobEvent event = NextEvent();
    const bool tick = std::holds_alternative<Tick>(event);
    const log::JobState before = core->job().state;
    TW_TRY(core->Handle(std::move(event)));
    if (!tick || core->job().state != before) Publish(*core);
  }
  if (core->done()) {
    daemon::LogInfo("job.ended", {{"job", id_},
                                  {"state", log::JobStateName(core->job().state)},
                                  {"reason", core->job().state_reason}});
  }
  return absl::OkStatus();
}

void JobRunner::Publish(const JobCore& core) {
  JobSnapshot snapshot{core.progress(), core.conditions(), core.best_trial()};
  CountChanges(snapshot.progress);
  {
    MutexLock lock(mutex_);
    snapshot_ = std::move(snapshot);
  }
  on_change_(false);
}

void JobRunner::PublishProblem(const absl::Status& problem) {
  v1::Condition condition;
  condition.set_type("STORAGE_FAILED");
  condition.set_reason(support::Slug(problem));
  condition.set_message(support::StatusText(problem));
  {
    MutexLock lock(mutex_);
    snapshot_.conditions = {condition};
  }
  on_change_(false);
}

// The job cannot go on: it ends with the reason, if even that can be written down.
void JobRunner::GiveUp(const absl::Status& problem) {
  const auto job = env_.log->GetJob(id_);
  if (!job.ok() || log::IsFinal(job->state)) return;
  const auto moved = env_.log->MoveJob({.id = id_,
                                        .from = job->state,
                                        .to = log::JobState::kFailed,
                                        .reason = support::StatusText(problem),
                                        .now_us = env_.clock->WallMicros()});
  if (!moved.ok()) {
    daemon::LogError("job.give_up.failed",
                     {{"job", id_}, {"error", support::StatusText(moved.status())}});
  }
}

void JobRunner::CountChanges(const v1::Progress& now) {
  if (env_.metrics == nullptr) return;
  int32_t failed = 0;
  for (const auto& [outcome, count] : now.failed_by_kind()) {
    const auto before = counted_.failed_by_kind().find(outcome);
    const int32_t fresh = count - (before == counted_.failed_by_kind().end() ? 0 : before->second);
    failed += fresh;
    if (fresh > 0) {
      env_.metrics
          ->Counter("tilewright_tuner_trials_total", "Trials that ended", {{"outcome", outcome}})
          .Increment(fresh);
    }
  }
  const int32_t ok = now.measured() - counted_.measured() - failed;
  if (ok > 0) {
    env_.metrics->Counter("tilewright_tuner_trials_total", "Trials that ended", {{"outcome", "OK"}})
        .Increment(ok);
  }
  const int32_t trained = now.retrainings() - counted_.retrainings();
  if (trained > 0) {
    env_.metrics->Counter("tilewright_tuner_model_trainings_total", "Cost models trained", {})
        .Increment(trained);
  }
  counted_ = now;
}

}  // namespace tilewright::jobs
