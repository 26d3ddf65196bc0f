// The measuring protocol of one candidate: load, make inputs, check, warm up, time, check again.
// Runs in a process of its own, which the candidate's code may destroy at any moment. So every step
// is announced before it begins. No other I/O. One call per process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "deploy/support/status.h"
#include "device_agent/input_cache.h"
#include "device_agent/measured_session.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::device_agent {

struct MeasureJob {
  std::string_view module;    // bytes of a model.tw
  std::string_view baseline;  // likewise; empty = the built-in calibration loop
  const v1::MeasureModule* request = nullptr;
  int max_threads = 1;  // limit of the threads that the module's target asks for
  // What ProbeNs gives on a core without neighbours; 0 = not known.
  double quiet_probe_ns = 0;
  const DeviceTarget* device = nullptr;  // where it runs; not owned, null = this processor
  const InputCache* inputs = nullptr;    // of the parent; not owned, may be null
};

// Returns the processor time of a short loop that uses all of a core's units. It doubles if another
// thread works on the same core. For one-thread kernels, samples between two slow probes are not
// clean.
double ProbeNs();

using PhaseSink = std::function<void(v1::WorkerPhase)>;

// REQUIRES: a process of its own, which ends after the answer: nothing is unloaded. Calls
// `after_load` when all code is loaded and all files are open; its error ends the measurement as an
// error of the sandbox.
v1::ModuleMeasured Measure(const MeasureJob& job, const PhaseSink& announce,
                           const std::function<absl::Status()>& after_load);

// The plan with the defaults filled in.
v1::MeasurementPlan CompletePlan(const v1::MeasurementPlan& plan);

// Limit of samples of one candidate, for the worker and for what its child reports.
inline constexpr int kMaxSamples = 10'000;

// Checks whether a child's report can be true. The child ran foreign code, so any field may hold
// any value. `lifetime_ns` is how long the child lived by the parent's clock, `cpu_ns` the
// processor time that it used by the kernel's count. data_loss: measure.answer.forged for values
// that no measurement gives or that are too long to pass on; measure.samples.forged.
absl::Status CheckPlausible(const v1::ModuleMeasured& measured, int64_t lifetime_ns,
                            int64_t cpu_ns);

}  // namespace tilewright::device_agent
