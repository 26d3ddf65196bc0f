// What each folder of compiler/targets gives to the table of kinds: its machines, and which sizes
// their memories may have. For kind_table.cc and the folders' own files. Constant data and pure
// functions; thread-safe.
#pragma once

#include <string_view>

#include "absl/status/status.h"
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
#define TW_MEMORIES(name)                                     \
  namespace tilewright::name {                                \
  absl::Status CheckMemories(const target::Machine& machine); \
  }
#include "compiler/targets/targets.def"
