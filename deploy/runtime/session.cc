// Sessions as callers use them: memory-planned functions on the processor and on a device.
#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "deploy/runtime/cache_evict.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/runtime/dl_tensor.h"
#include "deploy/runtime/session_impl.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {
namespace {

constexpr size_t kColdPieceBytes = 64 << 10;

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

Session::Impl::Impl(std::shared_ptr<const LoadedModule> m, const Function& f,
                    const SessionOptions& options)
    : module(std::move(m)),
      clock(options.clock != nullptr ? options.clock : &system_clock),
      pool(std::clamp(options.num_threads, 1, UsableCores()),
           options.pin_threads ? Placement::kPinned : Placement::kSpread),
      binding(module->manifest(), f),
      memory(options.memory_limit_bytes, options.guard_pages) {
  context.abi_version = TW_ABI_VERSION;
  context.num_threads = pool.num_threads();
  context.opaque = &pool;
  context.parallel_for = ContextParallelFor;
}

absl::Status Session::Impl::OpenDevicePart(const Function& function,
                                           const SessionOptions& options) {
  const TwDevicePlugin* plugin = module->device_plugin();
  if (plugin == nullptr) return absl::OkStatus();
  TW_TRY(device.Open(plugin, options.device));
  TW_ASSIGN(part, DevicePart::Create(module->file(), FunctionsOf(function), *plugin, device.get(),
                                     {.kind = plugin->kind,
                                      .guard_bytes = 0,
                                      .code_cache = options.code_cache,
                                      .launch_graphs = LaunchGraphsWanted()}));
  return absl::OkStatus();
}

// What launches read of cold inputs, and of what prepare launches made (of weights, so cold, too),
// in pieces that threads share.
void Session::Impl::FindCold() {
  const Manifest& manifest = module->manifest();
  if (!manifest.measurement.has_value() || part != nullptr) return;
  std::set<int64_t> cold_inputs;
  for (const module::InputSpec& input : manifest.measurement->inputs) {
    if (input.cold) cold_inputs.insert(input.tensor);
  }
  if (cold_inputs.empty()) return;
  std::set<int64_t> read;
  for (const Launch& launch : active->function().launches) {
    read.insert(launch.args.begin(), launch.args.end());
  }
  for (const int64_t id : read) {
    if (TensorOf(id).kind != TensorKind::kPrepared && !cold_inputs.contains(id)) continue;
    const auto* begin = static_cast<const char*>(active->AddressOf(static_cast<size_t>(id)));
    const auto bytes = static_cast<size_t>(TensorOf(id).bytes);
    for (size_t at = 0; begin != nullptr && at < bytes; at += kColdPieceBytes) {
      cold.emplace_back(begin + at, std::min(kColdPieceBytes, bytes - at));
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
  impl->FindCold();
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

const LoadedModule& Session::module() const { return *impl_->module; }
const Function& Session::function() const { return impl_->active->function(); }
int Session::num_threads() const { return impl_->context.num_threads; }
support::Clock* Session::clock() const { return impl_->clock; }
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
  impl_->BeginRun();
  support::Clock& clock = *impl_->clock;
  // What loops run several times counts each time.
  const auto timed = [&](std::span<const ExecutionStep> steps) -> absl::Status {
    for (const ExecutionStep& step : steps) {
      const bool on_device = step.kind == ExecutionStep::Kind::kDeviceLaunch;
      const int64_t start = clock.NowNs();
      TW_TRY(impl_->Execute(step, impl_->active->launches()));
      if (on_device) TW_TRY(impl_->part->Synchronize());
      if (on_device || step.kind == ExecutionStep::Kind::kHostLaunch)
        impl_->times[step.index].ns += clock.NowNs() - start;
    }
    return absl::OkStatus();
  };
  TW_TRY(impl_->VisitSteps(0, impl_->active->steps().run.size(), timed));
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
  impl_->BeginRun();
  const auto traced = [&](std::span<const ExecutionStep> steps) -> absl::Status {
    for (const ExecutionStep& step : steps) {
      if (step.kind != ExecutionStep::Kind::kDeviceLaunch) {
        TW_TRY(impl_->Execute(step, list));
        continue;
      }
      TW_ASSIGN(LaunchTrace trace, impl_->part->Trace(*list[step.index].launch));
      trace.launch = step.index;
      traces.push_back(std::move(trace));
    }
    return absl::OkStatus();
  };
  TW_TRY(impl_->VisitSteps(0, impl_->active->steps().run.size(), traced));
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

bool Session::has_cold() const { return !impl_->cold.empty(); }

// By all threads, which are then awake as they are between two kernels.
void Session::EvictFar() {
  const auto evict = [](void* closure, int64_t piece) -> int32_t {
    const auto& [data, bytes] = static_cast<Impl*>(closure)->cold[static_cast<size_t>(piece)];
    EvictFromCaches(data, bytes);
    return TW_OK;
  };
  (void)impl_->pool.ParallelFor(evict, impl_.get(), static_cast<int64_t>(impl_->cold.size()));
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
