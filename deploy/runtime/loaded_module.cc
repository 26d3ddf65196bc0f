#include <map>
#include <optional>
#include <utility>

#include "deploy/runtime/code_loader.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/runtime/device_loader.h"
#include "deploy/runtime/external_library.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::runtime {

using module::Function;
using module::Launch;
using module::Manifest;

struct LoadedModule::Impl {
  explicit Impl(module::ModuleFile f) : file(std::move(f)) {}

  absl::Status CheckMachine() const;
  absl::Status CheckFormats() const;
  absl::Status LoadCode(const LoadOptions& options);
  absl::Status LoadPlugin(const std::string& kind);
  absl::Status Resolve(const Launch& launch);
  absl::Status ResolveExternal(const Launch& launch);

  module::ModuleFile file;
  std::vector<LoadedCode> code;  // by index in the module; none for a device's
  std::optional<DevicePlugin> plugin;
  const TwDevicePlugin* device_table = nullptr;
  std::map<std::pair<int64_t, std::string>, TwKernelFn> kernels;
  ExternalLibraries libraries;
  std::map<int64_t, ExternalLibraries::Use> uses;  // by index of the code object
  std::map<std::pair<int64_t, std::string>, TwExternalKernel> external;
};

absl::Status LoadedModule::Impl::CheckMachine() const {
  const Manifest& manifest = file.manifest();
  TW_TRY(CheckFormats());
  const CpuInfo cpu = DetectCpu();
  const std::vector<std::string> missing = MissingFeatures(cpu, manifest.cpu_features);
  if (!missing.empty()) {
    return support::FailedPrecondition(
        "runtime.load.cpu_features",
        "the module was compiled for '" + manifest.target + "'; this CPU (" + cpu.model_name +
            ") lacks " + support::Join(missing, ", ") + "; compile it for this machine");
  }
  for (const module::CodeObject& object : manifest.code) {
    if (object.abi_version > static_cast<int64_t>(TW_ABI_VERSION)) {
      return support::FailedPrecondition("runtime.load.abi_version",
                                         "expected at most " + std::to_string(TW_ABI_VERSION) +
                                             ", found " + std::to_string(object.abi_version) +
                                             ": the module needs a newer runtime");
    }
  }
  return absl::OkStatus();
}

// Before the features: a processor of another kind has other ones, which say nothing.
absl::Status LoadedModule::Impl::CheckFormats() const {
  for (const module::CodeObject& object : file.manifest().code) {
    if (!object.device.empty() || object.format == kLibraryFormat) continue;
    if (object.format == NativeCodeFormat()) continue;
    return support::FailedPrecondition(
        "runtime.code.format",
        support::StrCat("expected ", NativeCodeFormat(), ", found ", object.format.substr(0, 64),
                        ": the module was compiled for '", file.manifest().target, "'"));
  }
  return absl::OkStatus();
}

absl::Status LoadedModule::Impl::LoadCode(const LoadOptions& options) {
  for (size_t i = 0; i < file.num_code(); ++i) {
    if (const std::string& device = file.manifest().code[i].device; !device.empty()) {
      TW_TRY(LoadPlugin(device));
      code.emplace_back();
      continue;
    }
    if (file.manifest().code[i].format == kLibraryFormat) {
      TW_ASSIGN(uses[static_cast<int64_t>(i)], libraries.Load(file.code(i), options.libraries));
      code.emplace_back();
      continue;
    }
    TW_ASSIGN(LoadedCode loaded, LoadedCode::Load(file.manifest().code[i].format, file.code(i)));
    code.push_back(std::move(loaded));
  }
  for (const Function& function : file.manifest().functions) {
    for (const Launch& launch : function.prepare) TW_TRY(Resolve(launch));
    for (const Launch& launch : function.launches) TW_TRY(Resolve(launch));
  }
  return absl::OkStatus();
}

absl::Status LoadedModule::Impl::LoadPlugin(const std::string& kind) {
  if (device_table != nullptr) {
    if (kind == device_table->kind) return absl::OkStatus();
    return support::Unimplemented("runtime.load.devices",
                                  "expected code for one kind of device, found some for " +
                                      std::string(device_table->kind) + " and for " + kind);
  }
  if (kind == CpuDevicePlugin()->kind) {
    device_table = CpuDevicePlugin();
  } else {
    TW_ASSIGN(const std::string path, FindDevicePlugin(kind));
    TW_ASSIGN(plugin, DevicePlugin::Open(path));
    device_table = &plugin->table();
  }
  int32_t devices = 0;
  if (device_table->count(&devices) == TW_DEVICE_OK && devices > 0) return absl::OkStatus();
  return support::NotFound("runtime.device.none",
                           "expected a device of kind " + kind + ", found none on this machine");
}

absl::Status LoadedModule::Impl::Resolve(const Launch& launch) {
  if (!file.manifest().code[static_cast<size_t>(launch.code)].device.empty())
    return absl::OkStatus();
  if (launch.has_grid()) {
    return support::FailedPrecondition(
        "runtime.load.grid",
        "launch '" + launch.symbol + "' is one of groups and threads; the CPU runs none");
  }
  if (uses.contains(launch.code)) return ResolveExternal(launch);
  const auto [it, added] = kernels.try_emplace({launch.code, launch.symbol}, nullptr);
  if (!added) return absl::OkStatus();
  const absl::StatusOr<void*> symbol = code[static_cast<size_t>(launch.code)].Symbol(launch.symbol);
  if (!symbol.ok()) return absl::DataLossError(symbol.status().message());
  it->second = reinterpret_cast<TwKernelFn>(*symbol);
  return absl::OkStatus();
}

absl::Status LoadedModule::Impl::ResolveExternal(const Launch& launch) {
  // The manifest has one form of symbols; the library's own names have no prefix.
  const std::string function = launch.symbol.substr(sizeof(TW_KERNEL_SYMBOL_PREFIX) - 1);
  TW_ASSIGN((external[{launch.code, launch.symbol}]),
            ExternalLibraries::Find(uses.at(launch.code), function));
  return absl::OkStatus();
}

LoadedModule::LoadedModule(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LoadedModule::~LoadedModule() = default;

absl::StatusOr<std::shared_ptr<const LoadedModule>> LoadedModule::Load(module::ModuleFile file,
                                                                       const LoadOptions& options) {
  auto impl = std::make_unique<Impl>(std::move(file));
  TW_TRY(impl->CheckMachine());
  TW_TRY(impl->LoadCode(options));
  return std::shared_ptr<const LoadedModule>(new LoadedModule(std::move(impl)));
}

absl::StatusOr<std::shared_ptr<const LoadedModule>> LoadedModule::Open(const std::string& path,
                                                                       const LoadOptions& options) {
  TW_ASSIGN(module::ModuleFile file, module::ModuleFile::Open(path));
  return Load(std::move(file), options);
}

const module::ModuleFile& LoadedModule::file() const { return impl_->file; }
const Manifest& LoadedModule::manifest() const { return impl_->file.manifest(); }

const TwDevicePlugin* LoadedModule::device_plugin() const { return impl_->device_table; }

ExternalCall LoadedModule::External(const Launch& launch) const {
  const auto it = impl_->external.find({launch.code, launch.symbol});
  if (it == impl_->external.end()) return {};
  return {it->second, impl_->uses.at(launch.code).attributes.c_str()};
}

TwKernelFn LoadedModule::Kernel(const Launch& launch) const {
  if (impl_->uses.contains(launch.code)) return nullptr;
  const auto it = impl_->kernels.find({launch.code, launch.symbol});
  TW_CHECK(it != impl_->kernels.end()) << launch.symbol;
  return it->second;
}

}  // namespace tilewright::runtime
