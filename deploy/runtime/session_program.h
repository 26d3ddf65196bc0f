// One function of a session: for given values of the size variables its plan, and every pointer
// and size that its launches need. One thread at a time.
#ifndef DEPLOY_RUNTIME_SESSION_PROGRAM_H_
#define DEPLOY_RUNTIME_SESSION_PROGRAM_H_

#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/module/found_vars.h"
#include "deploy/module/manifest.h"
#include "deploy/module/size_plan.h"
#include "deploy/runtime/buffer.h"
#include "deploy/runtime/device_part.h"
#include "deploy/runtime/runtime.h"
#include "deploy/runtime/session_memory.h"
#include "deploy/runtime/transfer_plan.h"

namespace tilewright::runtime {

// A launch on the processor; for one on the device, only `launch`.
struct BoundLaunch {
  const module::Launch* launch = nullptr;
  TwKernelFn kernel = nullptr;
  std::vector<void*> buffers;
  const int64_t* sizes = nullptr;
  void* workspace = nullptr;
  // Of a call of a library: the tensors of `buffers`, in their order.
  ExternalCall external = {};
  std::vector<DLTensor> tensors = {};
};

class SessionProgram {
 public:
  // `part`: null if everything runs on the processor. All must outlive it. RESOURCE_EXHAUSTED if
  // there is not enough memory.
  static absl::StatusOr<std::unique_ptr<SessionProgram>> Create(const LoadedModule& module,
                                                                const module::Function& function,
                                                                const DevicePart* part, bool guard);

  // Makes the plan for these values. If they are others than before, the program is not bound any
  // more. Errors of SizePlanner::Plan; RESOURCE_EXHAUSTED `runtime.session.too_large`.
  absl::Status Plan(const std::vector<int64_t>& values);
  // Grows the memory to what the plan needs, gives the outputs their shapes, and takes the
  // addresses. REQUIRES: Plan() was ok; the inputs have their shapes.
  absl::Status Bind(SessionMemory* memory);
  // Gives the outputs their shapes of the plan.
  absl::Status ShapeOutputs(SessionMemory* memory);
  // Whether the program is bound for these values to memory that has not moved since.
  bool BoundTo(const std::vector<int64_t>& values, const SessionMemory& memory) const {
    return bound_version_ == memory.version() && values == values_;
  }

  const module::Function& function() const { return function_; }
  // Whether the function is for these values: none of them differs from what it fixes.
  bool Fits(const std::vector<int64_t>& values) const;
  // How many variables it fixes.
  size_t num_fixed() const { return function_.at.size(); }
  const module::SizePlan& plan() const { return plan_; }
  const module::SizePlan::Place& PlaceOf(int64_t tensor) const {
    return plan_.tensors[static_cast<size_t>(tensor)];
  }
  const std::vector<int64_t>& values() const { return values_; }
  const ExecutionPlan& steps() const { return steps_; }
  const std::vector<BoundLaunch>& prepare() const { return prepare_; }
  const std::vector<BoundLaunch>& launches() const { return launches_; }
  // Null for tensors that the function has no use for, and for an arena that only a device uses.
  void* AddressOf(size_t tensor) const { return addresses_[tensor]; }
  // Whether all that prepare launches make is there. The session says so.
  bool prepared() const { return prepared_done_; }
  void set_prepared(bool done) { prepared_done_ = done; }
  // Whether prepare launches use the tensor.
  bool PrepareUses(int64_t tensor) const { return prepare_uses_.contains(tensor); }
  // Positions of the prepare launches that make prepared tensors which `made` lacks, and of those
  // whose results these use.
  std::set<size_t> PrepareLaunchesFor(const std::set<int64_t>& made) const;
  // Sizes that a run finds (found_vars.h). REQUIRES: the program is bound.
  bool finds_sizes() const { return !finds_.empty(); }
  // Before a run: nothing is found.
  void ForgetFound();
  // Whether a run finds the shape of the tensor.
  bool FindsShapeOf(int64_t tensor) const;
  // Behind a run: gives the outputs the shapes that it found.
  void ShrinkOutputs(SessionMemory* memory) const;
  // Behind a launch: takes the sizes that it found, for the launches that follow.
  // INVALID_ARGUMENT `runtime.session.found_size` for one that is out of its range,
  // `module.sizes.unequal`.
  absl::Status FindBehind(size_t launch);
  // Around each trip of loop `loop` of the function: before it nothing of it is found; behind it
  // the checks of what it made hold (errors as of CheckFoundSizes).
  void BeginTrip(size_t loop);
  absl::Status CheckTrip(size_t loop) const { return CheckThoseOf(static_cast<int>(loop)); }
  // The values with those that the last run found.
  const std::vector<int64_t>& found() const { return finds_.empty() ? values_ : found_; }
  // At the end of a run. INVALID_ARGUMENT `runtime.session.stated_shape` if the launches found
  // other sizes than Function::checks expects.
  absl::Status CheckFoundSizes() const { return CheckThoseOf(-1); }

 private:
  SessionProgram(const LoadedModule& module, const module::Function& function,
                 const DevicePart* part);
  const module::Tensor& TensorOf(int64_t id) const {
    return module_.manifest().tensors[static_cast<size_t>(id)];
  }
  bool UsesHostArena() const;
  std::vector<int64_t> NumbersOf(size_t check) const;
  void Forget(const module::FoundSize& find);
  absl::Status CheckThoseOf(int loop) const;  // -1: of no loop
  void PlaceTensors(const SessionMemory& memory);
  void* StateAddress(const module::Tensor& tensor, const SessionMemory& memory) const;
  void BindLaunches(const std::vector<module::Launch>& list,
                    const std::vector<module::SizePlan::Call>& calls, void* workspace,
                    std::vector<BoundLaunch>* bound) const;
  DLTensor DescribeTensor(int64_t id) const;

  const LoadedModule& module_;
  const module::Function& function_;
  const DevicePart* const part_;
  const module::SizePlanner planner_;
  const ExecutionPlan steps_;
  const bool uses_host_arena_;
  bool prepared_done_ = false;
  std::set<int64_t> prepare_uses_;
  std::vector<Buffer> checks_;  // what Function::checks look at
  const std::vector<int> loop_of_check_;
  const std::vector<module::FoundSize> finds_;
  std::vector<int64_t> found_;     // values_ with the sizes found
  std::set<std::string> missing_;  // those that the run has not found yet

  std::vector<int64_t> values_;  // that plan_ is for, if planned_
  bool planned_ = false;
  module::SizePlan plan_;
  uint64_t bound_version_ = 0;  // of the memory; 0: not bound
  std::vector<void*> addresses_;
  std::vector<BoundLaunch> prepare_;
  std::vector<BoundLaunch> launches_;
};

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_SESSION_PROGRAM_H_
