#include "tuner_server/log/log_rules.h"

#include "deploy/support/strings.h"

namespace tilewright::log {

absl::StatusOr<CreatedJob> AnswerRepeatedRequest(const JobRow& existing, const JobRow& wanted) {
  if (existing.request_hash != wanted.request_hash) {
    return support::InvalidArgument(
        "log.job.request_id_reused",
        support::StrCat("expected the request that made job ", existing.id,
                        ", found another one with the same request_id ",
                        support::Quote(wanted.request_id)));
  }
  return CreatedJob{existing, true};
}

absl::StatusOr<ModelRow> WithBytes(ModelRow model) {
  if (!model.bytes.empty()) return model;
  return support::FailedPrecondition(
      "log.model.pruned",
      support::StrCat("the bytes of ", support::Quote(model.id), " of job ",
                      support::Quote(model.job), " were given up after newer jobs had ended"));
}

absl::Status VersionPruned(const ModuleVersionRow& version) {
  return support::FailedPrecondition(
      "log.module_version.pruned",
      ModuleVersionName(version.module, version.number) + " was pruned: its bytes are gone");
}

absl::StatusOr<bool> IsNewReleaseKey(const std::vector<ReleaseKeyRow>& known,
                                     const ReleaseKeyRow& key) {
  for (const ReleaseKeyRow& one : known) {
    if (one.key_id != key.key_id) continue;
    if (one.public_key != key.public_key) {
      return support::AlreadyExists("log.release_key.other",
                                    "another key has the id " + key.key_id);
    }
    if (one.revoked_us == 0) return false;
    return support::FailedPrecondition(
        "log.release_key.revoked",
        support::StrCat("key ", key.key_id, " was revoked by ", one.revoked_by, ": ",
                        support::Quote(one.revoke_reason, 200)));
  }
  if (known.size() < kMaxReleaseKeys) return true;
  return support::ResourceExhausted(
      "log.release_key.too_many",
      support::StrCat("expected at most ", kMaxReleaseKeys, " keys, found as many already"));
}

absl::Status JobExists(const std::string& id) {
  return support::AlreadyExists("log.job.exists", support::Quote(id));
}

absl::StatusOr<JobRow> ApplyTransition(JobRow job, const JobTransition& transition) {
  if (job.state != transition.from) {
    return support::FailedPrecondition(
        "log.job.state",
        support::StrCat("expected job ", job.id, " to be ", JobStateName(transition.from),
                        ", found ", JobStateName(job.state)));
  }
  job.state = transition.to;
  job.state_reason = transition.reason;
  job.updated_us = transition.now_us;
  if (transition.elapsed_s >= 0) job.elapsed_s = transition.elapsed_s;
  if (transition.to == JobState::kRunning && job.started_us == 0) {
    job.started_us = transition.now_us;
  }
  if (IsFinal(transition.to)) job.ended_us = transition.now_us;
  return job;
}

absl::Status CheckSameTasks(const std::vector<TaskRow>& stored,
                            const std::vector<TaskRow>& wanted) {
  bool same = stored.size() == wanted.size();
  for (size_t i = 0; same && i < stored.size(); ++i) same = stored[i].hash == wanted[i].hash;
  if (same) return absl::OkStatus();
  return support::FailedPrecondition(
      "log.tasks.changed",
      support::StrCat("expected the ", stored.size(), " tasks that the job began with, found ",
                      wanted.size(), " other ones: its compiler was replaced meanwhile"));
}

TrialRow ApplyBuilt(TrialRow trial, const TrialBuilt& built) {
  trial.state = built.state;
  trial.artifact_sha256 = built.artifact_sha256;
  trial.artifact_size = built.artifact_size;
  trial.work_item = built.work_item;
  trial.work_spec = built.work_spec;
  trial.lower_s = built.lower_s;
  trial.codegen_s = built.codegen_s;
  trial.link_s = built.link_s;
  trial.resources = built.resources;
  return trial;
}

TrialRow ApplyEnd(TrialRow trial, const TrialNews& news, int64_t now_us) {
  trial.state = news.state;
  trial.outcome = news.outcome;
  trial.reason = news.reason;
  trial.ended_us = now_us;
  if (news.record) {
    trial.measurement_id = news.record->measurement_id;
    if (news.record->usable()) trial.median = news.record->median;
  }
  return trial;
}

}  // namespace tilewright::log
