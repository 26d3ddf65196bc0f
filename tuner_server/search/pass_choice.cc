#include "tuner_server/search/pass_choice.h"

#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/driver/specialise.h"
#include "compiler/driver/tasks.h"
#include "cost_model/shipped_model.h"
#include "deploy/support/parallel.h"
#include "deploy/support/status.h"
#include "tuner_server/search/search_task.h"

namespace tilewright::search {
namespace {

using graph::Graph;
using graph::GraphPassContext;

// A task is as fast as the best of its default schedule and so many drafts. Of eleven networks only
// DQN, as fast with blocks as without, decides otherwise with 64 of them.
constexpr int kDrafts = 8;

// How often the model runs each task, by the task's hash.
struct Uses {
  driver::Task task;
  int more = 0;  // in one graph than in the other

  bool computes() const { return task.flops > 0; }
};
absl::Status Count(const Graph& fused, int sign, std::map<std::string, Uses>* uses) {
  TW_ASSIGN(const std::vector<driver::Task> tasks, driver::ExtractTasks(fused));
  for (const driver::Task& task : tasks) {
    if (!task.library.empty()) continue;
    const auto known = uses->try_emplace(task.hash, Uses{task}).first;
    known->second.more += sign * task.weight;
  }
  return absl::OkStatus();
}

absl::StatusOr<double> PredictNs(const driver::Task& task, const target::Target& target,
                                 cost_model::CostModel* model) {
  TW_ASSIGN(std::vector<schedule::Variant> variants, driver::TaskVariants(task.text));
  TW_ASSIGN(const auto search, SearchTask::Create(std::move(variants), task.flops, target, {}));
  return search->PredictNs(search->default_steps(), kDrafts, model);
}

absl::StatusOr<bool> IsFaster(const Graph& with, const Graph& without,
                              const target::Target& target) {
  std::map<std::string, Uses> uses;
  TW_TRY(Count(with, 1, &uses));
  TW_TRY(Count(without, -1, &uses));
  std::erase_if(uses, [](const auto& use) { return use.second.more == 0; });
  std::vector<const Uses*> judged;
  int computing = 0, moving = 0;  // tasks of the first graph alone
  for (const auto& [hash, use] : uses) {
    judged.push_back(&use);
    if (use.more > 0) (use.computes() ? computing : moving) += use.more;
  }
  const bool unsure = target.machine.predictor == target::Predictor::kNone;
  std::vector<double> more_ns(judged.size());
  TW_TRY(support::ForEachInParallel(judged.size(), [&]() -> absl::StatusOr<support::PieceOfWork> {
    TW_ASSIGN(const std::shared_ptr<cost_model::CostModel> model,
              cost_model::ModelBeforeMeasurements(target.machine));
    return [&, model](size_t i) -> absl::Status {
      const Uses& use = *judged[i];
      TW_ASSIGN(const double ns, PredictNs(use.task, target, model.get()));
      more_ns[i] = use.more * ns;
      const bool network = computing > moving;
      if (network && model->pretrained() && use.more > 0 && use.computes())
        more_ns[i] *= target.machine.estimate.blocks_share;
      if (!network && unsure && use.more < 0) more_ns[i] *= target.machine.estimate.sure_share;
      return absl::OkStatus();
    };
  }));
  return std::accumulate(more_ns.begin(), more_ns.end(), 0.0) < 0;
}

// The graph at the sizes at which it is judged.
absl::StatusOr<Graph> AtTypicalSizes(const Graph& imported) {
  if (!graph::IsSymbolic(imported)) return imported;
  TW_ASSIGN(const Graph inferred, graph::InferShapes(imported));
  return graph::Specialize(inferred, driver::TypicalSizes(inferred));
}

// Runs the passes with `name`, and without it if it changes anything; returns the faster graph.
absl::StatusOr<Graph> RunWhereItPays(const std::string& name, const Graph& imported,
                                     const target::Target& target, GraphPassContext* context) {
  std::vector<std::string> changed;
  GraphPassContext with = *context, without = *context;
  with.enabled.push_back(name);
  with.changed = &changed;
  without.disabled.push_back(name);
  TW_ASSIGN(Graph first, graph::RunGraphPasses(imported, with));
  bool faster = graph::IsNamed(changed, name);
  with.changed = nullptr;
  if (faster) {
    TW_ASSIGN(Graph second, graph::RunGraphPasses(imported, without));
    TW_ASSIGN(faster, IsFaster(first, second, target));
    if (!faster) first = std::move(second);
  }
  *context = faster ? std::move(with) : std::move(without);
  return first;
}

}  // namespace

absl::StatusOr<Graph> RunPassesThatPay(Graph imported, const target::Target& target,
                                       GraphPassContext context) {
  std::optional<Graph> chosen;
  std::optional<Graph> judged;
  for (const graph::GraphPass& pass : graph::GraphPasses()) {
    const std::string name(pass.name);
    if (pass.use != graph::GraphPass::Use::kOptional || graph::IsNamed(context.enabled, name) ||
        graph::IsNamed(context.disabled, name)) {
      continue;
    }
    if (!judged) {
      absl::StatusOr<Graph> typical = AtTypicalSizes(imported);
      // Sizes that a run finds together may have no typical ones that fit.
      if (!typical.ok() && graph::IsSymbolic(imported)) break;
      TW_ASSIGN(judged, std::move(typical));
    }
    TW_ASSIGN(chosen, RunWhereItPays(name, *judged, target, &context));
  }
  if (chosen && !graph::IsSymbolic(imported)) return *std::move(chosen);
  return graph::RunGraphPasses(std::move(imported), context);
}

}  // namespace tilewright::search
