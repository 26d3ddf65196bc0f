// Session: the executor of a memory-planned function, on the processor and on a device. Every
// pointer that a launch needs, and every copy between the two, is worked out when the session is
// made; a run is a loop over steps.
#include <algorithm>
#include <cstring>
#include <optional>
#include <set>
#include <utility>

#include "deploy/runtime/buffer.h"
#include "deploy/runtime/cache_evict.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/runtime/device_loader.h"
#include "deploy/runtime/device_part.h"
#include "deploy/runtime/dl_tensor.h"
#include "deploy/runtime/runtime.h"
#include "deploy/runtime/session_gate.h"
#include "deploy/runtime/thread_pool.h"
#include "deploy/runtime/transfer_plan.h"
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

// A launch on the processor; for one on the device, only `launch`.
struct BoundLaunch {
  const Launch* launch = nullptr;
  TwKernelFn kernel = nullptr;
  std::vector<void*> buffers;
  const int64_t* sizes = nullptr;
  void* workspace = nullptr;
};

std::string IndexText(size_t index, size_t count) {
  return "expected less than " + std::to_string(count) + ", found " + std::to_string(index);
}

bool InArena(const Tensor& tensor) {
  return tensor.kind == TensorKind::kIntermediate || tensor.kind == TensorKind::kPrepared;
}

// A handle of a plug-in's device; closes it.
class OpenDevice {
 public:
  OpenDevice() = default;
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;
  ~OpenDevice() {
    if (device_ != nullptr) plugin_->close(device_);
  }
  // `device`: SessionOptions::device.
  absl::Status Open(const TwDevicePlugin* plugin, const std::string& device) {
    plugin_ = plugin;
    const std::optional<int64_t> index = support::ParseInt64(device.empty() ? "0" : device);
    if (!index.has_value()) return OpenNamed(device);
    return OpenIndex(static_cast<int32_t>(std::clamp<int64_t>(*index, -1, INT32_MAX)));
  }
  TwDevice* get() const { return device_; }

 private:
  absl::Status OpenIndex(int32_t index) {
    char error[512] = {};
    const TwDeviceResult result = plugin_->open(index, &device_, error, sizeof(error));
    if (result == TW_DEVICE_OK) return absl::OkStatus();
    device_ = nullptr;
    return support::Unavailable("runtime.device.open", error);
  }
  absl::Status OpenNamed(const std::string& name) {
    std::vector<std::string> found;
    int32_t devices = 0;
    if (plugin_->count(&devices) != TW_DEVICE_OK) devices = 0;
    for (int32_t index = 0; index < devices; ++index) {
      TW_TRY(OpenIndex(index));
      TwDeviceInfo info{};
      info.struct_bytes = sizeof(info);
      TW_TRY(DeviceStatus(*plugin_, device_, plugin_->describe(device_, &info)));
      if (info.name == name) return absl::OkStatus();
      found.emplace_back(info.name);
      plugin_->close(std::exchange(device_, nullptr));
    }
    return support::NotFound(
        "runtime.device.name",
        support::StrCat("expected an index or one of ", support::Join(found, ", "), ", found ",
                        support::Quote(name, 60)));
  }

  const TwDevicePlugin* plugin_ = nullptr;
  TwDevice* device_ = nullptr;
};

int32_t ContextParallelFor(TwContext* ctx, TwTaskBody body, void* closure, int64_t num_tasks) {
  return static_cast<ThreadPool*>(ctx->opaque)->ParallelFor(body, closure, num_tasks);
}

}  // namespace

struct Session::Impl {
  Impl(std::shared_ptr<const LoadedModule> m, const Function* f, int threads, bool pinned)
      : module(std::move(m)),
        function(f),
        pool(threads, pinned ? Placement::kPinned : Placement::kSpread) {
    context.abi_version = TW_ABI_VERSION;
    context.num_threads = pool.num_threads();
    context.opaque = &pool;
    context.parallel_for = ContextParallelFor;
  }

  absl::Status AllocateBuffers(bool guard);
  absl::StatusOr<std::vector<Buffer>> AllocateEnds(const std::vector<int64_t>& ids, bool guard);
  bool UsesHostArena() const;
  void PlaceTensors();
  std::vector<BoundLaunch> Bind(const std::vector<Launch>& list) const;
  void BindLaunches();
  void FindFar();
  absl::Status SealInputs();
  absl::Status PoisonDevice(uint8_t byte);
  void* WritableInput(size_t index);
  absl::Status OpenDevicePart(const SessionOptions& options);
  void PlanSteps();
  absl::Status CallKernel(const BoundLaunch& bound);
  absl::Status Execute(const ExecutionStep& step, const std::vector<BoundLaunch>& list);
  absl::Status Prepare();
  absl::Status Run();
  absl::Status CheckSizes() const;
  absl::Status CheckTensors(std::span<const DLTensor* const> given, const std::vector<int64_t>& ids,
                            std::string_view role) const;

  const Tensor& TensorOf(int64_t id) const {
    return module->manifest().tensors[static_cast<size_t>(id)];
  }

  std::shared_ptr<const LoadedModule> module;
  const Function* function;
  ThreadPool pool;
  TwContext context{};

  Buffer arena;
  Buffer workspace;
  std::vector<Buffer> inputs;
  std::vector<Buffer> outputs;
  std::vector<Buffer> checks;                       // what Function::checks look at
  std::vector<std::vector<int64_t>> output_shapes;  // what views of the outputs point to
  // By tensor id; nullptr for ends of other functions, and for an arena that only a device uses.
  std::vector<void*> addresses;
  std::set<int64_t> prepare_reads;  // tensors that prepare launches touch
  std::vector<BoundLaunch> prepare;
  std::vector<BoundLaunch> launches;
  OpenDevice device;
  std::unique_ptr<DevicePart> part;  // null: everything runs on the processor
  ExecutionPlan plan;
  absl::Status poisoned = absl::OkStatus();         // what Poison could not do
  std::vector<std::pair<const char*, size_t>> far;  // pieces of what leaves the caches
  std::vector<TwLaunchTime> times;                  // by launch, of the last profiled run
  bool prepared = false;
  bool sealed = false;  // guarded inputs are read-only
  SessionGate gate;     // who may use all of this
};

absl::StatusOr<std::vector<Buffer>> Session::Impl::AllocateEnds(const std::vector<int64_t>& ids,
                                                                bool guard) {
  std::vector<Buffer> buffers;
  for (const int64_t id : ids) {
    const auto bytes = static_cast<size_t>(TensorOf(id).bytes);
    TW_ASSIGN(Buffer buffer, guard ? Buffer::AllocateGuarded(bytes) : Buffer::Allocate(bytes));
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

// Whether a launch on the processor touches the arena or its workspace: a device has its own.
bool Session::Impl::UsesHostArena() const {
  const auto uses = [this](const Launch& launch) {
    if (part != nullptr && part->Runs(launch)) return false;
    return launch.workspace_bytes > 0 ||
           std::any_of(launch.args.begin(), launch.args.end(),
                       [this](int64_t id) { return InArena(TensorOf(id)); });
  };
  return std::any_of(function->prepare.begin(), function->prepare.end(), uses) ||
         std::any_of(function->launches.begin(), function->launches.end(), uses);
}

absl::Status Session::Impl::AllocateBuffers(bool guard) {
  const Manifest& manifest = module->manifest();
  if (UsesHostArena()) {
    TW_ASSIGN(arena, Buffer::Allocate(static_cast<size_t>(manifest.arena_bytes)));
    TW_ASSIGN(workspace, Buffer::Allocate(static_cast<size_t>(manifest.workspace_bytes)));
  }
  TW_ASSIGN(inputs, AllocateEnds(function->inputs, guard));
  TW_ASSIGN(outputs, AllocateEnds(function->outputs, guard));
  std::vector<int64_t> checked;
  for (const module::SizeCheck& check : function->checks) checked.push_back(check.tensor);
  TW_ASSIGN(checks, AllocateEnds(checked, guard));
  for (const int64_t id : function->outputs) {
    std::vector<int64_t>& shape = output_shapes.emplace_back();
    for (const module::Dim& dim : TensorOf(id).shape) shape.push_back(dim.value);
  }
  return absl::OkStatus();
}

void Session::Impl::PlaceTensors() {
  const Manifest& manifest = module->manifest();
  addresses.assign(manifest.tensors.size(), nullptr);
  const auto place = [this](int64_t id, void* address) {
    addresses[static_cast<size_t>(id)] = address;
  };
  for (size_t i = 0; i < inputs.size(); ++i) place(function->inputs[i], inputs[i].data());
  for (size_t i = 0; i < outputs.size(); ++i) place(function->outputs[i], outputs[i].data());
  for (size_t i = 0; i < checks.size(); ++i) place(function->checks[i].tensor, checks[i].data());
  // Kernels get one pointer type; the manifest's checks and the read-only mapping keep constants
  // constant.
  char* constants = const_cast<char*>(module->file().constants().data());
  for (const Tensor& tensor : manifest.tensors) {
    if (InArena(tensor) && arena.data() != nullptr) {
      place(tensor.id, static_cast<char*>(arena.data()) + tensor.offset);
    }
    if (tensor.kind == TensorKind::kConstant) place(tensor.id, constants + tensor.offset);
  }
}

std::vector<BoundLaunch> Session::Impl::Bind(const std::vector<Launch>& list) const {
  std::vector<BoundLaunch> bound;
  for (const Launch& launch : list) {
    BoundLaunch& entry = bound.emplace_back();
    entry.launch = &launch;
    if (part != nullptr && part->Runs(launch)) continue;
    entry.kernel = module->Kernel(launch);
    entry.sizes = launch.sizes.empty() ? nullptr : launch.sizes.data();
    entry.workspace = launch.workspace_bytes > 0 ? workspace.data() : nullptr;
    for (const int64_t id : launch.args) {
      entry.buffers.push_back(addresses[static_cast<size_t>(id)]);
    }
  }
  return bound;
}

void Session::Impl::BindLaunches() {
  prepare = Bind(function->prepare);
  launches = Bind(function->launches);
  for (const Launch& launch : function->prepare) {
    prepare_reads.insert(launch.args.begin(), launch.args.end());
  }
  for (const Launch& launch : function->launches) {
    times.push_back({launch.symbol.c_str(), launch.name.c_str(), 0});
  }
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
  for (const Launch& launch : function->launches) {
    read.insert(launch.args.begin(), launch.args.end());
  }
  for (const int64_t id : read) {
    if (TensorOf(id).kind != TensorKind::kPrepared && !inputs_far.contains(id)) continue;
    const auto* begin = static_cast<const char*>(addresses[static_cast<size_t>(id)]);
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
  for (Buffer& buffer : inputs) TW_TRY(buffer.SetReadOnly(true));
  sealed = true;
  return absl::OkStatus();
}

absl::Status Session::Impl::OpenDevicePart(const SessionOptions& options) {
  const TwDevicePlugin* plugin = module->device_plugin();
  if (plugin == nullptr) return absl::OkStatus();
  TW_TRY(device.Open(plugin, options.device));
  TW_ASSIGN(part, DevicePart::Create(
                      module->file(), *function, *plugin, device.get(),
                      {.kind = plugin->kind, .guard_bytes = 0, .code_cache = options.code_cache}));
  return absl::OkStatus();
}

void Session::Impl::PlanSteps() {
  plan = PlanExecution(module->manifest(), *function, [this](const Launch& launch) {
    return part != nullptr && part->Runs(launch);
  });
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
      return part->Upload(tensor, addresses[step.index]);
    case ExecutionStep::Kind::kDownload:
      return part->Download(tensor, addresses[step.index]);
  }
  return absl::OkStatus();
}

absl::Status Session::Impl::CallKernel(const BoundLaunch& bound) {
  const int32_t result = bound.kernel(&context, bound.buffers.data(), bound.sizes, bound.workspace);
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
  TW_TRY(SealInputs());
  if (prepared) return absl::OkStatus();
  for (const ExecutionStep& step : plan.prepare) TW_TRY(Execute(step, prepare));
  if (part != nullptr) TW_TRY(part->Synchronize());
  prepared = true;
  return absl::OkStatus();
}

absl::Status Session::Impl::Run() {
  TW_TRY(poisoned);
  TW_TRY(Prepare());
  for (const ExecutionStep& step : plan.run) TW_TRY(Execute(step, launches));
  return CheckSizes();
}

absl::Status Session::Impl::CheckSizes() const {
  for (size_t i = 0; i < checks.size(); ++i) {
    const module::SizeCheck& check = function->checks[i];
    std::vector<int64_t> found(check.expected.size());
    std::memcpy(found.data(), checks[i].data(), found.size() * sizeof(int64_t));
    if (found == check.expected) continue;
    return support::InvalidArgument(
        "runtime.session.stated_shape",
        support::StrCat(check.what, ": the model states the sizes [",
                        support::Join(check.expected, ","), "], the inputs make [",
                        support::Join(found, ","), "]; there is no result for these inputs"));
  }
  return absl::OkStatus();
}

void* Session::Impl::WritableInput(size_t index) {
  if (prepare_reads.contains(function->inputs[index])) prepared = false;
  if (sealed) {
    sealed = false;
    for (Buffer& buffer : inputs) {
      const absl::Status writable = buffer.SetReadOnly(false);
      TW_CHECK(writable.ok()) << support::StatusText(writable);
    }
  }
  return inputs[index].data();
}

// The tensors of a call against the function's inputs or outputs.
absl::Status Session::Impl::CheckTensors(std::span<const DLTensor* const> given,
                                         const std::vector<int64_t>& ids,
                                         std::string_view role) const {
  if (given.size() != ids.size()) {
    return support::InvalidArgument("runtime.session.call_tensors",
                                    "expected " + std::to_string(ids.size()) + " " +
                                        std::string(role) + "s, found " +
                                        std::to_string(given.size()));
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    if (given[i] != nullptr) TW_TRY(CheckDlTensor(*given[i], TensorOf(ids[i]), role));
  }
  return absl::OkStatus();
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
  const int threads = std::clamp(options.num_threads, 1, UsableCores());
  auto impl = std::make_unique<Impl>(std::move(module), function, threads, options.pin_threads);
  TW_TRY(impl->OpenDevicePart(options));
  TW_TRY(impl->AllocateBuffers(options.guard_pages));
  impl->PlaceTensors();
  impl->BindLaunches();
  impl->PlanSteps();
  impl->FindFar();
  return std::unique_ptr<Session>(new Session(std::move(impl)));
}

const LoadedModule& Session::module() const { return *impl_->module; }
const Function& Session::function() const { return *impl_->function; }
int Session::num_threads() const { return impl_->context.num_threads; }
size_t Session::num_inputs() const { return impl_->inputs.size(); }
size_t Session::num_outputs() const { return impl_->outputs.size(); }

TensorView Session::input(size_t index) const {
  TW_CHECK(index < num_inputs()) << "input " << index;
  const Buffer& buffer = impl_->inputs[index];
  return {&impl_->TensorOf(impl_->function->inputs[index]), buffer.data(), buffer.bytes()};
}

TensorView Session::output(size_t index) const {
  TW_CHECK(index < num_outputs()) << "output " << index;
  const Buffer& buffer = impl_->outputs[index];
  return {&impl_->TensorOf(impl_->function->outputs[index]), buffer.data(), buffer.bytes()};
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
  TW_TRY(CheckDlTensor(tensor, *input(index).tensor, "input"));
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
  support::SystemClock clock;
  for (const ExecutionStep& step : impl_->plan.run) {
    const bool on_device = step.kind == ExecutionStep::Kind::kDeviceLaunch;
    const int64_t start = clock.NowNs();
    TW_TRY(impl_->Execute(step, impl_->launches));
    if (on_device) TW_TRY(impl_->part->Synchronize());
    if (on_device || step.kind == ExecutionStep::Kind::kHostLaunch)
      impl_->times[step.index].ns = clock.NowNs() - start;
  }
  TW_TRY(impl_->CheckSizes());
  *times = impl_->times;
  return absl::OkStatus();
}

absl::Status Session::GetOutput(size_t index, DLTensor* out) {
  const SessionTurn turn(impl_->gate, Overlap::kRefuse);
  TW_TRY(turn.status());
  if (index >= num_outputs()) {
    return support::InvalidArgument("runtime.session.output_index",
                                    IndexText(index, num_outputs()));
  }
  std::vector<int64_t>& shape = impl_->output_shapes[index];
  *out = {};
  out->data = impl_->outputs[index].data();
  out->device = {kDLCPU, 0};
  out->ndim = static_cast<int32_t>(shape.size());
  out->dtype = ToDlType(output(index).tensor->dtype);
  out->shape = shape.data();
  return absl::OkStatus();
}

absl::Status Session::Call(std::span<const DLTensor* const> inputs,
                           std::span<const DLTensor* const> outputs) {
  const SessionTurn turn(impl_->gate, Overlap::kWait);
  TW_TRY(turn.status());
  TW_TRY(impl_->CheckTensors(inputs, impl_->function->inputs, "input"));
  TW_TRY(impl_->CheckTensors(outputs, impl_->function->outputs, "output"));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] != nullptr) CopyFromDlTensor(*inputs[i], impl_->WritableInput(i));
  }
  TW_TRY(impl_->Run());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] != nullptr) CopyToDlTensor(impl_->outputs[i].data(), *outputs[i]);
  }
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
  for (const Buffer& buffer : impl_->outputs) std::memset(buffer.data(), byte, buffer.bytes());
  for (const Tensor& tensor : module().manifest().tensors) {
    void* const address = impl_->addresses[static_cast<size_t>(tensor.id)];
    if (tensor.kind != TensorKind::kIntermediate || address == nullptr) continue;
    std::memset(address, byte, static_cast<size_t>(tensor.bytes));
  }
  if (impl_->workspace.bytes() > 0) {
    std::memset(impl_->workspace.data(), byte, impl_->workspace.bytes());
  }
  if (impl_->part != nullptr) impl_->poisoned = impl_->PoisonDevice(byte);
}

absl::Status Session::CheckGuards() const {
  const auto check = [this](const std::vector<Buffer>& buffers, const std::vector<int64_t>& ids) {
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (!buffers[i].PaddingIntact()) {
        return support::DataLoss(
            "runtime.guard.overwritten",
            "bytes around '" + impl_->TensorOf(ids[i]).name + "' were written");
      }
    }
    return absl::OkStatus();
  };
  TW_TRY(check(impl_->inputs, impl_->function->inputs));
  return check(impl_->outputs, impl_->function->outputs);
}

}  // namespace tilewright::runtime
