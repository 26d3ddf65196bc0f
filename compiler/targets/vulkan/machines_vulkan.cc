// Targets name no device, so one row serves devices from phones to servers, and its limits of a
// launch are those that devices of these days have (Vulkan itself promises groups of 128 threads
// and 16 KiB). Numbers that differ from device to device are those of lavapipe (Mesa 22.3), a
// driver for processors, on two cores with vectors of 256 bits: it runs eight threads of a group in
// the lanes of a vector, and switches between such vectors at a barrier. What a device reports of
// itself is in its fingerprint.
#include "compiler/targets/kind_table.h"
#include "deploy/runtime/spirv_abi.h"

namespace tilewright::vulkan {
namespace {

constexpr target::Machine kVulkanMachines[] = {
    {.features = "fma",
     .searched_body_ops = 256,
     .searched_tile = {.steps = 256},
     .short_reduction = 8,
     .launch = {.group_threads = 256,
                .shared_bytes = 32 << 10,
                .registers = 128,
                .usual_threads = 64,
                .units = 2,
                .busy_threads = 1 << 14,
                .thread_bytes = 4,
                .launch_ns = 10'000,
                .group_ns = 200,
                .barrier_cycles = 20},
     .rule_set = target::RuleSet::kGroups,
     .feature_set = target::FeatureSet::kGroups},
};

}  // namespace

constinit const target::Family kFamily = {
    .machines = kVulkanMachines, .code_format = TW_SPIRV_FORMAT, .driver_compiles = true};

}  // namespace tilewright::vulkan
