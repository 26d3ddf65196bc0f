// Code for OpenCL devices: functions of the GPU pipeline, cut into launches, as OpenCL C text. Pure
// functions; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/codegen.h"
#include "compiler/ir/ir.h"

namespace tilewright::opencl {

// OpenCL C 1.2 with a kernel for each function, named like it. Float division and square root are
// as exact as the device makes them. `sub_groups`: for a device that has them, and so a later
// OpenCL C.
absl::StatusOr<std::string> EmitOpenCl(const std::vector<ir::Function>& kernels,
                                       bool sub_groups = false);

// codegen::GenerateC in this language.
absl::StatusOr<codegen::Artifact> Generate(const codegen::Request& request);

// Part of a record's key: the language. The driver's own compiler is part of the device's
// fingerprint.
std::string ToolchainName();

}  // namespace tilewright::opencl
