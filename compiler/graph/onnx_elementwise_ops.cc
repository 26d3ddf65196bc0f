// Elementwise operators that are more than their row: types, attributes and operands that ONNX
// states in other ways.
#include "compiler/graph/onnx_conversions.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {

using support::StrCat;

Result ImportCastLike(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  TW_ASSIGN(ValueId like, n.Input(1));
  const ir::DType type = n.importer().TypeOf(like).dtype;
  return n.importer().Emit("cast", {x}, {{"dtype", ir::TypeName(type)}}, n.output_name());
}

}  // namespace tilewright::graph::onnx
