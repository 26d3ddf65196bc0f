#include "tuner_server/jobs/job_core.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/jobs/work_items.h"
#include "tuner_server/log/target_text.h"
#include "tuner_server/log/toolchain_text.h"

namespace tilewright::jobs {
namespace {

using google::protobuf::util::TimeUtil;
using support::StrCat;

constexpr int64_t kPageRows = 500;
constexpr int64_t kMinEtaTrials = 8;
constexpr int64_t kFirstRetryMs = 200;
constexpr int64_t kMaxRetryMs = 5'000;
constexpr double kFinalsShare = 0.05;  // of a limited time, for finals

}  // namespace

absl::StatusOr<std::unique_ptr<JobCore>> JobCore::Resume(const JobEnvironment& environment,
                                                         const JobCoreOptions& options,
                                                         const std::string& job) {
  TW_ASSIGN(log::JobRow row, environment.log->GetJob(job));
  std::unique_ptr<JobCore> core(new JobCore(environment, options, std::move(row)));
  if (log::IsFinal(core->job_.state)) {
    return support::FailedPrecondition("job.core.ended", job);
  }
  TW_TRY(core->Load());
  return core;
}

support::Backoff JobCore::Retries(std::string_view purpose) const {
  return {support::Rng(support::StableHash64(job_.uid)).Split(purpose), kFirstRetryMs, kMaxRetryMs};
}

absl::Status JobCore::Load() {
  TW_ASSIGN(spec_, SpecFromJson(job_.spec_json));
  TW_ASSIGN(parts_,
            search::ParseSearchParts({spec_.search_parts().begin(), spec_.search_parts().end()}));
  started_ns_ = env_.clock->NowNs();
  elapsed_before_s_ = job_.elapsed_s;
  TW_ASSIGN(const std::vector<log::TaskRow> tasks, env_.log->ListTasks(job_.id));
  for (const log::TaskRow& task : tasks) {
    tasks_.emplace_back();
    tasks_.back().row = task;
    tasks_.back().view.weight = static_cast<double>(task.weight);
  }
  // Before its tasks are known, a job learns which compiler its devices have.
  const absl::StatusOr<log::TargetText> target = log::ParseTargetText(job_.target);
  const bool driver_compiles = target.ok() && target->driver_compiles();
  if (!tasks.empty() || !driver_compiles) compiler_.Fix(log::CompilerOf(job_.toolchain));
  TW_TRY(Recall());
  TW_TRY(LoadTrials());
  RestoreOwnClaims();
  TW_ASSIGN(const std::vector<log::ModelRow> models, env_.log->ListModels(job_.id));
  for (const log::ModelRow& model : models) {
    if (model.replaced) model_id_ = model.id;
    if (model.train_rows == 0) continue;  // the shipped one
    ++retrainings_;
    trained_rows_ = model.train_rows + model.held_out_rows;
  }
  TW_ASSIGN(batches_, env_.log->CountBatches(job_.id));
  TW_ASSIGN(const log::TrialCounts counts, env_.log->CountTrials(job_.id));
  device_s_ = counts.device_s;
  return absl::OkStatus();
}

// Ended trials are taken in the order in which they counted, open ones go to where they were.
absl::Status JobCore::LoadTrials() {
  std::vector<EndedTrial> ended;
  log::TrialQuery query{.job = job_.id, .after_number = 0, .limit = kPageRows};
  for (;;) {
    TW_ASSIGN(const std::vector<log::TrialRow> page, env_.log->ListTrials(query));
    if (page.empty()) break;
    query.after_number = page.back().number;
    for (const log::TrialRow& trial : page) TW_TRY(LoadTrial(trial, &ended));
  }
  waves_.NoteClasses(std::vector<std::string>{spec_.pool()});
  for (const EndedTrial& one :
       waves_.Restore(std::move(ended), open_.empty() ? nullptr : &open_.begin()->second.row)) {
    TakeEnd(one.trial, one.record.has_value() ? &*one.record : nullptr);
  }
  return absl::OkStatus();
}

absl::Status JobCore::LoadTrial(const log::TrialRow& trial, std::vector<EndedTrial>* ended) {
  TaskState* task = FindTask(trial.task);
  TW_CHECK(task != nullptr) << job_.id << " has a trial of the unknown task " << trial.task;
  CountProposed(trial, task);
  if (!trial.artifact_sha256.empty()) CountBuilt(trial);
  if (log::IsFinal(trial.state)) {
    EndedTrial& one = ended->emplace_back(EndedTrial{trial, std::nullopt});
    if (!trial.measurement_id.empty()) {
      TW_ASSIGN(one.record, env_.log->GetRecord(trial.measurement_id));
    }
    CountEnd(trial);
    return absl::OkStatus();
  }
  OpenTrial open;
  open.row = trial;
  // What the tracker may know already is submitted again, byte for byte.
  if (!trial.work_spec.empty() && env_.blobs->Contains(trial.artifact_sha256)) {
    open.phase = OpenTrial::Phase::kToSubmit;
  }
  TW_ASSIGN(open.attempts, KnownAttempts(trial.number));
  open_[trial.number] = std::move(open);
  ++task->open;
  return absl::OkStatus();
}

// The highest attempt of the trial of which the log has a record.
absl::StatusOr<int64_t> JobCore::KnownAttempts(int64_t trial) {
  int64_t highest = 0;
  TW_ASSIGN(const std::vector<std::string> ids, env_.log->ListMeasurementIds(job_.id, trial));
  for (const std::string& id : ids) {
    const auto attempt = support::ParseInt64(std::string_view(id).substr(id.rfind('/') + 1));
    highest = std::max(highest, attempt.value_or(0));
  }
  return highest;
}

absl::Status JobCore::Start() {
  if (job_.state == log::JobState::kQueued) TW_TRY(Move(JobAction::kStart, ""));
  if (done_) return absl::OkStatus();
  if (job_.state == log::JobState::kCancelling) return Handle(CancelRequested{});
  if (job_.state == log::JobState::kFinishing && !open_.empty()) WindDown();
  return Pump();
}

absl::Status JobCore::Handle(JobEvent event) {
  if (done_) return absl::OkStatus();
  TW_TRY(std::visit([this](auto&& one) { return On(std::move(one)); }, std::move(event)));
  if (!done_) TW_TRY(Pump());
  if (done_) env_.claims->ReleaseAll(job_.id);
  return absl::OkStatus();
}

absl::Status JobCore::Pump() {
  TW_TRY(PumpShared());
  TW_TRY(CheckBudget());
  TW_TRY(PumpEnd());
  if (done_) return absl::OkStatus();
  TW_TRY(PumpSearch());
  if (done_) return absl::OkStatus();
  TW_TRY(PumpBuilds());
  TW_TRY(PumpSubmit());
  PumpTracker();
  return absl::OkStatus();
}

// A proposed trial counts for the task and, unless it measures a winner again, for the budget.
void JobCore::CountProposed(const log::TrialRow& trial, TaskState* task) {
  last_trial_ = std::max(last_trial_, trial.number);
  if (trial.generated_by == log::kFinal) {
    ++task->finals;
    return;
  }
  ++proposed_;
  ++task->view.proposed;
  task->hashes.insert(trial.program_hash);
  task->has_default = task->has_default || trial.is_default;
}

void JobCore::CountBuilt(const log::TrialRow& trial) {
  if (trial.generated_by != log::kFinal) ++built_;
}

// The limit that is nearest its end.
JobCore::Limit JobCore::NearestLimit() const {
  const v1::Budget& budget = spec_.budget();
  const auto share = [](double used, const google::protobuf::Duration& limit) {
    const auto ns = static_cast<double>(TimeUtil::DurationToNanoseconds(limit));
    return ns > 0 ? used * 1e9 / ns : 0;
  };
  const Limit wall{share(elapsed_s(), budget.max_wall()), "the time of the job is over"};
  const Limit device{share(device_s_, budget.max_device_time()), "the device time is used up"};
  return device.used > wall.used ? device : wall;
}

// Why there is nothing more to search for; nullopt: there is.
std::optional<std::string> JobCore::WhySearchEnds() {
  const v1::Budget& budget = spec_.budget();
  if (budget.max_trials() > 0 && ended_ >= budget.max_trials()) return "";
  if (AllKnown()) return ended_ == 0 ? "other jobs have measured this much" : "";
  const Limit limit = NearestLimit();
  if (parts_.finals && limit.used >= 1 - kFinalsShare) return std::string(limit.over);
  if (NoGain()) return "the last trials gained too little";
  const bool all_exhausted = std::all_of(tasks_.begin(), tasks_.end(),
                                         [](const TaskState& task) { return task.view.exhausted; });
  if (all_exhausted && open_.empty()) return "the design space is exhausted";
  return std::nullopt;
}

// Ends the search, then the measuring, when the time for it has come.
absl::Status JobCore::CheckBudget() {
  if (job_.state != log::JobState::kRunning) return absl::OkStatus();
  // The time of a job that waits for a device runs; it has no tasks yet.
  if (tasks_.empty() && compiler_.known()) return absl::OkStatus();
  const Limit limit = NearestLimit();
  if (limit.used >= 1) return Finish(std::string(limit.over));
  if (tasks_.empty()) return absl::OkStatus();
  if (!search_ended_) search_ended_ = WhySearchEnds();
  if (!search_ended_) return absl::OkStatus();
  TW_ASSIGN(const bool finals, PumpFinals());
  return finals ? absl::OkStatus() : Finish(*search_ended_);
}

bool JobCore::NoGain() const {
  const v1::Budget& budget = spec_.budget();
  const auto patience = static_cast<size_t>(std::max(budget.patience_trials(), 0));
  if (budget.stop_if_no_gain() <= 0 || patience == 0) return false;
  if (total_by_trial_.size() <= patience) return false;
  const double before = total_by_trial_[total_by_trial_.size() - 1 - patience];
  const double now = total_by_trial_.back();
  return before > 0 && (before - now) / before < budget.stop_if_no_gain();
}

absl::Status JobCore::Move(JobAction action, const std::string& reason) {
  log::JobTransition transition;
  transition.id = job_.id;
  transition.from = job_.state;
  TW_ASSIGN(transition.to, NextState(job_.state, action));
  transition.reason = reason;
  transition.elapsed_s = elapsed_s();
  transition.now_us = env_.clock->WallMicros();
  const absl::StatusOr<log::JobRow> moved = env_.log->MoveJob(transition);
  if (support::Slug(moved.status()) == "log.job.state") {
    // Somebody asked for cancellation in the meantime; the event about it is on its way. A job that
    // had not started yet is cancelled already.
    TW_ASSIGN(const log::JobRow now, env_.log->GetJob(job_.id));
    if (now.state == log::JobState::kCancelling) return absl::OkStatus();
    if (log::IsFinal(now.state)) {
      job_ = now;
      done_ = true;
      return absl::OkStatus();
    }
  }
  TW_TRY(moved.status());
  job_ = *moved;
  return absl::OkStatus();
}

absl::Status JobCore::AddText(const std::string& text) {
  return env_.log->AddText(job_.id, text, env_.clock->WallMicros());
}

double JobCore::elapsed_s() const {
  return elapsed_before_s_ + static_cast<double>(env_.clock->NowNs() - started_ns_) * 1e-9;
}

int64_t JobCore::open_limit() const {
  return std::clamp(options_.open_per_device * (devices_ + 1), options_.min_open,
                    options_.max_open);
}

JobCore::TaskState* JobCore::FindTask(const std::string& name) {
  for (TaskState& task : tasks_) {
    if (task.row.name == name) return &task;
  }
  return nullptr;
}

void JobCore::SetCondition(const std::string& type, const std::string& reason,
                           const std::string& message) {
  v1::Condition& condition = conditions_[type];
  if (condition.type().empty()) {
    const int64_t now_us = env_.clock->WallMicros();
    condition.set_type(type);
    *condition.mutable_since() = TimeUtil::MicrosecondsToTimestamp(now_us);
  }
  condition.set_reason(reason);
  condition.set_message(message);
}

std::vector<v1::Condition> JobCore::conditions() const {
  std::vector<v1::Condition> list;
  for (const auto& [type, condition] : conditions_) list.push_back(condition);
  return list;
}

support::Shortage JobCore::shortage() const {
  return search_wait_.waits() ? search_wait_.shortage() : build_wait_.shortage();
}

// What the job does or waits for now, if its counters do not say it.
std::string JobCore::Phase() const {
  if (shortage() != support::Shortage::kNone) {
    return StrCat("waiting for ", support::ShortageText(shortage()));
  }
  if (!conditions_.empty()) return "waiting: " + conditions_.begin()->second.reason();
  if (search_step_ == SearchStep::kOpen) return "reading the model";
  if (search_step_ == SearchStep::kChecks) {
    const double giga = tasks_[checks_made_].row.flops * 1e-9;
    return StrCat("computing expected outputs, task ", checks_made_ + 1, " of ", tasks_.size(),
                  giga < 1 ? "" : StrCat(" (", std::llround(giga), " G operations)"));
  }
  if (search_step_ == SearchStep::kCompile) return "compiling the module";
  if (search_ended_ && !open_.empty()) return "measuring the winners again";
  return "";
}

std::vector<TaskTimes> JobCore::Times() const {
  std::vector<TaskTimes> times;
  for (const TaskState& task : tasks_) {
    TaskTimes& one = times.emplace_back();
    one.weight = task.view.weight;
    one.standard = task.standard;
    if (task.best.median > 0) one.best = TimeOf(task.best_record);
  }
  return times;
}

std::string JobCore::best_trial() const { return BestTrial(Times()); }

v1::Progress JobCore::progress() const {
  v1::Progress progress = MakeProgress(
      {.proposed = proposed_, .built = built_, .ended = ended_, .by_outcome = by_outcome_},
      Times());
  progress.set_trials_total(spec_.budget().max_trials());
  progress.set_cached(static_cast<int32_t>(recalled_));
  const double elapsed = elapsed_s();
  *progress.mutable_elapsed() =
      TimeUtil::NanosecondsToDuration(static_cast<int64_t>(elapsed * 1e9));
  const int64_t left = spec_.budget().max_trials() - ended_;
  if (ended_ >= kMinEtaTrials && left > 0) {
    const double eta = elapsed * static_cast<double>(left) / static_cast<double>(ended_);
    progress.mutable_eta()->set_seconds(static_cast<int64_t>(eta));
  }
  progress.set_current_task(current_task_);
  progress.set_phase(Phase());
  progress.set_retrainings(static_cast<int32_t>(retrainings_));
  progress.set_model_id(model_id_);
  return progress;
}

}  // namespace tilewright::jobs
