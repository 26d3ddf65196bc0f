#include "tests/bench/trial_store.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "compiler/driver/compile.h"
#include "compiler/ir/structural.h"
#include "compiler/space/space.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tuner_server/log/task_renames.h"

namespace tilewright::bench {
namespace {

using support::StrCat;

constexpr double kSliceNs = 0.7e6, kMaxNs = 60e6;
constexpr int kPairs = 7, kFewPairs = 2, kContenderPlacements = 3;
constexpr int kMostPairs = 48;       // where the turns contradict each other
constexpr double kHopeless = 1.6;    // times the best: not worth more turns
constexpr double kContender = 1.06;  // times the best: worth other buffers
constexpr double kAgree = 1.015;
constexpr double kMaxDistance = 1e-4;
constexpr double kFewPoints = 100;  // a space so small needs no search

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double LowerQuartile(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 4];
}

// The two kernels' turns, summed up twice: the median of the ratios, and the ratio of the lower
// quartiles. A neighbour that takes memory bandwidth or the hypervisor's time can spoil one of
// them, and the larger one then claims less.
struct Turns {
  std::vector<double> baseline, ours, ratios;

  void Add(double a, double b) {
    baseline.push_back(a);
    ours.push_back(b);
    ratios.push_back(b / a);
  }
  double Quartiles() const { return LowerQuartile(ours) / LowerQuartile(baseline); }
  double Ratio() const { return std::max(Median(ratios), Quartiles()); }
  bool Agree() const {
    const double median = Median(ratios), quartiles = Quartiles();
    return std::max(median, quartiles) <= kAgree * std::min(median, quartiles);
  }
};

// One turn: what a call took, in a slice long enough for the clock.
double SliceNs(const Loaded& loaded, double guess_ns) {
  const int64_t calls = std::max<int64_t>(1, static_cast<int64_t>(kSliceNs / guess_ns));
  const double start = NowNs(1);
  for (int64_t i = 0; i < calls; ++i) TW_CHECK(loaded.session->Run().ok());
  return (NowNs(1) - start) / static_cast<double>(calls);
}

std::string HashOf(const driver::Task& task, const std::string& steps) {
  return ir::ProgramHash(
      Must(schedule::Replay(Must(driver::TaskVariants(task.text), task.name), steps), task.name));
}

}  // namespace

std::vector<Workload> ReadWorkloads(const std::string& path, const target::Target& target) {
  std::vector<Workload> workloads;
  const std::filesystem::path file(path);
  if (file.extension() == ".onnx") {
    for (driver::Task& task : ModelTasks(path, target)) {
      const auto space = Must(
          space::Space::Create(Must(driver::TaskVariants(task.text), task.name), target), path);
      if (space->size() < kFewPoints) continue;
      const std::string name =
          StrCat(file.parent_path().filename().string(), "-", task.hash.substr(0, 12));
      workloads.push_back({name, std::move(task)});
    }
    return workloads;
  }
  std::istringstream lines(Must(support::ReadFile(path, 1 << 20), path));
  std::string name, text;
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    if (line[0] != ' ' && line[0] != 'g' && line[0] != '}') {
      name = line;
      text.clear();
      continue;
    }
    text += line + "\n";
    if (line[0] == '}') {
      workloads.push_back({name, driver::DescribeTask(Must(graph::ParseGraph(text), name))});
    }
  }
  return workloads;
}

absl::StatusOr<std::unique_ptr<TrialStore>> TrialStore::Open(const std::string& dir,
                                                             const Workload& workload,
                                                             const target::Target& target) {
  std::unique_ptr<TrialStore> store(new TrialStore(workload, target));
  const std::string path = support::PathJoin(dir, workload.name + ".jsonl");
  if (std::filesystem::exists(path)) TW_TRY(store->Read(path));
  store->points_path_ = support::PathJoin(dir, workload.name + ".points");
  std::ifstream points(store->points_path_);
  for (std::string hash, point; points >> hash >> point;) store->points_[hash] = point;
  store->file_.open(path, std::ios::app);
  if (!store->file_) return support::NotFound("bench.store", "cannot write " + path);
  if (store->baseline_steps_.empty()) {
    TW_ASSIGN(store->baseline_steps_, driver::DefaultSteps(workload.task.text, target));
    store->baseline_hash_ = HashOf(workload.task, store->baseline_steps_);
    store->file_ << nlohmann::json{{"task", workload.task.hash},
                                   {"text", workload.task.text},
                                   {"target", target.ToString()},
                                   {"baseline", store->baseline_steps_},
                                   {"program", store->baseline_hash_}}
                        .dump()
                 << std::endl;
  }
  return store;
}

absl::Status TrialStore::Read(const std::string& path) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    if (row.is_discarded()) continue;  // cut off when a run was killed
    if (row.contains("baseline")) {
      if (log::UpgradedTaskText(row["text"].get<std::string>()) != workload_.task.text) {
        return support::FailedPrecondition("bench.store",
                                           path + " is of another task; use an empty folder");
      }
      baseline_steps_ = row["baseline"];
      baseline_hash_ = row["program"];
      continue;
    }
    Measured m{row["program"], row["steps"], row.value("origin", ""),    row["ratio"],
               row["ns"],      row["pairs"], row.value("placements", 1), row.value("wrong", false)};
    if (m.ratio > 0 && (best_ratio_ == 0 || m.ratio < best_ratio_)) best_ratio_ = m.ratio;
    if (known_.emplace(m.program_hash, m).second) order_.push_back(m.program_hash);
    known_[m.program_hash] = std::move(m);
  }
  return absl::OkStatus();
}

const Loaded& TrialStore::Baseline() {
  if (!baseline_.has_value()) {
    baseline_ = Must(Load(workload_.task, baseline_steps_, target_), workload_.name);
  }
  return *baseline_;
}

// Turns of one set of buffers each. `best` is the best ratio known, or 0.
Turns TakeTurns(const Loaded& baseline, const Loaded& loaded, double best, int pairs, double* ns) {
  double ours = SliceNs(loaded, kSliceNs), theirs = SliceNs(baseline, kSliceNs), spent = 0;
  Turns turns;
  for (int turn = 1;; ++turn) {
    const double start = NowNs(1);
    const double a = SliceNs(baseline, theirs), b = SliceNs(loaded, ours);
    spent += NowNs(1) - start;
    theirs = std::min(theirs, a);
    ours = std::min(ours, b);
    turns.Add(a, b);
    if (turn >= kFewPairs && best > 0 && turns.Ratio() > kHopeless * best) break;
    if (turn <= kFewPairs || (turn < pairs && spent < kMaxNs)) continue;
    if (turn >= kMostPairs || turns.Agree() || spent >= 3 * kMaxNs) break;
  }
  *ns = std::min(*ns, ours);
  return turns;
}

// At once with one set of buffers; `placements` of them for contenders.
Measured TrialStore::Measure(const std::string& program_hash, const std::string& steps,
                             int placements) {
  Measured m;
  m.program_hash = program_hash;
  m.steps = steps;
  m.ns = 1e300;
  const Loaded& baseline = Baseline();
  const absl::StatusOr<Loaded> loaded = Load(workload_.task, steps, target_);
  ++built_;
  if (!loaded.ok()) {
    ++failed_;
    fprintf(stderr, "%s: %s\n  %s\n", workload_.name.c_str(),
            support::StatusText(loaded.status()).c_str(), steps.c_str());
    m.ns = 0;
    return m;
  }
  if (!(ResultDistance(*loaded, baseline) <= kMaxDistance)) {  // NaN too
    m.wrong = true;
    m.ns = 0;
    fprintf(stderr, "%s: WRONG\n  %s\n", workload_.name.c_str(), steps.c_str());
    return m;
  }
  std::vector<double> ratios;
  std::vector<Loaded> placed;  // none is freed before the others lie somewhere else
  for (int i = 0; i < placements; ++i) {
    if (i > 0) {
      placed.push_back(Must(WithOtherBuffers(baseline), workload_.name));
      placed.push_back(Must(WithOtherBuffers(*loaded), workload_.name));
    }
    const Turns turns = i == 0
                            ? TakeTurns(baseline, *loaded, best_ratio_, kPairs, &m.ns)
                            : TakeTurns(placed[placed.size() - 2], placed.back(), 0, kPairs, &m.ns);
    ratios.push_back(turns.Ratio());
    m.pairs += static_cast<int>(turns.ratios.size());
    if (i == 0 && best_ratio_ > 0 && ratios[0] > kContender * best_ratio_) break;
  }
  m.ratio = Median(ratios);
  m.placements = static_cast<int>(ratios.size());
  return m;
}

const Measured& TrialStore::Keep(Measured m) {
  file_ << nlohmann::json{{"program", m.program_hash},
                          {"steps", m.steps},
                          {"origin", m.origin},
                          {"ratio", m.ratio},
                          {"ns", m.ns},
                          {"pairs", m.pairs},
                          {"wrong", m.wrong},
                          {"placements", m.placements}}
               .dump()
        << std::endl;
  if (known_.count(m.program_hash) == 0) order_.push_back(m.program_hash);
  if (m.ratio > 0 && (best_ratio_ == 0 || m.ratio < best_ratio_)) best_ratio_ = m.ratio;
  return known_[m.program_hash] = std::move(m);
}

const Measured& TrialStore::Get(const std::string& program_hash, const std::string& steps,
                                const std::string& origin) {
  const auto it = known_.find(program_hash);
  if (it != known_.end()) return it->second;
  Measured m = Measure(program_hash, steps, kContenderPlacements);
  m.origin = origin;
  return Keep(std::move(m));
}

const Measured& TrialStore::Again(const std::string& program_hash, int placements) {
  const Measured before = known_.at(program_hash);
  best_ratio_ = 0;  // nothing is hopeless
  Measured m = Measure(program_hash, before.steps, placements);
  for (const auto& [hash, known] : known_) {
    if (hash == program_hash || !(known.ratio > 0)) continue;
    if (best_ratio_ == 0 || known.ratio < best_ratio_) best_ratio_ = known.ratio;
  }
  m.origin = before.origin;
  return Keep(std::move(m));
}

void TrialStore::NotePoint(const std::string& program_hash, const std::string& point) {
  if (!points_.emplace(program_hash, point).second) return;
  std::ofstream(points_path_, std::ios::app) << program_hash << ' ' << point << std::endl;
}

const std::string& TrialStore::PointOf(const std::string& program_hash) const {
  static const std::string* const none = new std::string();
  const auto it = points_.find(program_hash);
  return it == points_.end() ? *none : it->second;
}

const Measured* TrialStore::Find(const std::string& program_hash) const {
  const auto it = known_.find(program_hash);
  return it == known_.end() ? nullptr : &it->second;
}

std::vector<const Measured*> TrialStore::ByRatio() const {
  std::vector<const Measured*> timed;
  for (const std::string& hash : order_) {
    const Measured& m = known_.at(hash);
    if (m.ratio > 0) timed.push_back(&m);
  }
  std::stable_sort(timed.begin(), timed.end(),
                   [](const Measured* a, const Measured* b) { return a->ratio < b->ratio; });
  return timed;
}

}  // namespace tilewright::bench
