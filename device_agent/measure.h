// The measuring protocol of one candidate: load, make inputs, run for a check, warm up, time, run
// for another check. The worker does the checks (referee.h). Runs in a process of its own, which
// the candidate's code may destroy at any moment. So every step is announced before it begins. No
// other I/O. One call per process.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "deploy/support/measure_units.h"
#include "deploy/support/status.h"
#include "device_agent/cycle_counter.h"
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
  support::MeasureUnit unit = support::MeasureUnits().front();  // of what the session's Time gives
  const CycleCounter* counter = nullptr;  // read in place of the clocks; not owned, may be null
};

// Returns the processor time of a short loop that uses all of a core's units. It doubles if another
// thread works on the same core. For one-thread kernels, samples between two slow probes are not
// clean.
double ProbeNs();

// The worker's side of a measurement. Functions that are missing are not called.
struct MeasureHost {
  // Hears of each step before it begins.
  std::function<void(v1::WorkerPhase)> announce;
  // Hears of the function's outputs, before foreign code is loaded.
  std::function<void(const v1::OutputList&)> outputs;
  // Where the outputs go, one after the other, before CHECK and LAST_CHECK are announced. Empty if
  // nothing is expected of them.
  std::span<char> window;
  // Returns when the worker wants the next step: after CHECK, after `claim`, after LAST_CHECK.
  std::function<void()> wait;
  // Hears of a good result. The worker then asks for one run or more, until it ends the process.
  // Without it there are no such runs.
  std::function<void(const v1::ModuleMeasured&)> claim;
};

// REQUIRES: a process of its own, which ends after the answer: nothing is unloaded.
v1::ModuleMeasured Measure(const MeasureJob& job, const MeasureHost& host);

// The plan with the defaults filled in.
v1::MeasurementPlan CompletePlan(const v1::MeasurementPlan& plan);

}  // namespace tilewright::device_agent
