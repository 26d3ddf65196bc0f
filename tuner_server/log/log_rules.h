// How rows change: the decisions that both implementations of the tuning log share. Pure functions
// over rows; internal to tuner_server/log.
#pragma once

#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::log {

// Checks an existing job with the new one's request_id: returns it, or an error if the id was
// reused.
absl::StatusOr<CreatedJob> AnswerRepeatedRequest(const JobRow& existing, const JobRow& wanted);

// Whether the key is new, given all known ones: false if it is there, unrevoked. Errors of
// TuningLog::AddReleaseKey.
absl::StatusOr<bool> IsNewReleaseKey(const std::vector<ReleaseKeyRow>& known,
                                     const ReleaseKeyRow& key);

absl::Status JobExists(const std::string& id);

// Returns the model if its bytes are still there, else failed_precondition log.model.pruned.
absl::StatusOr<ModelRow> WithBytes(ModelRow model);

// Marks a key or a signature as revoked, unless it is.
template <typename Row>
void Revoke(const Revocation& revocation, Row* row) {
  if (row->revoked_us != 0) return;
  row->revoked_us = revocation.now_us;
  row->revoked_by = revocation.caller;
  row->revoke_reason = revocation.reason;
}

// failed_precondition log.module_version.pruned.
absl::Status VersionPruned(const ModuleVersionRow& version);

// The job after the transition; failed_precondition log.job.state.
absl::StatusOr<JobRow> ApplyTransition(JobRow job, const JobTransition& transition);

// ok when the stored tasks are the wanted ones.
absl::Status CheckSameTasks(const std::vector<TaskRow>& stored, const std::vector<TaskRow>& wanted);

// Returns the trial with the result of its build.
TrialRow ApplyBuilt(TrialRow trial, const TrialBuilt& built);

// Returns the trial with its end. REQUIRES: news.final and the trial has not ended.
TrialRow ApplyEnd(TrialRow trial, const TrialNews& news, int64_t now_us);

}  // namespace tilewright::log
