// How much of a model's time is spent in kernels with a measured schedule, and why the rest is not.
// Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tuner_server/cli/schedule_choice.h"

namespace tilewright::cli {

struct TunedMiss {
  std::string task;
  double uses = 0;
  double time_ns = 0;  // of all its uses; in operations where nothing was measured at all
  double percent = 0;  // of the model's time
  bool estimated = false;
  std::string why;
};

struct TunedCoverage {
  double percent = 100;           // of the time; 100 without kernels
  std::vector<TunedMiss> misses;  // the largest first
};

// `summary` is ModuleCompiled.manifest_summary_json. A kernel's time is the median of its record. A
// kernel without a record is assumed to run at the rate (operations per time) of those with one; if
// there is none, operations count as time. internal (builder.summary.malformed).
absl::StatusOr<TunedCoverage> ComputeCoverage(const nlohmann::json& summary,
                                              const ScheduleChoice& choice);

std::string MissTable(const TunedCoverage& coverage);
nlohmann::json MissesJson(const TunedCoverage& coverage);

}  // namespace tilewright::cli
