#include "tuner_server/cli/explore_synthesis.h"

#include <nlohmann/json.hpp>

#include "deploy/support/process.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

constexpr int64_t kMsPerSecond = 1000;
constexpr size_t kMaxOutputBytes = 1 << 20;

// What the program printed about one configuration; its error as a status.
absl::StatusOr<nlohmann::json> AskProgram(const SynthesisOptions& options,
                                          const std::string& name) {
  support::ChildOptions child;
  child.program = options.program;
  child.args = {"--json", name};
  child.stderr_mode = support::Stdio::kInherit;
  child.background = true;
  const auto ran = support::RunCommand(child, "", options.limit_ms, kMaxOutputBytes);
  if (absl::IsDeadlineExceeded(ran.status())) {
    return support::DeadlineExceeded(
        "cli.explore.synthesis",
        StrCat("not synthesised within ", options.limit_ms / kMsPerSecond, " s"));
  }
  TW_TRY(ran.status());
  nlohmann::json said = nlohmann::json::parse(ran->stdout_text, nullptr, false);
  if (said.is_object() && said.contains("error") && said["error"].is_string())
    return support::Unavailable("cli.explore.synthesis", said["error"].get<std::string>());
  if (said.is_object() && said.contains("cells") && said["cells"].is_number_integer()) return said;
  return support::Unavailable("cli.explore.synthesis",
                              StrCat("expected a JSON object with cells of ", options.program,
                                     ", found ", ran->status.ToString()));
}

}  // namespace

absl::Status Synthesise(const SynthesisOptions& options, std::vector<ExploredTarget>* rows) {
  for (ExploredTarget& row : *rows) {
    const std::string name = ConfigurationOf(row.target);
    PrintErr(StrCat("synthesising ", name, ", at most ", options.limit_ms / kMsPerSecond, " s\n"));
    const absl::StatusOr<nlohmann::json> said = AskProgram(options, name);
    if (absl::IsNotFound(said.status()) || absl::IsPermissionDenied(said.status()))
      return support::WithContext(said.status(), "--synthesise");
    if (!said.ok()) {
      row.cells_note = support::Detail(said.status());
      continue;
    }
    row.cells = (*said)["cells"].get<int64_t>();
    row.block_ram.reset();
    if (said->contains("block_ram") && (*said)["block_ram"].is_number())
      row.block_ram = (*said)["block_ram"].get<double>();
    row.cells_from = options.program;
  }
  return absl::OkStatus();
}

}  // namespace tilewright::cli
