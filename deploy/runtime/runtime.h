// C++ interface of the runtime: load a module once, run it in any number of sessions. A
// LoadedModule is immutable, thread-safe and shared by its sessions. A Session owns the buffers of
// one stream of calls (inputs, outputs, arena, workspace, threads). Different sessions are
// independent of each other. Users outside the repository use the C interface, tilewright.h.
#ifndef DEPLOY_RUNTIME_RUNTIME_H_
#define DEPLOY_RUNTIME_RUNTIME_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/module/manifest.h"
#include "deploy/module/module_file.h"
#include "deploy/runtime/c_abi.h"
#include "deploy/runtime/device_plugin.h"
#include "deploy/runtime/external_kernel.h"
#include "deploy/runtime/launch_trace.h"
#include "deploy/runtime/tilewright.h"
#include "deploy/support/clock.h"

namespace tilewright::runtime {

struct LoadOptions {
  // Paths of shared libraries whose functions the module may call (external_library.h). A module
  // that calls others is refused.
  std::vector<std::string> libraries = {};
};

// A function of a library that computes an operator; `attributes` is its last argument.
struct ExternalCall {
  TwExternalKernel function = nullptr;
  const char* attributes = nullptr;
};

class LoadedModule {
 public:
  // Checks that this machine can run the module (code format, CPU features, ABI version). Loads the
  // processor's code objects and resolves their kernels. Loads the plug-in of the kind of device
  // that the other code objects name.
  // FAILED_PRECONDITION `runtime.load.cpu_features` names the features that are missing;
  // UNIMPLEMENTED `runtime.load.devices` (code for several kinds of device); NOT_FOUND
  // `runtime.device.missing`, `.none`; DATA_LOSS if a code object does not load or lacks a symbol.
  // FAILED_PRECONDITION `runtime.load.library`, NOT_FOUND `runtime.load.library_file`,
  // `.library_function`: errors of libraries (LoadOptions).
  // Running a module runs its code: load only modules that you trust.
  static absl::StatusOr<std::shared_ptr<const LoadedModule>> Load(module::ModuleFile file,
                                                                  const LoadOptions& options = {});
  static absl::StatusOr<std::shared_ptr<const LoadedModule>> Open(const std::string& path,
                                                                  const LoadOptions& options = {});

  ~LoadedModule();
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;

  const module::ModuleFile& file() const;
  const module::Manifest& manifest() const;
  // Returns the plug-in that runs the launches of code for a device; null if all code is the
  // processor's.
  const TwDevicePlugin* device_plugin() const;
  // Returns the entry that `launch`, one of this module's launches on the processor, calls; null
  // if it calls a library.
  TwKernelFn Kernel(const module::Launch& launch) const;
  // Returns the call that `launch` makes of a library; without a function for other launches.
  ExternalCall External(const module::Launch& launch) const;

 private:
  struct Impl;
  explicit LoadedModule(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct SessionOptions {
  int num_threads = 1;  // clamped to [1, cores this process may use]
  std::string function = "main";
  // Gives every input and output its own mapping between inaccessible pages, with its end at the
  // upper one. Generated code that runs past an end then faults. CheckGuards() checks the padding
  // that remains. Costs pages, not time.
  bool guard_pages = false;
  // Gives each thread, the one that creates the session too, a core of its own (ThreadPool:
  // kPinned).
  bool pin_threads = false;
  // Folder of compiled device code (device_code_cache.h). Empty: drivers compile each time.
  std::string code_cache = {};
  // For modules with launches on a device: its index among those of its kind, or its name, as its
  // maker calls it. Empty: the first. NOT_FOUND `runtime.device.name` if there is none.
  std::string device = {};
  // The most that the buffers of the session may hold in all; 0: no limit. Calls whose sizes need
  // more get RESOURCE_EXHAUSTED `runtime.session.memory_limit`.
  int64_t memory_limit_bytes = 0;
  // What times of runs and launches are read from; must outlive the session. Null: the system's.
  support::Clock* clock = nullptr;
};

// A tensor of a session and where it lives. `data` stays valid as long as the session; in a module
// of open sizes, until the session is bound to other sizes.
struct TensorView {
  const module::Tensor* tensor = nullptr;
  void* data = nullptr;
  size_t bytes = 0;
  std::vector<int64_t> shape = {};  // at the sizes that are bound
};

// The inputs and outputs of a session, or of a device (device_session.h). In the graph's order.
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
  // Gives an input a shape that its open dimensions allow; its contents are undefined then.
  // INVALID_ARGUMENT for other shapes (SizeBinding). Where all sizes are fixed, its own one only.
  virtual absl::Status SetInputShape(size_t index, std::span<const int64_t> shape);
  // Binds the size variables from the inputs' shapes, which gives the outputs theirs. A run does so
  // itself. INVALID_ARGUMENT if the shapes do not agree.
  virtual absl::Status BindSizes() { return absl::OkStatus(); }
  // The values of the size variables that are bound; empty if all sizes are fixed.
  virtual module::Sizes sizes() const { return {}; }
};

// Sizes. Where a module has size variables, the shapes of the inputs bind them: those of Call()'s
// tensors, or those that SetInput() and SetInputShape() set, or else the smallest. A session keeps
// what it has worked out for the sizes of its last call. The function that runs is the one that
// fixes most of these sizes, or else "main". Memory grows when larger sizes come
// (session_memory.h).
//
// Thread-safety. Call() may be called from any number of threads; the calls run one after another.
// SetInput(), SetInputShape(), BindSizes(), Prepare(), Run(), RunProfiled(), RunTraced(),
// GetOutput() and ResetState() work on what lasts between them, so one thread at a time must do the
// whole sequence. If one of them overlaps with another call of these ten, it does nothing and
// returns ABORTED
// `runtime.session.busy`. The functions that return no status are for a session's only thread and
// check nothing. The destructor waits for calls that have begun. In a child of fork(), a session of
// several threads returns FAILED_PRECONDITION `runtime.session.forked`; the child makes its own
// session of the same module.
class Session final : public BoundTensors {
 public:
  // Opens the first device of the kind that the module's code names. INVALID_ARGUMENT for an
  // unknown function; RESOURCE_EXHAUSTED if there is not enough memory; errors of DevicePart.
  static absl::StatusOr<std::unique_ptr<Session>> Create(std::shared_ptr<const LoadedModule> module,
                                                         const SessionOptions& options = {});

  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const LoadedModule& module() const;
  // The function that runs at the sizes that are bound.
  const module::Function& function() const override;
  module::Sizes sizes() const override;
  int num_threads() const;
  support::Clock* clock() const;

  size_t num_inputs() const override;
  size_t num_outputs() const override;
  TensorView input(size_t index) const override;
  TensorView output(size_t index) const override;

  // One whole call: copies the inputs, runs, copies the outputs. `inputs` and `outputs` have an
  // entry for each input and output; a null input keeps its contents, a null output is not copied.
  // INVALID_ARGUMENT if a tensor does not fit; nothing has changed then. Otherwise as Run().
  absl::Status Call(std::span<const DLTensor* const> inputs,
                    std::span<const DLTensor* const> outputs);

  // Copies `bytes` bytes, which must be the tensor's size. INVALID_ARGUMENT otherwise.
  absl::Status SetInput(size_t index, const void* data, size_t bytes);
  // Copies a tensor of the input's type and of a shape that it may have, compact or strided.
  // INVALID_ARGUMENT otherwise.
  absl::Status SetInput(size_t index, const DLTensor& tensor);
  // Returns the input's memory, for the caller to write before the next Run(). Ask again after a
  // Run(): with guard_pages, inputs are read-only while kernels run, and prepare launches that read
  // this input become due again.
  void* MutableInput(size_t index) override;
  absl::Status SetInputShape(size_t index, std::span<const int64_t> shape) override;
  absl::Status BindSizes() override;

  // Runs the prepare launches if they are due. Run() does so itself; calling it first keeps their
  // time out of a measurement.
  absl::Status Prepare();
  // Runs the function once. INVALID_ARGUMENT `runtime.session.size` if the inputs' shapes do not
  // agree. INTERNAL `runtime.run.kernel_failed` when a kernel returns an error, `.library_failed`
  // when a library's function does;
  // INVALID_ARGUMENT `runtime.session.stated_shape` when the inputs make other sizes than the model
  // states (Function::checks): the outputs are undefined then.
  absl::Status Run();
  // The same, with the time of each of the function's launches, in order; those on a device without
  // the copies between them. The array belongs to the
  // session; the next profiled run overwrites it.
  absl::Status RunProfiled(std::span<const TwLaunchTime>* times);
  // The same as Run(); returns what the device did in each launch on it, in order. UNIMPLEMENTED
  // `runtime.device.no_trace` or `runtime.device.unsupported` if the device cannot say it, or if no
  // launch is on a device.
  absl::StatusOr<std::vector<LaunchTrace>> RunTraced();
  // A view of the output, valid as long as the session (in a module of open sizes: until it is
  // bound to other sizes); its contents change with the next run.
  absl::Status GetOutput(size_t index, DLTensor* out);

  // A module with state (module::State) keeps its lists from one run to the next. A run that fails
  // leaves them as they were. A run whose inputs would make them longer than they may be gets
  // RESOURCE_EXHAUSTED `runtime.session.state_full`; one whose other sizes are not those of the
  // entries that are there, INVALID_ARGUMENT `runtime.session.state_sizes`.
  //
  // Returns the number of entries; 0 for modules without state.
  int64_t state_length() const;
  // Forgets all entries, or those from `length` on. INVALID_ARGUMENT `runtime.session.state_length`
  // if there are fewer.
  absl::Status ResetState(int64_t length = 0);

  // Whether the module's measurement has cold inputs (module::InputSpec::cold).
  bool has_cold() const;
  // Removes them, and what was prepared from them, from all caches. The next Run() then finds what
  // a kernel of a network finds whose weights come from memory.
  void EvictFar();

  // Overwrites the outputs, the intermediates and the workspace with `byte`. A result that was
  // never computed then differs from the expected one (0xFF makes floats NaN).
  void Poison(uint8_t byte);
  // DATA_LOSS `runtime.guard.overwritten` if a kernel wrote into the padding of an input or output.
  // Without guard_pages it returns OK.
  absl::Status CheckGuards() const;

 private:
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_RUNTIME_H_
