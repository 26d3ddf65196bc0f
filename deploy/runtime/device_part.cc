#include "deploy/runtime/device_part.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string_view>
#include <utility>

#include "deploy/module/size_plan.h"
#include "deploy/runtime/c_abi.h"
#include "deploy/runtime/device_code_cache.h"
#include "deploy/runtime/device_loader.h"
#include "deploy/runtime/transfer_plan.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {
namespace {

using module::Tensor;
using module::TensorKind;
using support::StrCat;

bool Accepts(const TwDeviceInfo& info, const std::string& format) {
  const auto formats = support::Split(info.code_formats, ',');
  return std::find(formats.begin(), formats.end(), format) != formats.end();
}

// What the device's fingerprint does not list under "features".
std::vector<std::string> Missing(const TwDeviceInfo& info,
                                 const std::vector<std::string>& required) {
  constexpr std::string_view kKey = "features=";
  std::vector<std::string> has, missing;
  for (const std::string& line : support::Split(info.fingerprint, '\n')) {
    if (line.starts_with(kKey)) has = support::Split(line.substr(kKey.size()), ',');
  }
  std::copy_if(required.begin(), required.end(), std::back_inserter(missing),
               [&](const std::string& name) {
                 return std::find(has.begin(), has.end(), name) == has.end();
               });
  return missing;
}

}  // namespace

DevicePart::DevicePart(const module::ModuleFile& file, Functions functions,
                       const TwDevicePlugin& plugin, TwDevice* device, DevicePartOptions options)
    : file_(file),
      functions_(std::move(functions)),
      plugin_(plugin),
      device_(device),
      options_(std::move(options)),
      graphs_(std::make_unique<LaunchGraphs>(plugin, device, options_.launch_graphs)) {}

DevicePart::~DevicePart() {
  graphs_.reset();
  for (TwDeviceMemory* memory : memory_) plugin_.free(device_, memory);
  for (TwDeviceCode* code : code_) {
    if (code != nullptr) plugin_.unload(device_, code);
  }
}

absl::StatusOr<std::unique_ptr<DevicePart>> DevicePart::Create(const module::ModuleFile& file,
                                                               Functions functions,
                                                               const TwDevicePlugin& plugin,
                                                               TwDevice* device,
                                                               const DevicePartOptions& options) {
  std::unique_ptr<DevicePart> part(
      new DevicePart(file, std::move(functions), plugin, device, options));
  part->info_.struct_bytes = sizeof(part->info_);
  TW_TRY(part->Check(plugin.describe(device, &part->info_)));
  TW_TRY(part->LoadCode());
  for (const module::Function* function : part->functions_) TW_TRY(part->CheckLaunches(*function));
  TW_TRY(part->Allocate());
  for (const module::Function* function : part->functions_) {
    for (const module::Launch* launch : part->LaunchesOf(*function)) TW_TRY(part->Bind(*launch));
  }
  return part;
}

std::vector<const module::Launch*> DevicePart::LaunchesOf(const module::Function& function) const {
  std::vector<const module::Launch*> launches;
  for (const auto* list : {&function.prepare, &function.launches}) {
    for (const module::Launch& launch : *list) {
      if (Runs(launch)) launches.push_back(&launch);
    }
  }
  return launches;
}

absl::Status DevicePart::CheckLaunches(const module::Function& function) const {
  for (const module::Launch* launch : LaunchesOf(function)) {
    bool fixed = launch->workspace_bytes.constant() && !module::IsOpen(launch->sizes);
    for (const int64_t id : launch->args) {
      const Tensor& tensor = TensorOf(id);
      // What a state keeps is on the processor; launches here may make entries of it.
      const bool kept = tensor.kind == TensorKind::kState && !tensor.entries_of;
      fixed = fixed && !kept;
    }
    if (fixed) continue;
    return support::Unimplemented(
        "runtime.load.open_sizes",
        StrCat("expected launches of fixed sizes for a device of kind ", plugin_.kind, ", found '",
               launch->name, "' (", launch->symbol, ")"));
  }
  return absl::OkStatus();
}

absl::Status DevicePart::Check(TwDeviceResult result) const {
  return DeviceStatus(plugin_, device_, result);
}

const Tensor& DevicePart::TensorOf(int64_t id) const {
  return file_.manifest().tensors[static_cast<size_t>(id)];
}

bool DevicePart::Runs(const module::Launch& launch) const {
  return code_[static_cast<size_t>(launch.code)] != nullptr;
}

absl::Status DevicePart::LoadCode() {
  for (size_t i = 0; i < file_.num_code(); ++i) {
    const module::CodeObject& object = file_.manifest().code[i];
    TwDeviceCode*& code = code_.emplace_back(nullptr);
    if (!options_.kind.empty() && object.device != options_.kind) continue;
    if (!Accepts(info_, object.format)) {
      return support::FailedPrecondition(
          "runtime.load.format", StrCat("expected code as ", info_.code_formats, " for ",
                                        info_.name, ", found ", support::Quote(object.format)));
    }
    const std::vector<std::string> missing = Missing(info_, object.features);
    if (!missing.empty()) {
      return support::FailedPrecondition(
          "runtime.load.device_features",
          StrCat("the module's code needs ", support::Join(missing, ", "), ", which ", info_.name,
                 " lacks"));
    }
    const std::string_view image = file_.code(i);
    TW_TRY(
        LoadCached({.folder = options_.code_cache}, plugin_, device_, object.format, image, &code));
  }
  return absl::OkStatus();
}

absl::StatusOr<TwDeviceMemory*> DevicePart::NewMemory(int64_t bytes) {
  TwDeviceMemory* memory = nullptr;
  TW_TRY(Check(plugin_.alloc(device_, std::max<int64_t>(bytes, 1), &memory)));
  memory_.push_back(memory);
  return memory;
}

// A tensor in a part of memory that tensors share, which is allocated for the first of them.
absl::Status DevicePart::PlaceInRegion(const Tensor& tensor, int64_t offset, int64_t bytes,
                                       TwDeviceMemory** region) {
  if (offset % info_.alignment != 0) {
    return support::FailedPrecondition(
        "runtime.load.alignment",
        StrCat("expected tensors at multiples of ", info_.alignment, " bytes for ", info_.name,
               ", found '", tensor.name, "' at ", offset, "; compile the model again"));
  }
  if (*region == nullptr) {
    TW_ASSIGN(*region, NewMemory(bytes));
  }
  slices_[tensor.id] = {*region, offset};
  return absl::OkStatus();
}

absl::Status DevicePart::PlaceTensor(const Tensor& tensor) {
  if (Has(tensor.id)) return absl::OkStatus();
  const module::Manifest& manifest = file_.manifest();
  const bool open = manifest.open_sizes();
  switch (tensor.kind) {
    case TensorKind::kInput:
    case TensorKind::kOutput:
    case TensorKind::kState: {
      TW_ASSIGN(TwDeviceMemory * memory, NewMemory(tensor.bytes + options_.guard_bytes));
      slices_[tensor.id] = {memory, 0};
      return absl::OkStatus();
    }
    case TensorKind::kConstant:
      TW_TRY(PlaceInRegion(tensor, tensor.offset, manifest.constants_bytes, &constants_));
      return Upload(tensor.id, file_.constants().data() + tensor.offset, tensor.bytes);
    case TensorKind::kPrepared:
      if (!open) return PlaceInRegion(tensor, tensor.offset, manifest.arena_bytes, &arena_);
      return PlaceInRegion(tensor, tensor.offset, module::PreparedBytes(manifest), &prepared_);
    case TensorKind::kIntermediate:
      break;
  }
  return PlaceInRegion(tensor, layout_.offsets.at(tensor.id),
                       open ? layout_.arena_bytes : manifest.arena_bytes, &arena_);
}

// The tensors that have memory here, with the layout of the intermediates among them.
absl::StatusOr<std::set<int64_t>> DevicePart::PlanTensors() {
  const OnDevice runs = [this](const module::Launch& launch) { return Runs(launch); };
  std::set<int64_t> tensors;
  for (const module::Function* function : functions_) {
    const ExecutionPlan plan = PlanExecution(file_.manifest(), *function, runs);
    std::set<int64_t> own = TensorsOnDevice(*function, plan, runs);
    TW_TRY(AddLayout(file_.manifest(), *function, own, info_.alignment, &layout_));
    tensors.merge(own);
    // What the module measures or returns has a place even if no launch uses it.
    if (!options_.kind.empty()) continue;
    tensors.insert(function->inputs.begin(), function->inputs.end());
    tensors.insert(function->outputs.begin(), function->outputs.end());
  }
  return tensors;
}

absl::Status DevicePart::Allocate() {
  TW_ASSIGN(const std::set<int64_t> tensors, PlanTensors());
  for (const int64_t id : tensors) TW_TRY(PlaceTensor(TensorOf(id)));
  for (const module::Function* function : functions_) {
    for (const module::Launch* launch : LaunchesOf(*function))
      workspace_bytes_ = std::max(workspace_bytes_, launch->workspace_bytes.value());
  }
  if (workspace_bytes_ == 0) return absl::OkStatus();
  TW_ASSIGN(workspace_.memory, NewMemory(workspace_bytes_));
  return absl::OkStatus();
}

absl::Status DevicePart::Bind(const module::Launch& launch) {
  BoundLaunch& bound = launches_[&launch];
  TwDeviceLaunch& call = bound.call;
  call.struct_bytes = sizeof(call);
  // A plug-in knows a kernel by its name; what its language makes of that is the plug-in's.
  const std::string name = launch.symbol.substr(sizeof(TW_KERNEL_SYMBOL_PREFIX) - 1);
  TW_TRY(Check(
      plugin_.find(device_, code_[static_cast<size_t>(launch.code)], name.c_str(), &call.kernel)));
  for (size_t axis = 0; axis < launch.grid.size(); ++axis) {
    call.grid[axis] = launch.has_grid() ? launch.grid[axis] : 1;
    call.group[axis] = launch.has_grid() ? launch.group[axis] : 1;
  }
  for (const int64_t id : launch.args) bound.buffers.push_back(slices_.at(id));
  call.buffers = bound.buffers.data();
  call.num_buffers = static_cast<int64_t>(bound.buffers.size());
  for (const module::Dim& size : launch.sizes) bound.sizes.push_back(size.value());
  call.sizes = bound.sizes.data();
  call.num_sizes = static_cast<int64_t>(bound.sizes.size());
  if (launch.workspace_bytes.value() > 0) call.workspace = &workspace_;
  return absl::OkStatus();
}

absl::Status DevicePart::Launch(const module::Launch& launch) {
  return Check(plugin_.launch(device_, &launches_.at(&launch).call));
}

absl::StatusOr<LaunchTrace> DevicePart::Trace(const module::Launch& launch) {
  constexpr size_t kLeastBytes = offsetof(TwDevicePlugin, trace) + sizeof(plugin_.trace);
  if (plugin_.struct_bytes < kLeastBytes || plugin_.trace == nullptr) {
    return support::Unimplemented(
        "runtime.device.no_trace",
        StrCat("expected a device that says what it does in a launch, found ", info_.name));
  }
  const TwDeviceTrace* given = nullptr;
  TW_TRY(Check(plugin_.trace(device_, &launches_.at(&launch).call, &given)));
  return LaunchTrace{.program = given->program,
                     .unit = info_.unit == nullptr ? "device_ns" : info_.unit,
                     .time = given->time,
                     .picture = given->picture,
                     .events = given->events,
                     .work_name = given->work_name,
                     .work = given->work,
                     .bytes = given->bytes,
                     .peak_work = given->peak_work,
                     .peak_bytes = given->peak_bytes};
}

absl::Status DevicePart::LaunchAll(std::span<const module::Launch* const> launches) {
  queued_.clear();
  for (const module::Launch* launch : launches) queued_.push_back(&launches_.at(launch).call);
  return graphs_->Queue(queued_);
}

absl::Status DevicePart::Upload(int64_t tensor, const void* data, int64_t bytes) {
  return Check(plugin_.write(device_, slices_.at(tensor), data, bytes));
}

absl::Status DevicePart::Download(int64_t tensor, void* data, int64_t bytes) {
  return Check(plugin_.read(device_, slices_.at(tensor), data, bytes));
}

absl::Status DevicePart::Copy(int64_t from, int64_t to) {
  return Check(plugin_.copy(device_, slices_.at(to), slices_.at(from), TensorOf(from).bytes));
}

absl::Status DevicePart::Fill(int64_t tensor, uint8_t byte, int64_t extra) {
  const std::vector<uint8_t> pattern(static_cast<size_t>(TensorOf(tensor).bytes + extra), byte);
  return Upload(tensor, pattern.data(), static_cast<int64_t>(pattern.size()));
}

absl::Status DevicePart::FillWorkspace(uint8_t byte) {
  if (workspace_.memory == nullptr) return absl::OkStatus();
  const std::vector<uint8_t> pattern(static_cast<size_t>(workspace_bytes_), byte);
  return Check(plugin_.write(device_, workspace_, pattern.data(), workspace_bytes_));
}

absl::Status DevicePart::Synchronize() { return Check(plugin_.synchronize(device_)); }

}  // namespace tilewright::runtime
