#include "compiler/codegen/c_artifact.h"

#include <utility>

#include "compiler/codegen/launch_artifact.h"
#include "deploy/support/status.h"

namespace tilewright::codegen {

absl::StatusOr<Artifact> GenerateC(const Request& request, const CDialect& dialect) {
  return GenerateLaunches(
      request, [&](const std::vector<ir::Function>& kernels) -> absl::StatusOr<KernelCode> {
        TW_ASSIGN(CText text, EmitC(kernels, dialect, request.target.machine.launch.sub_groups));
        TW_TRY(WriteDump(request.options, request.functions[0].name, dialect.suffix, text.text));
        return KernelCode{std::move(text.text), std::move(text.features)};
      });
}

}  // namespace tilewright::codegen
