// How near the rules' default schedules are to what the analytical estimate would choose around
// them: from each task's default point, knob by knob to the best estimate, twice. With --measure
// both programs are timed here where the estimate prefers the other one.
//   default_points [--target T] [--measure] MODEL.onnx...
// A line for each task: the estimate's gain, the measured one, and the knobs. Then their geometric
// means.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/run_loops.h"
#include "compiler/space/space.h"
#include "tests/bench/local_tuner.h"

namespace tilewright::bench {
namespace {

constexpr int kRounds = 2;       // over all knobs
constexpr double kLeast = 1.02;  // gains of the estimate that count

// The default of the task's algorithm, as a point.
std::optional<space::Point> DefaultOf(const space::Space& space, const target::Target& target) {
  const size_t chosen = space::DefaultVariant(space.variants(), target);
  for (size_t s = 0; s < space.sketches().size(); ++s) {
    const auto choices = space.sketches()[s]->DefaultChoices();
    if (choices.has_value() && space.VariantOf(s) == space.variants()[chosen].name) {
      space::Point point;
      point.sketch = static_cast<int>(s);
      point.choices = *choices;
      return point;
    }
  }
  return std::nullopt;
}

double EstimateOf(const space::Space& space, const space::Point& point,
                  const target::Target& target) {
  const auto made = space.Apply(point);
  if (!made.ok()) return std::numeric_limits<double>::infinity();
  return space::EstimateRunNs(made->function(), target)
      .value_or(std::numeric_limits<double>::infinity());
}

// The best point that differs from `from` in one knob, or `from`.
space::Point BestNeighbour(const space::Space& space, const space::Point& from,
                           const target::Target& target) {
  space::Point best = from;
  double least = EstimateOf(space, from, target);
  const std::vector<space::Knob>& knobs =
      space.sketches()[static_cast<size_t>(from.sketch)]->knobs();
  for (size_t k = 0; k < knobs.size(); ++k) {
    for (size_t v = 0; v < knobs[k].menu.size(); ++v) {
      space::Point point = from;
      point.choices[k] = static_cast<int>(v);
      if (point.choices == from.choices || !space.Feasible(point)) continue;
      const double ns = EstimateOf(space, point, target);
      if (ns < least) least = ns, best = point;
    }
  }
  return best;
}

// The default's time over the other program's, in turns; 0 where one does not run.
double MeasuredGain(const driver::Task& task, const std::string& usual, const std::string& other,
                    const target::Target& target) {
  const auto a = Load(task, usual, target), b = Load(task, other, target);
  if (!a.ok() || !b.ok()) return 0;
  double least_a = std::numeric_limits<double>::infinity(), least_b = least_a;
  for (int turn = 0; turn < 5; ++turn) {
    least_a = std::min(least_a, TimeNs(*a, 0));
    least_b = std::min(least_b, TimeNs(*b, 0));
  }
  return least_a / least_b;
}

struct Mean {
  double log_sum = 0;
  int count = 0;
  void Add(double value) { log_sum += std::log(value), ++count; }
  double Get() const { return count == 0 ? 1 : std::exp(log_sum / count); }
};

int Main(int argc, char** argv) {
  std::string target_text = "native,threads=1";
  std::vector<std::string> models;
  bool measure = false;
  CLI::App app("How near default schedules are to the estimate's choice around them.");
  app.add_option("--target", target_text, "a target whose kernels are loops");
  app.add_flag("--measure", measure, "time both programs on this machine");
  app.add_option("models", models, "ONNX files")->required();
  CLI11_PARSE(app, argc, argv);
  const target::Target target = target_text == "native,threads=1"
                                    ? NativeTarget(1)
                                    : Must(target::ParseTarget(target_text), "target");
  std::set<std::string> seen;
  Mean estimated, measured;
  for (const std::string& model : models) {
    for (const driver::Task& task : ModelTasks(model, target)) {
      if (!seen.insert(task.text).second) continue;
      const auto space =
          Must(space::Space::Create(Must(driver::TaskVariants(task.text), task.name), target),
               task.name);
      const std::optional<space::Point> usual = DefaultOf(*space, target);
      if (!usual.has_value()) continue;
      space::Point best = *usual;
      for (int round = 0; round < kRounds; ++round) best = BestNeighbour(*space, best, target);
      const double gain = EstimateOf(*space, *usual, target) / EstimateOf(*space, best, target);
      estimated.Add(gain);
      printf("%-60s estimated %.3f", task.name.c_str(), gain);
      if (measure && gain >= kLeast) {
        const double real = MeasuredGain(task, schedule::ToText(space->Apply(*usual)->steps()),
                                         schedule::ToText(space->Apply(best)->steps()), target);
        if (real > 0) measured.Add(real);
        printf("  measured %.3f", real);
      }
      const auto& knobs = space->sketches()[static_cast<size_t>(best.sketch)]->knobs();
      for (size_t k = 0; k < knobs.size(); ++k) {
        if (best.choices[k] == usual->choices[k]) continue;
        printf("  %s=%lld", knobs[k].name.c_str(),
               static_cast<long long>(knobs[k].menu[static_cast<size_t>(best.choices[k])]));
      }
      printf("\n");
      fflush(stdout);
    }
  }
  printf("%d tasks: estimated %.3f", estimated.count, estimated.Get());
  if (measure) {
    printf("; of the %d with more than %.2f, measured %.3f", measured.count, kLeast,
           measured.Get());
  }
  printf("\n");
  return 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) { return tilewright::bench::Main(argc, argv); }
