#include "deploy/runtime/vulkan_context.h"

#include <algorithm>
#include <cstring>
#include <spirv/unified1/spirv.hpp11>

#include "deploy/runtime/phone_gpu.h"
#include "deploy/runtime/spirv_abi.h"

namespace tilewright::vulkan {
namespace {

// The first family with compute; `bits` of its timestamps, 0 where it has none. -1: there is none.
int ComputeFamily(VkPhysicalDevice physical, uint32_t* bits) {
  uint32_t count = 0;
  Instance().GetPhysicalDeviceQueueFamilyProperties(physical, &count, nullptr);
  std::vector<VkQueueFamilyProperties> families(count);
  Instance().GetPhysicalDeviceQueueFamilyProperties(physical, &count, families.data());
  for (uint32_t i = 0; i < count; ++i) {
    if ((families[i].queueFlags & VK_QUEUE_COMPUTE_BIT) == 0) continue;
    *bits = families[i].timestampValidBits;
    return static_cast<int>(i);
  }
  return -1;
}

std::string VersionText(uint32_t version) {
  return std::to_string(VK_API_VERSION_MAJOR(version)) + "." +
         std::to_string(VK_API_VERSION_MINOR(version)) + "." +
         std::to_string(VK_API_VERSION_PATCH(version));
}

// A word of a toolchain's name: "llvmpipe", "mesa-22.3.6-(llvm-15.0.6)".
std::string AsWord(std::string text) {
  for (char& c : text) {
    if (c == ' ' || c == '\n' || c == ',') c = '-';
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

constexpr const char* kWantedExtensions[] = {
    VK_KHR_8BIT_STORAGE_EXTENSION_NAME,
    VK_KHR_DRIVER_PROPERTIES_EXTENSION_NAME,
    VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME,
    VK_KHR_SHADER_FLOAT_CONTROLS_EXTENSION_NAME,
    VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME,
};

// Adds a structure to a chain if the device knows its extension.
template <typename Head, typename Structure>
void Chain(Head* head, Structure* structure, VkStructureType type) {
  structure->sType = type;
  structure->pNext = head->pNext;
  head->pNext = structure;
}

}  // namespace

std::vector<VkPhysicalDevice> ComputeDevices() {
  std::vector<VkPhysicalDevice> all;
  if (Instance().instance == VK_NULL_HANDLE) return all;
  uint32_t count = 0;
  if (Instance().EnumeratePhysicalDevices(Instance().instance, &count, nullptr) != VK_SUCCESS)
    return all;
  all.resize(count);
  if (Instance().EnumeratePhysicalDevices(Instance().instance, &count, all.data()) < VK_SUCCESS)
    return {};
  all.resize(count);
  const auto properties = [](VkPhysicalDevice d) {
    VkPhysicalDeviceProperties p;
    Instance().GetPhysicalDeviceProperties(d, &p);
    return p;
  };
  std::erase_if(all, [&](VkPhysicalDevice d) {
    uint32_t bits = 0;
    return properties(d).apiVersion < VK_API_VERSION_1_1 || ComputeFamily(d, &bits) < 0;
  });
  std::stable_partition(all.begin(), all.end(), [&](VkPhysicalDevice d) {
    return properties(d).deviceType != VK_PHYSICAL_DEVICE_TYPE_CPU;
  });
  return all;
}

Context::Context(VkPhysicalDevice physical) : physical_(physical) {
  queue_family_ = static_cast<uint32_t>(ComputeFamily(physical_, &timestamp_bits_));
  FindExtensions();
  FindFacts();
  FindFeatures();
}

Context::~Context() {
  if (device_ != VK_NULL_HANDLE && api_.DestroyDevice != nullptr)
    api_.DestroyDevice(device_, nullptr);
}

void Context::FindExtensions() {
  uint32_t count = 0;
  Instance().EnumerateDeviceExtensionProperties(physical_, nullptr, &count, nullptr);
  std::vector<VkExtensionProperties> all(count);
  Instance().EnumerateDeviceExtensionProperties(physical_, nullptr, &count, all.data());
  for (const char* name : kWantedExtensions) {
    const bool has = std::any_of(all.begin(), all.end(), [&](const VkExtensionProperties& e) {
      return std::strcmp(e.extensionName, name) == 0;
    });
    if (has) extensions_.push_back(name);
  }
}

bool Context::Uses(const char* extension) const {
  return std::any_of(extensions_.begin(), extensions_.end(),
                     [&](const char* name) { return std::strcmp(name, extension) == 0; });
}

void Context::FindFacts() {
  VkPhysicalDeviceProperties2 properties = {};
  VkPhysicalDeviceDriverProperties driver = {};
  VkPhysicalDeviceFloatControlsProperties rounding = {};
  VkPhysicalDeviceSubgroupProperties sub_groups = {};
  properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  Chain(&properties, &sub_groups, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES);
  if (Uses(VK_KHR_SHADER_FLOAT_CONTROLS_EXTENSION_NAME))
    Chain(&properties, &rounding, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FLOAT_CONTROLS_PROPERTIES);
  if (Uses(VK_KHR_DRIVER_PROPERTIES_EXTENSION_NAME))
    Chain(&properties, &driver, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES);
  Instance().GetPhysicalDeviceProperties2(physical_, &properties);
  properties_ = properties.properties;
  rounds_halves_ = rounding.shaderRoundingModeRTEFloat16;
  reduces_in_sub_groups_ =
      (sub_groups.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0 &&
      (sub_groups.supportedOperations & VK_SUBGROUP_FEATURE_ARITHMETIC_BIT) != 0;
  sub_group_threads_ = sub_groups.subgroupSize;
  driver_ = driver.driverInfo[0] != '\0' ? std::string(driver.driverName) + "-" + driver.driverInfo
                                         : std::to_string(properties_.driverVersion);
  if (driver.driverID == VK_DRIVER_ID_MESA_LLVMPIPE) most_loops_ = TW_SPIRV_LAVAPIPE_LOOPS;
#ifdef TILEWRIGHT_VULKAN_POOR_DEVICE  // for a test: no timestamps, mapped memory or sub-groups, few groups
  timestamp_bits_ = 0;
  reduces_in_sub_groups_ = false;
  for (uint32_t& groups : properties_.limits.maxComputeWorkGroupCount) groups = 7;
#endif
}

void Context::FindFeatures() {
  enabled_.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  Chain(&enabled_, &storage16_, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES);
  if (Uses(VK_KHR_8BIT_STORAGE_EXTENSION_NAME))
    Chain(&enabled_, &storage8_, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_8BIT_STORAGE_FEATURES);
  if (Uses(VK_KHR_SHADER_FLOAT16_INT8_EXTENSION_NAME))
    Chain(&enabled_, &float16_int8_,
          VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES);
  if (Uses(VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME))
    Chain(&enabled_, &dot_products_,
          VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES);
  Instance().GetPhysicalDeviceFeatures2(physical_, &enabled_);
  const VkPhysicalDeviceFeatures available = enabled_.features;
  enabled_.features = {};  // the rest of what a device can do is of no use here
  VkPhysicalDeviceFeatures& on = enabled_.features;
  on.shaderFloat64 = available.shaderFloat64;
  on.shaderInt16 = available.shaderInt16;
  on.shaderInt64 = available.shaderInt64;
  on.robustBufferAccess = available.robustBufferAccess;
  const bool shaderFloat16 = float16_int8_.shaderFloat16, shaderInt8 = float16_int8_.shaderInt8,
             shaderIntegerDotProduct = dot_products_.shaderIntegerDotProduct,
             shaderFloat64 = on.shaderFloat64, shaderInt16 = on.shaderInt16,
             shaderInt64 = on.shaderInt64, shaderRoundingModeRTEFloat16 = rounds_halves_,
             storageBuffer16BitAccess = storage16_.storageBuffer16BitAccess,
             storageBuffer8BitAccess = storage8_.storageBuffer8BitAccess,
             subgroupArithmetic = reduces_in_sub_groups_;
#define X(feature, capability)                                                \
  if (feature) {                                                              \
    features_.insert(#feature);                                               \
    capabilities_.insert(static_cast<uint32_t>(spv::Capability::capability)); \
  }
  TW_SPIRV_FEATURES(X)
#undef X
  capabilities_.insert(static_cast<uint32_t>(spv::Capability::Shader));
  if (shaderIntegerDotProduct)
    capabilities_.insert(static_cast<uint32_t>(spv::Capability::DotProductInput4x8Bit));
}

// Types of memory that buffers of ours may have, the first that has what is wanted and nothing
// special. Of mapped memory only what the processor caches: reading the rest is slow.
VkResult Context::FindMemory() {
  VkBuffer probe = VK_NULL_HANDLE;
  VkMemoryRequirements needs = {};
  const VkResult result = MakeBuffer(1, &probe, &needs);
  if (result != VK_SUCCESS) return result;
  api_.DestroyBuffer(device_, probe, nullptr);
  VkPhysicalDeviceMemoryProperties memory = {};
  Instance().GetPhysicalDeviceMemoryProperties(physical_, &memory);
  constexpr VkMemoryPropertyFlags kLocal = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
  constexpr VkMemoryPropertyFlags kMapped =
      VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
  constexpr VkMemoryPropertyFlags kCached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
  const auto find = [&](VkMemoryPropertyFlags wanted, uint32_t* type) {
    for (uint32_t i = 0; i < memory.memoryTypeCount; ++i) {
      const VkMemoryPropertyFlags flags = memory.memoryTypes[i].propertyFlags;
      const bool plain = (flags & ~(kLocal | kMapped | kCached)) == 0;
      if ((needs.memoryTypeBits >> i & 1) == 0 || !plain || (flags & wanted) != wanted) continue;
      *type = i;
      return true;
    }
    return false;
  };
  bool found = find(kMapped | kCached, &staging_type_) || find(kMapped, &staging_type_);
#ifndef TILEWRIGHT_VULKAN_POOR_DEVICE
  memory_is_mapped_ = find(kLocal | kMapped | kCached, &memory_type_);
#endif
  found = found && (memory_is_mapped_ || find(kLocal, &memory_type_) || find(0, &memory_type_));
  memory_bytes_ =
      static_cast<int64_t>(memory.memoryHeaps[memory.memoryTypes[memory_type_].heapIndex].size);
  return found ? VK_SUCCESS : VK_ERROR_INITIALIZATION_FAILED;
}

VkResult Context::Open() {
  const float priority = 1;
  VkDeviceQueueCreateInfo queue = {};
  queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  queue.queueFamilyIndex = queue_family_;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  VkDeviceCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = &enabled_;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.enabledExtensionCount = static_cast<uint32_t>(extensions_.size());
  info.ppEnabledExtensionNames = extensions_.data();
  const VkResult result = Instance().CreateDevice(physical_, &info, nullptr, &device_);
  if (result != VK_SUCCESS) return result;
  if (!FindFunctions(device_, &api_)) return VK_ERROR_INITIALIZATION_FAILED;
  api_.GetDeviceQueue(device_, queue_family_, 0, &queue_);
  return FindMemory();
}

std::string Context::Fingerprint() const {
  std::string features;
  for (const std::string& feature : features_) features += (features.empty() ? "" : ",") + feature;
  const bool of_2022 =
      features_.contains("subgroupArithmetic") && features_.contains("shaderIntegerDotProduct");
  std::string accepts(plugin::PhoneGpuOf(name()));
  if (of_2022) accepts += (accepts.empty() ? "" : ",") + std::string(TW_VULKAN_ROADMAP_2022);
  return (accepts.empty() ? "" : "config_accepts=" + accepts + "\n") + "driver=" + driver_ +
         "\ndriver_compiler=" + AsWord(driver_) + "\nfeatures=" + features +
         "\ngroup_threads=" + std::to_string(limits().maxComputeWorkGroupInvocations) +
         "\nkind=vulkan\nname=" + name() +
         "\nshared_bytes=" + std::to_string(limits().maxComputeSharedMemorySize) +
         "\nsubgroup_threads=" + std::to_string(sub_group_threads_) +
         "\nversion=" + VersionText(properties_.apiVersion) + "\n";
}

VkResult Context::MakeBuffer(int64_t bytes, VkBuffer* buffer, VkMemoryRequirements* needs) const {
  VkBufferCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  info.size = static_cast<VkDeviceSize>(bytes);
  info.usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_TRANSFER_SRC_BIT |
               VK_BUFFER_USAGE_TRANSFER_DST_BIT;
  const VkResult result = api_.CreateBuffer(device_, &info, nullptr, buffer);
  if (result == VK_SUCCESS) api_.GetBufferMemoryRequirements(device_, *buffer, needs);
  return result;
}

VkResult Context::AllocateOf(uint32_t type, bool map, int64_t bytes, Allocation* allocation) const {
  VkMemoryRequirements needs = {};
  VkResult result = MakeBuffer(bytes, &allocation->buffer, &needs);
  if (result != VK_SUCCESS) return result;
  VkMemoryAllocateInfo memory = {};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  memory.allocationSize = needs.size;
  memory.memoryTypeIndex = type;
  result = api_.AllocateMemory(device_, &memory, nullptr, &allocation->memory);
  if (result == VK_SUCCESS)
    result = api_.BindBufferMemory(device_, allocation->buffer, allocation->memory, 0);
  if (result == VK_SUCCESS && map)
    result = api_.MapMemory(device_, allocation->memory, 0, VK_WHOLE_SIZE, 0, &allocation->mapped);
  if (result != VK_SUCCESS) Free(allocation);
  return result;
}

VkResult Context::Allocate(int64_t bytes, Allocation* allocation) const {
  return AllocateOf(memory_type_, memory_is_mapped_, bytes, allocation);
}

VkResult Context::AllocateStaging(int64_t bytes, Allocation* allocation) const {
  return AllocateOf(staging_type_, /*map=*/true, bytes, allocation);
}

void Context::Free(Allocation* allocation) const {
  if (allocation->buffer != VK_NULL_HANDLE)
    api_.DestroyBuffer(device_, allocation->buffer, nullptr);
  if (allocation->memory != VK_NULL_HANDLE) api_.FreeMemory(device_, allocation->memory, nullptr);
  *allocation = {};
}

}  // namespace tilewright::vulkan
