// `tilewright log explain`: shows why a task has its schedule.
#pragma once

#include <string>

#include "tuner_server/cli/log_source.h"
#include "tuner_server/cli/log_task.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct LogExplainOptions {
  LogPlace place;
  TaskQuery task;
  int runner_ups = 5;
  OutputFormat format = OutputFormat::kTable;
};
int LogExplain(const LogExplainOptions& options);

}  // namespace tilewright::cli
