// A run of a session. Every pointer that a launch needs, and every copy between processor and
// device, is worked out when sizes are bound (once, if they are fixed); a run is a loop over steps.
#include <algorithm>
#include <cstring>
#include <set>
#include <span>
#include <vector>

#include "deploy/runtime/session_impl.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {

using module::Launch;
using module::Manifest;
using module::TensorKind;

absl::Status Session::Impl::Execute(const ExecutionStep& step,
                                    const std::vector<BoundLaunch>& list) {
  switch (step.kind) {
    case ExecutionStep::Kind::kHostLaunch:
      return CallKernel(list[step.index]);
    case ExecutionStep::Kind::kDeviceLaunch:
      return part->Launch(*list[step.index].launch);
    case ExecutionStep::Kind::kUpload:
    case ExecutionStep::Kind::kDownload:
      return Transfer(static_cast<int64_t>(step.index), step.kind == ExecutionStep::Kind::kUpload);
    case ExecutionStep::Kind::kFind:
      return active->FindBehind(step.index);
    case ExecutionStep::Kind::kLoop:
      break;  // VisitSteps
  }
  return absl::OkStatus();
}

// At the size that the tensor has now.
absl::Status Session::Impl::Transfer(int64_t tensor, bool upload) {
  void* const data = active->AddressOf(static_cast<size_t>(tensor));
  const int64_t bytes = active->PlaceOf(tensor).bytes;
  if (bytes == 0) return absl::OkStatus();
  if (bytes > TensorOf(tensor).bytes) {
    return support::ResourceExhausted(
        "runtime.session.too_large",
        support::StrCat("expected at most ", TensorOf(tensor).bytes, " bytes on the device for '",
                        TensorOf(tensor).name, "', found ", bytes));
  }
  return upload ? part->Upload(tensor, data, bytes) : part->Download(tensor, data, bytes);
}

absl::Status Session::Impl::VisitSteps(size_t begin, size_t end, VisitStep visit) {
  using Kind = ExecutionStep::Kind;
  const std::vector<ExecutionStep>& steps = active->steps().run;
  for (size_t i = begin; i < end;) {
    if (steps[i].kind == Kind::kLoop) {
      TW_TRY(RunLoop(steps[i].index, i + 1, visit));
      i = active->steps().loops[steps[i].index].end;
      continue;
    }
    size_t behind = i + 1;
    while (steps[i].kind == Kind::kDeviceLaunch && behind < end &&
           steps[behind].kind == Kind::kDeviceLaunch) {
      ++behind;
    }
    TW_TRY(visit(std::span(steps).subspan(i, behind - i)));
    i = behind;
  }
  return absl::OkStatus();
}

// All trips of a loop, or one more than there is room for: what counts them is wrong then, which a
// check of sizes tells with the node's name; else the end of the run does. Kernels write what
// becomes the next value next to the value, so that all values change at once.
absl::Status Session::Impl::RunLoop(size_t index, size_t first_step, VisitStep visit) {
  const module::Loop& loop = active->function().loops[index];
  const ExecutionPlan::Loop& planned = active->steps().loops[index];
  const auto at = [&](int64_t id) {
    return static_cast<char*>(active->AddressOf(static_cast<size_t>(id)));
  };
  const auto bytes = [&](int64_t id) { return static_cast<size_t>(active->PlaceOf(id).bytes); };
  const auto move = [&](char* to, int64_t from) { std::memmove(to, at(from), bytes(from)); };
  const auto give = [&](size_t carried, int64_t from) -> absl::Status {
    const int64_t value = loop.carried[carried].value;
    if (planned.on_device[carried]) return part->Copy(from, value);
    move(at(value), from);
    return absl::OkStatus();
  };
  for (size_t c = 0; c < loop.carried.size(); ++c) TW_TRY(give(c, loop.carried[c].init));
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
    TW_TRY(VisitSteps(first_step, planned.end, visit));
    if (too_many_trips < 0) TW_TRY(active->CheckTrip(index));
    for (const module::Loop::Stacked& stacked : loop.stacked) {
      if (too_many_trips >= 0) break;
      move(at(stacked.whole) + trip * bytes(stacked.part), stacked.part);
    }
    for (size_t c = 0; c < loop.carried.size(); ++c) TW_TRY(give(c, loop.carried[c].next));
  }
  return absl::OkStatus();
}

// Launches on the device that follow each other are queued together: they are the same in each run.
absl::Status Session::Impl::RunSteps() {
  std::vector<const Launch*> together;
  const auto run = [&](std::span<const ExecutionStep> steps) -> absl::Status {
    if (steps[0].kind != ExecutionStep::Kind::kDeviceLaunch)
      return Execute(steps[0], active->launches());
    together.clear();
    for (const ExecutionStep& step : steps)
      together.push_back(active->launches()[step.index].launch);
    return part->LaunchAll(together);
  };
  return VisitSteps(0, active->steps().run.size(), run);
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
    const bool launch = step.kind == ExecutionStep::Kind::kHostLaunch ||
                        step.kind == ExecutionStep::Kind::kDeviceLaunch;
    // A copy again of what is there changes nothing.
    if (launch && shared && !needed.contains(step.index)) continue;
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
