// `tilewright tune`: tunes a model on a server's fleet, or on a fleet on this machine that lives as
// long as the command, and writes the module.
#pragma once

#include <string>

#include "tuner_server/cli/job_commands.h"

namespace tilewright::cli {

struct TuneOptions {
  JobRequest job;
  ServerPlace server;     // empty: TILEWRIGHT_SERVER; neither: this machine
  std::string state_dir;  // of the fleet on this machine
  std::string log_path;   // of the same: its tuning log
  std::string device;     // of the same: index or name; empty: the first of the target's kind
  std::string bridge;     // of the same: command whose worker measures; empty: one of this machine
  std::string output;     // empty: the model's name with .tw
  bool detach = false;    // submit and return
  OutputFormat format = OutputFormat::kTable;
};
// Returns the exit code.
int TuneModel(const TuneOptions& options);

}  // namespace tilewright::cli
