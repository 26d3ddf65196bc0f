// How well what knows no measurement orders programs on the first OpenCL device: random programs of
// each task's space, measured once by the device's own clock, and ordered by the analytical
// estimate. Times are kept in a file (JSON lines), so that a changed estimate is judged on the same
// measurements. A table on standard output; with --list each program, estimated and measured.
//   prior_ranking --store FILE [--programs N] [--list] [--train] [LAYER...]
// With --train also how well a model trained on all tasks but one orders that one: whether the file
// is enough for a pre-trained model.
// With --target the programs of another device, which are all in the file: their tasks' texts, too.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/graph/graph.h"
#include "cost_model/model.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/bench/layers.h"
#include "tests/bench/local_tuner.h"
#include "tests/bench/timed_programs.h"
#include "tuner_server/search/draft_maker.h"

namespace tilewright::bench {
namespace {

using support::StrCat;

constexpr double kMaxDistance = 1e-5;

struct Options {
  std::string store, target = "opencl";
  int programs = 48;
  bool list = false, train = false;
  std::vector<std::string> names = {"G256x256x256", "C2", "C4", "C9", "softmax", "mean"};
};

// A task of the store, a layer of tests/bench/layers.h, or a task without a product.
std::string TextOf(const std::string& name, const std::map<std::string, std::string>& stored) {
  if (const auto text = stored.find(name); text != stored.end()) return text->second;
  if (name == "softmax") {
    return "graph {\n  input %0: f32[256,1024]\n  %1: f32[256,1024] = softmax(%0) {axis=1}\n"
           "  output %1\n}\n";
  }
  if (name == "mean") {
    return "graph {\n  input %0: f32[1,256,56,56]\n"
           "  %1: f32[1,256,1,1] = reduce(%0) {axes=[2,3], keepdims=1, kind=\"mean\"}\n"
           "  output %1\n}\n";
  }
  const Layer l = Must(FindLayer(name), name);
  if (l.kind == Layer::Kind::kConv) return GraphText(l, kNoBlocks);
  return StrCat("graph {\n  input %0: f32[", l.m, ",", l.k, "]\n  input %1: f32[", l.k, ",", l.n,
                "]\n  %2: f32[", l.m, ",", l.n, "] = matmul(%0, %1)\n  output %2\n}\n");
}

// Measures random programs until the store has as many as wanted.
void Measure(const std::string& name, const driver::Task& task, const target::Target& target,
             const Options& options, std::map<std::string, double>* known) {
  const std::string steps = Must(driver::DefaultSteps(task.text, target), name);
  const Loaded first = Must(Load(task, steps, target), name);
  const auto space =
      Must(space::Space::Create(Must(driver::TaskVariants(task.text), name), target), name);
  support::Rng rng(7);
  std::ofstream out(options.store, std::ios::app);
  for (int draws = 0; static_cast<int>(known->size()) < options.programs && draws < 4000; ++draws) {
    space::Point point;
    if (!space->Sample(&rng, &point)) break;
    const auto made = space->Apply(point);
    if (!made.ok()) continue;
    const std::string text = schedule::ToText(made->steps());
    if (known->count(text) > 0) continue;
    const absl::StatusOr<Loaded> loaded = Load(task, text, target);
    const bool right = loaded.ok() && ResultDistance(*loaded, first) < kMaxDistance;
    const double ns = right ? TimeNs(*loaded, 0) : 0;
    (*known)[text] = ns;
    out << nlohmann::json{{"task", name}, {"steps", text}, {"ns", ns}}.dump() << std::endl;
  }
}

cost_model::RankQuality Judge(const cost_model::Dataset& data, cost_model::CostModel* model) {
  std::vector<cost_model::FeatureVector> rows;
  for (const cost_model::DataRow& row : data.rows) rows.push_back(row.features);
  return cost_model::MeasureRanking(data, Must(model->Predict(rows), "scores"));
}

// The rows of one task, or of all others.
cost_model::Dataset RowsOf(const cost_model::Dataset& all, int group, bool others) {
  cost_model::Dataset rows;
  for (const cost_model::DataRow& row : all.rows) {
    if ((row.group == group) != others) rows.rows.push_back(row);
  }
  return rows;
}

void Print(const std::string& what, const cost_model::RankQuality& q, size_t rows) {
  printf("%-24s %5zu programs  pairs %.3f  best@1 %.3f  best@8 %.3f\n", what.c_str(), rows,
         q.pairwise_accuracy, q.best_at_1, q.best_at_8);
  fflush(stdout);
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app("How well the estimate orders programs of a device.");
  app.add_option("--store", options.store, "measured programs")->required();
  app.add_option("--programs", options.programs, "of each task")->check(CLI::NonNegativeNumber);
  app.add_option("--target", options.target, "of a store with all programs; measures nothing");
  app.add_flag("--list", options.list, "each program");
  app.add_option("layers", options.names, "C1..C12, G<m>x<n>x<k>, softmax, mean");
  app.add_flag("--train", options.train, "judge models that know the other tasks");
  CLI11_PARSE(app, argc, argv);

  const target::Target target = Must(target::ParseTarget(options.target), "target");
  if (app.count("--target") > 0) options.programs = 0;
  const auto prior = cost_model::MakePriorModel(target.machine.feature_set);
  auto [texts, store] = ReadTimedPrograms(options.store);
  cost_model::Dataset all;
  int group = 0;
  for (const std::string& name : options.names) {
    const std::string text = TextOf(name, texts);
    const driver::Task task = driver::DescribeTask(Must(graph::ParseGraph(text), text));
    if (options.programs > 0) Measure(name, task, target, options, &store[name]);
    const auto space =
        Must(space::Space::Create(Must(driver::TaskVariants(task.text), name), target), name);
    search::DraftMaker maker(space.get(), task.flops, target);
    cost_model::Dataset data;
    for (const auto& [steps, ns] : store[name]) {
      auto made = maker.MakeFromSteps(steps);
      if (!made.ok() || ns <= 0) continue;
      if (options.list)
        printf("%s %.0f %.0f %s\n", name.c_str(), ns / 1e3,
               cost_model::EstimatedNs(made->features) / 1e3, steps.c_str());
      data.rows.push_back({std::move(made->features), 0, ns});
      all.rows.push_back(data.rows.back());
      all.rows.back().group = group;
    }
    ++group;
    Print(name + " estimate", Judge(data, prior.get()), data.rows.size());
  }
  Print("all estimate", Judge(all, prior.get()), all.rows.size());
  for (int left_out = 0; options.train && left_out < group; ++left_out) {
    const auto model = cost_model::MakeXgbModel(1, "", target.machine.feature_set);
    const absl::Status fitted = model->Fit(RowsOf(all, left_out, /*others=*/true));
    TW_CHECK(fitted.ok()) << support::StatusText(fitted);
    const cost_model::Dataset rows = RowsOf(all, left_out, /*others=*/false);
    Print(options.names[static_cast<size_t>(left_out)] + " trained", Judge(rows, model.get()),
          rows.rows.size());
  }
  return 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) { return tilewright::bench::Main(argc, argv); }
