// Code for Vulkan devices: functions of the GPU pipeline, cut into launches, as SPIR-V. Pure
// functions; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/codegen.h"
#include "compiler/codegen/launch_artifact.h"
#include "compiler/ir/ir.h"
#include "compiler/targets/vulkan/spirv_kernel.h"

namespace tilewright::vulkan {

// A code object of deploy/runtime/spirv_abi.h: one module for each kernel. Errors of EmitKernel.
absl::StatusOr<codegen::KernelCode> EmitSpirv(const std::vector<ir::Function>& kernels,
                                              const SpirvOptions& options = {});

// codegen::GenerateLaunches with such a code object. A folder for dumps gets KERNEL.spv.
absl::StatusOr<codegen::Artifact> Generate(const codegen::Request& request);

// Part of a record's key: the language. The driver's own compiler is part of the device's
// fingerprint.
std::string ToolchainName();

}  // namespace tilewright::vulkan
