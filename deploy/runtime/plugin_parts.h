// What device plug-ins share. Header only: plug-ins link nothing of ours. Pure functions;
// thread-safe.
#ifndef DEPLOY_RUNTIME_PLUGIN_PARTS_H_
#define DEPLOY_RUNTIME_PLUGIN_PARTS_H_

#include <algorithm>
#include <cstring>
#include <string>

#include "deploy/runtime/device_plugin.h"

namespace tilewright::plugin {

// Whether `bytes` bytes are within a part of an allocation. The plug-in's TwDeviceMemory has its
// `bytes`.
template <typename Slice>
bool InRange(const Slice& slice, int64_t bytes) {
  return slice.memory != nullptr && slice.offset >= 0 && bytes >= 0 &&
         slice.offset <= slice.memory->bytes && bytes <= slice.memory->bytes - slice.offset;
}

// Gives a caller the fields that it knows. Returns false if it did not say how many.
inline bool GiveInfo(const TwDeviceInfo& all, TwDeviceInfo* info) {
  if (info->struct_bytes < sizeof(size_t)) return false;
  TwDeviceInfo given = all;
  given.struct_bytes = std::min(info->struct_bytes, sizeof(given));
  std::memcpy(info, &given, given.struct_bytes);
  return true;
}

// Returns `result`, and gives the caller of `open` its text.
inline TwDeviceResult NotOpened(char* error, size_t error_bytes, TwDeviceResult result,
                                const std::string& text) {
  if (error == nullptr || error_bytes == 0) return result;
  const size_t n = std::min(error_bytes - 1, text.size());
  std::memcpy(error, text.data(), n);
  error[n] = '\0';
  return result;
}

}  // namespace tilewright::plugin

#endif  // DEPLOY_RUNTIME_PLUGIN_PARTS_H_
