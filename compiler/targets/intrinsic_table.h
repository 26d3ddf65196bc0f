// What each folder of compiler/targets that has tensor intrinsics of its own gives to their table:
// rows, with their descriptions as texts of the tensor IR. For intrinsic_table.cc and the folders'
// own intrinsics_*.cc. Pure functions; thread-safe.
#pragma once

#include <vector>

#include "compiler/ir/tensor_intrinsics.h"

#define TW_INTRINSICS(name)                            \
  namespace tilewright::name {                         \
  std::vector<ir::TensorIntrinsicRow> IntrinsicRows(); \
  }
#include "compiler/targets/targets.def"
