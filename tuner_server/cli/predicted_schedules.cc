#include "tuner_server/cli/predicted_schedules.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "deploy/support/clock.h"

namespace tilewright::cli {
namespace {

constexpr double kMinShare = 0.01;  // of the model's estimated time: less is not worth the effort

}  // namespace

absl::StatusOr<PredictedSchedules> PredictSchedules(double seconds, ModelCompiler* compiler,
                                                    v1::CompileModule* request) {
  support::SystemClock clock;
  const int64_t end_ns = clock.NowNs() + static_cast<int64_t>(seconds * 1e9);
  std::vector<const v1::BuilderTask*> tasks;
  for (const auto* kind : {&compiler->opened().tasks(), &compiler->opened().open_tasks()}) {
    for (const v1::BuilderTask& task : *kind) tasks.push_back(&task);
  }
  const auto time = [](const v1::BuilderTask* task) {
    return static_cast<double>(task->weight()) * task->default_estimate_ns();
  };
  double all = 0;
  for (const v1::BuilderTask* task : tasks) all += time(task);
  std::erase_if(tasks, [&](const auto* task) {
    return request->steps_by_task().contains(task->hash()) || time(task) < kMinShare * all;
  });
  std::stable_sort(tasks.begin(), tasks.end(),
                   [&](const auto* a, const auto* b) { return time(a) > time(b); });
  PredictedSchedules result;
  for (const v1::BuilderTask* task : tasks) {
    if (clock.NowNs() >= end_ns) {
      ++result.out_of_time;
      continue;
    }
    TW_ASSIGN(const v1::SchedulePredicted one, compiler->Predict(task->hash()));
    if (!one.why_not().empty()) return result;
    if (one.steps().empty()) continue;
    result.gains[task->hash()] = std::exp2(one.gain());
    (*request->mutable_steps_by_task())[task->hash()] = one.steps();
    (*request->mutable_program_hash_by_task())[task->hash()] = one.program_hash();
    request->add_predicted_tasks(task->hash());
  }
  return result;
}

}  // namespace tilewright::cli
