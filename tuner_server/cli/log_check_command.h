// `tilewright log check`: what of a log file is as it was written.
#pragma once

#include <string>

#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct LogCheckOptions {
  std::string log_path;  // empty: the log of `tilewright tune` on this machine
  OutputFormat format = OutputFormat::kTable;
};
// Prints what is whole and what is damaged; a damaged log is an error (log.check.damaged).
int LogCheck(const LogCheckOptions& options);

}  // namespace tilewright::cli
