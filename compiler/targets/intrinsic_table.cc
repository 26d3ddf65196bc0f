#include "compiler/targets/intrinsic_table.h"

namespace tilewright::ir {

std::vector<TensorIntrinsicRow> TargetIntrinsicRows() {
  std::vector<TensorIntrinsicRow> rows;
  for (const auto& own : {
#define TW_INTRINSICS(name) name::IntrinsicRows(),
#include "compiler/targets/targets.def"
       }) {
    rows.insert(rows.end(), own.begin(), own.end());
  }
  return rows;
}

}  // namespace tilewright::ir
