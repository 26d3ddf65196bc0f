// Which passes and which code generator a kind of target has: one row for each kind that `compile`
// makes modules for. Pure functions over a constant table; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/codegen/codegen.h"
#include "compiler/target/target.h"
#include "compiler/transform/passes.h"

namespace tilewright::driver {

struct Backend {
  std::string_view kind;
  std::span<const transform::PassRow> (*pipeline)();
  absl::StatusOr<codegen::Artifact> (*generate)(const codegen::Request& request);
  std::string (*toolchain)();  // part of a record's key
  // Places in an arena and in the constants are multiples of this many bytes.
  int64_t alignment;
  // Code runs on a device behind a plug-in; else on the processor of the process.
  bool on_device;
};

// REQUIRES: a target that ParseTarget returned.
const Backend& BackendOf(const target::Target& target);

}  // namespace tilewright::driver
