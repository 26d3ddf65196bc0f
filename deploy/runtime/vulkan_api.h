// The functions of libvulkan that the plug-in uses, found when it is loaded: no program of ours
// links the library, and a machine without it has no devices. Vulkan 1.1 and extensions that later
// versions have as their own. Thread-safe once made.
#ifndef DEPLOY_RUNTIME_VULKAN_API_H_
#define DEPLOY_RUNTIME_VULKAN_API_H_

#define VK_NO_PROTOTYPES
#include <vulkan/vulkan_core.h>

// X(function without vk): of the instance, then of a device.
#define TW_VULKAN_INSTANCE_FUNCTIONS(X) \
  X(CreateDevice)                       \
  X(EnumerateDeviceExtensionProperties) \
  X(EnumeratePhysicalDevices)           \
  X(GetDeviceProcAddr)                  \
  X(GetPhysicalDeviceFeatures2)         \
  X(GetPhysicalDeviceMemoryProperties)  \
  X(GetPhysicalDeviceProperties)        \
  X(GetPhysicalDeviceProperties2)       \
  X(GetPhysicalDeviceQueueFamilyProperties)
#define TW_VULKAN_DEVICE_FUNCTIONS(X) \
  X(AllocateCommandBuffers)           \
  X(AllocateDescriptorSets)           \
  X(AllocateMemory)                   \
  X(BeginCommandBuffer)               \
  X(BindBufferMemory)                 \
  X(CmdBindDescriptorSets)            \
  X(CmdBindPipeline)                  \
  X(CmdCopyBuffer)                    \
  X(CmdDispatchBase)                  \
  X(CmdPipelineBarrier)               \
  X(CmdPushConstants)                 \
  X(CmdResetQueryPool)                \
  X(CmdWriteTimestamp)                \
  X(CreateBuffer)                     \
  X(CreateCommandPool)                \
  X(CreateComputePipelines)           \
  X(CreateDescriptorPool)             \
  X(CreateDescriptorSetLayout)        \
  X(CreateFence)                      \
  X(CreatePipelineCache)              \
  X(CreatePipelineLayout)             \
  X(CreateQueryPool)                  \
  X(CreateShaderModule)               \
  X(DestroyBuffer)                    \
  X(DestroyCommandPool)               \
  X(DestroyDescriptorPool)            \
  X(DestroyDescriptorSetLayout)       \
  X(DestroyDevice)                    \
  X(DestroyFence)                     \
  X(DestroyPipeline)                  \
  X(DestroyPipelineCache)             \
  X(DestroyPipelineLayout)            \
  X(DestroyQueryPool)                 \
  X(DestroyShaderModule)              \
  X(DeviceWaitIdle)                   \
  X(EndCommandBuffer)                 \
  X(FreeMemory)                       \
  X(GetBufferMemoryRequirements)      \
  X(GetDeviceQueue)                   \
  X(GetQueryPoolResults)              \
  X(MapMemory)                        \
  X(QueueSubmit)                      \
  X(ResetCommandBuffer)               \
  X(ResetDescriptorPool)              \
  X(ResetFences)                      \
  X(UpdateDescriptorSets)             \
  X(WaitForFences)

namespace tilewright::vulkan {

// The instance of the process: its functions; `instance` is null where there is no library, no
// Vulkan 1.1, or no driver that makes one.
struct InstanceApi {
  VkInstance instance = VK_NULL_HANDLE;
#define X(name) PFN_vk##name name = nullptr;
  TW_VULKAN_INSTANCE_FUNCTIONS(X)
#undef X
};
const InstanceApi& Instance();

struct DeviceApi {
#define X(name) PFN_vk##name name = nullptr;
  TW_VULKAN_DEVICE_FUNCTIONS(X)
#undef X
};
// Returns whether the device has them all.
bool FindFunctions(VkDevice device, DeviceApi* api);

}  // namespace tilewright::vulkan

#endif  // DEPLOY_RUNTIME_VULKAN_API_H_
