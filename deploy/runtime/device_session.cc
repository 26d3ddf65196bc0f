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

}  // namespace

DeviceSession::DeviceSession(module::ModuleFile file, const TwDevicePlugin& plugin,
                             TwDevice* device)
    : file_(std::move(file)), plugin_(plugin), device_(device) {}

DeviceSession::~DeviceSession() {
  if (begin_ != nullptr) plugin_.event_destroy(device_, begin_);
  if (end_ != nullptr) plugin_.event_destroy(device_, end_);
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
  if (session->manifest().open_sizes()) {
    return support::Unimplemented("runtime.load.open_sizes",
                                  StrCat("expected fixed sizes to measure on a device of kind ",
                                         plugin.kind, ", found size variables"));
  }
  TW_ASSIGN(session->part_, DevicePart::Create(session->file_, {session->function_}, plugin, device,
                                               {.kind = "", .guard_bytes = kGuardBytes}));
  TW_TRY(session->AddEnds(session->function_->inputs, &session->inputs_));
  TW_TRY(session->AddEnds(session->function_->outputs, &session->outputs_));
  TW_TRY(session->Check(plugin.event_create(device, &session->begin_)));
  TW_TRY(session->Check(plugin.event_create(device, &session->end_)));
  return session;
}

absl::Status DeviceSession::Check(TwDeviceResult result) const {
  return DeviceStatus(plugin_, device_, result);
}

absl::Status DeviceSession::AddEnds(const std::vector<int64_t>& ids,
                                    std::vector<HostTensor>* ends) {
  for (const int64_t id : ids) {
    const module::Tensor& tensor = manifest().tensors[static_cast<size_t>(id)];
    TW_TRY(part_->Fill(id, kGuardByte, kGuardBytes));
    ends->push_back({&tensor, std::vector<char>(static_cast<size_t>(tensor.bytes))});
  }
  return absl::OkStatus();
}

TensorView DeviceSession::ViewOf(const HostTensor& end) {
  return {end.tensor, const_cast<char*>(end.bytes.data()), end.bytes.size(),
          module::FixedExtents(end.tensor->shape)};
}

TensorView DeviceSession::input(size_t index) const { return ViewOf(inputs_[index]); }

TensorView DeviceSession::output(size_t index) const { return ViewOf(outputs_[index]); }

void* DeviceSession::MutableInput(size_t index) { return inputs_[index].bytes.data(); }

absl::Status DeviceSession::LaunchAll(const std::vector<module::Launch>& launches) {
  for (const module::Launch& launch : launches) TW_TRY(part_->Launch(launch));
  return absl::OkStatus();
}

absl::Status DeviceSession::Prepare() {
  for (const HostTensor& end : inputs_)
    TW_TRY(part_->Upload(end.tensor->id, end.bytes.data(), end.tensor->bytes));
  TW_TRY(LaunchAll(function_->prepare));
  return part_->Synchronize();
}

absl::Status DeviceSession::Run() {
  TW_TRY(LaunchAll(function_->launches));
  return part_->Synchronize();
}

absl::StatusOr<int64_t> DeviceSession::Time(int runs) {
  support::SystemClock clock;
  const int64_t start_ns = clock.NowNs();
  TW_TRY(Check(plugin_.event_record(device_, begin_)));
  for (int run = 0; run < runs; ++run) TW_TRY(LaunchAll(function_->launches));
  TW_TRY(Check(plugin_.event_record(device_, end_)));
  TW_TRY(part_->Synchronize());
  const int64_t host_ns = clock.NowNs() - start_ns;
  if (!device_timer()) return host_ns;
  int64_t device_ns = 0;
  TW_TRY(Check(plugin_.event_elapsed(device_, begin_, end_, &device_ns)));
  return device_ns;
}

absl::Status DeviceSession::Poison(uint8_t byte) {
  for (const module::Tensor& tensor : manifest().tensors) {
    const bool own = tensor.kind == module::TensorKind::kOutput ||
                     tensor.kind == module::TensorKind::kIntermediate;
    if (own && part_->Has(tensor.id)) TW_TRY(part_->Fill(tensor.id, byte));
  }
  return part_->FillWorkspace(byte);
}

// The tensor's bytes as they are on the device, with its guard looked at.
absl::StatusOr<std::vector<char>> DeviceSession::Fetch(const HostTensor& end) {
  std::vector<char> bytes(end.bytes.size() + static_cast<size_t>(kGuardBytes));
  TW_TRY(part_->Download(end.tensor->id, bytes.data(), static_cast<int64_t>(bytes.size())));
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
