// Code that a device's driver compiled, kept between processes: where a plug-in gives its own form
// of loaded code (`binary`), it is stored in a folder of the user. The next load of the same code
// on the same device with the same driver compiles nothing. A file holds its whole key and a
// digest. The code is compiled anew if the file is damaged or belongs to another user, or if the
// driver refuses it. Several processes may share a folder. Measurements use no cache: they would
// not notice a kernel that does not build.
#ifndef DEPLOY_RUNTIME_DEVICE_CODE_CACHE_H_
#define DEPLOY_RUNTIME_DEVICE_CODE_CACHE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "deploy/runtime/device_plugin.h"

namespace tilewright::runtime {

// Returns the user's folder: TILEWRIGHT_CODE_CACHE, else tilewright/device-code in XDG_CACHE_HOME
// or ~/.cache. Empty if there is none, or if TILEWRIGHT_CODE_CACHE is empty: no cache.
std::string UserCodeCache();

struct CodeCache {
  std::string folder;  // empty: no cache
  // Files beyond so many bytes are removed, those that were not used for longest first.
  int64_t max_bytes = int64_t{256} << 20;
};

// Loads code as plugin.load does, from the cache where it can, and stores what was compiled. A
// cache that cannot be written costs time only. Errors are those of plugin.load.
absl::Status LoadCached(const CodeCache& cache, const TwDevicePlugin& plugin, TwDevice* device,
                        const std::string& format, std::string_view image, TwDeviceCode** code);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_DEVICE_CODE_CACHE_H_
