// Random programs as kernels on a device against the interpreter, whatever the device's language:
// flat ones (vectors, masks, casts, integer types, lets, conditions), random schedules for groups
// of threads, and random points of the search's spaces. The same bits for integers, floats within
// rounding. TILEWRIGHT_SEED and TILEWRIGHT_ROUNDS choose which and how many. Failures are gtest's;
// not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/schedule.h"
#include "tests/support/run_plan.h"

namespace tilewright::tests {

struct DeviceLanguage {
  const char* target;
  const char* unsupported;  // slug of what the language lacks
  // A code object of these kernels.
  absl::StatusOr<std::string> (*emit)(const std::vector<ir::Function>&);
  // What to show of it when a test fails.
  std::string (*show)(const std::string& code);
};

void FlatProgramsComputeTheSame(const DeviceLanguage& language, PlanDevice* device, int64_t rounds);
void SchedulesComputeTheSame(const DeviceLanguage& language, PlanDevice* device, int64_t rounds);
void PointsOfTheSearchComputeTheSame(const DeviceLanguage& language, PlanDevice* device,
                                     int64_t rounds);

// Points of the search, and rows and attention in one launch each, for phones' GPUs, whose threads
// go in step. They run on any device of the language.
void ProgramsForPhonesComputeTheSame(const DeviceLanguage& language, PlanDevice* device,
                                     int64_t rounds);

// Softmax and means whose tree ends in sub-groups.
void SubGroupTreesComputeTheSame(const DeviceLanguage& language, PlanDevice* device,
                                 int64_t rounds);
// A program of stage flat as it is.
void FlatComputesTheSame(const DeviceLanguage& language, PlanDevice* device, const ir::Function& f);

// Runs a program under a schedule: passes, generator, limits, device. Returns false if there is
// nothing to run.
bool RunsTheSame(const DeviceLanguage& language, PlanDevice* device, const ir::Function& program,
                 const schedule::Schedule& scheduled, uint64_t seed);

}  // namespace tilewright::tests
