/* What code for Vulkan devices looks like: the code generator and the plug-in agree on it here.
 *
 * A code object of the format TW_SPIRV_FORMAT is a list of SPIR-V modules in 32-bit words of the
 * device's byte order: TW_SPIRV_MAGIC, then each module behind two numbers: of its words, and of
 * what the loops of one thread cost at most (an iteration and a loop's end cost 1; ~0: unknown, or
 * more). A driver may stop a loop that costs too much. A module is one kernel: its only entry point,
 * whose name is the kernel's. A driver then compiles only the
 * kernels that are used, each by itself.
 * Buffers: descriptor set 0, binding i is the i-th buffer of a launch. A buffer of constant size is
 * an array of that size, else a runtime array.
 * Sizes: push constants of 64 bits each, from offset 0.
 * Group: the execution mode LocalSize.
 * Features: what a code object asks for has the names of Vulkan's own structures.
 * subgroupArithmetic: kernels may reduce and scan what sub-groups have (values of 32-bit types, and
 * of f64 where shaderFloat64 is there, too). shaderIntegerDotProduct: kernels with the capability
 * DotProduct may have DotProductInput4x8Bit, too. */
#ifndef DEPLOY_RUNTIME_SPIRV_ABI_H_
#define DEPLOY_RUNTIME_SPIRV_ABI_H_

#define TW_SPIRV_FORMAT "spirv-list"
#define TW_SPIRV_MAGIC 0x4C505354u /* "TSPL" in memory, little end first */
/* Mesa's lavapipe leaves all loops of a thread when they have cost this much, without an error. */
#define TW_SPIRV_LAVAPIPE_LOOPS 65535u

/* Of targets and fingerprints (config): devices with what code for the profile Vulkan Roadmap 2022
 * may ask for. */
#define TW_VULKAN_ROADMAP_2022 "roadmap2022"

/* X(feature, SPIR-V capability of code that needs it) */
#define TW_SPIRV_FEATURES(X)                            \
  X(shaderFloat16, Float16)                             \
  X(shaderFloat64, Float64)                             \
  X(shaderInt16, Int16)                                 \
  X(shaderInt64, Int64)                                 \
  X(shaderInt8, Int8)                                   \
  X(shaderIntegerDotProduct, DotProduct)                \
  X(shaderRoundingModeRTEFloat16, RoundingModeRTE)      \
  X(storageBuffer16BitAccess, StorageBuffer16BitAccess) \
  X(storageBuffer8BitAccess, StorageBuffer8BitAccess)   \
  X(subgroupArithmetic, GroupNonUniformArithmetic)

#endif /* DEPLOY_RUNTIME_SPIRV_ABI_H_ */
