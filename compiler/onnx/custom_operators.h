// Custom operators of a model: definitions (compiler/op/custom_text.h) that travel inside of the
// ONNX file, so that whoever gets the model can import it: the compiler, a tuner, a colleague. They
// are entries of the model's metadata. From C++, define operators so:
//
//   std::string onnx = ...;
//   TW_TRY(graph::AddOperators({"acme.ops", R"(operator com.acme::Double(x: T[..]) -> (y: T[..])
//                                                type T in f32; { y[..] = 2 * x[..]; })"}, &onnx));
//   TW_ASSIGN(graph::Graph g, graph::ImportOnnx(onnx));
//
// Free functions without state; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tilewright::graph {

// The key of a metadata entry is this, followed by the name of the definitions.
inline constexpr std::string_view kOperatorsKey = "tilewright.operators.";

struct OperatorFile {
  std::string name;  // for people: where the definitions are from
  std::string text;
};
// Adds definitions to the bytes of an ONNX model, which are not parsed: entries that a protobuf
// message has twice are merged. INVALID_ARGUMENT op.custom.* (with the name of the file) for a
// text that does not parse.
absl::Status AddOperators(const OperatorFile& file, std::string* onnx);

}  // namespace tilewright::graph
