// Names for the messages of a worker. Pure; thread-safe.
#pragma once

#include <string>

#include "tilewright/v1/worker.pb.h"

namespace tilewright::device_agent {

// "first_run" for WORKER_PHASE_FIRST_RUN; empty for UNSPECIFIED and unknown ones.
std::string PhaseText(v1::WorkerPhase phase);

// The result of a candidate that could not run for a reason of the agent's: DEVICE_LOST, class
// AGENT.
v1::ModuleMeasured NotMeasured(const std::string& detail);

}  // namespace tilewright::device_agent
