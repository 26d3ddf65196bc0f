#include "tuner_server/cli/predicted_schedules.h"

#include <cmath>

namespace tilewright::cli {

absl::StatusOr<PredictedSchedules> PredictSchedules(double seconds, ModelCompiler* compiler,
                                                    v1::CompileModule* request) {
  TW_ASSIGN(const v1::SchedulesPredicted predicted, compiler->Predict(*request, seconds));
  PredictedSchedules result;
  result.out_of_time = predicted.out_of_time();
  for (const v1::SchedulesPredicted::Schedule& one : predicted.schedules()) {
    result.gains[one.task()] = std::exp2(one.gain());
    (*request->mutable_steps_by_task())[one.task()] = one.steps();
    (*request->mutable_program_hash_by_task())[one.task()] = one.program_hash();
    request->add_predicted_tasks(one.task());
  }
  return result;
}

}  // namespace tilewright::cli
