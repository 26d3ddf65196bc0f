// Tasks of open sizes in a builder's session: kernels that nothing measures.
#include "compiler/driver/compile.h"
#include "compiler/driver/specialise.h"
#include "deploy/support/status.h"
#include "tuner_server/log/cost_models.h"
#include "tuner_server/search/builder_session.h"

namespace tilewright::search {

absl::StatusOr<std::optional<BuilderSession::JobTask>> BuilderSession::MakeOpenTask(
    const driver::Task& task) const {
  if (job_.cost_model() != log::kXgboostModel) return std::nullopt;  // nobody predicts
  TW_ASSIGN(const graph::Graph body, driver::ParseTask(task.text));
  const module::Sizes of_model = driver::TypicalSizes(graph_);
  module::Sizes typical;
  for (const std::string& name : graph::SizeVariables(body)) {
    const auto size = of_model.find(name);
    if (size == of_model.end()) return std::nullopt;
    typical.insert(*size);
  }
  TW_ASSIGN(const bool chooses, driver::ChoosesWhenItRuns(body));
  if (chooses) return std::nullopt;
  JobTask made{task};
  const absl::StatusOr<graph::Graph> fixed = graph::Specialize(body, typical);
  if (!fixed.ok()) return std::nullopt;  // sizes that a run finds together: none is typical
  // The points that a search of the task of these sizes would draw.
  const driver::Task at_typical = driver::DescribeTask(*fixed);
  SearchOptions options = OptionsOf(at_typical);
  options.typical = typical;
  TW_ASSIGN(std::vector<schedule::Variant> variants, driver::TaskVariants(body));
  TW_ASSIGN(made.search,
            SearchTask::Create(std::move(variants), at_typical.flops, target_, options));
  made.default_steps = made.search->default_steps();
  TW_ASSIGN(made.estimate_ns, made.search->EstimateNs(made.default_steps));
  return made;
}

}  // namespace tilewright::search
