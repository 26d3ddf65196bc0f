// The custom operators of one model under import: found by domain, type and number of operands.
// Inside of the import. Immutable once read; thread-safe for reading.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "compiler/op/custom_text.h"
#include "tilewright_onnx.pb.h"

namespace tilewright::graph::onnx {

struct CustomOperator {
  op::custom::Definition definition;
  std::string file;  // for people
};

class CustomOperators {
 public:
  // Reads the model's metadata. INVALID_ARGUMENT op.custom.*, with the name of the definitions.
  absl::Status Read(const tilewright_onnx::ModelProto& model);
  // The operator of a node; null where none is defined for its type. Of several with other numbers
  // of operands, any one: the conversion says what is wrong.
  const CustomOperator* Find(const tilewright_onnx::NodeProto& node) const;

 private:
  std::map<std::string, std::vector<CustomOperator>> by_name_;  // "domain::Type"
};

}  // namespace tilewright::graph::onnx
