#include "compiler/codegen/c_artifact.h"

#include <utility>

#include "compiler/codegen/launch_artifact.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::codegen {
namespace {

// A line for each kernel.
std::string ReportOf(const std::vector<KernelResources>& kernels) {
  std::string report;
  for (const KernelResources& k : kernels) {
    report +=
        support::StrCat(k.name, " registers=", k.registers, " spill_bytes=", k.spill_bytes,
                        " stack_bytes=", k.stack_bytes, " shared_bytes=", k.shared_bytes, "\n");
  }
  return report;
}

}  // namespace

absl::StatusOr<Artifact> GenerateC(const Request& request, const CDialect& dialect) {
  return GenerateLaunches(
      request, [&](const std::vector<ir::Function>& kernels) -> absl::StatusOr<KernelCode> {
        TW_ASSIGN(CText text, EmitC(kernels, dialect, request.target.machine.launch.sub_groups));
        TW_TRY(WriteDump(request.options, request.functions[0].name, dialect.suffix, text.text));
        return KernelCode{std::move(text.text), std::move(text.features)};
      });
}

absl::StatusOr<Artifact> GenerateCompiled(const Request& request, const CDialect& dialect,
                                          DeviceCompiler compile) {
  TW_ASSIGN(Artifact artifact, GenerateC(request, dialect));
  support::SystemClock clock;
  const int64_t start_ns = clock.NowNs();
  const std::string& machine = request.target.cpu;
  TW_ASSIGN(DeviceCode code, compile(artifact.bytes, machine));
  TW_TRY(
      WriteDump(request.options, request.functions[0].name, ".resources", ReportOf(code.kernels)));
  artifact.bytes = std::move(code.bytes);
  artifact.resources = std::move(code.kernels);
  artifact.required_features.push_back(machine);
  artifact.link_seconds = static_cast<double>(clock.NowNs() - start_ns) * 1e-9;
  return artifact;
}

}  // namespace tilewright::codegen
