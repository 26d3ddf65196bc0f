// `tilewright compile`: ONNX model to module, with the best schedules of the tuning log. The module
// is written at the very end, atomically; a failure writes nothing.
#pragma once

#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tilewright/v1/builder.pb.h"
#include "tuner_server/cli/predicted_schedules.h"
#include "tuner_server/cli/schedule_choice.h"
#include "tuner_server/cli/shape_flags.h"
#include "tuner_server/cli/table.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::cli {

struct CompileOptions {
  std::string model_path;  // may be empty with print_passes alone
  std::string target;
  std::string output;        // empty: the model's name with .tw, in the current folder
  std::string log_path;      // tuning log (SQLite); empty: default schedules
  std::string device_class;  // device class of the records; empty: the one with most tasks
  SizeFlags sizes;
  std::vector<std::string> operators;  // files with definitions of custom operators
  double effort_s = kDefaultEffortS;   // to predict schedules of kernels that the log does not know
  double require_tuned = -1;           // least percentage of time in tuned kernels; < 0: any
  uint64_t max_ram = 0;                // bytes that a session may hold for its data; 0: any number
  std::string dump_dir;
  std::vector<std::string> disabled_passes;  // graph passes to leave out
  std::vector<std::string> enabled_passes;   // optional graph passes to run
  bool print_passes = false;
  OutputFormat format = OutputFormat::kTable;
};
// Returns the exit code.
int CompileModel(const CompileOptions& options);

// Puts the schedules that the log has for the opened model's tasks into the request.
absl::StatusOr<ScheduleChoice> UseRecords(log::TuningLog* log, const std::string& target,
                                          const std::string& device_class,
                                          const v1::JobOpened& opened, v1::CompileModule* request);
// The same, with the records of a log file; what is chosen is said on standard error.
absl::StatusOr<ScheduleChoice> UseLogFile(const std::string& log_path, const std::string& target,
                                          const std::string& device_class,
                                          const v1::JobOpened& opened, v1::CompileModule* request);

// "model.tw" for "some/where/model.onnx".
std::string DefaultOutput(const std::string& model_path);
// Checks, before long work, that `path` can be written. Returns an error for a missing folder, a
// missing permission, or a folder of that name. Writes nothing.
absl::Status CheckWritable(const std::string& path);

// The kernels of ModuleCompiled.manifest_summary_json as a table; `{}` of bad JSON is an error.
absl::StatusOr<std::string> KernelTable(const nlohmann::json& summary);

}  // namespace tilewright::cli
