// One C text for a request, with the launches of each function as its calls: all of the code
// generator of a target with a C-like language, but for the language and its compiler. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/c_like.h"
#include "compiler/codegen/codegen.h"

namespace tilewright::codegen {

// The functions are those of the GPU pipeline, of constant sizes. codegen.function.none |
// codegen.split_host_device.* | codegen.launch_limits.* | codegen.<dialect>.*; UNIMPLEMENTED
// codegen.launch.symbolic for a grid or a buffer of symbolic size.
absl::StatusOr<Artifact> GenerateC(const Request& request, const CDialect& dialect);

// What a compiler makes of such a text for one machine.
struct DeviceCode {
  std::string bytes;
  std::vector<KernelResources> kernels;  // what the compiler says of each; sorted by name
};
using DeviceCompiler = absl::StatusOr<DeviceCode> (*)(const std::string& text,
                                                      const std::string& machine);

// GenerateC, and the code of its text for the target's machine, which is the feature that a device
// of such code must have. The text is dumped before it is compiled, what its kernels use after it
// (NAME.resources). Also errors of `compile`.
absl::StatusOr<Artifact> GenerateCompiled(const Request& request, const CDialect& dialect,
                                          DeviceCompiler compile);

}  // namespace tilewright::codegen
