// Rows of the tuning log as messages of the job service, and resource names. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/support/status.h"
#include "tilewright/v1/job.pb.h"
#include "tuner_server/jobs/job_manager.h"
#include "tuner_server/jobs/job_times.h"

namespace tilewright::service {

// "projects/default/jobs/{job}" and below.
std::string JobName(const std::string& job);
std::string TaskName(const std::string& job, const std::string& task);
std::string TrialName(const std::string& job, const std::string& task, int64_t number);

// ok for "projects/default" and "". invalid_argument job.parent.bad.
absl::Status CheckProject(std::string_view parent);

// The job, and the task where one is named. invalid_argument job.name.bad.
struct JobPath {
  std::string job;
  std::string task;
};
absl::StatusOr<JobPath> ParseJobPath(std::string_view name);

google::protobuf::Timestamp Timestamp(int64_t micros);

// `stored` is the client's request; the function fills in all output fields.
v1::Job JobMessage(const log::JobRow& row, const v1::Job& stored,
                   const jobs::JobSnapshot& snapshot);
v1::Task TaskMessage(const log::TaskRow& row, const jobs::TaskTimes& times);
v1::Trial TrialMessage(const log::TrialRow& row, const std::vector<std::string>& measurements,
                       const std::string& device);

}  // namespace tilewright::service
