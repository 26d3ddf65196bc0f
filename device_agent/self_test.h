// What a device must be able to do before it joins: a kernel of the worker's own, with a known
// answer, is loaded, sandboxed, run, checked and timed like any candidate. Finds a sandbox that
// kills what is honest, a loader that cannot load, memory or a processor that computes wrongly,
// before work is spent on them. Pure.
#pragma once

#include <string>

#include "deploy/module/manifest.h"
#include "deploy/support/status.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::device_agent {

// Where each worker keeps the kernel (self_test_module.h) from its start on.
inline constexpr char kSelfTestSlot[] = "self-test";

inline constexpr int64_t kSelfTestElements = 4096;
// How its input is drawn.
inline constexpr uint64_t kSelfTestSeed = 1;
inline constexpr module::Distribution kSelfTestLaw{module::Distribution::Kind::kUniform, 1, 2};

// The measurement to ask a worker for.
absl::StatusOr<v1::MeasureModule> SelfTestRequest();

// Ok for the known answer; else failed_precondition (agent.self_test.failed) with what was found.
absl::Status SelfTestVerdict(const v1::ModuleMeasured& measured);

}  // namespace tilewright::device_agent
