// The test of a device before it joins: a kernel of the worker with a known answer is loaded,
// sandboxed, run, checked and timed like any candidate. It finds a sandbox that kills honest code,
// a loader that fails, and memory or a processor that computes wrongly. Pure.
#pragma once

#include <string>

#include "deploy/module/manifest.h"
#include "deploy/support/status.h"
#include "tilewright/v1/worker.pb.h"

namespace tilewright::device_agent {

// The slot in which each worker keeps the kernel (self_test_module.h) from its start on.
inline constexpr char kSelfTestSlot[] = "self-test";

inline constexpr int64_t kSelfTestElements = 4096;
// How its input is drawn.
inline constexpr uint64_t kSelfTestSeed = 1;
inline constexpr module::Distribution kSelfTestLaw{module::Distribution::Kind::kUniform, 1, 2};
// Of a device that computes with whole numbers only. Such a device has the attribute.
inline constexpr module::Distribution kWholeSelfTestLaw{module::Distribution::Kind::kIntRange, -100,
                                                        100};
inline constexpr char kSelfTestAttribute[] = "self_test", kWholeNumbers[] = "whole_numbers";

// The measurement to ask a worker for. `whole`: for a device with the attribute.
absl::StatusOr<v1::MeasureModule> SelfTestRequest(bool whole);

// Ok for the known answer; else failed_precondition (agent.self_test.failed) with what was found.
absl::Status SelfTestVerdict(const v1::ModuleMeasured& measured);

}  // namespace tilewright::device_agent
