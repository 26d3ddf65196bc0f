// Runs a module on a device behind a plug-in. Its tensors are on the device; the caller's inputs
// and outputs are copies on the host. Borrows the plug-in and the device, which must outlive it.
// One thread at a time.
#ifndef DEPLOY_RUNTIME_DEVICE_SESSION_H_
#define DEPLOY_RUNTIME_DEVICE_SESSION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/module/module_file.h"
#include "deploy/runtime/device_part.h"
#include "deploy/runtime/device_plugin.h"
#include "deploy/runtime/runtime.h"

namespace tilewright::runtime {

class DeviceSession final : public BoundTensors {
 public:
  // INVALID_ARGUMENT for an unknown function; otherwise as DevicePart::Create.
  static absl::StatusOr<std::unique_ptr<DeviceSession>> Create(module::ModuleFile file,
                                                               const TwDevicePlugin& plugin,
                                                               TwDevice* device,
                                                               const std::string& function);
  ~DeviceSession() override;
  DeviceSession(const DeviceSession&) = delete;
  DeviceSession& operator=(const DeviceSession&) = delete;

  const module::Manifest& manifest() const { return file_.manifest(); }
  const module::Function& function() const override { return *function_; }
  size_t num_inputs() const override { return inputs_.size(); }
  size_t num_outputs() const override { return outputs_.size(); }
  TensorView input(size_t index) const override;
  // Has the contents that the last Collect() read.
  TensorView output(size_t index) const override;
  // The next Prepare() moves what the caller writes to the device.
  void* MutableInput(size_t index) override;

  // Moves the inputs to the device and runs the prepare launches.
  absl::Status Prepare();
  // Makes one call and waits until its work is done.
  absl::Status Run();
  // Returns the nanoseconds of `runs` calls one after the other, from the first launch to the end
  // of the last. Uses the device's own timer if it has one, otherwise the host's clock.
  absl::StatusOr<int64_t> Time(int runs);
  bool device_timer() const { return part_->info().device_timer != 0; }

  // Overwrites outputs, intermediates and workspace with `byte` (runtime.h).
  absl::Status Poison(uint8_t byte);
  // Reads the outputs. DATA_LOSS `runtime.guard.overwritten` if a kernel wrote behind an input or
  // output, or into an input.
  absl::Status Collect();

 private:
  struct HostTensor {
    const module::Tensor* tensor = nullptr;
    std::vector<char> bytes;
  };
  static TensorView ViewOf(const HostTensor& end);

  DeviceSession(module::ModuleFile file, const TwDevicePlugin& plugin, TwDevice* device);
  absl::Status Check(TwDeviceResult result) const;
  absl::Status AddEnds(const std::vector<int64_t>& ids, std::vector<HostTensor>* ends);
  absl::StatusOr<std::vector<char>> Fetch(const HostTensor& end);
  absl::Status LaunchAll(const std::vector<module::Launch>& launches);

  module::ModuleFile file_;
  const TwDevicePlugin& plugin_;
  TwDevice* device_;
  const module::Function* function_ = nullptr;
  std::unique_ptr<DevicePart> part_;
  TwDeviceEvent* begin_ = nullptr;
  TwDeviceEvent* end_ = nullptr;
  std::vector<HostTensor> inputs_;
  std::vector<HostTensor> outputs_;
};

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_DEVICE_SESSION_H_
