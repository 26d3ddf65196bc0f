// A physical device with what the plug-in asks of it: its facts, a logical device with one compute
// queue, and where its memory is. One owner, one thread at a time.
#ifndef DEPLOY_RUNTIME_VULKAN_CONTEXT_H_
#define DEPLOY_RUNTIME_VULKAN_CONTEXT_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "deploy/runtime/vulkan_api.h"

namespace tilewright::vulkan {

// Devices of this process that have Vulkan 1.1 and a compute queue: real ones first, then those
// that a processor plays.
std::vector<VkPhysicalDevice> ComputeDevices();

// A buffer with memory of its own. `mapped`: its address in this process, null where it has none.
struct Allocation {
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceMemory memory = VK_NULL_HANDLE;
  void* mapped = nullptr;
};

class Context {
 public:
  explicit Context(VkPhysicalDevice physical);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Makes the logical device. VK_ERROR_INITIALIZATION_FAILED where a function is missing.
  VkResult Open();

  const DeviceApi& api() const { return api_; }
  VkDevice device() const { return device_; }
  VkQueue queue() const { return queue_; }
  uint32_t queue_family() const { return queue_family_; }
  const VkPhysicalDeviceLimits& limits() const { return properties_.limits; }
  uint32_t timestamp_bits() const { return timestamp_bits_; }

  std::string name() const { return properties_.deviceName; }
  // Features of spirv_abi.h that code may ask for; the SPIR-V capabilities of them.
  const std::set<std::string>& features() const { return features_; }
  bool Runs(uint32_t capability) const { return capabilities_.contains(capability); }
  // `key=value` lines, sorted.
  std::string Fingerprint() const;
  int64_t memory_bytes() const { return memory_bytes_; }
  // What the loops of a thread may cost (spirv_abi.h).
  uint32_t most_loops() const { return most_loops_; }

  // Memory for kernels: of the device, and mapped where the host reads it as fast as its own.
  VkResult Allocate(int64_t bytes, Allocation* allocation) const;
  // Memory through which bytes travel to and from memory that is not mapped.
  VkResult AllocateStaging(int64_t bytes, Allocation* allocation) const;
  void Free(Allocation* allocation) const;

 private:
  void FindExtensions();
  void FindFacts();
  void FindFeatures();
  VkResult FindMemory();
  bool Uses(const char* extension) const;
  VkResult MakeBuffer(int64_t bytes, VkBuffer* buffer, VkMemoryRequirements* needs) const;
  VkResult AllocateOf(uint32_t type, bool map, int64_t bytes, Allocation* allocation) const;

  VkPhysicalDevice physical_;
  VkPhysicalDeviceProperties properties_ = {};
  std::string driver_;
  std::vector<const char*> extensions_;  // that the device has and we use
  bool rounds_halves_ = false;           // to nearest even, where code asks
  bool reduces_in_sub_groups_ = false;
  uint32_t sub_group_threads_ = 1;
  // What is switched on: a chain that begins with enabled_.
  VkPhysicalDeviceFeatures2 enabled_ = {};
  VkPhysicalDevice16BitStorageFeatures storage16_ = {};
  VkPhysicalDevice8BitStorageFeatures storage8_ = {};
  VkPhysicalDeviceShaderFloat16Int8Features float16_int8_ = {};
  VkPhysicalDeviceShaderIntegerDotProductFeatures dot_products_ = {};
  std::set<std::string> features_;
  std::set<uint32_t> capabilities_;
  uint32_t queue_family_ = 0, timestamp_bits_ = 0;
  uint32_t memory_type_ = 0, staging_type_ = 0;
  bool memory_is_mapped_ = false;
  int64_t memory_bytes_ = 0;
  uint32_t most_loops_ = ~uint32_t{0};

  DeviceApi api_;
  VkDevice device_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
};

}  // namespace tilewright::vulkan

#endif  // DEPLOY_RUNTIME_VULKAN_CONTEXT_H_
