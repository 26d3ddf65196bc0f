#include "compiler/targets/intrinsic_table.h"

namespace tilewright::toy {

std::vector<ir::TensorIntrinsicRow> IntrinsicRows() {
  return ir::Dot4Rows("toy.dot4.", "u8", /*shared=*/true, {"dots"});
}

}  // namespace tilewright::toy
