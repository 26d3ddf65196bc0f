#include "tuner_server/cli/targets_command.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "deploy/runtime/cpu_info.h"
#include "deploy/support/cpu_table.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/native_target.h"

namespace tilewright::cli {

int ListTargets(OutputFormat format) {
  const auto list = [&]() -> absl::Status {
    TW_ASSIGN(const std::string native, ExpandTarget("native"));
    const runtime::CpuInfo cpu = runtime::DetectCpu();
    const std::vector<std::string> runnable = support::RunnableCpus(cpu.arch, cpu.features);
    Table table({{"target"}, {"SIMD", true}, {"L1", true}, {"L2", true}, {"runs here"}});
    nlohmann::json rows = nlohmann::json::array();
    for (const support::CpuRow& row : support::Cpus()) {
      const std::string target = support::StrCat("cpu,arch=", row.arch, ",cpu=", row.name);
      const bool here = row.arch == cpu.arch &&
                        std::find(runnable.begin(), runnable.end(), row.name) != runnable.end();
      table.AddRow({target, support::StrCat(row.vector_bytes * 8, " bit"),
                    BytesText(static_cast<double>(row.l1_bytes)),
                    BytesText(static_cast<double>(row.l2_bytes)), here ? "yes" : "no"});
      rows.push_back({{"target", target},
                      {"vector_bits", row.vector_bytes * 8},
                      {"l1_bytes", row.l1_bytes},
                      {"l2_bytes", row.l2_bytes},
                      {"features", support::FeaturesOf(row)},
                      {"runs_here", here}});
    }
    if (format == OutputFormat::kJson) {
      PrintJson({{"native", native}, {"targets", rows}});
    } else {
      PrintOut(support::StrCat("native means ", native, "  (", cpu.model_name, ")\n",
                               "append ,threads=N to any target; without it: one thread, for "
                               "native: all usable cores\n"));
      PrintOut(table.Render());
    }
    return absl::OkStatus();
  };
  return Finish("targets", "cannot list targets", list());
}

}  // namespace tilewright::cli
