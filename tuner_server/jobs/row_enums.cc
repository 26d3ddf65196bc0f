#include "tuner_server/jobs/row_enums.h"

namespace tilewright::jobs {

// Switches without a default: the compiler names the value that one of them lacks.

v1::Outcome ToProto(log::Outcome outcome) {
  switch (outcome) {
    case log::Outcome::kUnspecified:
      return v1::OUTCOME_UNSPECIFIED;
    case log::Outcome::kOk:
      return v1::OK;
    case log::Outcome::kEarlyStopped:
      return v1::EARLY_STOPPED;
    case log::Outcome::kBuildError:
      return v1::BUILD_ERROR;
    case log::Outcome::kBuildTimeout:
      return v1::BUILD_TIMEOUT;
    case log::Outcome::kRunCrash:
      return v1::RUN_CRASH;
    case log::Outcome::kRunTimeout:
      return v1::RUN_TIMEOUT;
    case log::Outcome::kWrongResult:
      return v1::WRONG_RESULT;
    case log::Outcome::kDeviceLost:
      return v1::DEVICE_LOST;
    case log::Outcome::kOutOfMemory:
      return v1::OUT_OF_MEMORY;
    case log::Outcome::kCancelled:
      return v1::CANCELLED;
  }
  return v1::OUTCOME_UNSPECIFIED;
}

log::Outcome FromProto(v1::Outcome outcome) {
  switch (outcome) {
    case v1::OUTCOME_UNSPECIFIED:
      return log::Outcome::kUnspecified;
    case v1::OK:
      return log::Outcome::kOk;
    case v1::EARLY_STOPPED:
      return log::Outcome::kEarlyStopped;
    case v1::BUILD_ERROR:
      return log::Outcome::kBuildError;
    case v1::BUILD_TIMEOUT:
      return log::Outcome::kBuildTimeout;
    case v1::RUN_CRASH:
      return log::Outcome::kRunCrash;
    case v1::RUN_TIMEOUT:
      return log::Outcome::kRunTimeout;
    case v1::WRONG_RESULT:
      return log::Outcome::kWrongResult;
    case v1::DEVICE_LOST:
      return log::Outcome::kDeviceLost;
    case v1::OUT_OF_MEMORY:
      return log::Outcome::kOutOfMemory;
    case v1::CANCELLED:
      return log::Outcome::kCancelled;
    case v1::Outcome_INT_MIN_SENTINEL_DO_NOT_USE_:
    case v1::Outcome_INT_MAX_SENTINEL_DO_NOT_USE_:
      break;
  }
  return log::Outcome::kUnspecified;
}

v1::Job::State ToProto(log::JobState state) {
  switch (state) {
    case log::JobState::kQueued:
      return v1::Job::QUEUED;
    case log::JobState::kRunning:
      return v1::Job::RUNNING;
    case log::JobState::kPaused:
      return v1::Job::PAUSED;
    case log::JobState::kFinishing:
      return v1::Job::FINISHING;
    case log::JobState::kSucceeded:
      return v1::Job::SUCCEEDED;
    case log::JobState::kFailed:
      return v1::Job::FAILED;
    case log::JobState::kCancelling:
      return v1::Job::CANCELLING;
    case log::JobState::kCancelled:
      return v1::Job::CANCELLED;
  }
  return v1::Job::STATE_UNSPECIFIED;
}

v1::Trial::State ToProto(log::TrialState state) {
  switch (state) {
    case log::TrialState::kProposed:
      return v1::Trial::PROPOSED;
    case log::TrialState::kBuilt:
      return v1::Trial::BUILT;
    case log::TrialState::kQueued:
      return v1::Trial::QUEUED;
    case log::TrialState::kSucceeded:
      return v1::Trial::SUCCEEDED;
    case log::TrialState::kInfeasible:
      return v1::Trial::INFEASIBLE;
    case log::TrialState::kFailed:
      return v1::Trial::FAILED;
    case log::TrialState::kCancelled:
      return v1::Trial::CANCELLED;
    case log::TrialState::kQuarantined:
      return v1::Trial::QUARANTINED;
  }
  return v1::Trial::STATE_UNSPECIFIED;
}

}  // namespace tilewright::jobs
