#include "device_agent/measure_names.h"

#include <string_view>

#include "deploy/support/strings.h"

namespace tilewright::device_agent {

std::string PhaseText(v1::WorkerPhase phase) {
  if (phase == v1::WORKER_PHASE_UNSPECIFIED || !v1::WorkerPhase_IsValid(phase)) return "";
  constexpr std::string_view kPrefix = "WORKER_PHASE_";
  return support::ToLower(std::string_view(v1::WorkerPhase_Name(phase)).substr(kPrefix.size()));
}

}  // namespace tilewright::device_agent
