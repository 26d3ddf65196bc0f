// ResNet-18's convolutions in bytes by default schedules on the emulated board: by dot products,
// and where the default schedule has them, by matrix products. For board_race.py --bytes.
//
//   board_bytes
//
// Prints "in out size kernel stride instruction cycles instructions" for each. Both are code for
// the same processor; the one is scheduled for a processor without matrix products.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "compiler/driver/tasks.h"
#include "compiler/schedule/default_schedule.h"
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
  std::fprintf(stderr, "board_bytes: %s\n", support::StatusText(value.status()).c_str());
  std::exit(1);
}

void Count(const bench::Layer& l, const target::Target& target, const char* scheduled_for) {
  const auto variants = OrExit(driver::TaskVariants(bench::GraphText(l, kBlock)));
  schedule::Schedule s(variants[0].function);
  schedule::ApplyDefaultSchedule(OrExit(target::ParseTarget(scheduled_for)), {}, &s);
  std::vector<ir::TensorData> args = tests::SeededArguments(s.function(), {}, 1);
  std::vector<ir::TensorData*> pointers;
  for (ir::TensorData& arg : args) pointers.push_back(&arg);
  const tests::EmulatedCost cost = OrExit(tests::CountEmulated(s.function(), target, {}, pointers));
  const bool squares = schedule::ToText(s.steps()).find("mmla") != std::string::npos;
  std::printf("%d %d %d %d %d %s %lld %lld\n", static_cast<int>(l.in), static_cast<int>(l.out),
              static_cast<int>(l.size), static_cast<int>(l.kernel), static_cast<int>(l.stride),
              squares ? "usmmla" : "usdot", static_cast<long long>(cost.cycles),
              static_cast<long long>(cost.instructions));
  std::fflush(stdout);
}

}  // namespace

int main() {
  const target::Target target = OrExit(target::ParseTarget(kProcessor));
  for (int i = 2; i <= 12; ++i) {
    const bench::Layer layer = OrExit(bench::FindLayer("C" + std::to_string(i) + "i8"));
    for (const char* scheduled_for : {kWithout, kProcessor}) Count(layer, target, scheduled_for);
  }
}
