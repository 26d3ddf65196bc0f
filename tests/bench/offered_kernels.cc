// Whether what a search offers can be built, without a device: the first picks of each task of a
// model, as a tuning job has them built (for GPUs of CUDA by NVRTC).
//   offered_kernels TARGET PICKS SEED MODEL.onnx
// Prints a line of JSON for each task. A pick over a limit of the device (threads, shared memory,
// registers) is counted, as a job counts it; any other error is a failure. Exit code 1 then.
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "compiler/codegen/codegen.h"
#include "compiler/driver/compile.h"
#include "cost_model/model.h"
#include "deploy/support/strings.h"
#include "tests/bench/local_tuner.h"
#include "tuner_server/search/search_task.h"

namespace tilewright::bench {
namespace {

using nlohmann::json;

bool IsLimit(std::string_view slug) {
  return slug.starts_with("codegen.launch_limits.") || slug == "codegen.resources.spills";
}

// Returns whether nothing failed.
bool Offer(const driver::Task& task, const target::Target& target, int picks, uint64_t seed) {
  search::SearchOptions options;
  options.seed = seed;
  auto search = Must(search::SearchTask::Create(Must(driver::TaskVariants(task.text), task.name),
                                                task.flops, target, options),
                     task.name);
  const auto estimate = cost_model::MakePriorModel(target.machine.feature_set);
  const search::AskResult asked = Must(search->Ask(picks, "first", estimate.get()), task.name);
  json limits = json::object(), failures = json::array();
  int built = 0;
  for (const search::Pick& pick : asked.picks) {
    const std::string& steps = pick.candidate.steps;
    const auto candidate = driver::BuildCandidate(task.text, steps, target, nullptr);
    const absl::Status status =
        candidate.ok() ? codegen::CheckSpills(candidate->resources) : candidate.status();
    const std::string slug = support::Slug(status);
    if (status.ok()) {
      ++built;
    } else if (IsLimit(slug)) {
      limits[slug] = limits.value(slug, 0) + 1;
    } else {
      failures.push_back({{"steps", steps}, {"error", support::StatusText(status)}});
    }
  }
  const json row = {{"task", task.name},
                    {"offered", asked.picks.size()},
                    {"built", built},
                    {"limits", limits},
                    {"failures", failures}};
  printf("%s\n", row.dump().c_str());
  fflush(stdout);
  return failures.empty();
}

int Main(int argc, char** argv) {
  const auto picks = argc == 5 ? support::ParseInt64(argv[2]) : std::nullopt;
  const auto seed = argc == 5 ? support::ParseUint64(argv[3]) : std::nullopt;
  if (!picks || !seed || *picks < 1 || *picks > 100'000) {
    fprintf(stderr, "usage: offered_kernels TARGET PICKS SEED MODEL.onnx\n");
    return 2;
  }
  const target::Target target = Must(target::ParseTarget(argv[1]), "target");
  bool good = true;
  for (const driver::Task& task : ModelTasks(argv[4], target)) {
    good = Offer(task, target, static_cast<int>(*picks), *seed) && good;
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) { return tilewright::bench::Main(argc, argv); }
