#include "tuner_server/cli/native_target.h"

#include "compiler/target/machine.h"
#include "compiler/target/target.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/support/strings.h"

namespace tilewright::cli {

absl::StatusOr<std::string> ExpandTarget(const std::string& text) {
  std::string expanded = text;
  if (text == "native" || text.starts_with("native,")) {
    const runtime::CpuInfo cpu = runtime::DetectCpu();
    expanded = support::StrCat(
        "cpu,arch=", cpu.arch,
        ",cpu=", target::BestMachineName(cpu.arch, cpu.vendor, cpu.family, cpu.model, cpu.features),
        text.substr(std::string_view("native").size()));
    if (text.find("threads=") == std::string::npos) {
      expanded += support::StrCat(",threads=", cpu.cores_usable);
    }
  }
  TW_ASSIGN(target::Target target, target::ParseTarget(expanded));
  return target.ToString();
}

absl::StatusOr<std::string> ExpandMeasuredTarget(const std::string& text) {
  TW_ASSIGN(std::string expanded, ExpandTarget(text));
  const target::Kind* kind = target::FindKind(expanded.substr(0, expanded.find(',')));
  if (kind->has_devices()) return expanded;
  return support::InvalidArgument(
      "cli.usage.no_devices",
      support::StrCat("expected a target of kind ", target::DeviceKindNames(" or "), ", found ",
                      expanded, ": this version has no plug-in that measures on its devices"));
}

}  // namespace tilewright::cli
