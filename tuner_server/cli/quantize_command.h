// `tilewright quantize`: a float32 ONNX model becomes an int8 model in QDQ form. Ranges come from
// calibration data, on which compiled code runs the float model. A report says what each layer and
// the outputs lose. The compiled code runs in a child process.
#pragma once

#include <string>
#include <vector>

#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct QuantizeCommandOptions {
  std::string model_path;
  std::vector<std::string> data;  // CalibrationData
  std::string output;             // empty: MODEL.int8.onnx in this folder
  std::string ranges = "mse";     // quantize::ParseRangeChoice
  std::string activations = "uint8";
  std::vector<std::string> keep;  // nodes that stay in float
  bool weights_only = false;
  bool no_report = false;         // does not compare with the float model
  std::string target = "native";  // of this machine: what runs the models
  std::vector<std::string> shapes;
  std::vector<std::string> operators;  // files with definitions of custom operators
  OutputFormat format = OutputFormat::kTable;
};
// Returns the exit code.
int QuantizeModel(const QuantizeCommandOptions& options);

}  // namespace tilewright::cli
