#include "tuner_server/jobs/job_queue.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "deploy/support/strings.h"

namespace tilewright::jobs {
namespace {

using log::JobState;

struct Edge {
  JobState from;
  JobAction action;
  JobState to;
};

constexpr std::array<Edge, 18> kEdges = {{
    {JobState::kQueued, JobAction::kStart, JobState::kRunning},
    {JobState::kQueued, JobAction::kFail, JobState::kFailed},
    {JobState::kQueued, JobAction::kCancel, JobState::kCancelled},
    {JobState::kRunning, JobAction::kPause, JobState::kPaused},
    {JobState::kRunning, JobAction::kMeasured, JobState::kFinishing},
    {JobState::kRunning, JobAction::kFail, JobState::kFailed},
    {JobState::kRunning, JobAction::kCancel, JobState::kCancelling},
    {JobState::kPaused, JobAction::kResume, JobState::kRunning},
    {JobState::kPaused, JobAction::kFail, JobState::kFailed},
    {JobState::kPaused, JobAction::kCancel, JobState::kCancelling},
    {JobState::kFinishing, JobAction::kSucceed, JobState::kSucceeded},
    {JobState::kFinishing, JobAction::kFail, JobState::kFailed},
    {JobState::kFinishing, JobAction::kCancel, JobState::kCancelling},
    {JobState::kCancelling, JobAction::kCancelled, JobState::kCancelled},
    {JobState::kCancelling, JobAction::kCancel, JobState::kCancelling},
    {JobState::kSucceeded, JobAction::kCancel, JobState::kSucceeded},
    {JobState::kFailed, JobAction::kCancel, JobState::kFailed},
    {JobState::kCancelled, JobAction::kCancel, JobState::kCancelled},
}};

constexpr std::array<std::string_view, 8> kActionNames = {
    "start", "pause", "resume", "measured", "succeed", "fail", "cancel", "cancelled"};

}  // namespace

absl::StatusOr<JobState> NextState(JobState state, JobAction action) {
  for (const Edge& edge : kEdges) {
    if (edge.from == state && edge.action == action) return edge.to;
  }
  return support::FailedPrecondition(
      support::StrCat("job.state.", kActionNames[static_cast<size_t>(action)]),
      support::StrCat("found a job that is ", log::JobStateName(state)));
}

std::vector<std::string> JobsToStart(std::vector<WaitingJob> waiting, int64_t running,
                                     int64_t max_running) {
  const auto rank = [](const WaitingJob& job) {
    return std::make_tuple(!job.must_resume, job.priority - job.waiting_ns / kAgeingNs, job.number);
  };
  std::sort(waiting.begin(), waiting.end(),
            [&rank](const WaitingJob& a, const WaitingJob& b) { return rank(a) < rank(b); });
  std::vector<std::string> start;
  for (const WaitingJob& job : waiting) {
    if (running + static_cast<int64_t>(start.size()) >= max_running) break;
    start.push_back(job.id);
  }
  return start;
}

}  // namespace tilewright::jobs
