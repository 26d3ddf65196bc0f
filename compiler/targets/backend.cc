#include "compiler/targets/backend.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "compiler/targets/kind_table.h"
#include "deploy/module/manifest.h"
#include "deploy/support/status.h"

namespace tilewright::targets {
namespace {

absl::StatusOr<codegen::Artifact> GenerateLlvm(const codegen::Request& request) {
  return codegen::Generate(request.functions, request.target, request.options);
}

constexpr Backend kLlvm = {.pipeline = transform::CpuPipeline,
                           .generate = GenerateLlvm,
                           .toolchain = codegen::ToolchainName,
                           .alignment = module::kTensorAlignment,
                           .on_device = false};

constexpr std::pair<std::string_view, const Backend*> kBackends[] = {
    {target::kProcessors, &kLlvm},
#define TW_DEVICE(name) {#name, &name::kBackend},
#include "compiler/targets/targets.def"
};

}  // namespace

const Backend& BackendOf(const target::Target& target) {
  const auto* row = std::find_if(std::begin(kBackends), std::end(kBackends),
                                 [&](const auto& b) { return b.first == target.kind; });
  TW_CHECK(row != std::end(kBackends)) << target.ToString();
  return *row->second;
}

}  // namespace tilewright::targets
