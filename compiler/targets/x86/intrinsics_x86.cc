#include "compiler/targets/intrinsic_table.h"

namespace tilewright::x86 {

std::vector<ir::TensorIntrinsicRow> IntrinsicRows() {
  return ir::Dot4Rows("x86.vpdpbusd.", "u8", /*shared=*/true, {"avx512vnni"});
}

}  // namespace tilewright::x86
