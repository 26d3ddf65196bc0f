// The part of JobCore that shares tasks with jobs that run beside it: one is at work on a task at a
// time, the others take its records as they come.
#include <limits>
#include <set>

#include "deploy/support/strings.h"
#include "tuner_server/jobs/job_core.h"
#include "tuner_server/jobs/job_recall.h"
#include "tuner_server/jobs/work_items.h"

namespace tilewright::jobs {
namespace {

// How often a job looks for what others have stored.
constexpr int64_t kShareEveryNs = 1'000'000'000;
constexpr char kSharedCondition[] = "SHARED_TASKS";

}  // namespace

// This job's open trials say which tasks it is at work on. Call once, after they were loaded.
void JobCore::RestoreOwnClaims() {
  env_.claims->ReleaseAll(job_.id);
  if (!spec_.recall()) return;
  for (TaskState& task : tasks_) {
    if (task.open == 0) continue;
    task.claim = ClaimName(job_, spec_, task.row.hash);
    env_.claims->Restore(task.claim, job_.id, env_.clock->NowNs());
  }
}

// Becomes the one that is at work on the task, and learns what the others found until now. False:
// another job is.
absl::StatusOr<bool> JobCore::Claim(TaskState* task) {
  if (!spec_.recall()) return true;
  if (task->claim.empty()) {
    const std::string name = ClaimName(job_, spec_, task->row.hash);
    if (!env_.claims->Take(name, job_.id, env_.clock->NowNs())) return false;
    task->claim = name;
  }
  TW_TRY(TakeNews(task));
  return true;
}

bool JobCore::Barred(const TaskState& task) const {
  return spec_.recall() && task.claim.empty() && !BarredBy(task).empty();
}

std::string JobCore::BarredBy(const TaskState& task) const {
  return env_.claims->BarredBy(ClaimName(job_, spec_, task.row.hash), job_.id, env_.clock->NowNs());
}

// Lets go of tasks of which nothing is open or asked for.
void JobCore::ReleaseIdle() {
  for (TaskState& task : tasks_) {
    const bool asking = search_step_ == SearchStep::kAsk && asked_task_ == task.row.name;
    if (task.claim.empty() || task.open > 0 || asking) continue;
    env_.claims->Release(task.claim, job_.id);
    task.claim.clear();
  }
}

// Takes what other jobs stored of the task since the last look.
absl::Status JobCore::TakeNews(TaskState* task) {
  if (!spec_.recall()) return absl::OkStatus();
  const int64_t noted = env_.claims->Noted(task->row.hash) - task->own_noted;
  if (noted == task->others_noted) return absl::OkStatus();
  log::RecordKey key = KeyOf(job_, task->row.hash);
  key.device_class = spec_.pool();
  TW_ASSIGN(
      const std::vector<log::RecordRow> records,
      env_.log->KnownRecords(key, std::numeric_limits<int64_t>::max(), task->recalled_position));
  task->others_noted = noted;
  for (const log::RecordRow& record : records) {
    task->recalled_position = std::max(task->recalled_position, record.known_position);
    if (record.job == job_.id) continue;
    // Times of different device classes do not compare; what failed to build has none.
    const std::string& measured_on = record.key.device_class;
    if (!recall_class_.empty() && !measured_on.empty() && measured_on != recall_class_) continue;
    TW_ASSIGN(log::TrialRow trial, env_.log->GetTrial(record.job, record.trial));
    TakeRecalled(task, std::move(trial), record);
  }
  return absl::OkStatus();
}

// Now and then: what others found counts towards the budget, and people see why a task waits.
absl::Status JobCore::PumpShared() {
  ReleaseIdle();
  const int64_t now = env_.clock->NowNs();
  if (!spec_.recall() || job_.state != log::JobState::kRunning || now < share_next_ns_) {
    return absl::OkStatus();
  }
  share_next_ns_ = now + kShareEveryNs;
  std::set<std::string> others;
  int64_t waiting = 0;
  for (TaskState& task : tasks_) {
    TW_TRY(TakeNews(&task));
    if (!Barred(task)) continue;
    ++waiting;
    others.insert(BarredBy(task));
  }
  if (waiting == 0) {
    ClearCondition(kSharedCondition);
    return absl::OkStatus();
  }
  SetCondition(kSharedCondition, "job.tasks.shared",
               support::StrCat("other jobs (", support::Join(others, ", "), ") are at work on ",
                               waiting, " of the ", tasks_.size(),
                               " tasks; what they measure counts here, too (recall = false, "
                               "--fresh, would measure for itself)"));
  return absl::OkStatus();
}

// A record of this job is in the log.
void JobCore::NoteOwnRecord(TaskState* task) {
  ++task->own_noted;
  env_.claims->NoteRecord(task->row.hash);
  if (!task->claim.empty()) env_.claims->Renew(task->claim, job_.id, env_.clock->NowNs());
}

}  // namespace tilewright::jobs
