// What both implementations of the tuning log decide alike: how rows change. Pure functions over
// rows; internal to tuner_server/log.
#pragma once

#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::log {

// An existing job that has the new one's request_id: it is the answer, or the id was reused.
absl::StatusOr<CreatedJob> AnswerRepeatedRequest(const JobRow& existing, const JobRow& wanted);

absl::Status JobExists(const std::string& id);

// The model where its bytes are still there, else failed_precondition log.model.pruned.
absl::StatusOr<ModelRow> WithBytes(ModelRow model);

// failed_precondition log.module_version.pruned.
absl::Status VersionPruned(const ModuleVersionRow& version);

// The job after the transition; failed_precondition log.job.state.
absl::StatusOr<JobRow> ApplyTransition(JobRow job, const JobTransition& transition);

// ok when the stored tasks are the wanted ones.
absl::Status CheckSameTasks(const std::vector<TaskRow>& stored, const std::vector<TaskRow>& wanted);

// The trial with its build noted.
TrialRow ApplyBuilt(TrialRow trial, const TrialBuilt& built);

// The trial as the news ends it. REQUIRES: news.final and the trial has not ended.
TrialRow ApplyEnd(TrialRow trial, const TrialNews& news, int64_t now_us);

}  // namespace tilewright::log
