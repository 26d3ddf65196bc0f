// The shipped cost model, made and judged from pools of measured candidates (trial_store.h).
//   model_pool train --pool DIR -o FILE                  trains on all of the pool
//   model_pool evaluate --pool DIR [--ablate] [-o FILE]   each network by a model of the others;
//                                                        then trains, too
//   model_pool judge --pool DIR --model FILE             a model on a pool that it has not seen
//   model_pool export --pool DIR -o FILE                 features and times, as text
// A pool's file is named network-task.jsonl. From the training of a held-out network's model are
// left out tasks equal to one of the network's and those of the same operators with every extent
// within a tenth. Pairs of a task count when they are more than 2 % apart.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "compiler/driver/tasks.h"
#include "cost_model/model.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tests/bench/trial_store.h"
#include "tuner_server/log/task_renames.h"
#include "tuner_server/search/draft_maker.h"

namespace tilewright::bench {
namespace {

using cost_model::Dataset;
using cost_model::RankQuality;

constexpr double kNear = 0.1;  // extents so close make tasks relatives

struct PoolTask {
  std::string name, network, text, target;
  std::vector<cost_model::DataRow> rows;
  std::vector<std::string> programs;  // their hashes
  int late = 0;                       // rows that a search chose
};

// The numbers of a task's text in order, and the text without them.
void SplitText(const std::string& text, std::string* words, std::vector<double>* numbers) {
  for (size_t i = 0; i < text.size();) {
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) {
      *words += text[i++];
      continue;
    }
    size_t end = i;
    while (end < text.size() && std::isdigit(static_cast<unsigned char>(text[end])) != 0) ++end;
    numbers->push_back(std::stod(text.substr(i, end - i)));
    *words += '#';
    i = end;
  }
}

bool Near(const PoolTask& a, const PoolTask& b) {
  std::string words_a, words_b;
  std::vector<double> numbers_a, numbers_b;
  SplitText(a.text, &words_a, &numbers_a);
  SplitText(b.text, &words_b, &numbers_b);
  if (words_a != words_b || numbers_a.size() != numbers_b.size()) return false;
  for (size_t i = 0; i < numbers_a.size(); ++i) {
    const double most = std::max(numbers_a[i], numbers_b[i]);
    if (std::abs(numbers_a[i] - numbers_b[i]) > kNear * most) return false;
  }
  return true;
}

PoolTask ReadTask(const std::filesystem::path& path) {
  PoolTask task;
  task.name = path.stem().string();
  task.network = task.name.substr(0, task.name.find('-'));
  std::unique_ptr<space::Space> space;
  std::unique_ptr<search::DraftMaker> maker;
  std::map<std::string, nlohmann::json> last;  // of each program
  std::vector<std::string> order;
  const std::string text = Must(support::ReadFile(path.string(), uint64_t{1} << 30), task.name);
  for (const std::string& line : support::Split(text, '\n')) {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    if (row.is_discarded()) continue;
    if (row.contains("baseline")) {
      task.text = log::UpgradedTaskText(row["text"].get<std::string>());
      task.target = row["target"];
      const target::Target target = Must(target::ParseTarget(task.target), task.name);
      const absl::StatusOr<driver::Task> described = driver::MakeTask(task.text);
      if (!described.ok()) {  // of another version of the compiler, as its programs
        fprintf(stderr, "[SKIP] %s: %s\n", task.name.c_str(),
                support::StatusText(described.status()).c_str());
        return task;
      }
      space = Must(space::Space::Create(Must(driver::TaskVariants(task.text), task.name), target),
                   task.name);
      maker = std::make_unique<search::DraftMaker>(space.get(), described->flops, target);
      continue;
    }
    const std::string program = row["program"];
    if (last.count(program) == 0) order.push_back(program);
    last[program] = row;
  }
  for (const std::string& program : order) {
    const nlohmann::json& row = last[program];
    const absl::StatusOr<search::Candidate> made =
        maker->MakeFromSteps(row["steps"].get<std::string>());
    if (!made.ok() || made->program_hash != program)
      continue;  // of another version of the compiler
    task.rows.push_back({made->features, 0, row["ratio"].get<double>()});
    task.programs.push_back(program);
    task.late += row.value("origin", "") != "random" ? 1 : 0;
  }
  return task;
}

std::vector<PoolTask> ReadPool(const std::string& dir) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.path().extension() == ".jsonl") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<PoolTask> pool;
  for (const auto& path : paths) {
    pool.push_back(ReadTask(path));
    if (pool.back().rows.size() < 2) pool.pop_back();
  }
  return pool;
}

// One group per task. `columns` are made constant: a model cannot use them.
Dataset Join(const std::vector<const PoolTask*>& tasks, const std::set<size_t>& columns) {
  Dataset data;
  int group = 0;
  for (const PoolTask* task : tasks) {
    for (cost_model::DataRow row : task->rows) {
      row.group = group;
      for (const size_t column : columns) row.features[column] = 0;
      data.rows.push_back(std::move(row));
    }
    ++group;
  }
  return data;
}

RankQuality Judge(cost_model::CostModel* model, const Dataset& data) {
  std::vector<cost_model::FeatureVector> rows;
  for (const cost_model::DataRow& row : data.rows) rows.push_back(row.features);
  return cost_model::MeasureRanking(data, Must(model->Predict(rows), "predict"));
}

void PrintHead() {
  printf("%-34s %6s %7s %8s %7s %7s %9s\n", "", "tasks", "rows", "pairs", "best@1", "best@8",
         "recall@8");
}
void Print(const std::string& what, const RankQuality& q, size_t rows) {
  printf("%-34s %6d %7zu %8.4f %7.4f %7.4f %9.4f\n", what.c_str(), q.groups, rows,
         q.pairwise_accuracy, q.best_at_1, q.best_at_8, q.recall_at_8);
  fflush(stdout);
}

// The sums of q over tasks and pairs.
struct Sum {
  RankQuality total;
  size_t rows = 0;

  void Add(const RankQuality& q, size_t n) {
    total.pairwise_accuracy += q.pairwise_accuracy * q.pairs;
    total.recall_at_8 += q.recall_at_8 * q.groups;
    total.best_at_1 += q.best_at_1 * q.groups;
    total.best_at_8 += q.best_at_8 * q.groups;
    total.pairs += q.pairs;
    total.groups += q.groups;
    rows += n;
  }
  RankQuality Mean() const {
    RankQuality q = total;
    q.pairwise_accuracy /= std::max(q.pairs, 1);
    for (double* value : {&q.recall_at_8, &q.best_at_1, &q.best_at_8}) {
      *value /= std::max(q.groups, 1);
    }
    return q;
  }
};

// Each network by a model of the others.
RankQuality LeaveOneOut(const std::vector<PoolTask>& pool, const std::set<size_t>& without,
                        bool print) {
  std::set<std::string> networks;
  for (const PoolTask& task : pool) networks.insert(task.network);
  Sum sum, prior_sum;
  for (const std::string& network : networks) {
    std::vector<const PoolTask*> held_out, train;
    for (const PoolTask& task : pool) {
      if (task.network == network) held_out.push_back(&task);
    }
    for (const PoolTask& task : pool) {
      const bool known = task.network == network ||
                         std::any_of(held_out.begin(), held_out.end(),
                                     [&](const PoolTask* other) { return Near(task, *other); });
      if (!known) train.push_back(&task);
    }
    const auto model = cost_model::MakeXgbModel(1);
    TW_CHECK(model->Fit(Join(train, without)).ok());
    const Dataset data = Join(held_out, without);
    const RankQuality q = Judge(model.get(), data);
    sum.Add(q, data.rows.size());
    if (!print) continue;
    Print(network, q, data.rows.size());
    const Dataset all = Join(held_out, {});
    prior_sum.Add(Judge(cost_model::MakePriorModel().get(), all), all.rows.size());
  }
  if (print) Print("all networks", sum.Mean(), sum.rows);
  if (print) Print("all networks, the prior alone", prior_sum.Mean(), prior_sum.rows);
  return sum.Mean();
}

// How well one measurement of programs orders another of the same: of tasks that two networks have
// in common. No model can be judged to be better than that.
RankQuality MeasuredTwice(const std::vector<PoolTask>& pool, size_t* rows) {
  Sum sum;
  for (size_t a = 0; a < pool.size(); ++a) {
    for (size_t b = 0; b < pool.size(); ++b) {
      if (a == b || pool[a].text != pool[b].text) continue;
      std::map<std::string, double> other;
      for (size_t i = 0; i < pool[b].rows.size(); ++i) {
        other[pool[b].programs[i]] = pool[b].rows[i].time_ns;
      }
      Dataset data;
      std::vector<float> scores;
      for (size_t i = 0; i < pool[a].rows.size(); ++i) {
        const auto found = other.find(pool[a].programs[i]);
        if (found == other.end() || !(found->second > 0)) continue;
        data.rows.push_back(pool[a].rows[i]);
        data.rows.back().group = 0;
        scores.push_back(static_cast<float>(-found->second));
      }
      if (data.rows.size() > 1) {
        sum.Add(cost_model::MeasureRanking(data, scores), data.rows.size());
      }
    }
  }
  *rows = sum.rows;
  return sum.Mean();
}

// Columns by the first word of their names.
std::map<std::string, std::set<size_t>> FeatureGroups() {
  std::map<std::string, std::set<size_t>> groups;
  const std::vector<std::string>& names = cost_model::FeatureNames();
  for (size_t i = 0; i < names.size(); ++i) {
    std::string group = names[i].substr(0, names[i].find('.'));
    while (!group.empty() && std::isdigit(static_cast<unsigned char>(group.back())) != 0) {
      group.pop_back();
    }
    groups[group].insert(i);
  }
  return groups;
}

void Evaluate(const std::vector<PoolTask>& pool, bool ablate) {
  PrintHead();
  LeaveOneOut(pool, {}, true);
  size_t rows = 0;
  const RankQuality twice = MeasuredTwice(pool, &rows);
  if (twice.groups > 0) Print("measured twice, one by the other", twice, rows);
  if (!ablate) return;
  rows = 0;
  for (const PoolTask& task : pool) rows += task.rows.size();
  for (const auto& [name, columns] : FeatureGroups()) {
    Print(support::StrCat("without ", name, " (", columns.size(), ")"),
          LeaveOneOut(pool, columns, false), rows);
  }
}

void Train(const std::vector<PoolTask>& pool, const std::string& output) {
  std::vector<const PoolTask*> all;
  for (const PoolTask& task : pool) all.push_back(&task);
  const Dataset data = Join(all, {});
  const auto model = cost_model::MakeXgbModel(1);
  const absl::Status fitted = model->Fit(data);
  TW_CHECK(fitted.ok()) << support::StatusText(fitted);
  const std::string bytes = Must(model->Save(), "save");
  const absl::Status written = support::WriteFileAtomic(output, bytes);
  TW_CHECK(written.ok()) << support::StatusText(written);
  printf("%s: %zu rows of %zu tasks, %zu bytes, sha256 %s, features %s\n", output.c_str(),
         data.rows.size(), pool.size(), bytes.size(), support::Sha256Hex(bytes).c_str(),
         cost_model::SchemaHash().c_str());
}

void JudgeFile(const std::vector<PoolTask>& pool, const std::string& path) {
  const auto model = cost_model::MakeXgbModel(1);
  const absl::Status loaded = model->Load(Must(support::ReadFile(path, 1 << 28), path));
  TW_CHECK(loaded.ok()) << support::StatusText(loaded);
  PrintHead();
  std::vector<const PoolTask*> all;
  for (const PoolTask& task : pool) {
    const Dataset data = Join({&task}, {});
    Print(task.name, Judge(model.get(), data), data.rows.size());
    all.push_back(&task);
  }
  const Dataset data = Join(all, {});
  Print("all", Judge(model.get(), data), data.rows.size());
  Print("all, the prior", Judge(cost_model::MakePriorModel().get(), data), data.rows.size());
}

void Export(const std::vector<PoolTask>& pool, const std::string& output) {
  std::ofstream out(output);
  out << "task program ratio";
  for (const std::string& name : cost_model::FeatureNames()) out << ' ' << name;
  out << "\n";
  for (const PoolTask& task : pool) {
    for (size_t i = 0; i < task.rows.size(); ++i) {
      const cost_model::DataRow& row = task.rows[i];
      out << task.name << ' ' << task.programs[i] << ' ' << row.time_ns;
      for (const float value : row.features) out << ' ' << value;
      out << "\n";
    }
  }
}

int Main(int argc, char** argv) {
  std::string command = argc > 1 ? argv[1] : "", dir, output, model;
  bool ablate = false;
  for (int i = 2; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--ablate") {
      ablate = true;
    } else if (i + 1 < argc) {
      const std::string value = argv[++i];
      if (flag == "--pool") dir = value;
      if (flag == "-o") output = value;
      if (flag == "--model") model = value;
    }
  }
  if (dir.empty() || ((command == "train" || command == "export") && output.empty()) ||
      (command == "judge" && model.empty())) {
    fprintf(stderr,
            "model_pool train|evaluate|judge|export --pool DIR ...: see tests/bench/README.md\n");
    return 2;
  }
  const std::vector<PoolTask> pool = ReadPool(dir);
  if (command == "train") {
    Train(pool, output);
  } else if (command == "export") {
    Export(pool, output);
  } else if (command == "evaluate") {
    Evaluate(pool, ablate);
    if (!output.empty()) Train(pool, output);
  } else {
    JudgeFile(pool, model);
  }
  return 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) { return tilewright::bench::Main(argc, argv); }
