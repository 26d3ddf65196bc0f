// Names and messages between a job and the tracker: how a trial becomes a work item, and how an
// update of the tracker becomes a change of the log. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "deploy/support/status.h"
#include "tilewright/v1/builder.pb.h"
#include "tilewright/v1/dispatch.pb.h"
#include "tilewright/v1/job.pb.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::jobs {

// Returns "{job uid}/{task}/{trial}", the idempotency key of a trial. A trial that was built again
// with other bytes has a higher `generation`: "{job uid}/{task}/{trial}+{generation}".
std::string WorkItemName(const std::string& job_uid, const std::string& task, int64_t trial,
                         int64_t generation = 0);
// The inverse for work items of this job. ParseWorkItemName returns nullopt for any other name.
struct WorkItemId {
  std::string task;
  int64_t trial = 0;
  int64_t generation = 0;
};
std::optional<WorkItemId> ParseWorkItemName(std::string_view job_uid, std::string_view name);

// Returns the name under which a job pulls its results.
std::string ConsumerName(const std::string& job_uid);

// Returns the user that a job runs for, from its created_by. An address loses its scheme and port:
// "ipv4:10.0.0.2:5123" -> "10.0.0.2".
std::string UserName(const std::string& created_by);

// Convert the job as the client asked for it to the text in the log, and back. SpecToJson:
// invalid_argument (job.spec.bad) if JSON cannot express it, such as a duration of more than 10,000
// years. SpecFromJson: data_loss (job.spec.bad) if the text is not a job.
absl::StatusOr<std::string> SpecToJson(const v1::Job& job);
absl::StatusOr<v1::Job> SpecFromJson(const std::string& json);

// The same of what a compiler says of a trial's kernels; "" is an empty report, and so is a text
// that is none: a search can do without.
std::string ResourcesToJson(const v1::ResourceReport& report);
v1::ResourceReport ResourcesFromJson(const std::string& json);

// Returns the plan of a trial: the job's own settings, else the defaults, and a limit that stops
// candidates much slower than the best one (`best_ns`, 0: none yet).
v1::MeasurementPlan TrialPlan(const v1::MeasurementPlan& wanted, double best_ns);

// Makes the work item of a built trial. The same arguments give the same bytes.
struct WorkItemSource {
  const log::JobRow* job = nullptr;
  const v1::Job* spec = nullptr;
  const v1::BuilderTask* task = nullptr;
  std::string name;
  std::string steps;
  std::string artifact_sha256;
  int64_t artifact_size = 0;
  double best_ns = 0;          // of the task so far, in the unit of its records
  bool counts_cycles = false;  // the devices measure by a counter, which bounds no wall time
  double best_wall_s = 0;      // what the measurement of that best took on its host; 0: unknown
  int64_t task_records = 0;    // of the task so far
};
v1::WorkItem MakeWorkItem(const WorkItemSource& source);

// Returns the key of records of this job's task. The device class comes with each record.
log::RecordKey KeyOf(const log::JobRow& job, const std::string& task_hash);

// Returns whether the update is about the work item that the trial submitted: the same name and
// content.
bool IsWorkOf(const v1::WorkUpdate& update, const log::TrialRow& trial);

// Returns what the update changes for the trial. REQUIRES: update.work_item() belongs to the trial.
log::TrialNews NewsOf(const v1::WorkUpdate& update, const log::TrialRow& trial,
                      const log::RecordKey& key, int64_t now_us);

// Returns the change that a failed build makes: a record with attempt 0.
log::TrialNews BuildFailureNews(const log::TrialRow& trial, const std::string& work_item,
                                log::Outcome outcome, const std::string& error_class,
                                const std::string& error, const log::RecordKey& key,
                                int64_t now_us);

// Returns the change that ends a trial without a measurement.
log::TrialNews CancelledNews(int64_t trial, const std::string& reason);

}  // namespace tilewright::jobs
