// `tilewright report`: the results of tuning as one HTML page without other files.
#pragma once

#include <string>

#include "deploy/support/status.h"
#include "tuner_server/cli/job_commands.h"
#include "tuner_server/cli/log_source.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::cli {

struct ReportOptions {
  LogPlace place;
  std::string job;  // empty: each
  std::string output = "report.html";
  FleetPeaks peaks;     // roofs of the roofline; 0: the server's devices say, else none
  double peak_gbs = 0;  // their slope, gigabytes per second; 0: none
};
int Report(const ReportOptions& options);

// The page. `job` empty: all jobs of the log.
absl::StatusOr<std::string> ReportHtml(log::TuningLog* log, const ReportOptions& options);

}  // namespace tilewright::cli
