#include "deploy/support/device_kinds.h"

#include <vector>

#include "deploy/support/strings.h"

namespace tilewright::support {
namespace {

constexpr DeviceKind kDeviceKinds[] = {
    {.name = "cpu", .compiled = true, .measured = true},
    {.name = "cuda"},
    {.name = "metal"},
    {.name = "opencl", .compiled = true, .measured = true},
    {.name = "vta"},
    {.name = "vulkan"},
    {.name = "wasm"},
};

}  // namespace

std::span<const DeviceKind> DeviceKinds() { return kDeviceKinds; }

const DeviceKind* FindDeviceKind(std::string_view name) {
  for (const DeviceKind& kind : kDeviceKinds) {
    if (kind.name == name) return &kind;
  }
  return nullptr;
}

std::string DeviceKindNames(bool DeviceKind::* fact, std::string_view separator) {
  std::vector<std::string_view> names;
  for (const DeviceKind& kind : kDeviceKinds) {
    if (fact == nullptr || kind.*fact) names.push_back(kind.name);
  }
  return Join(names, separator);
}

}  // namespace tilewright::support
