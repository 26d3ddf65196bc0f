// What the compiler knows of a kind of targets: which passes and which code generator it has. One
// row for each kind that modules are made for. Pure functions over a constant table; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/codegen/codegen.h"
#include "compiler/target/target.h"
#include "compiler/transform/passes.h"

namespace tilewright::targets {

struct Backend {
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

}  // namespace tilewright::targets

// The rows of the folders; that of the processors is in backend.cc.
#define TW_DEVICE(name)                   \
  namespace tilewright::name {            \
  extern const targets::Backend kBackend; \
  }
#include "compiler/targets/targets.def"
