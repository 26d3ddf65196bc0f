// What schedules cost on the emulated board, in virtual cycles and instructions. For board_race.py.
//
//   board_counts bytes              ResNet-18's convolutions in bytes by default schedules: by dot
//                                   products, and where the default schedule has them, by matrix
//                                   products. Prints "in out size kernel stride instruction cycles
//                                   instructions" for each. Both are code for the same processor;
//                                   the one is scheduled for a processor without matrix products.
//   board_counts schedules TARGET   Reads lines of a task's text (its lines joined by '|'), a tab,
//                                   and a schedule's steps. Prints "cycles instructions" for each,
//                                   or "- -" where the steps are no schedule of the task. What
//                                   depends on weights only runs before and is not counted, as in
//                                   modules.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "compiler/driver/tasks.h"
#include "compiler/space/default_schedule.h"
#include "compiler/transform/split_prepare.h"
#include "deploy/support/status.h"
#include "tests/bench/layers.h"
#include "tests/support/equivalence.h"
#include "tests/support/run_emulated.h"

namespace {

using namespace tilewright;  // NOLINT(google-build-using-namespace): a program of one file

constexpr int64_t kBlock = 16;
constexpr char kProcessor[] = "cpu,arch=aarch64,threads=1,cpu=neoverse-v1";
constexpr char kWithout[] = "cpu,arch=aarch64,threads=1,cpu=neoverse-n1";

template <typename T>
T OrExit(absl::StatusOr<T> value) {
  if (value.ok()) return *std::move(value);
  std::fprintf(stderr, "board_counts: %s\n", support::StatusText(value.status()).c_str());
  std::exit(1);
}

tests::EmulatedCost CostOf(const ir::Function& f, const target::Target& target) {
  std::vector<ir::TensorData> args = tests::SeededArguments(f, {}, 1);
  std::vector<ir::TensorData*> pointers;
  for (ir::TensorData& arg : args) pointers.push_back(&arg);
  return OrExit(tests::CountEmulated(f, target, {}, pointers));
}

void CountBytes(const bench::Layer& l, const target::Target& target, const char* scheduled_for) {
  const auto variants = OrExit(driver::TaskVariants(bench::GraphText(l, kBlock)));
  schedule::Schedule s(variants[0].function);
  space::ApplyDefaultSchedule(OrExit(target::ParseTarget(scheduled_for)), {}, &s);
  const tests::EmulatedCost cost = CostOf(s.function(), target);
  const bool squares = schedule::ToText(s.steps()).find("mmla") != std::string::npos;
  std::printf("%d %d %d %d %d %s %lld %lld\n", static_cast<int>(l.in), static_cast<int>(l.out),
              static_cast<int>(l.size), static_cast<int>(l.kernel), static_cast<int>(l.stride),
              squares ? "usmmla" : "usdot", static_cast<long long>(cost.cycles),
              static_cast<long long>(cost.instructions));
  std::fflush(stdout);
}

void CountSchedule(std::string text, const std::string& steps, const target::Target& target) {
  std::replace(text.begin(), text.end(), '|', '\n');
  const auto scheduled = schedule::Replay(OrExit(driver::TaskVariants(text)), steps);
  if (scheduled.ok()) {
    const auto split = OrExit(transform::SplitPrepare(*scheduled));
    const tests::EmulatedCost cost = CostOf(split.main, target);
    std::printf("%lld %lld\n", static_cast<long long>(cost.cycles),
                static_cast<long long>(cost.instructions));
  } else {
    std::printf("- -\n");
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "bytes") {
    const target::Target target = OrExit(target::ParseTarget(kProcessor));
    for (int i = 2; i <= 12; ++i) {
      const bench::Layer layer = OrExit(bench::FindLayer("C" + std::to_string(i) + "i8"));
      for (const char* scheduled_for : {kWithout, kProcessor}) {
        CountBytes(layer, target, scheduled_for);
      }
    }
  } else if (mode == "schedules" && argc == 3) {
    const target::Target target = OrExit(target::ParseTarget(argv[2]));
    for (std::string line; std::getline(std::cin, line);) {
      const size_t tab = line.find('\t');
      if (tab != std::string::npos)
        CountSchedule(line.substr(0, tab), line.substr(tab + 1), target);
    }
  } else {
    std::fprintf(stderr, "usage: board_counts bytes | schedules TARGET\n");
    return 2;
  }
}
