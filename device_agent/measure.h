// The measuring protocol of one candidate: load, make inputs, check, warm up, time, check again.
// Runs in a process of its own that the candidate's code may destroy at any moment, so every step
// is announced before it begins. No I/O but the announcements. One call per process.
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
  int max_threads = 1;  // a module uses what its target says, at most this many
  // What ProbeNs gives on a core without neighbours; 0 = not known.
  double quiet_probe_ns = 0;
  const DeviceTarget* device = nullptr;  // where it runs; not owned, null = this processor
  const InputCache* inputs = nullptr;    // of the parent; not owned, may be null
};

// Processor time of a short loop that uses all of a core's units: twice as long when another thread
// works on the same core, whatever else the scheduler does. For one-thread kernels, samples between
// two slow probes are not clean.
double ProbeNs();

using PhaseSink = std::function<void(v1::WorkerPhase)>;

// REQUIRES: a process of its own, which ends with the answer: nothing that was loaded is taken
// down. `after_load` is called when all code is loaded and every file that is needed is open; its
// error ends the measurement as an error of the sandbox.
v1::ModuleMeasured Measure(const MeasureJob& job, const PhaseSink& announce,
                           const std::function<absl::Status()>& after_load);

// The plan with the defaults filled in.
v1::MeasurementPlan CompletePlan(const v1::MeasurementPlan& plan);

// More samples than this of one candidate are neither taken nor believed.
inline constexpr int kMaxSamples = 10'000;

// Whether a child's report can be true, as far as its parent can tell: `lifetime_ns` is how long
// the child lived on the parent's clock, `cpu_ns` the processor time that the kernel says it used.
// The child ran foreign code, so any field may hold anything. data_loss: measure.answer.forged for
// what no measurement says or what is too long to be passed on; measure.samples.forged.
absl::Status CheckPlausible(const v1::ModuleMeasured& measured, int64_t lifetime_ns,
                            int64_t cpu_ns);

}  // namespace tilewright::device_agent
