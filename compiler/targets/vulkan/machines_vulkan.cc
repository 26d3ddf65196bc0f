// Targets that name no device have one row, from phones to servers, and its limits of a
// launch are those that devices of these days have (Vulkan itself promises groups of 128 threads
// and 16 KiB). Numbers that differ from device to device are those of lavapipe (Mesa 22.3), a
// driver for processors, on two cores with vectors of 256 bits: it runs eight threads of a group in
// the lanes of a vector, and switches between such vectors at a barrier. It rounds the products of
// `Fma`, as Vulkan allows. What a device reports of itself is in its fingerprint.
//
// roadmap2022 is the profile of that name: devices of which all have what Vulkan 1.1 leaves open.
// Its other numbers are the same, for no GPU was measured.
#include "compiler/targets/gpu_machine.h"
#include "compiler/targets/kind_table.h"
#include "compiler/targets/phone_gpus.h"
#include "deploy/runtime/spirv_abi.h"

namespace tilewright::vulkan {
namespace {

constexpr target::Machine VulkanDevice() {
  target::Machine m = targets::AnyDevice();
  m.launch.registers = 128;
  m.launch.summed_terms = 1024;
  m.launch.thread_bytes = 4;
  m.launch.group_ns = 200;
  m.launch.barrier_cycles = 20;
  return m;
}
constexpr target::Machine Roadmap2022() {
  target::Machine m = VulkanDevice();
  m.name = TW_VULKAN_ROADMAP_2022;
  m.features = "fma,shaderIntegerDotProduct";
  m.launch.sub_groups = true;
  return m;
}
constexpr target::Machine kVulkanMachines[] = {VulkanDevice(), targets::Valhall(),
                                               targets::Adreno(), Roadmap2022()};

}  // namespace

constinit const target::Family kFamily = {
    .machines = kVulkanMachines, .code_format = TW_SPIRV_FORMAT, .driver_compiles = true};

}  // namespace tilewright::vulkan
