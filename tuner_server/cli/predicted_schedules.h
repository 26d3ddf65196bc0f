// Schedules that the shipped cost model chooses where no record is: `compile` without a device.
#pragma once

#include <map>
#include <string>

#include "deploy/support/status.h"
#include "tuner_server/cli/model_compiler.h"

namespace tilewright::cli {

// Enough for all kernels of most networks on two cores, so that a compilation ends within 10 s.
inline constexpr double kDefaultEffortS = 5;

struct PredictedSchedules {
  // Speedup over the default schedule that the model expects, by task hash. Tasks that are not here
  // keep their default.
  std::map<std::string, double> gains;
  int out_of_time = 0;  // tasks that keep their default since the time was over
};

// Looks for schedules of tasks that the request has none for, on all processors, until `seconds`
// have passed: those with the largest share of the time first, those with hardly any not at all.
// Puts what it finds into the request; nothing where no model knows the target's machines.
absl::StatusOr<PredictedSchedules> PredictSchedules(double seconds, ModelCompiler* compiler,
                                                    v1::CompileModule* request);

}  // namespace tilewright::cli
