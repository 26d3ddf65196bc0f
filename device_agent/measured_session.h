// The object of a measurement: a module on this process's processor, or on a device behind a
// plug-in. One thread at a time. The device's driver is loaded into the calling process.
#pragma once

#include <time.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "deploy/module/manifest.h"
#include "deploy/module/module_file.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/status.h"
#include "device_agent/cycle_counter.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::device_agent {

// Which device behind which plug-in.
struct DeviceTarget {
  std::string kind;    // "opencl"
  std::string plugin;  // path
  int index = 0;       // among the devices that the plug-in finds
};

class MeasuredSession {
 public:
  virtual ~MeasuredSession() = default;

  virtual const module::Manifest& manifest() const = 0;
  virtual runtime::BoundTensors* tensors() = 0;

  virtual absl::Status Prepare() = 0;
  // One call, ended when it returns.
  virtual absl::Status Run() = 0;
  // Returns what `runs` calls take, in the device's unit. If the module has cold inputs, they are
  // evicted before each call; that time does not count.
  virtual absl::StatusOr<int64_t> Time(int runs) = 0;
  virtual absl::Status Poison(uint8_t byte) = 0;
  // Makes the outputs readable. data_loss (runtime.guard.overwritten) if the module wrote outside
  // its buffers.
  virtual absl::Status Collect() = 0;

  // What Time reads: "thread_cpu", "monotonic", "device", "counter".
  virtual std::string_view clock() const = 0;
  // The most similar clock of the host, for the calibration loop.
  virtual clockid_t host_clock() const = 0;
  // Whether the host's scheduler and neighbours on its cores affect the samples.
  virtual bool on_host() const = 0;
};

// The function that a measurement calls: the one asked for, else the only one, else "main". Null if
// there is none. Calls no foreign code.
const module::Function* MeasuredFunction(const module::Manifest& manifest,
                                         const std::string& entry_point);

// A module for the processor, with guarded buffers and pinned threads, at most `max_threads`.
// `counter` (not owned, may be null) is read in place of the clocks.
absl::StatusOr<std::unique_ptr<MeasuredSession>> LoadOnHost(module::ModuleFile file,
                                                            const std::string& entry_point,
                                                            int max_threads,
                                                            const CycleCounter* counter);

// A module for `target`'s device. It has run once, on zeros, because drivers compile at the first
// launch. unavailable (runtime.device.*) if the device itself does not work.
absl::StatusOr<std::unique_ptr<MeasuredSession>> LoadOnDevice(module::ModuleFile file,
                                                              const std::string& entry_point,
                                                              const DeviceTarget& target);

}  // namespace tilewright::device_agent
