// Code for AMD's GPUs: functions of the GPU pipeline, cut into launches, as HIP text, and the code
// object that clang makes of it for one instruction set. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/codegen.h"
#include "compiler/ir/ir.h"

namespace tilewright::hip {

// HIP (C++ 17) with a kernel for each function, named like it, for warps of `lanes` threads (32 or
// 64; kernels without sums of warps depend on it only by a check). It needs no header of ROCm, and
// can be compiled with them. Pure.
absl::StatusOr<std::string> EmitHip(const std::vector<ir::Function>& kernels,
                                    bool sub_groups = true, int64_t lanes = 64);

// codegen::GenerateCompiled in this language, by clang (hip_compiler.h).
absl::StatusOr<codegen::Artifact> Generate(const codegen::Request& request);

// Part of a record's key: the compiler, and whether there is one.
std::string ToolchainName();

}  // namespace tilewright::hip
