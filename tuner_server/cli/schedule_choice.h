// Chooses the measured schedules of a tuning log for a model's tasks: the best usable record per
// task, all of one device class. Reads only; as thread-safe as the log.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::cli {

struct ChosenSchedule {
  std::string steps;
  std::string program_hash;
  std::string measurement_id;
  double median_ns = 0;
};

struct ScheduleChoice {
  std::string device_class;                       // empty: nothing fits
  std::string toolchain;                          // of the records
  std::vector<std::string> other_classes;         // that had records too
  std::vector<std::string> other_toolchains;      // of the same class: other driver compilers
  std::map<std::string, ChosenSchedule> by_task;  // task hash -> the best
  std::map<std::string, std::string> why_not;     // task hash -> why its records do not count
};

struct ScheduleQuery {
  std::string target;        // canonical
  std::string toolchain;     // of the builder that will replay the steps; with or without a driver
                             // compiler (log/toolchain_text.h)
  std::string device_class;  // empty: the class with usable records for most of the tasks
  std::vector<std::string> task_hashes;
};

// Records of other targets, thread counts or toolchains never count (DESIGN section 3). If the
// query leaves the driver compiler open, all chosen records are of one: that with the most tasks.
absl::StatusOr<ScheduleChoice> ChooseSchedules(log::TuningLog* log, const ScheduleQuery& query);

}  // namespace tilewright::cli
