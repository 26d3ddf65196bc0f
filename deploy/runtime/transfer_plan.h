// Where a function's tensors are valid, and so which bytes move between the host and a device, and
// when. Pure functions; thread-safe.
#ifndef DEPLOY_RUNTIME_TRANSFER_PLAN_H_
#define DEPLOY_RUNTIME_TRANSFER_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "deploy/module/manifest.h"

namespace tilewright::runtime {

struct ExecutionStep {
  enum class Kind : uint8_t {
    kHostLaunch,    // `index` into the list of launches
    kDeviceLaunch,  // the same
    kUpload,        // tensor `index`: host to device
    kDownload,      // tensor `index`: device to host
    kFind,          // the sizes that launch `index` found are known from here on
    kLoop,          // loop `index` of the function, whose trips are the steps that follow
  };
  Kind kind;
  size_t index;
  bool operator==(const ExecutionStep&) const = default;
};

struct ExecutionPlan {
  struct Loop {
    size_t end = 0;               // the steps of a trip: from behind the loop's step to here
    std::vector<bool> on_device;  // by Loop::carried: init, value and next are valid there
    bool operator==(const Loop&) const = default;
  };
  std::vector<ExecutionStep> prepare;  // over Function::prepare
  std::vector<ExecutionStep> run;      // over Function::launches
  std::vector<Loop> loops;             // by position in Function::loops
};

using OnDevice = std::function<bool(const module::Launch&)>;

// A tensor moves right before the launch that needs it, and not again while both copies are valid.
// A run begins with new inputs on the host and ends with the outputs there. Prepared tensors move
// while preparing. Constants are valid on both sides from the start.
//
// Loops run on the host. What a body needs and no trip writes moves before the loop, once. What a
// trip leaves to the next one is copied on the device if only launches there use it; else on the
// host, where it is at the end of each trip. Sizes that a launch finds, and entries of a state, are
// on the host right behind it.
//
// Tensors may lie in others (parts of a concat, slices): what moves is what launches have written.
// REQUIRES: within a run, one launch writes a tensor, and no reader is before it.
ExecutionPlan PlanExecution(const module::Manifest& manifest, const module::Function& function,
                            const OnDevice& on_device);

// The tensors that have a place on the device: operands of launches there, and what else moves.
std::set<int64_t> TensorsOnDevice(const module::Function& function, const ExecutionPlan& plan,
                                  const OnDevice& on_device);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_TRANSFER_PLAN_H_
