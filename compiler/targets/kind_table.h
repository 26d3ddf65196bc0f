// What each folder of compiler/targets gives to the table of kinds: its machines. For kind_table.cc
// and the folders' own machines_*.cc. Constant data; thread-safe.
#pragma once

#include <string_view>

#include "compiler/target/machine.h"

namespace tilewright::target {

// The kind whose families are processors: the rows TW_CPU.
inline constexpr std::string_view kProcessors = "cpu";

}  // namespace tilewright::target

#define TW_CPU(name)                   \
  namespace tilewright::name {         \
  extern const target::Family kFamily; \
  }
#define TW_DEVICE(name) TW_CPU(name)
#include "compiler/targets/targets.def"
