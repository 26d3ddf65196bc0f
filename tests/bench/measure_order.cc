// How often the agent's measuring protocol puts two kernels, one of them 2 % slower, in the wrong
// order, and what a candidate costs: with a busy process on every core, and without. Beside it what
// other tuners do: the mean of 100 ms by the clock on the wall, one kernel after the other.
//   measure_order [--pairs N] [--gap-percent 2] [--threads 1] [--us 50,280,900,2200]
// One JSON document on standard output. The slower kernel is the faster one with more terms in its
// sums; the true gap is the median ratio of both in turns, before the busy processes start.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compiler/driver/compile.h"
#include "compiler/graph/graph.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/runtime/thread_pool.h"
#include "deploy/support/strings.h"
#include "device_agent/sample_stats.h"
#include "tests/bench/agent_protocol.h"
#include "tests/bench/layers.h"
#include "tests/bench/local_tuner.h"

namespace tilewright::bench {
namespace {

using support::StrCat;

constexpr int kGapTurns = 41;

struct Options {
  int pairs = 100, threads = 1;
  double gap_percent = 2, ci = 0;
  std::vector<double> us = {50, 280, 900, 2200};
};

struct Kernel {
  driver::BuiltCandidate built;
  Loaded loaded;  // of the same bytes, for peers' protocol and the true gap
};

Kernel Build(int64_t m, int64_t n, int64_t k, const target::Target& target) {
  const Layer layer = Must(FindLayer(StrCat("G", m, "x", n, "x", k)), "layer");
  const graph::Graph g = Must(graph::ParseGraph(GraphText(layer, kNoBlocks)), layer.name);
  const driver::Task task = driver::DescribeTask(g);
  const std::string steps = Must(driver::DefaultSteps(task.text, target), layer.name);
  return {Must(driver::BuildCandidate(task.text, steps, target, nullptr), layer.name),
          Must(Load(task, steps, target), layer.name)};
}

double WallMeanNs(const Loaded& loaded, double budget_ns) {
  const double start = NowNs(2);
  double now = start;
  for (int64_t calls = 1;; ++calls) {
    TW_CHECK(loaded.session->Run().ok());
    now = NowNs(2);
    if (now - start >= budget_ns) return (now - start) / static_cast<double>(calls);
  }
}

double TrueGap(const Loaded& fast, const Loaded& slow) {
  std::vector<double> ratios;
  for (int turn = 0; turn < kGapTurns; ++turn) {
    const double a = TimeNs(fast, 0);
    ratios.push_back(TimeNs(slow, 0) / a);
  }
  return device_agent::Median(ratios) - 1;
}

// Busy processes, one per core, until the object's end.
class Hogs {
 public:
  explicit Hogs(int count) {
    for (int core = 0; core < count; ++core) {
      const pid_t pid = fork();
      TW_CHECK(pid >= 0);
      if (pid == 0) Burn(core);
      pids_.push_back(pid);
    }
  }
  Hogs(const Hogs&) = delete;
  Hogs& operator=(const Hogs&) = delete;
  ~Hogs() {
    for (const pid_t pid : pids_) {
      kill(pid, SIGKILL);
      waitpid(pid, nullptr, 0);
    }
  }

 private:
  [[noreturn]] static void Burn(int core) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(static_cast<size_t>(core), &set);
    sched_setaffinity(0, sizeof set, &set);
    for (volatile bool forever = true; forever;) continue;
    _exit(0);
  }

  std::vector<pid_t> pids_;
};

nlohmann::json Orders(const Kernel& fast, const Kernel& slow, const Options& options, int hogs) {
  const Hogs busy(hogs);
  AgentProtocol agent(options.threads, options.ci);
  int wrong = 0, naive_wrong = 0;
  std::vector<double> wall_ms, timed_ms, spread;
  const double known = MedianOf(agent.Measure(fast.built.module_bytes, 0));
  for (int pair = 0; pair < options.pairs; ++pair) {
    double ns[2] = {0, 0};
    for (int turn = 0; turn < 2; ++turn) {
      const bool second = (turn + pair) % 2 == 1;
      const double start = NowNs(2);
      const v1::ModuleMeasured measured =
          agent.Measure((second ? slow : fast).built.module_bytes, known);
      wall_ms.push_back((NowNs(2) - start) / 1e6);
      double sum = 0;
      for (const double sample : measured.samples()) sum += sample * measured.inner_loops();
      timed_ms.push_back(sum / 1e6);
      ns[second] = MedianOf(measured);
    }
    wrong += ns[1] <= ns[0];
    spread.push_back(ns[1] / ns[0] - 1);
    if (pair % 5 == 0)
      naive_wrong += WallMeanNs(slow.loaded, 100e6) <= WallMeanNs(fast.loaded, 100e6);
  }
  std::sort(spread.begin(), spread.end());
  const auto at = [&](double share) {
    return spread[static_cast<size_t>(share * static_cast<double>(spread.size() - 1))];
  };
  return {{"hogs", hogs},
          {"pairs", options.pairs},
          {"wrong", wrong},
          {"wrong_percent", 100.0 * wrong / options.pairs},
          {"wall_ms", device_agent::Median(wall_ms)},
          {"timed_ms", device_agent::Median(timed_ms)},
          {"gap_p05_p50_p95", {at(.05), at(.5), at(.95)}},
          {"mean_of_100_ms_wrong_percent", 100.0 * naive_wrong / ((options.pairs + 4) / 5)}};
}

int Run(const Options& options) {
  const target::Target target = NativeTarget(options.threads);
  nlohmann::json rows = nlohmann::json::array();
  for (const double us : options.us) {
    // 256 columns keep the weights in the second-level cache; rows make the length.
    const double kFlopsPerUs = 200e3 * options.threads;
    const int64_t k = 500, n = 256;
    const auto m = std::max<int64_t>(8, static_cast<int64_t>(us * kFlopsPerUs / (2.0 * k * n)));
    const Kernel fast = Build(m, n, k, target);
    const Kernel slow =
        Build(m, n, std::llround(static_cast<double>(k) * (1 + options.gap_percent / 100)), target);
    nlohmann::json row = {{"us", TimeNs(fast.loaded, 0) / 1e3},
                          {"gap", TrueGap(fast.loaded, slow.loaded)},
                          {"m_n_k", {m, n, k}}};
    for (const int hogs : {0, runtime::UsableCores()}) {
      row[hogs > 0 ? "busy" : "idle"] = Orders(fast, slow, options, hogs);
    }
    fprintf(stderr, "%s\n", row.dump().c_str());
    rows.push_back(row);
  }
  printf("%s\n", nlohmann::json({{"threads", options.threads}, {"rows", rows}}).dump(1).c_str());
  return 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) {
  tilewright::bench::Options options;
  CLI::App app("How often the measuring protocol orders kernels wrongly");
  app.add_option("--pairs", options.pairs, "Pairs of measurements per kernel and load");
  app.add_option("--threads", options.threads, "Threads of the kernels");
  app.add_option("--gap-percent", options.gap_percent, "More work of the slower kernel");
  app.add_option("--us", options.us, "Lengths of the faster kernel")->delimiter(',');
  app.add_option("--ci", options.ci, "Relative interval to stop at; 0: the tuner's");
  CLI11_PARSE(app, argc, argv);
  return tilewright::bench::Run(options);
}
