// `tilewright compare`: compiles a model, runs it here, and compares the result of each kernel, and
// each output of the model, with the reference. Nothing is written. The compiled code runs in a
// child process.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tuner_server/cli/layer_compare.h"
#include "tuner_server/cli/predicted_schedules.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct CompareOptions {
  std::string model_path;
  std::string target = "native";
  std::string log_path;                // tuned schedules; empty: none
  std::string device_class;            // of the log
  double effort_s = kDefaultEffortS;   // as for compile
  std::vector<std::string> shapes;     // NAME=1x3x224x224
  std::vector<std::string> operators;  // files with definitions of custom operators
  std::vector<std::string> libraries;  // paths of those whose functions the model may call
  std::vector<std::string> disabled_passes;
  std::vector<std::string> inputs;  // NAME=FILE.pb|.npy; the others are drawn from the seed
  uint64_t seed = 0;
  Precision precision;
  OutputFormat format = OutputFormat::kTable;
};
// Returns the exit code: 5 if something differs.
int CompareModel(const CompareOptions& options);

}  // namespace tilewright::cli
