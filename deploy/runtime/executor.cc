// Session: the executor of memory-planned functions, on the processor and on a device. Every
// pointer that a launch needs, and every copy between the two, is worked out when sizes are bound
// (once, if they are fixed); a run is a loop over steps.
#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "deploy/module/found_vars.h"
#include "deploy/module/size_plan.h"
#include "deploy/runtime/cache_evict.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/runtime/device_part.h"
#include "deploy/runtime/dl_tensor.h"
#include "deploy/runtime/open_device.h"
#include "deploy/runtime/runtime.h"
#include "deploy/runtime/session_gate.h"
#include "deploy/runtime/session_memory.h"
#include "deploy/runtime/session_program.h"
#include "deploy/runtime/size_binding.h"
#include "deploy/runtime/thread_pool.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {
namespace {

constexpr size_t kFarPieceBytes = 64 << 10;

using module::Function;
using module::Launch;
using module::Manifest;
using module::Tensor;
using module::TensorKind;

std::string IndexText(size_t index, size_t count) {
  return "expected less than " + std::to_string(count) + ", found " + std::to_string(index);
}

int32_t ContextParallelFor(TwContext* ctx, TwTaskBody body, void* closure, int64_t num_tasks) {
  return static_cast<ThreadPool*>(ctx->opaque)->ParallelFor(body, closure, num_tasks);
}

}  // namespace

struct Session::Impl {
  Impl(std::shared_ptr<const LoadedModule> m, const Function& f, const SessionOptions& options)
      : module(std::move(m)),
        pool(std::clamp(options.num_threads, 1, UsableCores()),
             options.pin_threads ? Placement::kPinned : Placement::kSpread),
        binding(module->manifest(), f),
        memory(options.memory_limit_bytes, options.guard_pages) {
    context.abi_version = TW_ABI_VERSION;
    context.num_threads = pool.num_threads();
    context.opaque = &pool;
    context.parallel_for = ContextParallelFor;
  }

  absl::Status OpenDevicePart(const Function& function, const SessionOptions& options);
  absl::Status AddPrograms(const Function& function, bool guard);
  absl::Status BindFirst();
  void FindFar();

  SessionProgram* ProgramFor(const std::vector<int64_t>& values) const;
  absl::Status Activate(const std::vector<int64_t>& values);
  absl::StatusOr<std::vector<int64_t>> BindValues(std::span<const Shape> shapes) const;
  absl::Status BindSizes();
  absl::Status AllocateState();
  absl::Status EndRun();
  absl::Status ReshapeInput(size_t index, std::span<const int64_t> shape);
  absl::Status SealInputs();
  absl::Status PoisonDevice(uint8_t byte);
  void* WritableInput(size_t index);
  absl::Status CallKernel(const BoundLaunch& bound);
  absl::Status Execute(const ExecutionStep& step, const std::vector<BoundLaunch>& list);
  absl::Status Step(const ExecutionStep& step);
  absl::Status RunSteps();
  absl::Status PrepareLaunches();
  absl::Status Prepare();
  absl::Status Run();
  absl::Status CheckInputs(std::span<const DLTensor* const> given);
  absl::Status CheckOutputs(std::span<const DLTensor* const> inputs,
                            std::span<const DLTensor* const> given);
  TensorView ViewOf(const SessionEnd& end) const {
    return {end.tensor, end.buffer.data(), end.bytes, end.shape};
  }
  const Tensor& TensorOf(int64_t id) const {
    return module->manifest().tensors[static_cast<size_t>(id)];
  }

  std::shared_ptr<const LoadedModule> module;
  ThreadPool pool;
  TwContext context{};
  const SizeBinding binding;
  SessionMemory memory;
  OpenDevice device;
  std::unique_ptr<DevicePart> part;  // null: everything runs on the processor
  // The function that was asked for, then its specialisations.
  std::vector<std::unique_ptr<SessionProgram>> programs;
  SessionProgram* active = nullptr;                 // the one of the last sizes that were bound
  bool reshaped = false;                            // other sizes may be due since
  int64_t entries = 0;                              // of the state
  std::vector<int64_t> kept;                        // sizes of the run that made the last entries
  std::vector<int64_t> values;                      // of the active program
  std::set<int64_t> made;                           // prepared tensors
  absl::Status poisoned = absl::OkStatus();         // what Poison could not do
  std::vector<std::pair<const char*, size_t>> far;  // pieces of what leaves the caches
  std::vector<TwLaunchTime> times;                  // by launch, of the last profiled run
  bool sealed = false;                              // guarded inputs are read-only
  SessionGate gate;                                 // who may use all of this
};

absl::Status Session::Impl::OpenDevicePart(const Function& function,
                                           const SessionOptions& options) {
  const TwDevicePlugin* plugin = module->device_plugin();
  if (plugin == nullptr) return absl::OkStatus();
  TW_TRY(device.Open(plugin, options.device));
  TW_ASSIGN(part, DevicePart::Create(module->file(), function, *plugin, device.get(),
                                     {.kind = plugin->kind,
                                      .guard_bytes = 0,
                                      .code_cache = options.code_cache,
                                      .launch_graphs = LaunchGraphsWanted()}));
  return absl::OkStatus();
}

absl::Status Session::Impl::AddPrograms(const Function& function, bool guard) {
  const auto add = [&](const Function& f) -> absl::Status {
    TW_ASSIGN(std::unique_ptr<SessionProgram> program,
              SessionProgram::Create(*module, f, part.get(), guard));
    programs.push_back(std::move(program));
    return absl::OkStatus();
  };
  TW_TRY(add(function));
  if (function.name != "main") return absl::OkStatus();
  for (const Function& f : module->manifest().functions) {
    if (!f.at.empty()) TW_TRY(add(f));
  }
  return absl::OkStatus();
}

// The smallest sizes, so that inputs and outputs have memory from the start.
absl::Status Session::Impl::BindFirst() {
  const Manifest& manifest = module->manifest();
  SessionProgram& first = *programs.front();
  const Function& function = first.function();
  std::vector<int64_t> least = module::MinimaOf(manifest, function.at);
  for (const module::FoundSize& find : module::FoundSizes(manifest, function)) {
    least[find.variable] = manifest.size_vars[find.variable].max;
  }
  TW_TRY(first.Plan(least));
  for (const int64_t id : function.inputs) {
    SessionEnd& input = memory.inputs.emplace_back();
    input.tensor = &TensorOf(id);
    TW_TRY(memory.Reshape(&input, first.PlaceOf(id).shape, first.PlaceOf(id).bytes));
  }
  for (const int64_t id : function.outputs) memory.outputs.emplace_back().tensor = &TensorOf(id);
  if (manifest.open_sizes()) TW_TRY(memory.AllocatePrepared(module::PreparedBytes(manifest)));
  TW_TRY(AllocateState());
  TW_TRY(Activate(first.values()));
  // The smallest sizes may be none that the module runs at: then the first run looks at them.
  reshaped =
      !module::CheckEqualSizes(manifest, first.values(), module::FoundVariables(manifest)).ok();
  return absl::OkStatus();
}

// The one that fixes most variables of those that fit; the first of equals.
SessionProgram* Session::Impl::ProgramFor(const std::vector<int64_t>& sizes) const {
  SessionProgram* best = programs.front().get();
  for (const auto& program : programs) {
    if (program->num_fixed() > best->num_fixed() && program->Fits(sizes)) best = program.get();
  }
  return best;
}

absl::Status Session::Impl::Activate(const std::vector<int64_t>& sizes) {
  SessionProgram* program = ProgramFor(sizes);
  if (program->BoundTo(sizes, memory)) {
    // Another program may have left the outputs with other shapes in the same memory.
    TW_TRY(program->ShapeOutputs(&memory));
  } else {
    TW_TRY(program->Plan(sizes));
    TW_TRY(program->Bind(&memory));
  }
  active = program;
  values = sizes;
  reshaped = false;
  return absl::OkStatus();
}

absl::Status Session::Impl::BindSizes() {
  if (!reshaped && active->BoundTo(values, memory)) return absl::OkStatus();
  std::vector<Shape> shapes;
  for (const SessionEnd& input : memory.inputs) shapes.push_back(input.shape);
  TW_ASSIGN(const std::vector<int64_t> sizes, BindValues(shapes));
  return Activate(sizes);
}

// Whole lists from the start: pages that no entry has touched cost nothing.
absl::Status Session::Impl::AllocateState() {
  for (const Tensor& tensor : module->manifest().tensors) {
    if (!tensor.is_own_list()) continue;
    TW_TRY(memory.AllocateState(tensor.id, module::StateBytes(module->manifest(), tensor)));
  }
  return absl::OkStatus();
}

// The values of the size variables for a run behind the entries that are there.
absl::StatusOr<std::vector<int64_t>> Session::Impl::BindValues(
    std::span<const Shape> shapes) const {
  TW_ASSIGN(std::vector<int64_t> sizes, binding.Bind(shapes, entries));
  const Manifest& manifest = module->manifest();
  if (!manifest.state) return sizes;
  const module::SizeVar& length = manifest.size_vars[static_cast<size_t>(manifest.StateVariable())];
  TW_ASSIGN(const int64_t next, manifest.state->next.Evaluate(module::SizesOf(manifest, sizes)));
  if (next < entries || next > length.max) {
    return support::ResourceExhausted(
        "runtime.session.state_full",
        support::StrCat("expected at most ", length.max, " entries in the state, found ", entries,
                        " and ", next - entries, " new ones; reset the state"));
  }
  if (entries == 0) return sizes;
  for (const Tensor& tensor : manifest.tensors) {
    if (!tensor.is_own_list()) continue;
    for (size_t d = 1; d < tensor.shape.size(); ++d) {
      for (size_t v = 0; v < sizes.size(); ++v) {
        const std::string& name = manifest.size_vars[v].name;
        if (sizes[v] == kept[v] || !tensor.shape[d].variables().contains(name)) continue;
        return support::InvalidArgument(
            "runtime.session.state_sizes",
            support::StrCat("expected ", name, "=", kept[v], " as in the state, found ", sizes[v],
                            "; reset the state"));
      }
    }
  }
  return sizes;
}

// A run has succeeded: its entries belong to the state.
absl::Status Session::Impl::EndRun() {
  TW_TRY(active->CheckFoundSizes());
  if (active->finds_sizes()) active->ShrinkOutputs(&memory);
  const Manifest& manifest = module->manifest();
  if (!manifest.state) return absl::OkStatus();
  TW_ASSIGN(entries, manifest.state->next.Evaluate(module::SizesOf(manifest, values)));
  kept = values;
  reshaped = true;
  return absl::OkStatus();
}

// REQUIRES: the binding accepts the shape.
absl::Status Session::Impl::ReshapeInput(size_t index, std::span<const int64_t> shape) {
  SessionEnd& input = memory.inputs[index];
  if (std::ranges::equal(input.shape, shape)) return absl::OkStatus();
  int64_t bytes = module::DTypeBytes(input.tensor->dtype);
  for (const int64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) {
      return support::ResourceExhausted("runtime.session.too_large",
                                        "input '" + input.tensor->name + "'");
    }
  }
  (void)WritableInput(index);
  TW_TRY(memory.Reshape(&input, shape, bytes));
  reshaped = true;
  return absl::OkStatus();
}

// What launches read of far inputs, and of what prepare launches made (of weights, hence far too),
// in pieces that threads share.
void Session::Impl::FindFar() {
  const Manifest& manifest = module->manifest();
  if (!manifest.measurement.has_value() || part != nullptr) return;
  std::set<int64_t> inputs_far;
  for (const module::InputSpec& input : manifest.measurement->inputs) {
    if (input.far) inputs_far.insert(input.tensor);
  }
  if (inputs_far.empty()) return;
  std::set<int64_t> read;
  for (const Launch& launch : active->function().launches) {
    read.insert(launch.args.begin(), launch.args.end());
  }
  for (const int64_t id : read) {
    if (TensorOf(id).kind != TensorKind::kPrepared && !inputs_far.contains(id)) continue;
    const auto* begin = static_cast<const char*>(active->AddressOf(static_cast<size_t>(id)));
    const auto bytes = static_cast<size_t>(TensorOf(id).bytes);
    for (size_t at = 0; begin != nullptr && at < bytes; at += kFarPieceBytes) {
      far.emplace_back(begin + at, std::min(kFarPieceBytes, bytes - at));
    }
  }
}

absl::Status Session::Impl::PoisonDevice(uint8_t byte) {
  for (const Tensor& tensor : module->manifest().tensors) {
    const bool own = tensor.kind == TensorKind::kOutput || tensor.kind == TensorKind::kIntermediate;
    if (own && part->Has(tensor.id)) TW_TRY(part->Fill(tensor.id, byte));
  }
  return part->FillWorkspace(byte);
}

absl::Status Session::Impl::SealInputs() {
  if (sealed) return absl::OkStatus();
  for (SessionEnd& input : memory.inputs) TW_TRY(input.buffer.SetReadOnly(true));
  sealed = true;
  return absl::OkStatus();
}

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

// Launches on the device that follow each other are queued together: they are the same in each run.
absl::Status Session::Impl::RunSteps() {
  const std::vector<ExecutionStep>& steps = active->steps().run;
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
  const int32_t result =
      bound.external.function != nullptr
          ? CallLibrary(bound)
          : bound.kernel(&context, bound.buffers.data(), bound.sizes, bound.workspace);
  if (result == TW_OK) return absl::OkStatus();
  return support::Internal("runtime.run.kernel_failed",
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

absl::Status Session::Impl::Run() {
  TW_TRY(poisoned);
  TW_TRY(Prepare());
  active->ForgetFound();
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

namespace {

absl::Status CheckCount(size_t given, size_t expected, std::string_view role) {
  if (given == expected) return absl::OkStatus();
  return support::InvalidArgument("runtime.session.call_tensors",
                                  "expected " + std::to_string(expected) + " " + std::string(role) +
                                      "s, found " + std::to_string(given));
}

}  // namespace

// The inputs of a call, each on its own.
absl::Status Session::Impl::CheckInputs(std::span<const DLTensor* const> given) {
  TW_TRY(CheckCount(given.size(), memory.inputs.size(), "input"));
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] == nullptr) continue;
    TW_TRY(CheckDlTensor(*given[i], *memory.inputs[i].tensor, "input"));
    TW_TRY(binding.CheckInput(i, ShapeOf(*given[i])));
  }
  return absl::OkStatus();
}

// The outputs of a call against the shapes that its inputs make.
absl::Status Session::Impl::CheckOutputs(std::span<const DLTensor* const> inputs,
                                         std::span<const DLTensor* const> given) {
  TW_TRY(CheckCount(given.size(), memory.outputs.size(), "output"));
  bool changed = reshaped;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr) continue;
    changed = changed || !std::ranges::equal(memory.inputs[i].shape, ShapeOf(*inputs[i]));
  }
  const SessionProgram* program = active;
  if (changed) {
    std::vector<Shape> shapes;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto own = std::span<const int64_t>(memory.inputs[i].shape);
      const std::span<const int64_t> shape = inputs[i] == nullptr ? own : ShapeOf(*inputs[i]);
      shapes.emplace_back(shape.begin(), shape.end());
    }
    TW_ASSIGN(const std::vector<int64_t> sizes, BindValues(shapes));
    SessionProgram* next = ProgramFor(sizes);
    TW_TRY(next->Plan(sizes));
    program = next;
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] == nullptr) continue;
    const Tensor& tensor = *memory.outputs[i].tensor;
    TW_TRY(CheckDlTensor(*given[i], tensor, "output"));
    if (program->FindsShapeOf(program->function().outputs[i])) continue;
    TW_TRY(CheckDlShape(*given[i], program->PlaceOf(program->function().outputs[i]).shape,
                        "output '" + tensor.name + "'"));
  }
  return absl::OkStatus();
}

absl::Status BoundTensors::SetInputShape(size_t index, std::span<const int64_t> shape) {
  const TensorView view = input(index);
  if (std::ranges::equal(view.shape, shape)) return absl::OkStatus();
  return support::InvalidArgument("runtime.c_api.shape",
                                  "input '" + view.tensor->name + "': expected " +
                                      ExtentsText(view.shape) + ", found " + ExtentsText(shape));
}

Session::Session(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Session::~Session() { impl_->gate.Close(); }

absl::StatusOr<std::unique_ptr<Session>> Session::Create(std::shared_ptr<const LoadedModule> module,
                                                         const SessionOptions& options) {
  const Function* function = module->manifest().FindFunction(options.function);
  if (function == nullptr) {
    return support::InvalidArgument("runtime.session.function",
                                    "the module has no function '" + options.function + "'");
  }
  auto impl = std::make_unique<Impl>(std::move(module), *function, options);
  TW_TRY(impl->OpenDevicePart(*function, options));
  TW_TRY(impl->AddPrograms(*function, options.guard_pages));
  TW_TRY(impl->BindFirst());
  impl->FindFar();
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

const LoadedModule& Session::module() const { return *impl_->module; }
const Function& Session::function() const { return impl_->active->function(); }
int Session::num_threads() const { return impl_->context.num_threads; }
size_t Session::num_inputs() const { return impl_->memory.inputs.size(); }
size_t Session::num_outputs() const { return impl_->memory.outputs.size(); }

module::Sizes Session::sizes() const {
  module::Sizes sizes;
  const std::vector<module::SizeVar>& vars = module().manifest().size_vars;
  for (size_t v = 0; v < vars.size(); ++v) sizes[vars[v].name] = impl_->active->found()[v];
  return sizes;
}

TensorView Session::input(size_t index) const {
  TW_CHECK(index < num_inputs()) << "input " << index;
  return impl_->ViewOf(impl_->memory.inputs[index]);
}

TensorView Session::output(size_t index) const {
  TW_CHECK(index < num_outputs()) << "output " << index;
  return impl_->ViewOf(impl_->memory.outputs[index]);
}

absl::Status Session::SetInputShape(size_t index, std::span<const int64_t> shape) {
  const SessionTurn turn(impl_->gate, Overlap::kRefuse);
  TW_TRY(turn.status());
  if (index >= num_inputs()) {
    return support::InvalidArgument("runtime.session.input_index", IndexText(index, num_inputs()));
  }
  TW_TRY(impl_->binding.CheckInput(index, shape));
  return impl_->ReshapeInput(index, shape);
}

absl::Status Session::BindSizes() {
  const SessionTurn turn(impl_->gate, Overlap::kRefuse);
  TW_TRY(turn.status());
  return impl_->BindSizes();
}

void* Session::MutableInput(size_t index) {
  TW_CHECK(index < num_inputs()) << "input " << index;
  return impl_->WritableInput(index);
}

absl::Status Session::SetInput(size_t index, const void* data, size_t bytes) {
  const SessionTurn turn(impl_->gate, Overlap::kRefuse);
  TW_TRY(turn.status());
  if (index >= num_inputs()) {
    return support::InvalidArgument("runtime.session.input_index", IndexText(index, num_inputs()));
  }
  const TensorView view = input(index);
  if (bytes != view.bytes || (data == nullptr && bytes > 0)) {
    return support::InvalidArgument("runtime.session.input_bytes",
                                    "input '" + view.tensor->name + "': expected " +
                                        std::to_string(view.bytes) + " bytes, found " +
                                        std::to_string(data == nullptr ? 0 : bytes));
  }
  void* destination = impl_->WritableInput(index);
  if (bytes > 0) std::memcpy(destination, data, bytes);
  return absl::OkStatus();
}

absl::Status Session::SetInput(size_t index, const DLTensor& tensor) {
  const SessionTurn turn(impl_->gate, Overlap::kRefuse);
  TW_TRY(turn.status());
  if (index >= num_inputs()) {
    return support::InvalidArgument("runtime.session.input_index", IndexText(index, num_inputs()));
  }
  TW_TRY(CheckDlTensor(tensor, *impl_->memory.inputs[index].tensor, "input"));
  TW_TRY(impl_->binding.CheckInput(index, ShapeOf(tensor)));
  TW_TRY(impl_->ReshapeInput(index, ShapeOf(tensor)));
  CopyFromDlTensor(tensor, impl_->WritableInput(index));
  return absl::OkStatus();
}

absl::Status Session::Prepare() {
  const SessionTurn turn(impl_->gate, Overlap::kRefuse);
  TW_TRY(turn.status());
  return impl_->Prepare();
}

absl::Status Session::Run() {
  const SessionTurn turn(impl_->gate, Overlap::kRefuse);
  TW_TRY(turn.status());
  return impl_->Run();
}

absl::Status Session::RunProfiled(std::span<const TwLaunchTime>* times) {
  const SessionTurn turn(impl_->gate, Overlap::kRefuse);
  TW_TRY(turn.status());
  TW_TRY(impl_->Prepare());
  impl_->times.clear();
  for (const Launch& launch : impl_->active->function().launches) {
    impl_->times.push_back({launch.symbol.c_str(), launch.name.c_str(), 0});
  }
  impl_->active->ForgetFound();
  support::SystemClock clock;
  for (const ExecutionStep& step : impl_->active->steps().run) {
    const bool on_device = step.kind == ExecutionStep::Kind::kDeviceLaunch;
    const int64_t start = clock.NowNs();
    TW_TRY(impl_->Step(step));
    if (on_device) TW_TRY(impl_->part->Synchronize());
    if (on_device || step.kind == ExecutionStep::Kind::kHostLaunch)
      impl_->times[step.index].ns = clock.NowNs() - start;
  }
  TW_TRY(impl_->EndRun());
  *times = impl_->times;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<LaunchTrace>> Session::RunTraced() {
  const SessionTurn turn(impl_->gate, Overlap::kRefuse);
  TW_TRY(turn.status());
  TW_TRY(impl_->Prepare());
  std::vector<LaunchTrace> traces;
  const std::vector<BoundLaunch>& list = impl_->active->launches();
  impl_->active->ForgetFound();
  for (const ExecutionStep& step : impl_->active->steps().run) {
    if (step.kind != ExecutionStep::Kind::kDeviceLaunch) {
      TW_TRY(impl_->Step(step));
      continue;
    }
    TW_ASSIGN(LaunchTrace trace, impl_->part->Trace(*list[step.index].launch));
    trace.launch = step.index;
    traces.push_back(std::move(trace));
  }
  TW_TRY(impl_->EndRun());
  if (!traces.empty()) return traces;
  return support::Unimplemented("runtime.device.no_trace",
                                "expected launches on a device, found none");
}

absl::Status Session::GetOutput(size_t index, DLTensor* out) {
  const SessionTurn turn(impl_->gate, Overlap::kRefuse);
  TW_TRY(turn.status());
  if (index >= num_outputs()) {
    return support::InvalidArgument("runtime.session.output_index",
                                    IndexText(index, num_outputs()));
  }
  SessionEnd& output = impl_->memory.outputs[index];
  *out = {};
  out->data = output.buffer.data();
  out->device = {kDLCPU, 0};
  out->ndim = static_cast<int32_t>(output.shape.size());
  out->dtype = ToDlType(output.tensor->dtype);
  out->shape = output.shape.data();
  return absl::OkStatus();
}

absl::Status Session::Call(std::span<const DLTensor* const> inputs,
                           std::span<const DLTensor* const> outputs) {
  const SessionTurn turn(impl_->gate, Overlap::kWait);
  TW_TRY(turn.status());
  TW_TRY(impl_->CheckInputs(inputs));
  TW_TRY(impl_->CheckOutputs(inputs, outputs));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == nullptr) continue;
    TW_TRY(impl_->ReshapeInput(i, ShapeOf(*inputs[i])));
    CopyFromDlTensor(*inputs[i], impl_->WritableInput(i));
  }
  TW_TRY(impl_->Run());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] == nullptr) continue;
    const SessionEnd& made = impl_->memory.outputs[i];
    TW_TRY(CheckDlShape(*outputs[i], made.shape, "output '" + made.tensor->name + "'"));
    CopyToDlTensor(made.buffer.data(), *outputs[i]);
  }
  return absl::OkStatus();
}

int64_t Session::state_length() const { return impl_->entries; }

absl::Status Session::ResetState(int64_t length) {
  const SessionTurn turn(impl_->gate, Overlap::kRefuse);
  TW_TRY(turn.status());
  if (length < 0 || length > impl_->entries) {
    return support::InvalidArgument(
        "runtime.session.state_length",
        support::StrCat("expected 0 to ", impl_->entries, " entries, found ", length));
  }
  impl_->reshaped = impl_->reshaped || length != impl_->entries;
  impl_->entries = length;
  return absl::OkStatus();
}

bool Session::has_far() const { return !impl_->far.empty(); }

// By all threads, which are then awake as they are between two kernels.
void Session::EvictFar() {
  const auto evict = [](void* closure, int64_t piece) -> int32_t {
    const auto& [data, bytes] = static_cast<Impl*>(closure)->far[static_cast<size_t>(piece)];
    EvictFromCaches(data, bytes);
    return TW_OK;
  };
  (void)impl_->pool.ParallelFor(evict, impl_.get(), static_cast<int64_t>(impl_->far.size()));
}

void Session::Poison(uint8_t byte) {
  SessionMemory& memory = impl_->memory;
  for (const SessionEnd& output : memory.outputs) {
    std::memset(output.buffer.data(), byte, output.bytes);
  }
  // After a call that found no memory there are no addresses until the next one.
  const bool bound = impl_->active->BoundTo(impl_->values, memory);
  for (const Tensor& tensor : module().manifest().tensors) {
    if (!bound) break;
    void* const address = impl_->active->AddressOf(static_cast<size_t>(tensor.id));
    if (tensor.kind != TensorKind::kIntermediate || address == nullptr) continue;
    std::memset(address, byte, static_cast<size_t>(impl_->active->PlaceOf(tensor.id).bytes));
  }
  if (memory.workspace_bytes() > 0) {
    std::memset(memory.workspace(), byte, memory.workspace_bytes());
  }
  if (impl_->part != nullptr) impl_->poisoned = impl_->PoisonDevice(byte);
}

absl::Status Session::CheckGuards() const {
  for (const auto* ends : {&impl_->memory.inputs, &impl_->memory.outputs}) {
    for (const SessionEnd& end : *ends) {
      if (end.buffer.PaddingIntact()) continue;
      return support::DataLoss("runtime.guard.overwritten",
                               "bytes around '" + end.tensor->name + "' were written");
    }
  }
  return absl::OkStatus();
}

}  // namespace tilewright::runtime
