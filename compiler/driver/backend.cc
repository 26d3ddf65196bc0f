#include "compiler/driver/backend.h"

#include <algorithm>
#include <iterator>

#include "compiler/targets/opencl/opencl_codegen.h"
#include "deploy/module/manifest.h"
#include "deploy/support/status.h"

namespace tilewright::driver {
namespace {

// Devices want parts of an allocation at such multiples; none is known that wants more.
constexpr int64_t kDeviceAlignment = 512;

absl::StatusOr<codegen::Artifact> GenerateLlvm(const codegen::Request& request) {
  return codegen::Generate(request.functions, request.target, request.options);
}

constexpr Backend kBackends[] = {
    {.kind = "cpu",
     .pipeline = transform::CpuPipeline,
     .generate = GenerateLlvm,
     .toolchain = codegen::ToolchainName,
     .alignment = module::kTensorAlignment,
     .on_device = false},
    {.kind = "opencl",
     .pipeline = transform::GpuPipeline,
     .generate = opencl::Generate,
     .toolchain = opencl::ToolchainName,
     .alignment = kDeviceAlignment,
     .on_device = true},
};

}  // namespace

const Backend& BackendOf(const target::Target& target) {
  const auto* row = std::find_if(std::begin(kBackends), std::end(kBackends),
                                 [&](const Backend& b) { return b.kind == target.kind; });
  TW_CHECK(row != std::end(kBackends)) << target.ToString();
  return *row;
}

}  // namespace tilewright::driver
