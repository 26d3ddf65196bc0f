#include "tuner_server/log/log_types.h"

#include <array>
#include <utility>

#include "tuner_server/log/tuning_log.h"

namespace tilewright::log {
namespace {

template <typename Enum, size_t kCount>
using Names = std::array<std::pair<Enum, std::string_view>, kCount>;

constexpr Names<JobState, 8> kJobStates = {{{JobState::kQueued, "QUEUED"},
                                            {JobState::kRunning, "RUNNING"},
                                            {JobState::kPaused, "PAUSED"},
                                            {JobState::kFinishing, "FINISHING"},
                                            {JobState::kSucceeded, "SUCCEEDED"},
                                            {JobState::kFailed, "FAILED"},
                                            {JobState::kCancelling, "CANCELLING"},
                                            {JobState::kCancelled, "CANCELLED"}}};

constexpr Names<TrialState, 8> kTrialStates = {{{TrialState::kProposed, "PROPOSED"},
                                                {TrialState::kBuilt, "BUILT"},
                                                {TrialState::kQueued, "QUEUED"},
                                                {TrialState::kSucceeded, "SUCCEEDED"},
                                                {TrialState::kInfeasible, "INFEASIBLE"},
                                                {TrialState::kFailed, "FAILED"},
                                                {TrialState::kCancelled, "CANCELLED"},
                                                {TrialState::kQuarantined, "QUARANTINED"}}};

constexpr Names<Outcome, 11> kOutcomes = {{{Outcome::kUnspecified, "OUTCOME_UNSPECIFIED"},
                                           {Outcome::kOk, "OK"},
                                           {Outcome::kEarlyStopped, "EARLY_STOPPED"},
                                           {Outcome::kBuildError, "BUILD_ERROR"},
                                           {Outcome::kBuildTimeout, "BUILD_TIMEOUT"},
                                           {Outcome::kRunCrash, "RUN_CRASH"},
                                           {Outcome::kRunTimeout, "RUN_TIMEOUT"},
                                           {Outcome::kWrongResult, "WRONG_RESULT"},
                                           {Outcome::kDeviceLost, "DEVICE_LOST"},
                                           {Outcome::kOutOfMemory, "OUT_OF_MEMORY"},
                                           {Outcome::kCancelled, "CANCELLED"}}};

template <typename Enum, size_t kCount>
std::string_view NameOf(const Names<Enum, kCount>& names, Enum value) {
  for (const auto& [candidate, name] : names) {
    if (candidate == value) return name;
  }
  return "?";
}

template <typename Enum, size_t kCount>
std::optional<Enum> Parse(const Names<Enum, kCount>& names, std::string_view text) {
  for (const auto& [candidate, name] : names) {
    if (name == text) return candidate;
  }
  return std::nullopt;
}

}  // namespace

std::string_view JobStateName(JobState state) { return NameOf(kJobStates, state); }
std::optional<JobState> ParseJobState(std::string_view name) { return Parse(kJobStates, name); }
bool IsFinal(JobState state) {
  return state == JobState::kSucceeded || state == JobState::kFailed ||
         state == JobState::kCancelled;
}

std::string_view TrialStateName(TrialState state) { return NameOf(kTrialStates, state); }
std::optional<TrialState> ParseTrialState(std::string_view name) {
  return Parse(kTrialStates, name);
}
bool IsFinal(TrialState state) {
  return static_cast<int>(state) >= static_cast<int>(TrialState::kSucceeded);
}

std::string_view OutcomeName(Outcome outcome) { return NameOf(kOutcomes, outcome); }
std::optional<Outcome> ParseOutcome(std::string_view name) { return Parse(kOutcomes, name); }

std::string ModuleVersionName(const std::string& module, int64_t number) {
  return "projects/default/modules/" + module + "/versions/" + std::to_string(number);
}

}  // namespace tilewright::log
