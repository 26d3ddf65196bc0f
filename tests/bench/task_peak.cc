// What the compiler makes of single tasks: their default schedules, and the best of a short search
// in the same process, as shares of this machine's FMA peak. One thread, thread CPU time, so that
// neighbours on a shared machine matter little. A trend to watch, not a gate.
//   task_peak [--search N [--seed S] [--random]] [--block] [--steps] [--only WORD]
//             LAYER... | MODEL.onnx
// LAYER: C1..C12 and D1..D9 of ResNet-18 and MobileNet, G<m>x<n>x<k>; default: all of them.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "deploy/peaks/fma_peak.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/support/strings.h"
#include "tests/bench/layers.h"
#include "tests/bench/local_tuner.h"

namespace tilewright::bench {
namespace {

struct Options {
  int search = 0;
  uint64_t seed = 0;
  bool block = false, steps = false, random = false;
  std::string sketch;  // --sketch NAME: random points of this sketch instead of a search
  std::string only;
  std::vector<std::string> names;
};

driver::Task LayerTask(const std::string& name, const Options& options,
                       const target::Target& target) {
  const std::string text = GraphText(Must(FindLayer(name), name),
                                     options.block ? target.machine.vector_bytes / 4 : kNoBlocks);
  return driver::DescribeTask(Must(graph::ParseGraph(text), text));
}

Found Judge(const driver::Task& task, const target::Target& target, const Options& options) {
  return options.sketch.empty() ? Tune(task, target, {options.search, options.seed, options.random})
                                : TuneSketch(task, target, options.sketch, options.search);
}

void Print(const std::string& name, const driver::Task& task, const Found& f, double peak,
           const Options& options) {
  const auto share = [&](double ns) { return 100 * task.flops / ns / peak; };
  printf("%-6s %-62s x%-2d default %9.1f us %5.1f %%", name.c_str(),
         task.name.substr(0, 62).c_str(), task.weight, f.default_ns / 1e3, share(f.default_ns));
  if (options.search > 0) {
    printf(" | best %9.1f us %5.1f %% (%.2fx at %d; failed %d wrong %d invalid %d)",
           f.best_ns / 1e3, share(f.best_ns), f.default_ns / f.best_ns, f.trial, f.failed, f.wrong,
           f.invalid);
  }
  printf("\n");
  if (!f.curve.empty()) {
    printf("       best after");
    for (size_t n = 4; n <= f.curve.size(); n *= 2) printf(" %zu: %.1f", n, f.curve[n - 1] / 1e3);
    printf(" us\n");
  }
  if (options.steps) printf("    %s\n    %s\n", f.default_steps.c_str(), f.best_steps.c_str());
  fflush(stdout);
}

Options ParseFlags(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--search" && i + 1 < argc) {
      options.search = atoi(argv[++i]);
    } else if (flag == "--only" && i + 1 < argc) {
      options.only = argv[++i];
    } else if (flag == "--sketch" && i + 1 < argc) {
      options.sketch = argv[++i];
    } else if (flag == "--seed" && i + 1 < argc) {
      options.seed = strtoull(argv[++i], nullptr, 10);
    } else if (flag == "--random") {
      options.random = true;
    } else if (flag == "--block") {
      options.block = true;
    } else if (flag == "--steps") {
      options.steps = true;
    } else {
      options.names.push_back(flag);
    }
  }
  if (options.names.empty()) {
    for (const Layer& layer : Layers()) {
      if (layer.kind == Layer::Kind::kConv) options.names.push_back(layer.name);
    }
  }
  return options;
}

int Main(int argc, char** argv) {
  const Options options = ParseFlags(argc, argv);
  const runtime::CpuInfo cpu = runtime::DetectCpu();
  const target::Target target = NativeTarget(1);
  const double peak = peaks::MeasureFmaPeak(cpu, 1, 50);
  printf("%s, FMA peak %.1f GFLOP/s\n", target.ToString().c_str(), peak);
  for (const std::string& name : options.names) {
    if (name.size() < 5 || name.substr(name.size() - 5) != ".onnx") {
      const driver::Task task = LayerTask(name, options, target);
      Print(name, task, Judge(task, target, options), peak, options);
      continue;
    }
    double before = 0, after = 0, flops = 0;
    for (const driver::Task& task : ModelTasks(name, target, options.block)) {
      if (task.name.find(options.only) == std::string::npos) continue;
      const Found f = Judge(task, target, options);
      Print("", task, f, peak, options);
      before += f.default_ns * task.weight;
      after += f.best_ns * task.weight;
      flops += task.flops * task.weight;
    }
    printf("total default %.1f us (%.1f %%), best %.1f us (%.1f %%)\n", before / 1e3,
           100 * flops / before / peak, after / 1e3, 100 * flops / after / peak);
  }
  return 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) { return tilewright::bench::Main(argc, argv); }
