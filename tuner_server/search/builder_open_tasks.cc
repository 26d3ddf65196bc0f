// Tasks of open sizes in a builder's session: kernels that nothing measures.
#include "compiler/driver/compile.h"
#include "compiler/driver/specialise.h"
#include "deploy/support/status.h"
#include "tuner_server/log/cost_models.h"
#include "tuner_server/search/builder_session.h"

namespace tilewright::search {

absl::Status BuilderSession::AddOpenTask(const driver::Task& task, const v1::OpenJob& request,
                                         v1::JobOpened* reply) {
  if (request.cost_model() != log::kXgboostModel) return absl::OkStatus();  // nobody predicts
  TW_ASSIGN(const graph::Graph body, driver::ParseTask(task.text));
  const module::Sizes of_model = driver::TypicalSizes(graph_);
  module::Sizes typical;
  for (const std::string& name : graph::SizeVariables(body)) {
    const auto size = of_model.find(name);
    if (size == of_model.end()) return absl::OkStatus();
    typical.insert(*size);
  }
  TW_ASSIGN(const bool chooses, driver::ChoosesWhenItRuns(body));
  if (chooses) return absl::OkStatus();
  JobTask entry;
  entry.task = task;
  SearchOptions options = OptionsOf(task, request);
  options.typical = typical;
  const absl::StatusOr<graph::Graph> fixed = graph::Specialize(body, typical);
  if (!fixed.ok()) return absl::OkStatus();  // sizes that a run finds together: none is typical
  TW_ASSIGN(std::vector<schedule::Variant> variants, driver::TaskVariants(body));
  TW_ASSIGN(entry.search,
            SearchTask::Create(std::move(variants), graph::Flops(*fixed), target_, options));
  TW_ASSIGN(entry.default_steps, driver::DefaultSteps(task.text, target_));
  TW_ASSIGN(entry.estimate_ns, entry.search->EstimateNs(entry.default_steps));
  v1::BuilderTask* out = reply->add_open_tasks();
  out->set_hash(task.hash);
  out->set_name(task.label);
  out->set_description(task.name);
  out->set_weight(task.weight);
  out->set_default_steps(entry.default_steps);
  out->set_default_estimate_ns(entry.estimate_ns);
  tasks_[task.hash] = std::move(entry);
  return absl::OkStatus();
}

}  // namespace tilewright::search
