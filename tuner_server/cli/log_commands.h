// `tilewright log …`: what was measured, from a file or from a server.
#pragma once

#include <string>

#include "tuner_server/cli/log_source.h"
#include "tuner_server/cli/log_task.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct LogShowOptions {
  LogPlace place;
  TaskQuery task;
  std::string record;  // measurement id; empty: the best
  bool show_ir = false;
  int limit = 10;  // records listed
  OutputFormat format = OutputFormat::kTable;
};
int LogShow(const LogShowOptions& options);

// The best record per task, target, threads, device class and toolchain.
int LogBest(const LogPlace& place, const std::string& task, OutputFormat format);

struct LogExportOptions {
  LogPlace place;
  ExportRequest request;
  std::string output;  // empty: standard output
};
int LogExport(const LogExportOptions& options);

struct LogStatsOptions {
  LogPlace place;
  std::string job;  // empty: each job
  bool models = false;
  OutputFormat format = OutputFormat::kTable;
};
int LogStats(const LogStatsOptions& options);

// Writes a stored cost model (XGBoost's UBJSON); log files only.
int LogModel(const LogPlace& place, const std::string& id, const std::string& job,
             const std::string& output);

}  // namespace tilewright::cli
