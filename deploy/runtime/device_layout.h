// Where intermediates of a module of open sizes lie in the arena of a device. The module's places
// are for the alignment of processors, and for all tensors; a device needs few of them. Pure
// functions.
#ifndef DEPLOY_RUNTIME_DEVICE_LAYOUT_H_
#define DEPLOY_RUNTIME_DEVICE_LAYOUT_H_

#include <cstdint>
#include <map>
#include <set>

#include "absl/status/statusor.h"
#include "deploy/module/manifest.h"

namespace tilewright::runtime {

struct DeviceLayout {
  std::map<int64_t, int64_t> offsets;  // of tensors, in bytes
  int64_t arena_bytes = 0;
};

// Adds the intermediates of a function that are in `tensors`. Functions share the arena. Those of a
// function of fixed sizes keep their places, so that parts of other tensors are parts here, too. Of
// open sizes, tensors overlap only if they do in the module at its largest sizes; all begin at
// multiples of `alignment`. UNIMPLEMENTED `runtime.load.open_sizes` if the largest sizes need
// module::kMaxBytes.
absl::Status AddLayout(const module::Manifest& manifest, const module::Function& function,
                       const std::set<int64_t>& tensors, int64_t alignment, DeviceLayout* layout);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_DEVICE_LAYOUT_H_
