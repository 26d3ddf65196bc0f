#include "deploy/runtime/device_session.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "deploy/runtime/device_loader.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {
namespace {

using support::StrCat;

// Behind every input and output; what is found changed there was written past an end.
constexpr int64_t kGuardBytes = 4096;
constexpr uint8_t kGuardByte = 0xA5;

bool Accepts(const TwDeviceInfo& info, const std::string& format) {
  const auto formats = support::Split(info.code_formats, ',');
  return std::find(formats.begin(), formats.end(), format) != formats.end();
}

}  // namespace

DeviceSession::DeviceSession(module::ModuleFile file, const TwDevicePlugin& plugin,
                             TwDevice* device)
    : file_(std::move(file)), plugin_(plugin), device_(device) {}

DeviceSession::~DeviceSession() {
  if (begin_ != nullptr) plugin_.event_destroy(device_, begin_);
  if (end_ != nullptr) plugin_.event_destroy(device_, end_);
  for (TwDeviceMemory* memory : memory_) {
    if (memory != nullptr) plugin_.free(device_, memory);
  }
  if (workspace_ != nullptr) plugin_.free(device_, workspace_);
  for (TwDeviceCode* code : code_) plugin_.unload(device_, code);
}

absl::StatusOr<std::unique_ptr<DeviceSession>> DeviceSession::Create(module::ModuleFile file,
                                                                     const TwDevicePlugin& plugin,
                                                                     TwDevice* device,
                                                                     const std::string& function) {
  std::unique_ptr<DeviceSession> session(new DeviceSession(std::move(file), plugin, device));
  session->function_ = session->manifest().FindFunction(function);
  if (session->function_ == nullptr) {
    return support::InvalidArgument("runtime.session.function",
                                    "the module has no function " + support::Quote(function));
  }
  session->info_.struct_bytes = sizeof(session->info_);
  TW_TRY(session->Check(plugin.describe(device, &session->info_)));
  TW_TRY(session->LoadCode());
  TW_TRY(session->Allocate());
  TW_TRY(session->Check(plugin.event_create(device, &session->begin_)));
  TW_TRY(session->Check(plugin.event_create(device, &session->end_)));
  return session;
}

absl::Status DeviceSession::Check(TwDeviceResult result) const {
  return DeviceStatus(plugin_, device_, result);
}

absl::Status DeviceSession::LoadCode() {
  for (size_t i = 0; i < file_.num_code(); ++i) {
    const std::string& format = manifest().code[i].format;
    if (!Accepts(info_, format)) {
      return support::FailedPrecondition("runtime.load.format",
                                         StrCat("expected code as ", info_.code_formats, " for ",
                                                info_.name, ", found ", support::Quote(format)));
    }
    const std::string_view image = file_.code(i);
    TwDeviceCode* code = nullptr;
    TW_TRY(Check(plugin_.load(device_, format.c_str(), image.data(), image.size(), &code)));
    code_.push_back(code);
  }
  return absl::OkStatus();
}

absl::Status DeviceSession::AllocateEnds(const std::vector<int64_t>& ids,
                                         std::vector<HostTensor>* ends) {
  for (const int64_t id : ids) {
    const module::Tensor& tensor = manifest().tensors[static_cast<size_t>(id)];
    TwDeviceMemory*& memory = memory_[static_cast<size_t>(id)];
    TW_TRY(Check(plugin_.alloc(device_, tensor.bytes + kGuardBytes, &memory)));
    TW_TRY(Fill(memory, tensor.bytes + kGuardBytes, kGuardByte));
    ends->push_back({&tensor, std::vector<char>(static_cast<size_t>(tensor.bytes))});
  }
  return absl::OkStatus();
}

absl::Status DeviceSession::Allocate() {
  memory_.assign(manifest().tensors.size(), nullptr);
  for (const module::Tensor& tensor : manifest().tensors) {
    if (!module::NumElements(tensor.shape).has_value()) {
      return support::Unimplemented(
          "runtime.load.symbolic_shape",
          StrCat("expected static shapes, found ", module::ShapeText(tensor.shape), " for tensor '",
                 tensor.name, "'"));
    }
    if (tensor.kind == module::TensorKind::kInput || tensor.kind == module::TensorKind::kOutput) {
      continue;
    }
    TwDeviceMemory*& memory = memory_[static_cast<size_t>(tensor.id)];
    TW_TRY(Check(plugin_.alloc(device_, std::max<int64_t>(tensor.bytes, 1), &memory)));
    if (tensor.kind == module::TensorKind::kConstant) {
      TW_TRY(Check(plugin_.write(device_, {memory, 0}, file_.constants().data() + tensor.offset,
                                 tensor.bytes)));
    }
  }
  if (manifest().workspace_bytes > 0) {
    TW_TRY(Check(plugin_.alloc(device_, manifest().workspace_bytes, &workspace_)));
  }
  TW_TRY(AllocateEnds(function_->inputs, &inputs_));
  return AllocateEnds(function_->outputs, &outputs_);
}

TensorView DeviceSession::input(size_t index) const {
  const HostTensor& end = inputs_[index];
  return {end.tensor, const_cast<char*>(end.bytes.data()), end.bytes.size()};
}

TensorView DeviceSession::output(size_t index) const {
  const HostTensor& end = outputs_[index];
  return {end.tensor, const_cast<char*>(end.bytes.data()), end.bytes.size()};
}

void* DeviceSession::MutableInput(size_t index) { return inputs_[index].bytes.data(); }

absl::Status DeviceSession::Launch(const module::Launch& launch) {
  TwDeviceLaunch call{};
  call.struct_bytes = sizeof(call);
  // A plug-in knows a kernel by its name; what its language makes of that is the plug-in's.
  const std::string name = launch.symbol.substr(sizeof(TW_KERNEL_SYMBOL_PREFIX) - 1);
  TW_TRY(Check(
      plugin_.find(device_, code_[static_cast<size_t>(launch.code)], name.c_str(), &call.kernel)));
  for (size_t axis = 0; axis < launch.grid.size(); ++axis) {
    call.grid[axis] = launch.has_grid() ? launch.grid[axis] : 1;
    call.group[axis] = launch.has_grid() ? launch.group[axis] : 1;
  }
  std::vector<TwDeviceSlice> slices;
  for (const int64_t id : launch.args) slices.push_back({memory_[static_cast<size_t>(id)], 0});
  call.buffers = slices.data();
  call.num_buffers = static_cast<int64_t>(slices.size());
  call.sizes = launch.sizes.data();
  call.num_sizes = static_cast<int64_t>(launch.sizes.size());
  const TwDeviceSlice workspace{workspace_, 0};
  if (launch.workspace_bytes > 0) call.workspace = &workspace;
  return Check(plugin_.launch(device_, &call));
}

absl::Status DeviceSession::LaunchAll(const std::vector<module::Launch>& launches) {
  for (const module::Launch& launch : launches) TW_TRY(Launch(launch));
  return absl::OkStatus();
}

absl::Status DeviceSession::Prepare() {
  for (const HostTensor& end : inputs_) {
    TwDeviceMemory* memory = memory_[static_cast<size_t>(end.tensor->id)];
    TW_TRY(Check(plugin_.write(device_, {memory, 0}, end.bytes.data(), end.tensor->bytes)));
  }
  TW_TRY(LaunchAll(function_->prepare));
  return Check(plugin_.synchronize(device_));
}

absl::Status DeviceSession::Run() {
  TW_TRY(LaunchAll(function_->launches));
  return Check(plugin_.synchronize(device_));
}

absl::StatusOr<int64_t> DeviceSession::Time(int runs) {
  support::SystemClock clock;
  const int64_t start_ns = clock.NowNs();
  TW_TRY(Check(plugin_.event_record(device_, begin_)));
  for (int run = 0; run < runs; ++run) TW_TRY(LaunchAll(function_->launches));
  TW_TRY(Check(plugin_.event_record(device_, end_)));
  TW_TRY(Check(plugin_.synchronize(device_)));
  const int64_t host_ns = clock.NowNs() - start_ns;
  if (!device_timer()) return host_ns;
  int64_t device_ns = 0;
  TW_TRY(Check(plugin_.event_elapsed(device_, begin_, end_, &device_ns)));
  return device_ns;
}

absl::Status DeviceSession::Fill(TwDeviceMemory* memory, int64_t bytes, uint8_t byte) {
  const std::vector<uint8_t> pattern(static_cast<size_t>(bytes), byte);
  return Check(plugin_.write(device_, {memory, 0}, pattern.data(), bytes));
}

absl::Status DeviceSession::Poison(uint8_t byte) {
  for (const module::Tensor& tensor : manifest().tensors) {
    TwDeviceMemory* memory = memory_[static_cast<size_t>(tensor.id)];
    const bool own = tensor.kind == module::TensorKind::kOutput ||
                     tensor.kind == module::TensorKind::kIntermediate;
    if (own && memory != nullptr) TW_TRY(Fill(memory, tensor.bytes, byte));
  }
  return workspace_ == nullptr ? absl::OkStatus()
                               : Fill(workspace_, manifest().workspace_bytes, byte);
}

// The tensor's bytes as they are on the device, with its guard looked at.
absl::StatusOr<std::vector<char>> DeviceSession::Fetch(const HostTensor& end) {
  TwDeviceMemory* memory = memory_[static_cast<size_t>(end.tensor->id)];
  std::vector<char> bytes(end.bytes.size() + static_cast<size_t>(kGuardBytes));
  TW_TRY(
      Check(plugin_.read(device_, {memory, 0}, bytes.data(), static_cast<int64_t>(bytes.size()))));
  const bool intact = std::all_of(bytes.begin() + end.tensor->bytes, bytes.end(), [](char byte) {
    return static_cast<uint8_t>(byte) == kGuardByte;
  });
  if (!intact) {
    return support::DataLoss("runtime.guard.overwritten",
                             StrCat("a kernel wrote behind tensor '", end.tensor->name, "'"));
  }
  bytes.resize(end.bytes.size());
  return bytes;
}

absl::Status DeviceSession::Collect() {
  for (HostTensor& end : outputs_) {
    TW_ASSIGN(end.bytes, Fetch(end));
  }
  for (const HostTensor& end : inputs_) {
    TW_ASSIGN(const std::vector<char> now, Fetch(end));
    if (now == end.bytes) continue;
    return support::DataLoss("runtime.guard.overwritten",
                             StrCat("a kernel wrote into input '", end.tensor->name, "'"));
  }
  return absl::OkStatus();
}

}  // namespace tilewright::runtime
