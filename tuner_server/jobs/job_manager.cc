#include "tuner_server/jobs/job_manager.h"

#include <set>
#include <utility>
#include <vector>

#include "deploy/daemon/daemon_log.h"
#include "deploy/daemon/heap.h"
#include "deploy/daemon/systemd.h"
#include "deploy/support/strings.h"
#include "tuner_server/jobs/job_queue.h"
#include "tuner_server/jobs/job_recall.h"
#include "tuner_server/jobs/job_times.h"
#include "tuner_server/jobs/size_messages.h"
#include "tuner_server/jobs/work_items.h"

namespace tilewright::jobs {
namespace {

using support::MutexLock;

constexpr int64_t kCheckMs = 1'000;
constexpr int64_t kManyJobs = 100'000;
constexpr int64_t kEndedAtOnce = 64;  // jobs between two looks, at most
constexpr int kCancelTries = 10;
constexpr size_t kMaxCached = 10'000;

ServerEnvironment WithClaims(ServerEnvironment environment, TaskClaims* claims) {
  environment.claims = claims;
  return environment;
}

// Two jobs with the same one have the same tasks for the same devices. Empty for a job that wants
// to measure for itself.
std::string TaskSetOf(const log::JobRow& job, const v1::Job& spec) {
  if (!spec.recall()) return "";
  const std::string key = support::StrCat(job.model_sha256, "|", job.target, "|", spec.pool());
  return support::StrCat(key, "|", SizesOf(spec).ToText());
}

// How a job is doing that does not run now.
absl::StatusOr<JobSnapshot> SnapshotOfLog(log::TuningLog* log, const log::JobRow& job,
                                          const v1::Job& spec) {
  TW_ASSIGN(const JobTimes times, ReadJobTimes(log, job, spec));
  TW_ASSIGN(const log::TrialCounts counts, log->CountTrials(job.id));
  JobSnapshot snapshot;
  snapshot.best_trial = BestTrial(times.tasks);
  snapshot.progress = MakeProgress(counts, times.tasks);
  snapshot.progress.set_cached(static_cast<int32_t>(times.recalled));
  snapshot.progress.set_trials_total(spec.budget().max_trials());
  snapshot.progress.mutable_elapsed()->set_seconds(static_cast<int64_t>(job.elapsed_s));
  TW_ASSIGN(const std::vector<log::ModelRow> models, log->ListModels(job.id));
  int32_t retrainings = 0;
  for (const log::ModelRow& model : models) {
    if (model.replaced) snapshot.progress.set_model_id(model.id);
    retrainings += model.train_rows > 0 ? 1 : 0;
  }
  snapshot.progress.set_retrainings(retrainings);
  return snapshot;
}

}  // namespace

JobManager::JobManager(const ServerEnvironment& environment, int64_t max_running,
                       int64_t max_artifact_bytes)
    : env_(WithClaims(environment, &claims_)),
      max_running_(max_running),
      max_artifact_bytes_(max_artifact_bytes) {}

JobManager::~JobManager() { Stop(); }

void JobManager::Start() {
  const absl::Status restored = RestoreClaims(env_.log, &claims_, env_.clock->NowNs());
  if (!restored.ok()) {
    daemon::LogError("jobs.claims.failed", {{"error", support::StatusText(restored)}});
  }
  thread_ = std::thread([this] { Loop(); });
}

void JobManager::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.NotifyAll();
  if (thread_.joinable()) thread_.join();
  std::map<std::string, std::shared_ptr<JobRunner>> runners;
  {
    MutexLock lock(mutex_);
    runners.swap(runners_);
  }
  // Each runner ends its thread when the last owner lets go.
}

void JobManager::Loop() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (!stopping_ && !check_) wake_.WaitForMs(mutex_, kCheckMs);
      if (stopping_) return;
      check_ = false;
    }
    Reap();
    Admit();
    daemon::BeatWatchdog();
  }
}

void JobManager::Changed(const std::string& id, bool check) {
  MutexLock lock(mutex_);
  versions_.Rise(id);
  if (!check) return;
  check_ = true;
  wake_.NotifyAll();
}

void JobManager::Reap() {
  std::vector<std::shared_ptr<JobRunner>> ended;  // destroyed without the mutex
  {
    MutexLock lock(mutex_);
    for (auto it = runners_.begin(); it != runners_.end();) {
      if (!it->second->done()) {
        ++it;
        continue;
      }
      claims_.ReleaseAll(it->first);  // however it ended
      ended.push_back(std::move(it->second));
      it = runners_.erase(it);
    }
  }
  if (ended.empty()) return;
  RetainModules();
  RetainSearches();
  const absl::Status collected = CollectArtifacts();
  if (!collected.ok()) {
    daemon::LogError("artifacts.collect.failed", {{"error", support::StatusText(collected)}});
  }
  ended.clear();
  daemon::ReturnFreeHeap();
}

// A job may have published a version too many.
void JobManager::RetainModules() {
  if (!env_.retention.limits()) return;
  const auto report =
      env_.modules->Prune("", env_.retention, /*dry_run=*/false, env_.clock->WallMicros());
  if (!report.ok()) {
    daemon::LogError("modules.prune.failed", {{"error", support::StatusText(report.status())}});
    return;
  }
  for (const log::ModuleVersionRow& version : report->pruned) {
    daemon::LogInfo("modules.pruned",
                    {{"version", log::ModuleVersionName(version.module, version.number)}});
  }
  if (!report->within_limits) {
    daemon::LogWarning("modules.quota.exceeded",
                       {{"kept_bytes", report->kept_bytes}, {"limit", env_.retention.max_bytes}});
  }
}

// One more job has ended; the first time after a start those of a log that was kept whole before.
void JobManager::RetainSearches() {
  if (env_.keep_search_jobs == 0) return;
  const int64_t window = std::exchange(searches_swept_, true) ? kEndedAtOnce : kManyJobs;
  const absl::StatusOr<int64_t> pruned = env_.log->PruneSearches(env_.keep_search_jobs, window);
  if (!pruned.ok()) {
    daemon::LogError("searches.prune.failed", {{"error", support::StatusText(pruned.status())}});
  } else if (*pruned > 0) {
    daemon::LogInfo("searches.pruned", {{"jobs", *pruned}, {"kept", env_.keep_search_jobs}});
  }
}

// The tasks' expected outputs are named by nothing that lasts; jobs in progress use them all the
// time, so they are never the oldest.
absl::Status JobManager::CollectArtifacts() {
  if (env_.blobs->total_bytes() <= max_artifact_bytes_) return absl::OkStatus();
  std::set<std::string> named;
  log::ModuleQuery modules{.with_pruned = false, .limit = kManyJobs};
  TW_ASSIGN(const log::ModulePage versions, env_.log->ListModuleVersions(modules));
  for (const log::ModuleVersionRow& version : versions.versions) {
    named.insert(version.sha256);
    named.insert(version.manifest_sha256);
  }
  TW_ASSIGN(const std::vector<log::JobRow> all, env_.log->ListJobs({.limit = kManyJobs}));
  for (const log::JobRow& job : all) {
    named.insert(job.model_sha256);
    if (log::IsFinal(job.state)) continue;
    TW_ASSIGN(const std::vector<log::TrialRow> trials,
              env_.log->ListTrials({.job = job.id, .limit = kManyJobs, .open_only = true}));
    for (const log::TrialRow& trial : trials) named.insert(trial.artifact_sha256);
  }
  const int64_t dropped = env_.blobs->Collect(
      max_artifact_bytes_, [&named](const std::string& hex) { return named.count(hex) != 0; });
  daemon::LogInfo("artifacts.collected", {{"dropped", dropped}});
  return absl::OkStatus();
}

void JobManager::Admit() {
  const auto open = env_.log->ListJobs({.limit = kManyJobs, .open_only = true});
  if (!open.ok()) {
    daemon::LogError("jobs.list.failed", {{"error", support::StatusText(open.status())}});
    return;
  }
  std::map<std::string, log::JobRow> rows;
  std::vector<WaitingJob> waiting;
  int64_t running = 0;
  std::map<std::string, std::string> task_sets;  // by job
  {
    MutexLock lock(mutex_);
    running = static_cast<int64_t>(runners_.size());
    busy_.clear();
    for (const log::JobRow& row : *open) {
      const auto spec = SpecFromJson(row.spec_json);
      if (spec.ok()) task_sets[row.id] = TaskSetOf(row, *spec);
      if (runners_.count(row.id) != 0) busy_[task_sets[row.id]] = row.id;
    }
    for (const log::JobRow& row : *open) {
      if (runners_.count(row.id) != 0) continue;
      // The same tasks are tuned once: what this one would measure is being measured.
      const bool resumes = row.state != log::JobState::kQueued;
      if (!resumes && IsBusy(task_sets[row.id])) continue;
      rows[row.id] = row;
      WaitingJob job;
      job.id = row.id;
      job.number = row.number;
      const auto spec = SpecFromJson(row.spec_json);
      if (spec.ok() && spec->priority() > 0) job.priority = spec->priority();
      job.waiting_ns = (env_.clock->WallMicros() - row.created_us) * 1000;
      job.must_resume = row.state != log::JobState::kQueued;
      waiting.push_back(std::move(job));
    }
  }
  for (const std::string& id : JobsToStart(std::move(waiting), running, max_running_)) {
    {
      MutexLock lock(mutex_);
      if (rows[id].state == log::JobState::kQueued && IsBusy(task_sets[id])) continue;
      busy_[task_sets[id]] = id;
    }
    auto runner =
        std::make_shared<JobRunner>(env_, rows[id], [this, id](bool ended) { Changed(id, ended); });
    MutexLock lock(mutex_);
    runners_[id] = std::move(runner);
  }
  if (env_.metrics != nullptr) {
    env_.metrics->Gauge("tilewright_tuner_jobs_running", "Jobs that run now", {})
        .Set(static_cast<double>(running));
    env_.metrics->Gauge("tilewright_tuner_jobs_open", "Jobs that have not ended", {})
        .Set(static_cast<double>(open->size()));
    CountWaits();
  }
}

bool JobManager::IsBusy(const std::string& task_set) {
  return !task_set.empty() && busy_.count(task_set) != 0;
}

absl::StatusOr<log::CreatedJob> JobManager::Create(const log::JobRow& job) {
  TW_ASSIGN(log::CreatedJob created, env_.log->CreateJob(job));
  Changed(created.job.id, true);
  return created;
}

absl::StatusOr<log::JobRow> JobManager::Cancel(const std::string& id, const std::string& reason) {
  absl::Status last;
  for (int i = 0; i < kCancelTries; ++i) {
    TW_ASSIGN(log::JobRow job, env_.log->GetJob(id));
    TW_ASSIGN(const log::JobState next, NextState(job.state, JobAction::kCancel));
    if (next == job.state) return job;
    const auto moved = env_.log->MoveJob({.id = id,
                                          .from = job.state,
                                          .to = next,
                                          .reason = reason,
                                          .now_us = env_.clock->WallMicros()});
    if (moved.ok()) {
      std::shared_ptr<JobRunner> runner;
      {
        MutexLock lock(mutex_);
        const auto it = runners_.find(id);
        if (it != runners_.end()) runner = it->second;
      }
      if (runner != nullptr) runner->NotifyCancelled();
      Changed(id, true);
      return moved;
    }
    last = moved.status();
    if (support::ShortageOf(last) != support::Shortage::kNone)
      return CancelLater(job, reason, last);
    if (support::Slug(last) != "log.job.state") return last;
  }
  return last;
}

// The log cannot be written now: a running job stops all the same, and its cancellation is written
// down when that is possible.
absl::StatusOr<log::JobRow> JobManager::CancelLater(const log::JobRow& job,
                                                    const std::string& reason,
                                                    const absl::Status& why) {
  MutexLock lock(mutex_);
  const auto it = runners_.find(job.id);
  if (it == runners_.end()) return why;
  it->second->CancelLater(reason, why);
  return job;
}

// How many jobs wait for each thing that the machine is short of.
void JobManager::CountWaits() {
  std::map<support::Shortage, int64_t> counts;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, runner] : runners_) ++counts[runner->snapshot().shortage];
  }
  for (int i = 1; i < support::kShortages; ++i) {
    const auto shortage = static_cast<support::Shortage>(i);
    env_.metrics
        ->Gauge("tilewright_tuner_jobs_waiting", "Jobs that wait for what the machine is short of",
                {{"for", std::string(support::ShortageName(shortage))}})
        .Set(static_cast<double>(counts[shortage]));
  }
}

absl::StatusOr<JobSnapshot> JobManager::Snapshot(const log::JobRow& job) {
  std::shared_ptr<JobRunner> runner;
  {
    MutexLock lock(mutex_);
    const auto it = runners_.find(job.id);
    if (it != runners_.end() && !log::IsFinal(job.state)) runner = it->second;
  }
  if (runner != nullptr) return runner->snapshot();
  if (log::IsFinal(job.state)) {
    MutexLock lock(mutex_);
    const auto it = ended_.find(job.id);
    if (it != ended_.end()) return it->second;
  }
  TW_ASSIGN(const v1::Job spec, SpecFromJson(job.spec_json));
  TW_ASSIGN(JobSnapshot snapshot, SnapshotOfLog(env_.log, job, spec));
  if (job.state == log::JobState::kQueued) {
    v1::Condition waiting;
    waiting.set_type("WAITING");
    waiting.set_reason("job.queue.waiting");
    waiting.set_message("other jobs are running; this one starts when its turn comes");
    MutexLock lock(mutex_);
    const auto twin = busy_.find(TaskSetOf(job, spec));
    if (spec.recall() && twin != busy_.end() && twin->second != job.id) {
      waiting.set_reason("job.queue.same_tasks");
      waiting.set_message("job " + twin->second +
                          " is tuning the same tasks; this one waits to use its records "
                          "(recall = false, --fresh, would not wait)");
    }
    snapshot.conditions.push_back(waiting);
  }
  if (log::IsFinal(job.state)) {
    MutexLock lock(mutex_);
    if (ended_.size() >= kMaxCached) ended_.clear();
    ended_[job.id] = snapshot;
  }
  return snapshot;
}

int64_t JobManager::Version(const std::string& id) {
  MutexLock lock(mutex_);
  return versions_.Of(id);
}

}  // namespace tilewright::jobs
