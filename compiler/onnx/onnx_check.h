// Everything that keeps an ONNX model from being imported, found in one run: ImportOnnx stops at
// the first error, CheckOnnx goes on. Also the list of what the import supports, read from the
// tables of the import itself. Free functions without state; thread-safe.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"
#include "compiler/onnx/onnx_import.h"

namespace tilewright::graph {

struct ImportProblem {
  std::string slug;    // of the error that ImportOnnx gives for it
  std::string what;    // an operator, an element type, a file, or the --shape flags to give
  std::string detail;  // "expected ..., found ..."; may be empty
  std::vector<std::string> where;  // nodes, inputs or tensors, by name
};

struct ImportCheck {
  int64_t opset = 0;                     // 0: the model states none
  std::map<std::string, int> operators;  // how many nodes of each
  // Of these, the ones that the model defines itself, and where the definition is from.
  std::map<std::string, std::string> custom;
  std::vector<ImportProblem> problems;  // equal ones of several places are one problem
  // Nodes of supported operators whose attributes and shapes were not checked: the type of an
  // operand is unknown because of another problem.
  int unchecked_nodes = 0;
};
// Fails only where the bytes are no ONNX model (graph.onnx.not_onnx, .too_large, .no_graph). Files
// of external data are not looked for.
absl::StatusOr<ImportCheck> CheckOnnx(std::string_view bytes, const ImportOptions& options = {});

struct SupportedOperator {
  std::string name, domain;  // domain "": ONNX's own
  std::string limits;        // for people: what of it is refused; empty: nothing known
};
struct OnnxSupport {
  int64_t oldest_opset, newest_opset;
  std::vector<std::string> element_types;    // as ONNX calls them, in lower case
  std::vector<SupportedOperator> operators;  // by domain and name
};
OnnxSupport SupportedOnnx();

}  // namespace tilewright::graph
