#include "tuner_server/service/job_messages.h"

#include <google/protobuf/util/time_util.h>

#include "deploy/daemon/wire.h"
#include "deploy/module/launch_names.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/jobs/row_enums.h"
#include "tuner_server/log/schedule_rule.h"

namespace tilewright::service {
namespace {

using support::StrCat;

constexpr std::string_view kProject = "projects/default";
constexpr double kNsPerUs = 1000;

}  // namespace

std::string JobName(const std::string& job) { return StrCat(kProject, "/jobs/", job); }
std::string TaskName(const std::string& job, const std::string& task) {
  return StrCat(JobName(job), "/tasks/", task);
}
std::string TrialName(const std::string& job, const std::string& task, int64_t number) {
  return StrCat(TaskName(job, task), "/trials/", number);
}

absl::Status CheckProject(std::string_view parent) {
  if (parent.empty() || parent == kProject) return absl::OkStatus();
  return support::InvalidArgument("job.parent.bad",
                                  "expected projects/default, found " + support::Quote(parent));
}

absl::StatusOr<JobPath> ParseJobPath(std::string_view name) {
  const std::vector<std::string> parts = support::Split(name, '/');
  const bool job = parts.size() >= 4 && parts[0] == "projects" && parts[1] == "default" &&
                   parts[2] == "jobs" && !parts[3].empty();
  if (job && parts.size() == 4) return JobPath{parts[3], ""};
  if (job && parts.size() == 6 && parts[4] == "tasks" && !parts[5].empty()) {
    return JobPath{parts[3], parts[5]};
  }
  return support::InvalidArgument(
      "job.name.bad", "expected projects/default/jobs/{job}, found " + support::Quote(name));
}

google::protobuf::Timestamp Timestamp(int64_t micros) {
  return google::protobuf::util::TimeUtil::MicrosecondsToTimestamp(micros);
}

v1::Job JobMessage(const log::JobRow& row, const v1::Job& stored,
                   const jobs::JobSnapshot& snapshot) {
  v1::Job job = stored;
  job.set_name(JobName(row.id));
  job.set_uid(row.uid);
  job.set_created_by(row.created_by);
  job.set_target(row.target);
  job.set_cost_model(row.cost_model);
  job.set_seed(row.seed);
  job.set_model_name(row.model_name);
  job.set_state(jobs::ToProto(row.state));
  job.set_state_reason(row.state_reason);
  job.mutable_conditions()->Assign(snapshot.conditions.begin(), snapshot.conditions.end());
  *job.mutable_progress() = snapshot.progress;
  if (!snapshot.best_trial.empty()) {
    job.set_best_trial(JobName(snapshot.best_trial));
  }
  job.set_published_module(row.published_module);
  *job.mutable_create_time() = Timestamp(row.created_us);
  *job.mutable_update_time() = Timestamp(row.updated_us);
  if (row.ended_us != 0) *job.mutable_end_time() = Timestamp(row.ended_us);
  job.set_etag(support::Hex64(support::Hasher64()
                                  .Add(row.uid)
                                  .Add(static_cast<int>(row.state))
                                  .Add(row.updated_us)
                                  .Add(row.published_module)
                                  .Finish()));
  return job;
}

v1::Task TaskMessage(const log::TaskRow& row, const jobs::TaskTimes& times) {
  v1::Task task;
  task.set_name(TaskName(row.job, row.name));
  task.set_workload_hash(support::HexDecode(row.hash).value_or(row.hash));
  task.set_weight(static_cast<int32_t>(row.weight));
  task.set_description(row.description);
  task.set_flops(row.flops);
  task.set_data_type(row.data_type);
  for (const module::LaunchNames& names : module::ParseLaunchNames(row.launch_names)) {
    v1::Task::Launch* launch = task.add_launches();
    launch->set_name(names.launch);
    launch->mutable_onnx_nodes()->Assign(names.nodes.begin(), names.nodes.end());
  }
  task.set_trials(static_cast<int32_t>(times.ended));
  task.set_value_kind(jobs::UnitOf(times));
  task.set_default_us(times.standard.time / kNsPerUs);
  task.set_why_no_default(times.why_no_default);
  if (times.standard.time > 0 && times.standard.job != row.job) {
    task.set_default_job(JobName(times.standard.job));
  }
  if (times.best.time <= 0) return task;
  task.set_best_us(times.best.time / kNsPerUs);
  task.set_best_trial(TrialName(times.best.job, times.best.task, times.best.trial));
  task.set_best_steps(times.best_steps);
  if (times.best.job != row.job) task.set_best_job(JobName(times.best.job));
  return task;
}

v1::Trial TrialMessage(const log::TrialRow& row, const std::vector<std::string>& measurements,
                       const std::string& device) {
  v1::Trial trial;
  trial.set_name(TrialName(row.job, row.task, row.number));
  trial.set_number(row.number);
  trial.set_task(TaskName(row.job, row.task));
  trial.set_state(jobs::ToProto(row.state));
  trial.set_outcome(jobs::ToProto(row.outcome));
  trial.set_reason(row.reason);
  trial.set_schedule(row.steps);
  if (!row.artifact_sha256.empty()) {
    *trial.mutable_artifact() = daemon::MakeDigest(row.artifact_sha256, row.artifact_size);
  }
  trial.mutable_measurements()->Assign(measurements.begin(), measurements.end());
  trial.set_median_us(row.median / kNsPerUs);
  trial.set_program_hash(row.program_hash);
  trial.set_winner_again(row.generated_by == log::kFinal);
  trial.set_device(device);
  return trial;
}

}  // namespace tilewright::service
