#include "tuner_server/cli/targets_command.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compiler/target/machine.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/runtime/device_loader.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/native_target.h"

namespace tilewright::cli {

namespace {

// A configuration of a device: whether there is one is for its plug-in to say.
void AddConfiguration(const target::Kind& kind, const target::Machine& machine, Table* table,
                      nlohmann::json* rows) {
  const std::string target =
      support::StrCat(kind.name, ",", kind.families[0].machine_key, "=", machine.name);
  const bool here = runtime::FindDevicePlugin(kind.name).ok();
  const int64_t block = machine.matrix.block;
  std::string lanes;  // empty: they differ from device to device
  if (machine.has_matrix()) lanes = support::StrCat(block, " x ", block);
  if (machine.launch.warp > 1) lanes = support::StrCat(machine.launch.warp, " threads");
  table->AddRow({target, lanes, "", "", here ? "yes" : "no"});
  nlohmann::json row = {
      {"target", target}, {"features", machine.FeatureList()}, {"runs_here", here}};
  if (machine.has_matrix()) row["matrix_block"] = block;
  if (!machine.inexact_feature.empty()) row["inexact_feature"] = machine.inexact_feature;
  rows->push_back(std::move(row));
}

// What targets of a kind may ask for.
std::string InexactText() {
  std::string text;
  for (const target::Kind& kind : target::Kinds()) {
    const std::string_view feature = kind.families[0].machines.back().inexact_feature;
    if (feature.empty()) continue;
    text += support::StrCat("append ,", feature, "=on to a target of ", kind.name,
                            ": products of f32 are faster and less exact\n");
  }
  return text;
}

}  // namespace

int ListTargets(OutputFormat format) {
  const auto list = [&]() -> absl::Status {
    TW_ASSIGN(const std::string native, ExpandTarget("native"));
    const runtime::CpuInfo cpu = runtime::DetectCpu();
    const std::vector<std::string> runnable = target::RunnableMachines(cpu.arch, cpu.features);
    Table table({{"target"}, {"SIMD", true}, {"L1", true}, {"L2", true}, {"runs here"}});
    nlohmann::json rows = nlohmann::json::array();
    const auto add = [&](const target::Kind& kind, const target::Family& family,
                         const target::Machine& machine) {
      if (family.arch.empty()) return AddConfiguration(kind, machine, &table, &rows);
      const std::string target =
          support::StrCat(kind.name, ",arch=", family.arch, ",cpu=", machine.name);
      const bool here = family.arch == cpu.arch &&
                        std::find(runnable.begin(), runnable.end(), machine.name) != runnable.end();
      const int64_t l1 = machine.l1.bytes, l2 = machine.l2.all_bytes();
      table.AddRow({target, support::StrCat(machine.vector_bytes * 8, " bit"),
                    BytesText(static_cast<double>(l1)), BytesText(static_cast<double>(l2)),
                    here ? "yes" : "no"});
      rows.push_back({{"target", target},
                      {"vector_bits", machine.vector_bytes * 8},
                      {"l1_bytes", l1},
                      {"l2_bytes", l2},
                      {"features", machine.FeatureList()},
                      {"runs_here", here}});
    };
    for (const target::Kind& kind : target::Kinds()) {
      for (const target::Family& family : kind.families) {
        for (const target::Machine& machine : family.machines) {
          if (!machine.name.empty()) add(kind, family, machine);
        }
      }
    }
    if (format == OutputFormat::kJson) {
      PrintJson({{"native", native}, {"targets", rows}});
    } else {
      PrintOut(support::StrCat("native means ", native, "  (", cpu.model_name, ")\n",
                               "append ,threads=N to any target; without it: one thread, for "
                               "native: all usable cores\n",
                               InexactText()));
      PrintOut(table.Render());
    }
    return absl::OkStatus();
  };
  return Finish("targets", "cannot list targets", list());
}

}  // namespace tilewright::cli
