// A kernel of the tensor IR (host_device.h) as one SPIR-V module. Pure function; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/target/machine.h"
#include "compiler/targets/vulkan/spirv_module.h"

namespace tilewright::vulkan {

struct KernelModule {
  Words words;
  uint32_t loops = 0;                 // what the loops of a thread cost at most: spirv_abi.h
  std::vector<std::string> features;  // of deploy/runtime/spirv_abi.h; sorted
};

// What a device may lack. Code that uses it demands a feature of the device.
struct SpirvOptions {
  bool sub_groups = false;    // share out sums (sub_group_sums.h)
  bool dot_products = false;  // of bytes, by instruction
  // For a machine with these abilities: LaunchLimits::sub_groups, the feature
  // shaderIntegerDotProduct.
  static SpirvOptions Of(const target::Machine& machine);
};

// The module of one kernel, as deploy/runtime/spirv_abi.h describes it. Bound loops are the
// launch's axes; asynchronous stores are done immediately, which is allowed. FAILED_PRECONDITION
// codegen.vulkan.not_flat; UNIMPLEMENTED codegen.vulkan.unsupported for what SPIR-V has not, and
// codegen.vulkan.buffer_bytes for a buffer that no descriptor can name. Same input, same words.
absl::StatusOr<KernelModule> EmitKernel(const ir::Function& kernel,
                                        const SpirvOptions& options = {});

}  // namespace tilewright::vulkan
