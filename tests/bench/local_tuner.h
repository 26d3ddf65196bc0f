// A task tuned in this process, without a fleet: the tuner's own search, each candidate built,
// compared with the default schedule's result and timed here. For measurements of kernels. One
// thread at a time; dies (TW_CHECK) on what a benchmark cannot go on without.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/driver/tasks.h"
#include "compiler/target/target.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/status.h"
#include "device_agent/measured_session.h"

namespace tilewright::bench {

template <typename T>
T Must(absl::StatusOr<T> value, const std::string& what) {
  TW_CHECK(value.ok()) << what << ": " << support::StatusText(value.status());
  return *std::move(value);
}

// "native,threads=N": this machine's target.
target::Target NativeTarget(int threads);

// The tasks of an ONNX file as a compilation for `target` has them; in channel blocks where they
// pay, or always with `force_blocks`.
std::vector<driver::Task> ModelTasks(const std::string& path, const target::Target& target,
                                     bool force_blocks = false);

// A built candidate, with inputs filled, that has run once. Of a target behind a plug-in: `device`
// instead of module and session.
struct Loaded {
  std::shared_ptr<const runtime::LoadedModule> module;
  std::unique_ptr<runtime::Session> session;
  std::unique_ptr<device_agent::MeasuredSession> device;

  const runtime::BoundTensors& tensors() const {
    if (device != nullptr) return *device->tensors();
    return *session;
  }
};
absl::StatusOr<Loaded> Load(const driver::Task& task, const std::string& steps,
                            const target::Target& target);
// The same code with buffers of its own, filled and run once. REQUIRES: no device.
absl::StatusOr<Loaded> WithOtherBuffers(const Loaded& loaded);
// Between the first outputs, as bench::Distance; 0 or 1 for other types than f32.
double ResultDistance(const Loaded& a, const Loaded& b);

// What a call takes: the quickest of some slices. The device's own time where there is one, the
// thread's for one thread, so that neighbours on a shared machine matter little, else the clock on
// the wall.
double TimeNs(const Loaded& loaded, double best_known);
double SliceNs(const Loaded& loaded, int64_t calls);  // of some calls
double NowNs(int threads);

struct Found {
  double default_ns = 0, best_ns = 0;
  std::string default_steps, best_steps;
  int failed = 0, wrong = 0, invalid = 0, trial = 0;
  std::vector<double> curve;  // the best time after each trial
};
struct TuneOptions {
  int trials = 0;
  uint64_t seed = 0;
  bool random = false;  // picks by chance instead of the shipped model and what it learns
};
// The default schedule, and the best of the search's candidates.
Found Tune(const driver::Task& task, const target::Target& target, const TuneOptions& options);
// The same for random points of one sketch.
Found TuneSketch(const driver::Task& task, const target::Target& target, const std::string& sketch,
                 int trials);

}  // namespace tilewright::bench
