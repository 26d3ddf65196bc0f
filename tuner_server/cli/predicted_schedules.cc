#include "tuner_server/cli/predicted_schedules.h"

#include <cmath>

#include "tuner_server/search/predicted_steps.h"

namespace tilewright::cli {

absl::StatusOr<PredictedSchedules> PredictSchedules(double seconds, ModelCompiler* compiler,
                                                    v1::CompileModule* request) {
  TW_ASSIGN(const v1::SchedulesPredicted predicted, compiler->Predict(*request, seconds));
  PredictedSchedules result;
  result.out_of_time = predicted.out_of_time();
  for (const v1::SchedulesPredicted::Schedule& one : predicted.schedules()) {
    result.gains[one.task()] = std::exp2(one.gain());
  }
  search::UsePredicted(predicted, request);
  return result;
}

}  // namespace tilewright::cli
