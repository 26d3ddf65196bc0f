#include "tuner_server/cli/native_target.h"

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

}  // namespace tilewright::cli
