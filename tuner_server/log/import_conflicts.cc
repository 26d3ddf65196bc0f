#include "tuner_server/log/import_conflicts.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "deploy/support/strings.h"
#include "tuner_server/log/json_fields.h"
#include "tuner_server/log/row_fields.h"

namespace tilewright::log {
namespace {

constexpr size_t kMaxExamples = 10;

using TrialKey = std::pair<std::string, int64_t>;

void Conflict(std::string text, ImportReport* report) {
  ++report->conflicts;
  if (report->examples.size() < kMaxExamples) report->examples.push_back(std::move(text));
}

// A field that one of them does not know says nothing.
bool Differ(const std::string& a, const std::string& b) {
  return !a.empty() && !b.empty() && a != b;
}

bool SameJob(const JobRow& a, const JobRow& b) {
  // A job that only drafts told of has no target.
  if (a.target.empty() || b.target.empty()) return true;
  return !Differ(a.target, b.target) && !Differ(a.model_sha256, b.model_sha256) &&
         !Differ(a.cost_model, b.cost_model) && a.seed == b.seed;
}

// As it is exported: text that is not UTF-8 comes back changed.
std::string Exported(const RecordRow& record) {
  Json json;
  ForEachField(record, JsonWriter(&json));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

struct JobsLeftOut {
  std::set<std::string> foreign;  // the log has another job of that name
  std::set<std::string> open;     // not over here: whoever runs it counts its own trials

  bool Has(const std::string& job) const { return foreign.count(job) + open.count(job) != 0; }
};

absl::StatusOr<JobsLeftOut> FindJobsLeftOut(TuningLog* log, const std::vector<JobRow>& jobs) {
  JobsLeftOut left_out;
  for (const JobRow& job : jobs) {
    const absl::StatusOr<JobRow> known = log->GetJob(job.id);
    if (absl::IsNotFound(known.status())) continue;
    TW_TRY(known.status());
    if (!SameJob(*known, job)) {
      left_out.foreign.insert(job.id);
    } else if (!IsFinal(known->state)) {
      left_out.open.insert(job.id);
    }
  }
  return left_out;
}

absl::StatusOr<std::set<TrialKey>> ForeignTrials(TuningLog* log,
                                                 const std::vector<TrialRow>& trials) {
  std::set<TrialKey> foreign;
  for (const TrialRow& trial : trials) {
    const absl::StatusOr<TrialRow> known = log->GetTrial(trial.job, trial.number);
    if (absl::IsNotFound(known.status())) continue;
    TW_TRY(known.status());
    if (Differ(known->program_hash, trial.program_hash) || Differ(known->task, trial.task)) {
      foreign.emplace(trial.job, trial.number);
    }
  }
  return foreign;
}

}  // namespace

absl::Status DropConflicts(TuningLog* log, TuningLog::Import* rows, ImportReport* report) {
  TW_ASSIGN(const JobsLeftOut jobs, FindJobsLeftOut(log, rows->jobs));
  const auto of_job_left_out = [&jobs](const auto& row) { return jobs.Has(row.job); };
  std::erase_if(rows->trials,
                [&](const TrialRow& row) { return jobs.foreign.count(row.job) != 0; });
  TW_ASSIGN(const std::set<TrialKey> trials, ForeignTrials(log, rows->trials));
  std::erase_if(rows->trials, of_job_left_out);
  std::erase_if(rows->jobs, [&jobs](const JobRow& job) { return jobs.Has(job.id); });
  std::erase_if(rows->tasks, of_job_left_out);
  std::erase_if(rows->drafts, [&](const DraftRow& draft) {
    for (const BatchRow& batch : rows->batches) {
      if (batch.id == draft.batch) return of_job_left_out(batch);
    }
    return false;
  });
  std::erase_if(rows->batches, of_job_left_out);
  std::erase_if(rows->trials, [&trials](const TrialRow& trial) {
    return trials.count({trial.job, trial.number}) != 0;
  });
  std::vector<RecordRow> fresh;
  for (RecordRow& record : rows->records) {
    if (jobs.foreign.count(record.job) != 0) {
      Conflict(record.measurement_id + ": the log has another job " + record.job, report);
      continue;
    }
    if (trials.count({record.job, record.trial}) != 0) {
      Conflict(support::StrCat(record.measurement_id, ": the log has another trial ", record.trial,
                               " of ", record.job),
               report);
      continue;
    }
    const absl::StatusOr<RecordRow> known = log->GetRecord(record.measurement_id);
    if (absl::IsNotFound(known.status())) {
      if (jobs.open.count(record.job) == 0) {
        fresh.push_back(std::move(record));
      } else {
        Conflict(record.measurement_id + ": job " + record.job + " is not over here", report);
      }
      continue;
    }
    TW_TRY(known.status());
    RecordRow same_job = record;  // an import under other names is the same measurement
    same_job.job = known->job;
    if (Exported(*known) == Exported(same_job)) {
      ++report->known;
    } else {
      Conflict(record.measurement_id + ": the log has it with other values", report);
    }
  }
  rows->records = std::move(fresh);
  return absl::OkStatus();
}

}  // namespace tilewright::log
