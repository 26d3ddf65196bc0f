#include "compiler/targets/vulkan/vulkan_codegen.h"

#include <set>

#include "compiler/targets/backend.h"
#include "deploy/runtime/spirv_abi.h"
#include "deploy/support/status.h"

namespace tilewright::vulkan {
namespace {

std::string BytesOf(const Words& words) {
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(uint32_t)};
}

// `dump` is where each module goes, too.
absl::StatusOr<codegen::KernelCode> CodeOf(const std::vector<ir::Function>& kernels,
                                           const SpirvOptions& options,
                                           const codegen::CodegenOptions& dump) {
  Words list = {TW_SPIRV_MAGIC};
  std::set<std::string> features;
  for (const ir::Function& kernel : kernels) {
    TW_ASSIGN(const KernelModule module, EmitKernel(kernel, options));
    TW_TRY(codegen::WriteDump(dump, kernel.name, ".spv", BytesOf(module.words)));
    list.push_back(static_cast<uint32_t>(module.words.size()));
    list.push_back(module.loops);
    list.insert(list.end(), module.words.begin(), module.words.end());
    features.insert(module.features.begin(), module.features.end());
  }
  return codegen::KernelCode{BytesOf(list), {features.begin(), features.end()}};
}

}  // namespace

absl::StatusOr<codegen::KernelCode> EmitSpirv(const std::vector<ir::Function>& kernels,
                                              const SpirvOptions& options) {
  return CodeOf(kernels, options, {});
}

absl::StatusOr<codegen::Artifact> Generate(const codegen::Request& request) {
  return codegen::GenerateLaunches(request, [&](const std::vector<ir::Function>& kernels) {
    return CodeOf(kernels, SpirvOptions::Of(request.target.machine), request.options);
  });
}

std::string ToolchainName() { return "spirv-1.3"; }

constinit const targets::Backend kBackend = {
    .pipeline = transform::GpuPipeline,
    .generate = Generate,
    .toolchain = ToolchainName,
    .alignment = 512,  // no device asks for more than 256
    .on_device = true,
};

}  // namespace tilewright::vulkan
