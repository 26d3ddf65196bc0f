#include "tuner_server/jobs/job_times.h"

#include <algorithm>
#include <set>
#include <utility>

#include "deploy/support/measure_units.h"
#include "deploy/support/strings.h"
#include "tuner_server/jobs/recalled_records.h"

namespace tilewright::jobs {
namespace {

using support::StrCat;

constexpr double kNsPerUs = 1000;

// Collects what one task's trials say.
struct Collector {
  log::Contenders contenders;
  std::set<std::string> programs;  // of other jobs
};

void Take(const log::TrialRow& trial, const log::RecordRow& record, Collector* collector,
          TaskTimes* times) {
  if (record.usable() && trial.is_default && times->standard.time <= 0) {
    times->standard = TimeOf(record);
  }
  collector->contenders.Add(trial, record);
}

std::string WhyNoTime(const log::RecordRow& record) {
  if (record.outcome == log::Outcome::kOk) {
    return "not valid: " + support::Join(record.invalid_reasons, ", ");
  }
  const std::string outcome(log::OutcomeName(record.outcome));
  return record.error_class.empty() ? outcome : StrCat(outcome, " (", record.error_class, ")");
}

absl::Status TakeOwn(log::TuningLog* log, const log::JobRow& job,
                     std::vector<Collector>* collectors, JobTimes* times) {
  const auto index_of = [&](const std::string& task) {
    const auto it = std::find_if(times->rows.begin(), times->rows.end(),
                                 [&](const log::TaskRow& row) { return row.name == task; });
    return static_cast<size_t>(it - times->rows.begin());
  };
  log::TrialQuery query{.job = job.id, .after_number = 0, .limit = log::kPageRows};
  for (;;) {
    TW_ASSIGN(const std::vector<log::TrialRow> page, log->ListTrials(query));
    if (page.empty()) return absl::OkStatus();
    query.after_number = page.back().number;
    for (const log::TrialRow& trial : page) {
      const size_t i = index_of(trial.task);
      if (i == times->rows.size() || !log::IsFinal(trial.state)) continue;
      TaskTimes& task = times->tasks[i];
      if (trial.generated_by != log::kFinal) ++task.ended;
      if (trial.is_default && trial.measurement_id.empty()) task.why_no_default = trial.reason;
      // Of most others the records need not be read.
      const bool says = trial.median > 0 || trial.is_default ||
                        trial.outcome == log::Outcome::kWrongResult ||
                        trial.generated_by == log::kFinal;
      if (trial.generated_by == log::kFinal && trial.measurement_id.empty() &&
          trial.outcome != log::Outcome::kCancelled) {
        (*collectors)[i].contenders.Add(trial, log::RecordRow{});
      }
      if (trial.measurement_id.empty() || !says) continue;
      TW_ASSIGN(const log::RecordRow record, log->GetRecord(trial.measurement_id));
      if (trial.is_default && !record.usable()) task.why_no_default = WhyNoTime(record);
      Take(trial, record, &(*collectors)[i], &task);
    }
  }
}

absl::Status TakeOthers(log::TuningLog* log, const log::JobRow& job, const v1::Job& spec,
                        std::vector<Collector>* collectors, JobTimes* times) {
  TW_ASSIGN(const auto records, RecalledRecords(log, job, spec, times->rows));
  for (size_t i = 0; i < times->rows.size(); ++i) {
    for (const log::RecordRow& record : records[i]) {
      TW_ASSIGN(const log::TrialRow trial, log->GetTrial(record.job, record.trial));
      (*collectors)[i].programs.insert(trial.program_hash);
      Take(trial, record, &(*collectors)[i], &times->tasks[i]);
    }
    times->recalled += static_cast<int64_t>((*collectors)[i].programs.size());
  }
  return absl::OkStatus();
}

}  // namespace

TrialTime TimeOf(const log::RecordRow& record) {
  return {record.median, record.value_kind, record.job, record.task, record.trial};
}

absl::StatusOr<JobTimes> ReadJobTimes(log::TuningLog* log, const log::JobRow& job,
                                      const v1::Job& spec) {
  JobTimes times;
  TW_ASSIGN(times.rows, log->ListTasks(job.id));
  times.tasks.resize(times.rows.size());
  std::vector<Collector> collectors(times.rows.size());
  TW_TRY(TakeOwn(log, job, &collectors, &times));
  TW_TRY(TakeOthers(log, job, spec, &collectors, &times));
  for (size_t i = 0; i < times.rows.size(); ++i) {
    TaskTimes& task = times.tasks[i];
    task.weight = static_cast<double>(times.rows[i].weight);
    if (task.standard.time > 0) task.why_no_default.clear();
    if (task.standard.time <= 0 && task.why_no_default.empty()) {
      task.why_no_default =
          log::IsFinal(job.state) ? "the trials went to heavier tasks" : "not measured yet";
    }
    const log::Contenders& contenders = collectors[i].contenders;
    const bool searches = job.state == log::JobState::kRunning;
    const log::MeasuredTrial* choice = searches ? contenders.Leader() : contenders.Choice();
    if (choice == nullptr) continue;
    task.best = TimeOf(choice->record);
    task.best_steps = choice->trial.steps;
  }
  return times;
}

TimedTasks SumTimed(const std::vector<TaskTimes>& tasks) {
  TimedTasks timed;
  for (const TaskTimes& task : tasks) {
    if (task.best.time <= 0 || task.standard.time <= 0) continue;
    ++timed.tasks;
    timed.standard += task.weight * task.standard.time;
    timed.best += task.weight * task.best.time;
  }
  return timed;
}

v1::ValueKind UnitOf(const TaskTimes& times) {
  const std::string& name = times.best.time > 0 ? times.best.unit : times.standard.unit;
  v1::ValueKind kind = v1::VALUE_KIND_UNSPECIFIED;
  const support::MeasureUnit* unit = support::FindMeasureUnit(name);
  if (unit == nullptr) return kind;
  const auto* row = v1::ValueKind_descriptor()->FindValueByNumber(unit->kind);
  if (row != nullptr) v1::ValueKind_Parse(row->name(), &kind);
  return kind;
}

v1::ValueKind UnitOf(const std::vector<TaskTimes>& tasks) {
  for (const TaskTimes& task : tasks) {
    if (UnitOf(task) != v1::VALUE_KIND_UNSPECIFIED) return UnitOf(task);
  }
  return v1::VALUE_KIND_UNSPECIFIED;
}

v1::Progress MakeProgress(const log::TrialCounts& counts, const std::vector<TaskTimes>& tasks) {
  v1::Progress progress;
  progress.set_proposed(static_cast<int32_t>(counts.proposed));
  progress.set_built(static_cast<int32_t>(counts.built));
  int64_t measured = counts.ended;
  for (const auto& [outcome, count] : counts.by_outcome) {
    if (outcome == log::Outcome::kCancelled) measured -= count;
    if (outcome == log::Outcome::kOk || outcome == log::Outcome::kCancelled) continue;
    (*progress.mutable_failed_by_kind())[std::string(log::OutcomeName(outcome))] =
        static_cast<int32_t>(count);
  }
  progress.set_measured(static_cast<int32_t>(measured));
  double best = 0, standard = 0;
  bool all = !tasks.empty(), all_defaults = all;
  for (const TaskTimes& task : tasks) {
    all = all && task.best.time > 0;
    all_defaults = all_defaults && task.standard.time > 0;
    best += task.weight * task.best.time;
    standard += task.weight * task.standard.time;
  }
  progress.set_value_kind(UnitOf(tasks));
  if (all) progress.set_best_us(best / kNsPerUs);
  if (all_defaults) progress.set_baseline_us(standard / kNsPerUs);
  const TimedTasks timed = SumTimed(tasks);
  if (timed.tasks > 0) progress.set_gain(timed.standard / timed.best);
  progress.set_timed_tasks(timed.tasks);
  progress.set_tasks(static_cast<int32_t>(tasks.size()));
  return progress;
}

std::string BestTrial(const std::vector<TaskTimes>& tasks) {
  const TaskTimes* heaviest = nullptr;
  const auto share = [](const TaskTimes& task) { return task.weight * task.best.time; };
  for (const TaskTimes& task : tasks) {
    if (task.best.time <= 0) continue;
    if (heaviest == nullptr || share(task) > share(*heaviest)) heaviest = &task;
  }
  if (heaviest == nullptr) return "";
  const TrialTime& best = heaviest->best;
  return StrCat(best.job, "/tasks/", best.task, "/trials/", best.trial);
}

}  // namespace tilewright::jobs
