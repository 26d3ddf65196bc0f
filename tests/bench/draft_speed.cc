// What a batch of picks, and the training after it, costs the search, in processor time: the tasks
// of a model are searched in this process, ranked by the shipped model, with made-up times (the
// prior's estimate, distorted by a hash), so that nothing is built or measured. The first batch of
// a task and the later ones are reported apart. With the builder's allocator, and like it with the
// atomic reference counts of a process that has had threads.
//   draft_speed MODEL.onnx [--batches N] [--count N] [--target T] [--only WORD] [--seed N]
//               [--picks]
// --picks prints what was picked: two builds whose lists are the same search alike.
#include <time.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cost_model/model.h"
#include "cost_model/shipped_model.h"
#include "deploy/support/hash.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/bench/local_tuner.h"
#include "tuner_server/search/search_task.h"
#include "tuner_server/search/trainer.h"

namespace tilewright::bench {
namespace {

double CpuSeconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// Follows the prior within a factor of two.
double FakeTime(const search::Candidate& candidate) {
  const double prior = -candidate.features[cost_model::FeatureIndex("prior.score")];
  const uint64_t hash = support::StableHash64(candidate.program_hash);
  return std::exp2(prior + static_cast<double>(hash % 1000) / 1000.0);
}

struct Cost {
  double cpu_s = 0, search_s = 0, features_s = 0, model_s = 0, train_s = 0;
  int asks = 0, considered = 0, picks = 0, trainings = 0;

  void Add(double seconds, const search::AskResult& result) {
    cpu_s += seconds;
    search_s += result.times.search_seconds;
    features_s += result.times.features_seconds;
    model_s += result.model_seconds;
    considered += result.considered;
    picks += static_cast<int>(result.picks.size());
    ++asks;
  }
  void Print(const char* what) const {
    const double n = std::max(asks, 1);
    printf(
        "  %-6s %4d asks %8.2f ms each (%.2f ms a pick), %.0f considered; wall: search %.2f "
        "features %.2f model %.2f ms\n",
        what, asks, 1e3 * cpu_s / n, 1e3 * cpu_s / std::max(picks, 1), considered / n,
        1e3 * search_s / n, 1e3 * features_s / n, 1e3 * model_s / n);
    if (trainings > 0)
      printf("  trained %d times, %.2f ms each\n", trainings, 1e3 * train_s / trainings);
  }
  void Train(double seconds) {
    train_s += seconds;
    ++trainings;
  }
};

struct Options {
  int batches = 8, count = 8;
  uint64_t seed = 0;
  bool picks = false;
};

void Run(const driver::Task& task, const target::Target& target, const Options& options,
         Cost* first, Cost* later) {
  search::SearchOptions search_options;
  search_options.seed = options.seed;
  auto search = Must(search::SearchTask::Create(Must(driver::TaskVariants(task.text), task.name),
                                                task.flops, target, search_options),
                     task.name);
  std::unique_ptr<cost_model::CostModel> model = cost_model::MakeXgbModel(1);
  TW_CHECK(model->Load(cost_model::ShippedModel()).ok());
  for (int batch = 0; batch < options.batches; ++batch) {
    const double start = CpuSeconds();
    const search::AskResult asked =
        Must(search->Ask(options.count, support::StrCat("b", batch), model.get()), task.name);
    (batch == 0 ? first : later)->Add(CpuSeconds() - start, asked);
    for (const search::Pick& pick : asked.picks) {
      const search::Candidate& c = pick.candidate;
      if (options.picks)
        printf("pick %s %d %.9g\n", c.program_hash.c_str(), pick.rank, pick.predicted);
      search->Tell({c.program_hash, v1::OK, FakeTime(c), false}, c.steps);
    }
    cost_model::Dataset rows;
    rows.rows = search->TrainingRows(0);
    const double trained_at = CpuSeconds();
    const search::TrainingInput input =
        Must(search::PrepareTraining(std::move(rows), 1, std::string(cost_model::ShippedModel()),
                                     model.get(), true),
             "training");
    search::TrainedModel trained = Must(search::TrainAndJudge(input), "training");
    if (trained.model == nullptr) continue;
    later->Train(CpuSeconds() - trained_at);
    if (trained.replaces) model = std::move(trained.model);
  }
}

int Main(int argc, char** argv) {
  std::thread([] {}).join();  // libstdc++ counts without atomics before the first one
  Options options;
  std::string path, only, name = "cpu,arch=x86_64,cpu=znver4,threads=1";
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--batches" && i + 1 < argc) {
      options.batches = atoi(argv[++i]);
    } else if (flag == "--count" && i + 1 < argc) {
      options.count = atoi(argv[++i]);
    } else if (flag == "--target" && i + 1 < argc) {
      name = argv[++i];
    } else if (flag == "--only" && i + 1 < argc) {
      only = argv[++i];
    } else if (flag == "--seed" && i + 1 < argc) {
      options.seed = static_cast<uint64_t>(atoll(argv[++i]));
    } else if (flag == "--picks") {
      options.picks = true;
    } else {
      path = flag;
    }
  }
  const target::Target target = Must(target::ParseTarget(name), name);
  Cost all_first, all_later;
  for (const driver::Task& task : ModelTasks(path, target)) {
    if (task.name.find(only) == std::string::npos) continue;
    Cost first, later;
    Run(task, target, options, &first, &later);
    printf("%s\n", task.name.substr(0, 90).c_str());
    first.Print("first");
    later.Print("later");
    for (const auto& [one, all] : {std::pair(&first, &all_first), std::pair(&later, &all_later)}) {
      all->cpu_s += one->cpu_s, all->search_s += one->search_s;
      all->features_s += one->features_s, all->model_s += one->model_s;
      all->train_s += one->train_s, all->trainings += one->trainings;
      all->asks += one->asks, all->considered += one->considered, all->picks += one->picks;
    }
  }
  printf("all tasks\n");
  all_first.Print("first");
  all_later.Print("later");
  return 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) { return tilewright::bench::Main(argc, argv); }
