// `tilewright check`: everything that keeps a model from compiling for a target.
// `tilewright operators`: the operators and types that models may have, read from the import's own
// tables. Results go to standard output; nothing is written.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler/onnx/onnx_check.h"
#include "tuner_server/cli/table.h"

namespace tilewright::cli {

struct CheckOptions {
  std::string model_path;
  std::string target = "native";
  std::vector<std::string> shapes;     // NAME=1x3x224x224
  std::vector<std::string> operators;  // files with definitions of custom operators
  OutputFormat format = OutputFormat::kTable;
};
// Imports the model without stopping at the first error. Where nothing is found, compiles it for
// the target and drops the module. 0: it compiles; 1: it does not.
int CheckModel(const CheckOptions& options);

enum class OperatorsFormat { kTable, kJson, kMarkdown };
int ListOperators(OperatorsFormat format);
// The page deploy/docs/operators.md; cli_test checks that it is up to date.
std::string OperatorsPage(const graph::OnnxSupport& known);

}  // namespace tilewright::cli
