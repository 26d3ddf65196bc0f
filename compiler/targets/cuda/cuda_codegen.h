// Code for NVIDIA's GPUs: functions of the GPU pipeline, cut into launches, as CUDA C, and what
// NVRTC makes of it. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/codegen.h"
#include "compiler/ir/ir.h"

namespace tilewright::cuda {

// CUDA C++ 17 with a kernel for each function, named like it. It includes no header. Pure.
absl::StatusOr<std::string> EmitCuda(const std::vector<ir::Function>& kernels,
                                     bool sub_groups = true);

// codegen::GenerateCompiled in this language, by NVRTC (nvrtc.h): the cubin of its text for the
// target's instruction set.
absl::StatusOr<codegen::Artifact> Generate(const codegen::Request& request);

// Part of a record's key: the compiler, and whether there is one.
std::string ToolchainName();

}  // namespace tilewright::cuda
