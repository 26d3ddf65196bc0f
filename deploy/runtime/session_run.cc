// A run of a session. Every pointer that a launch needs, and every copy between processor and
// device, is worked out when sizes are bound (once, if they are fixed); a run is a loop over steps.
#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "deploy/module/found_vars.h"
#include "deploy/module/loops_check.h"
#include "deploy/runtime/session_impl.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {

using module::Launch;
using module::Manifest;
using module::TensorKind;

absl::Status Session::Impl::Execute(const ExecutionStep& step,
                                    const std::vector<BoundLaunch>& list) {
  const auto tensor = static_cast<int64_t>(step.index);
  switch (step.kind) {
    case ExecutionStep::Kind::kHostLaunch:
      return CallKernel(list[step.index]);
    case ExecutionStep::Kind::kDeviceLaunch:
      return part->Launch(*list[step.index].launch);
    case ExecutionStep::Kind::kUpload:
      return part->Upload(tensor, active->AddressOf(step.index));
    case ExecutionStep::Kind::kDownload:
      return part->Download(tensor, active->AddressOf(step.index));
  }
  return absl::OkStatus();
}

// One step of a run, and the sizes that it finds. Modules with such sizes have no launches on a
// device.
absl::Status Session::Impl::Step(const ExecutionStep& step) {
  TW_TRY(Execute(step, active->launches()));
  const bool finds = active->finds_sizes() && step.kind == ExecutionStep::Kind::kHostLaunch;
  return finds ? active->FindBehind(step.index) : absl::OkStatus();
}

absl::Status Session::Impl::VisitSteps(size_t begin, size_t end, size_t loops, VisitStep visit) {
  const module::Function& function = active->function();
  for (size_t i = begin; i < end;) {
    const int loop =
        module::LoopAt(function, static_cast<int64_t>(i), static_cast<int64_t>(end), loops);
    if (loop < 0) {
      TW_TRY(visit(active->steps().run[i]));
      ++i;
      continue;
    }
    TW_TRY(RunLoop(static_cast<size_t>(loop), visit));
    i = static_cast<size_t>(function.loops[static_cast<size_t>(loop)].end);
  }
  return absl::OkStatus();
}

// All trips of a loop, or one more than there is room for: what counts them is wrong then, which a
// check of sizes tells with the node's name; else the end of the run does. Kernels write what
// becomes the next value next to the value, so that all values change at once.
absl::Status Session::Impl::RunLoop(size_t index, VisitStep visit) {
  const module::Loop& loop = active->function().loops[index];
  const auto at = [&](int64_t id) {
    return static_cast<char*>(active->AddressOf(static_cast<size_t>(id)));
  };
  const auto bytes = [&](int64_t id) { return static_cast<size_t>(active->PlaceOf(id).bytes); };
  const auto move = [&](char* to, int64_t from) { std::memmove(to, at(from), bytes(from)); };
  for (const module::Loop::Carried& carried : loop.carried) move(at(carried.value), carried.init);
  const auto stack_without_room = [&](size_t trip) -> int64_t {
    for (const module::Loop::Stacked& stacked : loop.stacked) {
      if ((trip + 1) * bytes(stacked.part) > bytes(stacked.whole)) return stacked.whole;
    }
    return -1;
  };
  const char* going = at(loop.carried[0].value);
  for (size_t trip = 0; *going != 0 && too_many_trips < 0; ++trip) {
    too_many_trips = stack_without_room(trip);
    active->BeginTrip(index);
    TW_TRY(
        VisitSteps(static_cast<size_t>(loop.first), static_cast<size_t>(loop.end), index, visit));
    if (too_many_trips < 0) TW_TRY(active->CheckTrip(index));
    for (const module::Loop::Stacked& stacked : loop.stacked) {
      if (too_many_trips >= 0) break;
      move(at(stacked.whole) + trip * bytes(stacked.part), stacked.part);
    }
    for (const module::Loop::Carried& carried : loop.carried) move(at(carried.value), carried.next);
  }
  return absl::OkStatus();
}

// Launches on the device that follow each other are queued together: they are the same in each run.
absl::Status Session::Impl::RunSteps() {
  const std::vector<ExecutionStep>& steps = active->steps().run;
  if (!active->function().loops.empty()) {
    return VisitSteps(0, steps.size(), active->function().loops.size(),
                      [this](const ExecutionStep& step) { return Step(step); });
  }
  constexpr auto kDevice = ExecutionStep::Kind::kDeviceLaunch;
  std::vector<const Launch*> together;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (steps[i].kind != kDevice) {
      TW_TRY(Step(steps[i]));
      continue;
    }
    together.push_back(active->launches()[steps[i].index].launch);
    if (i + 1 < steps.size() && steps[i + 1].kind == kDevice) continue;
    TW_TRY(part->LaunchAll(together));
    together.clear();
  }
  return absl::OkStatus();
}

namespace {

// The function gets descriptions of its own, which it may change.
int32_t CallLibrary(const BoundLaunch& bound) {
  std::vector<DLTensor> tensors = bound.tensors;
  const auto outputs = static_cast<int32_t>(bound.launch->num_outputs);
  const int32_t inputs = static_cast<int32_t>(tensors.size()) - outputs;
  return bound.external.function(tensors.data(), inputs, tensors.data() + inputs, outputs,
                                 bound.external.attributes);
}

}  // namespace

absl::Status Session::Impl::CallKernel(const BoundLaunch& bound) {
  const bool external = bound.external.function != nullptr;
  const int32_t result =
      external ? CallLibrary(bound)
               : bound.kernel(&context, bound.buffers.data(), bound.sizes, bound.workspace);
  if (result == TW_OK) return absl::OkStatus();
  return support::Internal(external ? "runtime.run.library_failed" : "runtime.run.kernel_failed",
                           bound.launch->symbol + " returned " + std::to_string(result));
}

absl::Status Session::Impl::Prepare() {
  if (pool.lost_threads()) {
    return support::FailedPrecondition(
        "runtime.session.forked",
        "the session was made before fork(), so its threads are in the parent process; make a "
        "session in this process");
  }
  TW_TRY(BindSizes());
  TW_TRY(SealInputs());
  if (active->prepared()) return absl::OkStatus();
  TW_TRY(PrepareLaunches());
  if (part != nullptr) TW_TRY(part->Synchronize());
  active->set_prepared(true);
  return absl::OkStatus();
}

// Where functions share prepared tensors, those that another one has made are left as they are.
absl::Status Session::Impl::PrepareLaunches() {
  const bool shared = programs.size() > 1;
  std::set<size_t> needed;
  if (shared) needed = active->PrepareLaunchesFor(made);
  for (const ExecutionStep& step : active->steps().prepare) {
    if (shared && !needed.contains(step.index)) continue;
    TW_TRY(Execute(step, active->prepare()));
  }
  for (const Launch& launch : active->function().prepare) {
    for (const int64_t id : launch.args) {
      if (TensorOf(id).kind == TensorKind::kPrepared) made.insert(id);
    }
  }
  return absl::OkStatus();
}

void Session::Impl::BeginRun() {
  active->ForgetFound();
  too_many_trips = -1;
}

absl::Status Session::Impl::Run() {
  TW_TRY(poisoned);
  TW_TRY(Prepare());
  BeginRun();
  TW_TRY(RunSteps());
  return EndRun();
}

void* Session::Impl::WritableInput(size_t index) {
  if (active->PrepareUses(active->function().inputs[index])) active->set_prepared(false);
  if (sealed) {
    sealed = false;
    for (SessionEnd& input : memory.inputs) {
      const absl::Status writable = input.buffer.SetReadOnly(false);
      TW_CHECK(writable.ok()) << support::StatusText(writable);
    }
  }
  return memory.inputs[index].buffer.data();
}

// A run has succeeded: its entries belong to the state.
absl::Status Session::Impl::EndRun() {
  TW_TRY(active->CheckFoundSizes());
  if (too_many_trips >= 0) {
    return support::InvalidArgument(
        "runtime.session.trips",
        support::StrCat("expected at most ", active->PlaceOf(too_many_trips).shape[0],
                        " trips of the loop that makes '", TensorOf(too_many_trips).name,
                        "', the inputs make more; there is no result for these inputs"));
  }
  if (active->finds_sizes()) active->ShrinkOutputs(&memory);
  const Manifest& manifest = module->manifest();
  if (!manifest.state) return absl::OkStatus();
  TW_ASSIGN(entries, manifest.state->next.Evaluate(module::SizesOf(manifest, values)));
  kept = values;
  reshaped = true;
  return absl::OkStatus();
}

}  // namespace tilewright::runtime
