#include "tuner_server/cli/log_task.h"

#include <algorithm>

#include "deploy/support/strings.h"
#include "tuner_server/cli/server_client.h"

namespace tilewright::cli {

namespace {

using support::StrCat;

bool Names(const log::TaskRow& task, const std::string& text) {
  return task.name == text || (text.size() >= 4 && task.hash.starts_with(text));
}

}  // namespace

absl::StatusOr<std::vector<Measured>> MeasuredTrials(log::TuningLog* log,
                                                     const log::TaskRow& task) {
  std::vector<Measured> out;
  log::TrialQuery query{.job = task.job, .task = task.name, .limit = log::kPageRows};
  while (true) {
    TW_ASSIGN(const std::vector<log::TrialRow> page, log->ListTrials(query));
    if (page.empty()) break;
    for (const log::TrialRow& trial : page) {
      if (trial.measurement_id.empty()) continue;
      TW_ASSIGN(log::RecordRow record, log->GetRecord(trial.measurement_id));
      out.push_back({trial, std::move(record)});
    }
    query.after_number = page.back().number;
  }
  std::stable_sort(out.begin(), out.end(), [](const Measured& a, const Measured& b) {
    if (a.record.usable() != b.record.usable()) return a.record.usable();
    return a.record.usable() && a.record.median < b.record.median;
  });
  return out;
}

absl::StatusOr<log::TaskRow> FindTask(log::TuningLog* log, const std::string& wanted,
                                      const std::string& job_name) {
  std::string known;
  log::JobQuery query{.before_number = 0, .limit = log::kPageRows};
  while (true) {
    TW_ASSIGN(const std::vector<log::JobRow> jobs, log->ListJobs(query));
    if (jobs.empty()) break;
    for (const log::JobRow& job : jobs) {
      if (!job_name.empty() && job.id != LastPart(job_name)) continue;
      TW_ASSIGN(const std::vector<log::TaskRow> tasks, log->ListTasks(job.id));
      for (const log::TaskRow& task : tasks) {
        if (Names(task, wanted)) return task;
        if (known.size() < 1000) known += StrCat(known.empty() ? "" : ", ", task.name);
      }
    }
    query.before_number = jobs.back().number;
  }
  return support::NotFound("log.task.not_found",
                           StrCat("no task ", support::Quote(wanted),
                                  "; the log has: ", known.empty() ? "none" : known));
}

}  // namespace tilewright::cli
