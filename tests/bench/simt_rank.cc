// Ranks candidates of a GPU of CUDA on a machine without one: each program's accesses are counted
// on the emulated GPU, and the counts take the place of what the analytical estimate thinks of them
// (emulated_counts.h). Tables on standard output, the best candidate first.
//   simt_rank [--target T] [--picks N] MODEL.onnx...   the search's first picks of each product
//   simt_rank [--target T] --timed FILE [TASK...]      programs that a GPU has timed: how well the
//                                                      counts order them, and how well the estimate
// With --list a line of each timed program, too.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "compiler/driver/compile.h"
#include "cost_model/model.h"
#include "tests/bench/local_tuner.h"
#include "tests/bench/timed_programs.h"
#include "tests/support/emulated_counts.h"
#include "tuner_server/search/search_task.h"

namespace tilewright::bench {
namespace {

using tests::CountedLaunch;
using tests::CountedProgram;
using tests::CountProgram;
using tests::HasProduct;

struct Options {
  std::string target = "cuda,arch=sm_90a", timed;
  int picks = 16;
  bool list = false;
  std::vector<std::string> names;  // of models, or of tasks
};

struct Ranked {
  std::string steps;
  CountedProgram program;
  double counted_ns = 0;
};

void RankTask(const driver::Task& task, const target::Target& target, int picks) {
  const std::string usual = Must(driver::DefaultSteps(task.text, target), task.name);
  auto search = Must(search::SearchTask::Create(Must(driver::TaskVariants(task.text), task.name),
                                                task.flops, target, {}),
                     task.name);
  const auto estimate = cost_model::MakePriorModel(target.machine.feature_set);
  std::vector<Ranked> ranked;
  for (const search::Pick& pick :
       Must(search->Ask(picks, "rank", estimate.get()), task.name).picks) {
    auto counted = CountProgram(task.text, pick.candidate.steps, target);
    if (!counted.ok()) {
      printf("%s: not counted: %s\n", task.name.c_str(),
             support::StatusText(counted.status()).c_str());
      continue;
    }
    ranked.push_back({pick.candidate.steps, *std::move(counted)});
    ranked.back().counted_ns = ranked.back().program.CountedNs(target.machine);
  }
  std::sort(ranked.begin(), ranked.end(),
            [](const Ranked& a, const Ranked& b) { return a.counted_ns < b.counted_ns; });
  printf("%s\n  counted us  estimated us     sectors  bank turns  steps\n", task.name.c_str());
  for (const Ranked& r : ranked) {
    double sectors = 0, turns = 0;
    for (const CountedLaunch& l : r.program.launches) {
      sectors += l.OfAllGroups(simt::Sum(l.parts).global_sectors);
      turns += l.OfAllGroups(simt::Sum(l.parts).shared_turns);
    }
    printf("%12.1f  %12.1f  %10.0f  %10.0f  %s\n", r.counted_ns / 1e3, r.program.estimated_ns / 1e3,
           sectors, turns, r.steps.c_str());
  }
  fflush(stdout);
}

struct Judged {
  cost_model::Dataset data;
  std::vector<float> counted, estimated;

  void Add(const CountedProgram& program, double counted_ns, double ns) {
    data.rows.push_back({{}, group, ns});
    counted.push_back(static_cast<float>(-counted_ns));
    estimated.push_back(static_cast<float>(-program.estimated_ns));
  }
  void Print(const std::string& name) const {
    const auto by_counts = cost_model::MeasureRanking(data, counted);
    const auto by_estimate = cost_model::MeasureRanking(data, estimated);
    printf("%-10s %4zu programs  pairs %.3f (%.3f)  best@1 %.3f (%.3f)  best@8 %.3f (%.3f)\n",
           name.c_str(), data.rows.size(), by_counts.pairwise_accuracy,
           by_estimate.pairwise_accuracy, by_counts.best_at_1, by_estimate.best_at_1,
           by_counts.best_at_8, by_estimate.best_at_8);
    fflush(stdout);
  }

  int group = 0;
};

void List(const std::string& task, const CountedProgram& program, double counted_ns, double ns) {
  printf("%s %.1f %.1f %.1f %.1f", task.c_str(), ns / 1e3, counted_ns / 1e3,
         program.estimated_ns / 1e3, program.without_ports_ns / 1e3);
  for (const CountedLaunch& l : program.launches) {
    const simt::Traffic t = simt::Sum(l.parts);
    printf(" | %.0f %.0f %.0f %.2f %.2f %ld %ld %ld %ld %ld", l.shape.groups, l.shape.threads,
           l.shape.groups_per_unit, l.shape.waves, l.shape.occupancy, t.global_requests,
           t.global_sectors, t.global_ideal_sectors, t.shared_turns, t.shared_ideal_turns);
  }
  printf("\n");
  fflush(stdout);
}

void JudgeTimed(const Options& options, const target::Target& target) {
  const TimedPrograms timed = ReadTimedPrograms(options.timed);
  Judged all;
  printf("by counts (by the estimate)\n");
  for (const auto& [name, programs] : timed.ns) {
    const auto& wanted = options.names;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), name) == wanted.end()) continue;
    Judged task;
    for (const auto& [steps, ns] : programs) {
      const auto program = CountProgram(timed.texts.at(name), steps, target);
      if (!program.ok() || ns <= 0) {
        if (options.list)
          printf("%s not counted: %s\n", name.c_str(),
                 support::StatusText(program.status()).c_str());
        continue;
      }
      const double counted_ns = program->CountedNs(target.machine);
      if (options.list) List(name, *program, counted_ns, ns);
      for (Judged* judged : {&task, &all}) judged->Add(*program, counted_ns, ns);
    }
    task.Print(name);
    ++all.group;
  }
  all.Print("all");
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("Ranks candidates of a GPU by what the emulated GPU counts.");
  app.add_option("--target", options.target, "a target of CUDA");
  app.add_option("--timed", options.timed, "timed programs (timed_programs.h)");
  app.add_option("--picks", options.picks, "candidates of each task")->check(CLI::PositiveNumber);
  app.add_flag("--list", options.list, "each timed program");
  app.add_option("names", options.names, "models, or tasks of the timed programs");
  CLI11_PARSE(app, argc, argv);
  const target::Target target = Must(target::ParseTarget(options.target), "target");
  if (!options.timed.empty()) {
    JudgeTimed(options, target);
    return 0;
  }
  for (const std::string& model : options.names) {
    for (const driver::Task& task : ModelTasks(model, target)) {
      if (HasProduct(task)) RankTask(task, target, options.picks);
    }
  }
  return 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) { return tilewright::bench::Main(argc, argv); }
