// Code for Apple's GPUs: functions of the GPU pipeline, cut into launches, as text of the Metal
// Shading Language. Pure functions; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/codegen.h"
#include "compiler/ir/ir.h"

namespace tilewright::metal {

// Metal 2.4 with a kernel for each function, named like it. Sizes are constants by reference and
// come first among its buffers, [[buffer(0)]] and so on. 64-bit floats are refused, and kernels of
// more buffers than a device has places for (codegen.metal.unsupported).
absl::StatusOr<std::string> EmitMetal(const std::vector<ir::Function>& kernels,
                                      bool sub_groups = true);

// codegen::GenerateC in this language. The device's driver compiles the text.
absl::StatusOr<codegen::Artifact> Generate(const codegen::Request& request);

// Part of a record's key: the language.
std::string ToolchainName();

}  // namespace tilewright::metal
