// The part of JobCore that ends a job: measured out, failed or cancelled.
#include <map>
#include <set>
#include <utility>

#include "deploy/daemon/wire.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/jobs/job_core.h"
#include "tuner_server/jobs/most_frequent.h"
#include "tuner_server/jobs/size_messages.h"
#include "tuner_server/jobs/work_items.h"

namespace tilewright::jobs {
namespace {

using support::StrCat;

}  // namespace

absl::Status JobCore::On(Tick) { return absl::OkStatus(); }

// Measuring is over. Trials that are still open are stopped first, then the model is compiled.
absl::Status JobCore::Finish(const std::string& why) {
  TW_TRY(Move(JobAction::kMeasured, why));
  if (job_.state != log::JobState::kFinishing) return absl::OkStatus();  // cancelled meanwhile
  if (!why.empty()) TW_TRY(AddText(why));
  if (!open_.empty()) WindDown();
  return absl::OkStatus();
}

// The weights are not the model's: a module of them would compute nonsense for whoever takes it.
absl::Status JobCore::FinishWithRecords() {
  TW_TRY(
      AddText("the weights are made up (records_only): no module is published; compile the "
              "model with its own weights and this job's records"));
  TW_TRY(Move(JobAction::kSucceed, job_.state_reason));
  done_ = log::IsFinal(job_.state);
  return absl::OkStatus();
}

absl::Status JobCore::Fail(const std::string& why) {
  if (job_.state == log::JobState::kCancelling) return absl::OkStatus();  // it ends anyway
  TW_TRY(CancelTrials(true, "the job failed"));
  if (!cancel_sent_) {
    cancel_sent_ = true;
    env_.dispatcher->Cancel();
  }
  TW_TRY(Move(JobAction::kFail, why));
  done_ = log::IsFinal(job_.state);
  return absl::OkStatus();
}

absl::Status JobCore::On(CancelRequested) {
  TW_ASSIGN(job_, env_.log->GetJob(job_.id));
  done_ = log::IsFinal(job_.state);
  if (job_.state == log::JobState::kCancelling && !winding_down_) WindDown();
  return absl::OkStatus();
}

// Stops what is open: here at once, at the tracker by asking; its updates end those trials.
void JobCore::WindDown() {
  winding_down_ = true;
  EndBuildWait();
  wind_down_until_ns_ = env_.clock->NowNs() + options_.wind_down_ns;
  if (!cancel_sent_) {
    cancel_sent_ = true;
    env_.dispatcher->Cancel();
  }
}

absl::Status JobCore::On(WorkCancelled event) {
  if (event.status.ok() || done_) return absl::OkStatus();
  cancel_sent_ = false;  // again, until the time for it is over
  return absl::OkStatus();
}

absl::Status JobCore::PumpEnd() {
  if (winding_down_) {
    const bool late = env_.clock->NowNs() >= wind_down_until_ns_;
    TW_TRY(CancelTrials(late, "the job ended first"));
    if (!cancel_sent_ && !late && !open_.empty() && env_.clock->NowNs() >= pull_retry_ns_) {
      cancel_sent_ = true;
      env_.dispatcher->Cancel();
    }
  }
  if (job_.state == log::JobState::kCancelling && open_.empty()) {
    TW_TRY(Move(JobAction::kCancelled, job_.state_reason));
    done_ = true;
  }
  return absl::OkStatus();
}

// Ends the trials that the tracker does not have, or all.
absl::Status JobCore::CancelTrials(bool at_tracker_too, const std::string& reason) {
  std::vector<log::TrialNews> news;
  for (const auto& [number, trial] : open_) {
    // One that the tracker never confirmed ends here at once; should it have got it all the same,
    // its update finds an ended trial.
    const bool at_tracker =
        trial.phase == OpenTrial::Phase::kSubmitting || trial.row.state == log::TrialState::kQueued;
    if (!at_tracker || at_tracker_too) news.push_back(CancelledNews(number, reason));
  }
  return Store(news);
}

std::string JobCore::PublishedName() const {
  return spec_.model_name().empty() ? job_.model_name : spec_.model_name();
}

// All that a compilation depends on; empty when the compiler does not say which one it is.
std::string JobCore::RecipeOf(const v1::CompileModule& compile) const {
  if (compiler_build_.empty()) return {};
  std::string text = StrCat(compiler_build_, "\n", job_.toolchain, "\n", job_.target, "\n",
                            job_.model_sha256, "\n");
  text += SizesOf(spec_).ToText() + "\n";
  for (const TaskState& task : tasks_) {
    const auto steps = compile.steps_by_task().find(task.row.hash);
    const bool chosen = steps != compile.steps_by_task().end();
    text += StrCat(task.row.hash, " ", chosen ? steps->second : task.row.default_steps, "\n");
  }
  return support::Sha256Hex(text);
}

// A model whose schedules are those of a module that is there is not compiled again: a second
// tuning that found nothing better makes no new version.
absl::StatusOr<bool> JobCore::ReuseModule() {
  if (recipe_.empty()) return false;
  const auto version = env_.modules->Reuse(job_.id, PublishedName(), recipe_);
  if (absl::IsNotFound(version.status())) return false;
  TW_TRY(version.status());
  TW_TRY(AddText("the module is the one of " +
                 (version->job.empty() ? std::string("an earlier compilation") : version->job) +
                 ": same model, schedules and compiler"));
  TW_TRY(Succeed(*version));
  return true;
}

// A module that is slower than another version of it is published, but it is not the default: the
// job's result says so.
absl::Status JobCore::Succeed(const log::ModuleVersionRow& version) {
  TW_ASSIGN(const std::string why_not, env_.modules->WhyNotDefault(version));
  std::string reason = job_.state_reason;
  if (!why_not.empty()) {
    TW_TRY(AddText(why_not));
    reason += (reason.empty() ? "" : "; ") + why_not;
  }
  TW_TRY(Move(JobAction::kSucceed, reason));
  done_ = log::IsFinal(job_.state);
  return absl::OkStatus();
}

modules::PublishRequest JobCore::MakePublishRequest(const v1::ModuleCompiled& compiled) const {
  modules::PublishRequest request;
  request.path = compiled.path();
  const auto hex = daemon::DigestToHex(compiled.digest());
  if (hex.ok()) request.expected_sha256 = *hex;
  request.module = PublishedName();
  request.recipe = recipe_;
  request.sizes = SizesOf(spec_).ToText();
  request.job = job_.id;
  request.target = job_.target;
  request.model_sha256 = job_.model_sha256;
  request.model_size = spec_.model().size_bytes();
  request.now_us = env_.clock->WallMicros();
  const v1::Progress sums = progress();
  request.median_us = sums.best_us();
  if (sums.best_us() > 0) request.speedup = sums.gain();
  request.created_by = job_.created_by;
  request.toolchain = job_.toolchain;
  std::set<std::string> devices;
  std::map<std::string, int> fingerprints;
  std::map<std::string, int> classes;
  for (const TaskState& task : tasks_) {
    if (task.best.median <= 0) continue;
    devices.insert(task.best_record.device);
    ++fingerprints[task.best_record.device_fingerprint];
    ++classes[task.best_record.key.device_class];
    // The sum's interval is at most the widest of its parts.
    request.ci_rel = std::max(request.ci_rel, task.best_record.ci_rel);
  }
  request.devices = static_cast<int64_t>(devices.size());
  request.device_fingerprint = MostFrequent(fingerprints);
  request.device_class = MostFrequent(classes);
  return request;
}

}  // namespace tilewright::jobs
