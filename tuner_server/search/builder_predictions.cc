// Schedules that nothing measured: what a builder's session predicts.
#include <algorithm>

#include "cost_model/shipped_model.h"
#include "deploy/support/clock.h"
#include "deploy/support/duration.h"
#include "deploy/support/parallel.h"
#include "deploy/support/status.h"
#include "tuner_server/search/builder_session.h"
#include "tuner_server/search/predicted_steps.h"

namespace tilewright::search {
namespace {

// Of the estimated time of what runs at once: less is not worth the effort.
constexpr double kMinShare = 0.01;

}  // namespace

absl::StatusOr<bool> BuilderSession::KnowsProgramsLike(const JobTask& task) {
  if (task.task.data_type == "int8") return false;
  TW_ASSIGN(const schedule::Steps parsed, schedule::ParseSteps(task.default_steps));
  return std::none_of(parsed.begin(), parsed.end(), [](const schedule::Step& step) {
    return step.kind == schedule::StepKind::kTensorize;
  });
}

// Those with the largest share of the time first, in the function of all sizes or in one of a
// specialisation: of small sizes a task is as much to its function as one of large sizes is to
// another. Without those that the predictor knows nothing of, and without those that take hardly
// any time.
absl::StatusOr<std::vector<const BuilderSession::JobTask*>> BuilderSession::TasksToPredict(
    const std::set<std::string>& known, bool learned, bool only_open) const {
  std::vector<double> all_ns(1 + specialised_.size());
  std::vector<const JobTask*> chosen;
  for (const auto& [hash, task] : tasks_) {
    if (only_open && !task.task.open_sizes) continue;
    for (size_t g = 0; g < all_ns.size(); ++g) all_ns[g] += task.uses[g] * task.estimate_ns;
    if (known.contains(hash)) continue;
    if (learned) {
      TW_ASSIGN(const bool knows, KnowsProgramsLike(task));
      if (!knows) continue;
    }
    chosen.push_back(&task);
  }
  const auto share = [&](const JobTask* task) {
    double most = 0;
    for (size_t g = 0; g < all_ns.size(); ++g) {
      if (task->uses[g] > 0) most = std::max(most, task->uses[g] * task->estimate_ns / all_ns[g]);
    }
    return most;
  };
  std::erase_if(chosen, [&](const JobTask* task) { return share(task) < kMinShare; });
  std::stable_sort(chosen.begin(), chosen.end(),
                   [&](const JobTask* a, const JobTask* b) { return share(a) > share(b); });
  return chosen;
}

absl::Status BuilderSession::PredictSchedules(const v1::PredictSchedules& request,
                                              v1::SchedulesPredicted* reply) const {
  const std::set<std::string> known(request.known_tasks().begin(), request.known_tasks().end());
  std::optional<int64_t> time_ns;
  if (request.has_time()) time_ns = support::DurationNs(request.time());
  return Predict(known, /*only_open=*/false, time_ns, reply);
}

absl::Status BuilderSession::Predict(const std::set<std::string>& known, bool only_open,
                                     std::optional<int64_t> time_ns,
                                     v1::SchedulesPredicted* reply) const {
  const target::Predictor predictor = target_.machine.predictor;
  const bool learned = predictor == target::Predictor::kShippedModel;
  if (predictor == target::Predictor::kNone || (learned && base_.empty())) return absl::OkStatus();
  support::SystemClock clock;
  const int64_t start_ns = clock.NowNs();
  TW_ASSIGN(const std::vector<const JobTask*> tasks, TasksToPredict(known, learned, only_open));
  std::vector<std::optional<Prediction>> predicted(tasks.size());
  // The search of a task and a model have one owner each: models are made for each thread.
  TW_TRY(support::ForEachInParallel(tasks.size(), [&]() -> absl::StatusOr<support::PieceOfWork> {
    std::shared_ptr<cost_model::CostModel> model =
        cost_model::MakePriorModel(target_.machine.feature_set);
    if (learned) {
      TW_ASSIGN(model, cost_model::ModelBeforeMeasurements(target_.machine));
    }
    return [&, model](size_t i) -> absl::Status {
      if (time_ns && clock.NowNs() - start_ns >= *time_ns) return absl::OkStatus();
      TW_ASSIGN(predicted[i], tasks[i]->search->PredictBest(tasks[i]->default_steps, model.get()));
      return absl::OkStatus();
    };
  }));
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (!predicted[i]) reply->set_out_of_time(reply->out_of_time() + 1);
    if (!predicted[i] || predicted[i]->steps.empty()) continue;
    v1::SchedulesPredicted::Schedule* schedule = reply->add_schedules();
    schedule->set_task(tasks[i]->task.hash);
    schedule->set_steps(predicted[i]->steps);
    schedule->set_program_hash(predicted[i]->program_hash);
    schedule->set_gain(predicted[i]->gain);
  }
  return absl::OkStatus();
}

// By the model that ships, not by what a job has learned: equal schedules of what is measured then
// make equal modules.
absl::Status BuilderSession::PredictOpenTasks(v1::CompileModule* request) const {
  std::set<std::string> known;
  for (const auto& [hash, steps] : request->steps_by_task()) known.insert(hash);
  v1::SchedulesPredicted predicted;
  TW_TRY(Predict(known, /*only_open=*/true, std::nullopt, &predicted));
  UsePredicted(predicted, request);
  return absl::OkStatus();
}

}  // namespace tilewright::search
