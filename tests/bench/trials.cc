// Searches of single tasks as the tuner does them, one thread, with times from a store of measured
// candidates (trial_store.h): what trials.py compares. Resumable: what was measured is not measured
// again, and runs that are in the file of runs are left out.
//   trials run --store DIR --runs FILE --mode model|learned|draft|random [--model FILE]
//              [--seeds N] [--trials N] [--batch N] [--only NAME] WORKLOADS.txt | MODEL.onnx ...
//   trials finals --store DIR [--top N] [--placements N] WORKLOADS...   the best again, for longer
//   trials known --store DIR --table best_known.json WORKLOADS...   the table's kernels, measured
//   trials export --store DIR --rows FILE WORKLOADS...              features and times, as text
// Modes
//   model                 the shipped cost model (or --model) and retraining
//   learned               the analytical prior and retraining
//   draft                 the prior alone
//   random                distinct feasible points by chance
//   model-no-training     parts of `model` left out or changed, as in the lines that follow
//   model-no-evolution    no mutations of what the model likes
//   model-full-evolution  three generations of them in every batch
//   model-no-quota        no share for untried micro-kernels
//   model-no-adapt        neither mutations nor crossings of the best measured
//   model-PART, model-no-PART   any part of search_parts.h
//   model-relatives       with a log: the store's other workloads of the same kind, of which the
//                         picks' points are known
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "compiler/ir/structural.h"
#include "cost_model/shipped_model.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tests/bench/trial_store.h"
#include "tuner_server/search/search_parts.h"
#include "tuner_server/search/search_task.h"
#include "tuner_server/search/task_kind.h"
#include "tuner_server/search/transfer.h"

namespace tilewright::bench {
namespace {

using support::StrCat;

constexpr size_t kFirstTraining = 16;  // records

struct Options {
  std::string command, store, runs, mode = "learned", model, only, rows, table;
  int seeds = 1, first_seed = 1, trials = 64, batch = 8, top = 8, placements = 5;
  std::vector<std::string> workloads;
};

std::string RunName(const std::string& workload, const Options& options, int seed) {
  return StrCat(workload, "/", options.mode, "/", seed, "/", options.trials);
}

std::set<std::string> RunsDone(const std::string& path) {
  std::set<std::string> done;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    if (!row.is_discarded()) done.insert(row["run"]);
  }
  return done;
}

// "model-no-quota" is the product's search without its quota, "model-descent" that with descent.
search::SearchParts Parts(const Options& options) {
  constexpr char kModel[] = "model-", kNo[] = "no-";
  std::vector<std::string> switches;
  if (options.mode.rfind(kModel, 0) == 0 && options.mode != "model-full-evolution" &&
      options.mode != "model-relatives") {
    const std::string part = options.mode.substr(sizeof(kModel) - 1);
    const bool off = part.rfind(kNo, 0) == 0;
    switches.push_back(off ? part.substr(sizeof(kNo) - 1) + "=off" : part + "=on");
  }
  return Must(search::ParseSearchParts(switches), options.mode);
}

// Programs in the order tried.
using Tried = std::vector<std::string>;

Tried Random(const Workload& workload, const target::Target& target, const Options& options,
             int seed, TrialStore* store) {
  const auto space = Must(
      space::Space::Create(Must(driver::TaskVariants(workload.task.text), workload.name), target),
      workload.name);
  support::Rng rng(support::Rng(static_cast<uint64_t>(seed)).Split("random"));
  Tried tried;
  std::set<std::string> seen = {store->baseline_hash()};
  for (int draws = 0; static_cast<int>(tried.size()) < options.trials; ++draws) {
    space::Point point;
    if (draws > 100 * options.trials || !space->Sample(&rng, &point)) break;
    const absl::StatusOr<schedule::Schedule> made = space->Apply(point);
    if (!made.ok()) continue;
    const std::string hash = ir::ProgramHash(made->function());
    if (!seen.insert(hash).second) continue;
    store->Get(hash, schedule::ToText(made->steps()), options.mode);
    tried.push_back(hash);
  }
  return tried;
}

// What training goes on from; empty for modes that know nothing.
std::string BaseModel(const Options& options) {
  if (options.mode.rfind("model", 0) != 0 || !Parts(options).shipped_model) return "";
  if (options.model.empty()) return std::string(cost_model::ShippedModel());
  return Must(support::ReadFile(options.model, 1 << 28), options.model);
}

std::unique_ptr<cost_model::CostModel> FirstModel(const std::string& base, uint64_t seed) {
  if (base.empty()) return cost_model::MakePriorModel();
  auto model = cost_model::MakeXgbModel(seed);
  const absl::Status loaded = model->Load(base);
  TW_CHECK(loaded.ok()) << support::StatusText(loaded);
  return model;
}

// What the store's other workloads of the same kind give, as the tuner's log does
// (jobs/job_relatives.h): the best programs that searches of the nearest ones tried.
std::vector<space::Point> Inherited(const Workload& workload, const std::vector<Workload>& all,
                                    const target::Target& target, const Options& options,
                                    const space::Space& space) {
  const search::TaskKind kind = search::KindOf(workload.task.text);
  std::vector<std::pair<double, const Workload*>> near;
  for (const Workload& other : all) {
    const auto distance = search::KindDistance(kind, search::KindOf(other.task.text));
    if (distance.has_value() && other.task.hash != workload.task.hash) {
      near.emplace_back(*distance, &other);
    }
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<space::Point> points;
  for (size_t i = 0; i < std::min(near.size(), search::kMaxRelatives); ++i) {
    const Workload& other = *near[i].second;
    const auto store = Must(TrialStore::Open(options.store, other, target), other.name);
    std::vector<search::RelativeProgram> programs;
    for (const Measured* m : store->ByRatio()) {
      if (programs.size() == search::kProgramsOfRelative) break;
      if (m->ratio > search::kGoodEnough * store->ByRatio()[0]->ratio) break;
      if (!store->PointOf(m->program_hash).empty()) {
        programs.push_back({m->program_hash, store->PointOf(m->program_hash)});
      }
    }
    const auto from =
        Must(space::Space::Create(Must(driver::TaskVariants(other.task.text), other.name), target),
             other.name);
    for (space::Point& point : search::InheritedPoints(*from, programs, space)) {
      if (std::find(points.begin(), points.end(), point) == points.end()) {
        points.push_back(std::move(point));
      }
    }
  }
  return points;
}

Tried Search(const Workload& workload, const target::Target& target, const Options& options,
             int seed, const std::vector<Workload>& all, TrialStore* store) {
  search::SearchOptions with;
  with.seed = static_cast<uint64_t>(seed) ^ support::StableHash64(workload.task.hash);
  const search::SearchParts parts = Parts(options);
  search::UseParts(parts, &with);
  if (options.mode == "model-full-evolution") with.late_generations = with.generations;
  auto search =
      Must(search::SearchTask::Create(Must(driver::TaskVariants(workload.task.text), workload.name),
                                      workload.task.flops, target, with),
           workload.name);
  if (options.mode == "model-relatives") {
    search->Inherit(Inherited(workload, all, target, options, search->space()));
  }
  const std::string base = BaseModel(options);
  std::unique_ptr<cost_model::CostModel> model = FirstModel(base, with.seed);
  const auto tell = [&](const std::string& hash, const std::string& steps) {
    const Measured& m = store->Get(hash, steps, options.mode);
    const v1::Outcome outcome = m.ratio > 0 ? v1::OK : m.wrong ? v1::WRONG_RESULT : v1::BUILD_ERROR;
    search->Tell({hash, outcome, m.ratio * 1e6, false}, steps);
  };
  tell(store->baseline_hash(), store->baseline_steps());
  Tried tried;
  for (int batch = 0; static_cast<int>(tried.size()) < options.trials; ++batch) {
    const int left = options.trials - static_cast<int>(tried.size());
    const search::AskResult asked = Must(
        search->Ask(std::min(options.batch, left), StrCat("b", batch), model.get()), workload.name);
    if (asked.picks.empty()) break;
    for (const search::Pick& pick : asked.picks) {
      tell(pick.candidate.program_hash, pick.candidate.steps);
      store->NotePoint(pick.candidate.program_hash, space::PointText(pick.candidate.point));
      tried.push_back(pick.candidate.program_hash);
    }
    if (options.mode == "draft" || !parts.training) continue;
    cost_model::Dataset data;
    data.rows = search->TrainingRows(0);
    if (data.rows.size() < kFirstTraining) continue;
    model = cost_model::MakeXgbModel(with.seed, base);
    TW_CHECK(model->Fit(data).ok());
  }
  return tried;
}

void Run(const std::vector<Workload>& workloads, const std::vector<Workload>& all,
         const target::Target& target, const Options& options) {
  const std::set<std::string> done = RunsDone(options.runs);
  std::ofstream runs(options.runs, std::ios::app);
  for (int seed = options.first_seed; seed < options.first_seed + options.seeds; ++seed) {
    for (const Workload& workload : workloads) {
      const std::string name = RunName(workload.name, options, seed);
      if (done.count(name) > 0) continue;
      auto store = Must(TrialStore::Open(options.store, workload, target), workload.name);
      const double start = NowNs(2);
      const Tried tried = options.mode == "random"
                              ? Random(workload, target, options, seed, store.get())
                              : Search(workload, target, options, seed, all, store.get());
      const double seconds = (NowNs(2) - start) * 1e-9;
      runs << nlohmann::json{{"run", name},
                             {"workload", workload.name},
                             {"mode", options.mode},
                             {"seed", seed},
                             {"seconds", seconds},
                             {"built", store->built()},
                             {"failed", store->failed()},
                             {"tried", tried}}
                  .dump()
           << std::endl;
      const auto best = store->ByRatio();
      printf("%-28s %4zu tried, %4d measured in %5.1f s, best known %.4f of %zu\n", name.c_str(),
             tried.size(), store->built(), seconds, best.empty() ? 0 : best[0]->ratio, best.size());
      fflush(stdout);
    }
  }
}

void Finals(const std::vector<Workload>& workloads, const target::Target& target,
            const Options& options) {
  for (const Workload& workload : workloads) {
    auto store = Must(TrialStore::Open(options.store, workload, target), workload.name);
    // Until each of the best has had its turns: the quickest of many are there partly by luck.
    for (bool all = false; !all;) {
      all = true;
      std::vector<const Measured*> best = store->ByRatio();
      best.resize(std::min(best.size(), static_cast<size_t>(options.top)));
      std::vector<std::string> again;
      for (const Measured* m : best) {
        if (m->placements < options.placements) again.push_back(m->program_hash);
      }
      for (const std::string& hash : again) store->Again(hash, options.placements);
      all = again.empty();
    }
    const auto best = store->ByRatio();
    if (!best.empty()) printf("%-24s best %.4f\n", workload.name.c_str(), best[0]->ratio);
    fflush(stdout);
  }
}

// The kernels of a table of best-known ones, measured in this store like any other, and again with
// as many sets of buffers as finals take: what was best yesterday may be so no more.
void Known(const std::vector<Workload>& workloads, const target::Target& target,
           const Options& options) {
  const nlohmann::json table = nlohmann::json::parse(
      Must(support::ReadFile(options.table, 1 << 24), options.table), nullptr, false);
  TW_CHECK(table.contains("workloads")) << options.table << " is no table of best-known kernels";
  for (const Workload& workload : workloads) {
    if (!table["workloads"].contains(workload.name)) continue;
    const nlohmann::json& row = table["workloads"][workload.name];
    auto store = Must(TrialStore::Open(options.store, workload, target), workload.name);
    const std::string program = row["program"], steps = row["steps"];
    const auto replayed =
        schedule::Replay(Must(driver::TaskVariants(workload.task.text), workload.name), steps);
    if (!replayed.ok() || ir::ProgramHash(*replayed) != program) {
      printf("%-24s the steps make another program now\n", workload.name.c_str());
      continue;
    }
    store->Get(program, steps, "best_known");
    const Measured& now = store->Again(program, options.placements);
    printf("%-24s %.4f in the table, %.4f here\n", workload.name.c_str(),
           row["ratio"].get<double>(), now.ratio);
    fflush(stdout);
  }
}

void Export(const std::vector<Workload>& workloads, const target::Target& target,
            const Options& options) {
  std::ofstream out(options.rows);
  out << "workload program ratio origin";
  for (const std::string& name : cost_model::FeatureNames()) out << ' ' << name;
  out << "\n";
  for (const Workload& workload : workloads) {
    auto store = Must(TrialStore::Open(options.store, workload, target), workload.name);
    const auto space = Must(
        space::Space::Create(Must(driver::TaskVariants(workload.task.text), workload.name), target),
        workload.name);
    search::DraftMaker maker(space.get(), workload.task.flops, target);
    for (const std::string& hash : store->order()) {
      const Measured* m = store->Find(hash);
      const absl::StatusOr<search::Candidate> made = maker.MakeFromSteps(m->steps);
      if (!made.ok() || made->program_hash != hash) continue;
      out << workload.name << ' ' << hash << ' ' << m->ratio << ' ' << m->origin;
      for (const float value : made->features) out << ' ' << value;
      out << "\n";
    }
  }
}

Options ParseFlags(int argc, char** argv) {
  Options options;
  if (argc > 1) options.command = argv[1];
  for (int i = 2; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag.rfind("--", 0) != 0) {
      options.workloads.push_back(flag);
      continue;
    }
    TW_CHECK(i + 1 < argc) << flag << " needs a value";
    const std::string value = argv[++i];
    if (flag == "--store") options.store = value;
    if (flag == "--runs") options.runs = value;
    if (flag == "--mode") options.mode = value;
    if (flag == "--model") options.model = value;
    if (flag == "--only") options.only = value;
    if (flag == "--rows") options.rows = value;
    if (flag == "--table") options.table = value;
    if (flag == "--seeds") options.seeds = atoi(value.c_str());
    if (flag == "--first-seed") options.first_seed = atoi(value.c_str());
    if (flag == "--trials") options.trials = atoi(value.c_str());
    if (flag == "--batch") options.batch = atoi(value.c_str());
    if (flag == "--top") options.top = atoi(value.c_str());
    if (flag == "--placements") options.placements = atoi(value.c_str());
  }
  return options;
}

int Main(int argc, char** argv) {
  const Options options = ParseFlags(argc, argv);
  const target::Target target = NativeTarget(1);
  std::vector<Workload> workloads, all;
  std::set<std::string> seen;
  for (const std::string& path : options.workloads) {
    for (Workload& workload : ReadWorkloads(path, target)) {
      all.push_back(workload);
      if (workload.name.find(options.only) == std::string::npos) continue;
      if (seen.insert(workload.task.hash).second) workloads.push_back(std::move(workload));
    }
  }
  if (options.store.empty() || workloads.empty()) {
    fprintf(
        stderr,
        "trials run|finals|known|export --store DIR ... WORKLOADS: see tests/bench/README.md\n");
    return 2;
  }
  std::filesystem::create_directories(options.store);
  if (options.command == "run") {
    Run(workloads, all, target, options);
  } else if (options.command == "finals") {
    Finals(workloads, target, options);
  } else if (options.command == "known") {
    Known(workloads, target, options);
  } else if (options.command == "export") {
    Export(workloads, target, options);
  } else {
    fprintf(stderr, "unknown command %s\n", options.command.c_str());
    return 2;
  }
  return 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) { return tilewright::bench::Main(argc, argv); }
