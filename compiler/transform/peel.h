// The mark of a split loop whose remainder is code of its own. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "compiler/ir/ir.h"

namespace tilewright::transform {

// Remainders of open loops have a copy of the code for each number of rows up to this.
inline constexpr int64_t kMaxRows = 8;

// Whether the loop is marked tail=peel.
inline bool IsPeeled(const ir::StmtNode& loop) {
  const auto mark = loop.annotations.find("tail");
  return mark != loop.annotations.end() && mark->second == ir::AnnotationValue(std::string("peel"));
}

}  // namespace tilewright::transform
