#include "tuner_server/cli/log_check_command.h"

#include <nlohmann/json.hpp>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/embedded.h"
#include "tuner_server/log/log_check.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

nlohmann::json HealthJson(const log::LogHealth& health) {
  nlohmann::json tables = nlohmann::json::object();
  for (const log::LogHealth::Table& table : health.tables) {
    tables[table.name] = {{"rows", table.rows}, {"damaged", table.damaged}};
  }
  return {{"whole", health.whole()},
          {"tables", tables},
          {"jobs", health.jobs},
          {"examples", health.examples},
          {"structure", health.structure}};
}

std::string HealthText(const log::LogHealth& health) {
  Table table({{"table"}, {"rows", true}, {"damaged", true}});
  for (const log::LogHealth::Table& one : health.tables) {
    table.AddRow({one.name, StrCat(one.rows), StrCat(one.damaged)});
  }
  std::string text = table.Render();
  int64_t whole = 0;
  for (const auto& [job, damaged] : health.jobs) {
    whole += damaged == 0 ? 1 : 0;
    if (damaged > 0) text += StrCat("\njob ", support::Quote(job), ": ", damaged, " damaged rows");
  }
  text += StrCat("\nwhole jobs: ", whole, " of ", health.jobs.size());
  for (const std::string& row : health.examples) text += "\ndamaged: " + row;
  for (const std::string& finding : health.structure) text += "\nfile: " + finding;
  return text;
}

absl::Status Check(const LogCheckOptions& options) {
  std::string path = options.log_path;
  if (path.empty()) {
    TW_ASSIGN(const std::string state_dir, EmbeddedStateDir(""));
    path = EmbeddedLog(state_dir);
  }
  TW_TRY(support::FileSize(path).status());  // not_found says which file
  TW_ASSIGN(const log::LogHealth health, log::CheckLogFile(path, log::CheckDepth::kFully));
  if (options.format == OutputFormat::kJson) {
    PrintJson(HealthJson(health));
  } else {
    PrintOut(HealthText(health));
  }
  return log::RequireWhole(health, path);
}

}  // namespace

int LogCheck(const LogCheckOptions& options) {
  return Finish("log check", "the log is not whole", Check(options));
}

}  // namespace tilewright::cli
