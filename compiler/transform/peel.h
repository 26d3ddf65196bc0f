// The mark of a split loop whose remainder is code of its own. Pure functions.
#pragma once

#include "compiler/ir/ir.h"

namespace tilewright::transform {

// Whether the loop is marked tail=peel.
inline bool IsPeeled(const ir::StmtNode& loop) {
  const auto mark = loop.annotations.find("tail");
  return mark != loop.annotations.end() && mark->second == ir::AnnotationValue(std::string("peel"));
}

}  // namespace tilewright::transform
