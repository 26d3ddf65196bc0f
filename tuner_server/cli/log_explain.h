// `tilewright log explain`: shows why a task has its schedule.
#pragma once

#include <string>

#include "tuner_server/cli/log_source.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct LogExplainOptions {
  LogPlace place;
  std::string task;  // name in its job, or the first digits of its hash
  std::string job;   // empty: the newest that has the task
  int runner_ups = 5;
  OutputFormat format = OutputFormat::kTable;
};
int LogExplain(const LogExplainOptions& options);

}  // namespace tilewright::cli
