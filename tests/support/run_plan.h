// Runs a lowered function that was cut into launches (compiler/codegen/host_device.h): kernel by
// kernel in the interpreter, or as code on a device behind the C ABI of plug-ins. One PlanDevice
// is one queue; not thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/codegen/host_device.h"
#include "compiler/ir/interp.h"
#include "deploy/runtime/device_loader.h"

namespace tilewright::tests {

// `args`: the function's parameters in order; outputs are written.
absl::Status InterpretPlan(const codegen::HostPlan& plan, const std::vector<int64_t>& sizes,
                           const std::vector<ir::TensorData*>& args);

// The text of OpenCL kernels with sub-groups for a device without them: four neighbours of a group
// in x are one, which pass what they have through local memory. Works for sums of f32 and i32.
std::string WithEmulatedSubGroups(const std::string& text);

class PlanDevice {
 public:
  // The first device of the plug-in at `path`; an error where there is none.
  static absl::StatusOr<std::unique_ptr<PlanDevice>> Open(const std::string& path);
  ~PlanDevice();
  PlanDevice(const PlanDevice&) = delete;
  PlanDevice& operator=(const PlanDevice&) = delete;

  // `code`: the plan's kernels in the first format that the device loads.
  absl::Status Run(const codegen::HostPlan& plan, const std::string& code,
                   const std::vector<int64_t>& sizes, const std::vector<ir::TensorData*>& args);

 private:
  PlanDevice(runtime::DevicePlugin plugin, TwDevice* device);
  absl::Status Check(TwDeviceResult r) const {
    return runtime::DeviceStatus(plugin_.table(), device_, r);
  }
  absl::Status Launch(const codegen::HostPlan& plan, const codegen::Launch& launch,
                      TwDeviceCode* code, const std::vector<int64_t>& sizes);

  runtime::DevicePlugin plugin_;
  TwDevice* device_;
  std::vector<TwDeviceMemory*> memory_;  // of the run under way
};

}  // namespace tilewright::tests
