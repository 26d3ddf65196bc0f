#include "tuner_server/cli/log_jobs.h"

#include <algorithm>

#include "tuner_server/cli/server_client.h"

namespace tilewright::cli {

absl::StatusOr<std::vector<log::JobRow>> AllJobs(log::TuningLog* log, const std::string& job) {
  if (!job.empty()) {
    TW_ASSIGN(log::JobRow row, log->GetJob(LastPart(job)));
    return std::vector<log::JobRow>{row};
  }
  std::vector<log::JobRow> jobs;
  log::JobQuery query{.before_number = 0, .limit = log::kPageRows};
  while (true) {
    TW_ASSIGN(const std::vector<log::JobRow> page, log->ListJobs(query));
    if (page.empty()) break;
    jobs.insert(jobs.end(), page.begin(), page.end());
    query.before_number = page.back().number;
  }
  std::reverse(jobs.begin(), jobs.end());
  return jobs;
}

absl::StatusOr<std::vector<log::TrialRow>> AllTrials(log::TuningLog* log, const std::string& job) {
  std::vector<log::TrialRow> trials;
  log::TrialQuery query{.job = job, .limit = log::kPageRows};
  while (true) {
    TW_ASSIGN(const std::vector<log::TrialRow> page, log->ListTrials(query));
    if (page.empty()) return trials;
    trials.insert(trials.end(), page.begin(), page.end());
    query.after_number = page.back().number;
  }
}

}  // namespace tilewright::cli
