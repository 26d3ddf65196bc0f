// One C text for a request, with the launches of each function as its calls: all of the code
// generator of a target with a C-like language, but for the language. Pure function; thread-safe.
#pragma once

#include "absl/status/statusor.h"
#include "compiler/codegen/c_like.h"
#include "compiler/codegen/codegen.h"

namespace tilewright::codegen {

// The functions are those of the GPU pipeline, of constant sizes. codegen.function.none |
// codegen.split_host_device.* | codegen.launch_limits.* | codegen.<dialect>.*; UNIMPLEMENTED
// codegen.launch.symbolic for a grid or a buffer of symbolic size.
absl::StatusOr<Artifact> GenerateC(const Request& request, const CDialect& dialect);

}  // namespace tilewright::codegen
