// What a session has, for its own sources: session.cc (what callers use), session_sizes.cc
// (programs and sizes), session_run.cc (a run). The gate is taken by what callers use.
#pragma once

#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "deploy/module/manifest.h"
#include "deploy/runtime/device_part.h"
#include "deploy/runtime/open_device.h"
#include "deploy/runtime/runtime.h"
#include "deploy/runtime/session_gate.h"
#include "deploy/runtime/session_memory.h"
#include "deploy/runtime/session_program.h"
#include "deploy/runtime/size_binding.h"
#include "deploy/runtime/thread_pool.h"
#include "deploy/support/clock.h"

namespace tilewright::runtime {

struct Session::Impl {
  Impl(std::shared_ptr<const LoadedModule> m, const module::Function& f,
       const SessionOptions& options);

  absl::Status OpenDevicePart(const module::Function& function, const SessionOptions& options);
  std::vector<const module::Function*> FunctionsOf(const module::Function& function) const;
  absl::Status AddPrograms(const module::Function& function, bool guard);
  absl::Status BindFirst();
  void FindCold();

  SessionProgram* ProgramFor(const std::vector<int64_t>& values) const;
  absl::Status Activate(const std::vector<int64_t>& values);
  absl::StatusOr<std::vector<int64_t>> BindValues(std::span<const Shape> shapes) const;
  absl::Status BindSizes();
  absl::Status AllocateState();
  void BeginRun();
  absl::Status EndRun();
  absl::Status ReshapeInput(size_t index, std::span<const int64_t> shape);
  absl::Status SealInputs();
  absl::Status PoisonDevice(uint8_t byte);
  void* WritableInput(size_t index);
  absl::Status CallKernel(const BoundLaunch& bound);
  absl::Status Execute(const ExecutionStep& step, const std::vector<BoundLaunch>& list);
  absl::Status Transfer(int64_t tensor, bool upload);
  absl::Status RunSteps();
  // Visits the steps [begin, end) of a run, each as often as loops run it: one, or launches on the
  // device that follow each other.
  using VisitStep = absl::FunctionRef<absl::Status(std::span<const ExecutionStep>)>;
  absl::Status VisitSteps(size_t begin, size_t end, VisitStep visit);
  absl::Status RunLoop(size_t index, size_t first_step, VisitStep visit);
  absl::Status PrepareLaunches();
  absl::Status Prepare();
  absl::Status Run();
  absl::Status CheckInputs(std::span<const DLTensor* const> given);
  absl::Status CheckOutputs(std::span<const DLTensor* const> inputs,
                            std::span<const DLTensor* const> given);
  TensorView ViewOf(const SessionEnd& end) const {
    return {end.tensor, end.buffer.data(), end.bytes, end.shape};
  }
  const module::Tensor& TensorOf(int64_t id) const {
    return module->manifest().tensors[static_cast<size_t>(id)];
  }

  std::shared_ptr<const LoadedModule> module;
  support::SystemClock system_clock;
  support::Clock* const clock;
  ThreadPool pool;
  TwContext context{};
  const SizeBinding binding;
  SessionMemory memory;
  OpenDevice device;
  std::unique_ptr<DevicePart> part;  // null: everything runs on the processor
  // The function that was asked for, then its specialisations.
  std::vector<std::unique_ptr<SessionProgram>> programs;
  SessionProgram* active = nullptr;                  // the one of the last sizes that were bound
  bool reshaped = false;                             // other sizes may be due since
  int64_t too_many_trips = -1;                       // of the last run: a stack without room
  int64_t entries = 0;                               // of the state
  std::vector<int64_t> kept;                         // sizes of the run that made the last entries
  std::vector<int64_t> values;                       // of the active program
  std::set<int64_t> made;                            // prepared tensors
  absl::Status poisoned = absl::OkStatus();          // what Poison could not do
  std::vector<std::pair<const char*, size_t>> cold;  // pieces of what leaves the caches
  std::vector<TwLaunchTime> times;                   // by launch, of the last profiled run
  bool sealed = false;                               // guarded inputs are read-only
  SessionGate gate;                                  // who may use all of this
};

}  // namespace tilewright::runtime
