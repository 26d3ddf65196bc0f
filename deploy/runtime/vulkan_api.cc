#include "deploy/runtime/vulkan_api.h"

#include <dlfcn.h>

namespace tilewright::vulkan {
namespace {

InstanceApi MakeInstance() {
  InstanceApi api;
  void* library = dlopen("libvulkan.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return api;
  const auto find =
      reinterpret_cast<PFN_vkGetInstanceProcAddr>(dlsym(library, "vkGetInstanceProcAddr"));
  if (find == nullptr) return api;
  const auto version =
      reinterpret_cast<PFN_vkEnumerateInstanceVersion>(find(nullptr, "vkEnumerateInstanceVersion"));
  const auto create = reinterpret_cast<PFN_vkCreateInstance>(find(nullptr, "vkCreateInstance"));
  uint32_t found = 0;
  if (version == nullptr || create == nullptr || version(&found) != VK_SUCCESS ||
      found < VK_API_VERSION_1_1)
    return api;
  VkApplicationInfo application = {};
  application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
  application.pApplicationName = "tilewright";
  application.apiVersion = VK_API_VERSION_1_1;
  VkInstanceCreateInfo info = {};
  info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
  info.pApplicationInfo = &application;
  VkInstance instance = VK_NULL_HANDLE;
  if (create(&info, nullptr, &instance) != VK_SUCCESS) return api;
  bool all = true;
#define X(name)                                                          \
  api.name = reinterpret_cast<PFN_vk##name>(find(instance, "vk" #name)); \
  all = all && api.name != nullptr;
  TW_VULKAN_INSTANCE_FUNCTIONS(X)
#undef X
  if (all) api.instance = instance;
  return api;
}

}  // namespace

const InstanceApi& Instance() {
  static const InstanceApi api = MakeInstance();  // a driver cannot be unloaded safely
  return api;
}

bool FindFunctions(VkDevice device, DeviceApi* api) {
  bool all = true;
#define X(name)                                                                                 \
  api->name = reinterpret_cast<PFN_vk##name>(Instance().GetDeviceProcAddr(device, "vk" #name)); \
  all = all && api->name != nullptr;
  TW_VULKAN_DEVICE_FUNCTIONS(X)
#undef X
  return all;
}

}  // namespace tilewright::vulkan
