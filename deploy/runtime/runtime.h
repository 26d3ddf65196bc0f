// C++ interface of the runtime: load a module once, run it in any number of sessions. A
// LoadedModule is immutable and shared by its sessions. A Session owns the buffers of one stream
// of calls (inputs, outputs, arena, workspace, threads) and is not thread-safe; different sessions
// are independent of each other. Users outside the repository use the C interface, tilewright.h.
#ifndef DEPLOY_RUNTIME_RUNTIME_H_
#define DEPLOY_RUNTIME_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/module/manifest.h"
#include "deploy/module/module_file.h"
#include "deploy/runtime/c_abi.h"

namespace tilewright::runtime {

class LoadedModule {
 public:
  // Checks that this machine can run the module (code format, CPU features, ABI version, static
  // shapes), loads its code objects and resolves every kernel.
  // FAILED_PRECONDITION `runtime.load.cpu_features` names the features that are missing;
  // UNIMPLEMENTED `runtime.load.symbolic_shape`; DATA_LOSS where a code object does not load or
  // lacks a symbol. Running a module runs its code: load only modules you trust.
  static absl::StatusOr<std::shared_ptr<const LoadedModule>> Load(module::ModuleFile file);
  static absl::StatusOr<std::shared_ptr<const LoadedModule>> Open(const std::string& path);

  ~LoadedModule();
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;

  const module::ModuleFile& file() const;
  const module::Manifest& manifest() const;
  // The entry that `launch` (one of this module's launches) calls.
  TwKernelFn Kernel(const module::Launch& launch) const;

 private:
  struct Impl;
  explicit LoadedModule(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct SessionOptions {
  int num_threads = 1;  // clamped to [1, cores this process may use]
  std::string function = "main";
  // Give every input and output its own mapping between inaccessible pages, its end against the
  // upper one, so that generated code which runs past an end faults; what padding remains is
  // filled and checked by CheckGuards(). Costs pages, not time.
  bool guard_pages = false;
  // Each thread, the one that creates the session too, on a core of its own (ThreadPool: kPinned).
  bool pin_threads = false;
};

// A tensor of a session and where it lives. `data` stays valid as long as the session.
struct TensorView {
  const module::Tensor* tensor = nullptr;
  void* data = nullptr;
  size_t bytes = 0;
};

// Time that one launch of a profiled run took.
struct LaunchTime {
  const module::Launch* launch = nullptr;
  int64_t ns = 0;
};

// The inputs and outputs of whatever runs a function: a session, or a device (device_session.h). In
// the graph's order.
class BoundTensors {
 public:
  virtual ~BoundTensors() = default;
  virtual const module::Function& function() const = 0;
  virtual size_t num_inputs() const = 0;
  virtual size_t num_outputs() const = 0;
  virtual TensorView input(size_t index) const = 0;
  virtual TensorView output(size_t index) const = 0;
  // The input's memory, for the caller to write before the next run.
  virtual void* MutableInput(size_t index) = 0;
};

class Session final : public BoundTensors {
 public:
  // INVALID_ARGUMENT for an unknown function; RESOURCE_EXHAUSTED where memory does not suffice.
  static absl::StatusOr<std::unique_ptr<Session>> Create(std::shared_ptr<const LoadedModule> module,
                                                         const SessionOptions& options = {});

  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const LoadedModule& module() const;
  const module::Function& function() const override;
  int num_threads() const;

  size_t num_inputs() const override;
  size_t num_outputs() const override;
  TensorView input(size_t index) const override;
  TensorView output(size_t index) const override;

  // Copies `bytes` bytes, which must be the tensor's size. INVALID_ARGUMENT otherwise.
  absl::Status SetInput(size_t index, const void* data, size_t bytes);
  // The input's memory, for the caller to write before the next Run(). Ask again after a Run():
  // with guard_pages inputs are read-only while kernels run, and prepare launches that read this
  // input become due again.
  void* MutableInput(size_t index) override;

  // Runs the prepare launches if they are due. Run() does so itself; calling it first keeps their
  // time out of a measurement.
  absl::Status Prepare();
  // One call. INTERNAL `runtime.run.kernel_failed` when a kernel returns an error.
  absl::Status Run();
  // The same, with the time of each launch.
  absl::Status RunProfiled(std::vector<LaunchTime>* times);

  // Whether the module's measurement has far inputs (module::InputSpec).
  bool has_far() const;
  // They, and what was prepared from them, leave all caches: what the next Run() finds is what a
  // network's kernel finds whose weights came from memory.
  void EvictFar();

  // Overwrites the outputs, the intermediates and the workspace with `byte`, so that a result
  // which was never computed cannot pass for one (0xFF makes NaN of floats).
  void Poison(uint8_t byte);
  // DATA_LOSS `runtime.guard.overwritten` when a kernel wrote into the padding of an input or
  // output. Needs guard_pages; without them it answers ok.
  absl::Status CheckGuards() const;

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_RUNTIME_H_
