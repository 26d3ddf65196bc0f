// Words and numbers that several daemons act on. Each has its one home here, because a difference
// between two of them is no error that a compiler sees.
#pragma once

#include <cstdint>

namespace tilewright::daemon {

// Job of the work items by which a tracker tests a device. An agent injects no test faults there.
inline constexpr char kCanaryJob[] = "canaries";

// MeasurementResult.error_class of DEVICE_LOST: the tracker did not have an artifact of the item.
inline constexpr char kArtifactMissingClass[] = "ARTIFACT_MISSING";
// MeasurementResult.phase of DEVICE_LOST: the item was with a worker when the agent's process
// ended. That makes the candidate a suspect, but says nothing about the device.
inline constexpr char kAgentEndedPhase[] = "running";
// WorkUpdate.reason of a queued item that waits for its artifacts: the tuner submits it again.
inline constexpr char kArtifactMissingReason[] = "work.artifact.missing";

// DeviceReport.attributes: name and version of the driver's compiler, where it compiles the code.
inline constexpr char kDriverCompilerAttribute[] = "driver_compiler";

// What a MeasurementPlan means where it says nothing.
inline constexpr int kMinRepeats = 5;
inline constexpr int kMaxRepeats = 30;
inline constexpr int64_t kMinRepeatTimeNs = 300'000;
inline constexpr int64_t kCandidateBudgetNs = 100'000'000;
inline constexpr int64_t kWarmupNs = 2'000'000;
inline constexpr double kTargetRelCi = 0.02;

}  // namespace tilewright::daemon
