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
#include "tuner_server/jobs/job_queue.h"
#include "tuner_server/jobs/search_process.h"
#include "tuner_server/jobs/tracker_dispatcher.h"
#include "tuner_server/jobs/work_items.h"

namespace tilewright::jobs {
namespace {

using support::MutexLock;
using support::StrCat;

// Without events the core is told the time this often.
constexpr int64_t kTickMs = 100;
constexpr int64_t kFirstPauseMs = 500;
constexpr int64_t kMaxPauseMs = 10'000;
constexpr int64_t kWorkedNs = int64_t{30} * 1'000'000'000;  // so long without a failure is work
constexpr int kMaxOddFailures = 5;
constexpr size_t kIdsInLog = 20;  // of each kind in one event

// Failures that may end by themselves: a full or absent disk, a lock.
bool MayPass(const absl::Status& status) {
  if (support::ShortageOf(status) != support::Shortage::kNone) return true;
  switch (status.code()) {
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

void JobRunner::CancelLater(const std::string& reason, const absl::Status& why) {
  {
    MutexLock lock(mutex_);
    cancellation_ = reason;
    SetProblem(why);
  }
  wake_.NotifyAll();
}

std::string JobRunner::cancellation() {
  MutexLock lock(mutex_);
  return cancellation_;
}

bool JobRunner::stopping_core() {
  MutexLock lock(mutex_);
  return stopping_ || !cancellation_.empty();
}

// Ok if nobody asked for the job's end, or the log has it now. Until then the job has no files: it
// may be what fills the disk.
absl::Status JobRunner::WriteCancellation() {
  const std::string reason = cancellation();
  if (reason.empty()) return absl::OkStatus();
  (void)support::RemoveTree(dir_);
  TW_ASSIGN(const log::JobRow job, env_.log->GetJob(id_));
  const absl::StatusOr<log::JobState> next = NextState(job.state, JobAction::kCancel);
  if (next.ok() && *next != job.state) {
    TW_TRY(env_.log
               ->MoveJob({.id = id_,
                          .from = job.state,
                          .to = *next,
                          .reason = reason,
                          .now_us = env_.clock->WallMicros()})
               .status());
  }
  MutexLock lock(mutex_);
  cancellation_.clear();
  return absl::OkStatus();
}

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
    const int64_t begin_ns = env_.clock->NowNs();
    bool ended = false;
    absl::Status status = WriteCancellation();
    if (status.ok()) status = RunOnce(&ended);
    if (ended) {
      support::HitFailpoint(support::Failpoint::tuner_job_ended);
      (void)support::RemoveTree(dir_);
      support::HitFailpoint(support::Failpoint::tuner_folder_removed);
      done_ = true;
      on_change_(true);
      return;
    }
    if (status.ok()) continue;  // told to stop, or a cancellation is to be written
    daemon::LogError("job.storage.failed", {{"job", id_}, {"error", support::StatusText(status)}});
    PublishProblem(status);
    if (env_.clock->NowNs() - begin_ns > kWorkedNs) {  // a new trouble
      pauses.Reset();
      odd_failures = 0;
    }
    if (!MayPass(status) && ++odd_failures >= kMaxOddFailures && GiveUp(status)) continue;
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

// Without `ended`, ok means that the core was told to stop.
absl::Status JobRunner::RunOnce(bool* ended) {
  TW_ASSIGN(const log::JobRow job, env_.log->GetJob(id_));
  *ended = log::IsFinal(job.state);
  if (*ended) return absl::OkStatus();
  // A job that is being cancelled needs no folder: there may be no room for one.
  if (job.state != log::JobState::kCancelling) TW_TRY(PrepareFolder());
  support::HitFailpoint(support::Failpoint::tuner_folder_made);
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
  while (!core->done() && !stopping_core()) {
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
  *ended = core->done();
  return absl::OkStatus();
}

void JobRunner::Publish(const JobCore& core) {
  JobSnapshot snapshot{core.progress(), core.conditions(), core.best_trial(), core.shortage()};
  NoteShortage(snapshot.shortage,
               snapshot.conditions.empty() ? "" : snapshot.conditions.front().message());
  CountChanges(snapshot.progress);
  {
    MutexLock lock(mutex_);
    if (!cancellation_.empty()) {  // came meanwhile: what it waits for stays until it is written
      snapshot.conditions = snapshot_.conditions;
      snapshot.progress.set_phase(snapshot_.progress.phase());
      snapshot.shortage = snapshot_.shortage;
    }
    snapshot_ = std::move(snapshot);
  }
  on_change_(false);
}

void JobRunner::PublishProblem(const absl::Status& problem) {
  NoteShortage(support::ShortageOf(problem), support::StatusText(problem));
  {
    MutexLock lock(mutex_);
    SetProblem(problem);
  }
  on_change_(false);
}

// The job stands still because of `problem`.
void JobRunner::SetProblem(const absl::Status& problem) {
  const support::Shortage shortage = support::ShortageOf(problem);
  const bool is_short = shortage != support::Shortage::kNone;
  v1::Condition condition;
  condition.set_type("STORAGE_FAILED");
  condition.set_reason(is_short ? StrCat("job.waits.", support::ShortageName(shortage))
                                : support::Slug(problem));
  condition.set_message(support::StatusText(problem));
  if (!cancellation_.empty()) {
    condition.set_type("CANCEL_WAITS");
    condition.set_message(StrCat(
        "the job has stopped and is cancelled as soon as the log can be written; a restart of the "
        "tuner before that forgets the request: ",
        support::StatusText(problem)));
  }
  snapshot_.progress.set_phase(is_short ? StrCat("waiting for ", support::ShortageText(shortage))
                                        : "waiting: " + condition.reason());
  snapshot_.shortage = shortage;
  snapshot_.conditions = {std::move(condition)};
}

// Once for each wait, and once when it is over.
void JobRunner::NoteShortage(support::Shortage shortage, const std::string& error) {
  if (shortage == noted_) return;
  const int64_t now_ns = env_.clock->NowNs();
  if (noted_ == support::Shortage::kNone) short_since_ns_ = now_ns;
  noted_ = shortage;
  if (shortage == support::Shortage::kNone) {
    daemon::LogInfo(
        "job.wait.over",
        {{"job", id_}, {"seconds", static_cast<double>(now_ns - short_since_ns_) * 1e-9}});
    return;
  }
  daemon::LogWarning("job.waits",
                     {{"job", id_}, {"for", support::ShortageName(shortage)}, {"error", error}});
  if (env_.metrics == nullptr) return;
  env_.metrics
      ->Counter("tilewright_tuner_job_waits_total", "Times a job had to wait, by what was missing",
                {{"for", std::string(support::ShortageName(shortage))}})
      .Increment();
}

// The job cannot go on: it ends with the reason. False if even that cannot be written down.
bool JobRunner::GiveUp(const absl::Status& problem) {
  const auto job = env_.log->GetJob(id_);
  if (!job.ok() || log::IsFinal(job->state)) return job.ok();
  const auto moved = env_.log->MoveJob({.id = id_,
                                        .from = job->state,
                                        .to = log::JobState::kFailed,
                                        .reason = support::StatusText(problem),
                                        .now_us = env_.clock->WallMicros()});
  if (!moved.ok()) {
    daemon::LogError("job.give_up.failed",
                     {{"job", id_}, {"error", support::StatusText(moved.status())}});
  }
  return moved.ok();
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
