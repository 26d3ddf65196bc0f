// Where a function's tensors are valid, and so which bytes move between the host and a device, and
// when. Pure function; thread-safe.
#ifndef DEPLOY_RUNTIME_TRANSFER_PLAN_H_
#define DEPLOY_RUNTIME_TRANSFER_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "deploy/module/manifest.h"

namespace tilewright::runtime {

struct ExecutionStep {
  enum class Kind : uint8_t {
    kHostLaunch,    // `index` into the list of launches
    kDeviceLaunch,  // the same
    kUpload,        // tensor `index`: host to device
    kDownload,      // tensor `index`: device to host
  };
  Kind kind;
  size_t index;
  bool operator==(const ExecutionStep&) const = default;
};

struct ExecutionPlan {
  std::vector<ExecutionStep> prepare;  // over Function::prepare
  std::vector<ExecutionStep> run;      // over Function::launches
};

// A tensor moves right before the launch that needs it, and not again while both copies are valid.
// A run begins with new inputs on the host and ends with the outputs there. Prepared tensors move
// while preparing. Constants are valid on both sides from the start.
ExecutionPlan PlanExecution(const module::Manifest& manifest, const module::Function& function,
                            const std::function<bool(const module::Launch&)>& on_device);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_TRANSFER_PLAN_H_
