#include "device_agent/measure_names.h"

#include <string_view>

#include "deploy/support/strings.h"

namespace tilewright::device_agent {

std::string PhaseText(v1::WorkerPhase phase) {
  if (phase == v1::WORKER_PHASE_UNSPECIFIED || !v1::WorkerPhase_IsValid(phase)) return "";
  constexpr std::string_view kPrefix = "WORKER_PHASE_";
  return support::ToLower(std::string_view(v1::WorkerPhase_Name(phase)).substr(kPrefix.size()));
}

v1::ModuleMeasured NotMeasured(const std::string& detail) {
  v1::ModuleMeasured measured;
  measured.set_outcome(v1::DEVICE_LOST);
  measured.set_error_class("AGENT");
  measured.set_error_detail(detail);
  return measured;
}

}  // namespace tilewright::device_agent
