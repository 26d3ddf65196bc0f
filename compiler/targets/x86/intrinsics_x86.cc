#include "compiler/targets/intrinsic_table.h"

namespace tilewright::x86 {

// vdpbf16ps adds the second product of a pair first, and takes numbers below the normal ones for 0,
// factors and sums.
std::vector<ir::TensorIntrinsicRow> IntrinsicRows() {
  std::vector<ir::TensorIntrinsicRow> rows =
      ir::Dot4Rows("x86.vpdpbusd.", "u8", /*shared=*/true, {"avx512vnni"});
  for (ir::TensorIntrinsicRow& row : ir::PairRows("x86.vdpbf16ps.", {"avx512bf16"}))
    rows.push_back(std::move(row));
  return rows;
}

}  // namespace tilewright::x86
