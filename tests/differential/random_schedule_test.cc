// Random program × random legal schedule: every step verifies, and the scheduled function computes
// what the unscheduled one does, by the interpreter and compiled. TILEWRIGHT_SEED repeats a run,
// TILEWRIGHT_ROUNDS makes it longer. A failing pair is printed as text with the fewest steps that
// still fail.
#include "tests/support/random_schedule.h"

#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <string>

#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "deploy/support/status.h"
#include "tests/support/equivalence.h"
#include "tests/support/race_check.h"
#include "tests/support/random_ir.h"
#include "tests/support/run_compiled.h"
#include "tests/support/te_programs.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

// Wasteful schedules (tiles recomputed in tiles) are cut off here; they are counted.
constexpr int64_t kMaxSteps = 150'000;

struct Tally {
  std::map<std::string, int> accepted, refused;
  int64_t pairs = 0, too_slow = 0, steps = 0;

  void Add(const RandomScheduleResult& r) {
    for (const auto& [name, n] : r.accepted) accepted[name] += n;
    for (const auto& [name, n] : r.refused) refused[name] += n;
    ++pairs;
    steps += static_cast<int64_t>(r.steps.size());
  }
  void Print() const {
    std::cout << pairs << " pairs, " << steps << " steps, " << too_slow << " cut off\n";
    for (const schedule::StepRow& row : schedule::StepRows()) {
      auto count = [&](const std::map<std::string, int>& m) {
        auto it = m.find(row.name);
        return it == m.end() ? 0 : it->second;
      };
      std::cout << "  " << row.name << ": " << count(accepted) << " accepted, " << count(refused)
                << " refused\n";
    }
  }
};

RandomProgram SmallProgram(uint64_t seed, bool symbolic) {
  RandomIrOptions options;
  options.symbolic = symbolic;
  options.max_work = 1500;
  options.max_elements = 400;
  return RandomTe(seed, options);
}

// Fixed kernels take part too: the generator's programs have few shared loops.
RandomProgram ProgramOf(uint64_t seed, bool symbolic) {
  switch (seed % 9) {
    case 0:
      return {ConvProgram({.channels_in = 2, .height = 4, .width = 5, .channels_out = 3}), {}};
    case 1:
      return {SoftmaxProgram(3, 7), {}};
    case 2:
      return {StencilProgram(11), {}};
    case 4:
      return {MeanProgram(3, 5), {}};
    case 3:
      return {DenseReluProgram(5, 7, 6), {}};
    default:
      return SmallProgram(seed, symbolic);
  }
}

absl::Status Compare(const RandomProgram& p, const ir::Function& scheduled, uint64_t seed,
                     const FunctionRunner& runner) {
  EquivalenceOptions options;
  options.seed = seed;
  options.sizes = p.sizes;
  options.max_steps = kMaxSteps;
  options.run_other = runner;
  return SameResults(p.function, scheduled, options);
}

bool IsCutOff(const absl::Status& status) {
  return support::StatusText(status).find("step_limit") != std::string::npos;
}

// One pair; reports a failure with the smallest schedule that shows it.
void CheckPair(uint64_t seed, Tally* tally, const FunctionRunner& runner) {
  // Code generation wants constant extents of intermediates.
  RandomProgram p = ProgramOf(seed, /*symbolic=*/!runner);
  RandomScheduleResult r = RandomSchedule(p.function, support::Rng(seed).Split("schedule"));
  tally->Add(r);
  ASSERT_EQ(r.broken, "") << "seed " << seed << "\n"
                          << p.Describe() << "\n"
                          << schedule::ToText(r.steps) << "\n"
                          << ir::Print(r.function);
  absl::Status races = CheckRaces(r.function, p.sizes);
  ASSERT_TRUE(races.ok() || support::Slug(races) == "test.race.budget")
      << "seed " << seed << ": " << races << "\n"
      << p.Describe() << "\n"
      << schedule::ToText(ShrinkSteps(p.function, r.steps, [&](const ir::Function& f) {
           return support::Slug(CheckRaces(f, p.sizes)) == "test.race.conflict";
         }));
  absl::Status same = Compare(p, r.function, seed, runner);
  if (IsCutOff(same)) {
    ++tally->too_slow;
    return;
  }
  if (same.ok()) return;
  schedule::Steps fewest = ShrinkSteps(p.function, r.steps, [&](const ir::Function& f) {
    absl::Status status = Compare(p, f, seed, runner);
    return !status.ok() && !IsCutOff(status);
  });
  auto function = schedule::Replay(p.function, schedule::ToText(fewest));
  ASSERT_TRUE(function.ok()) << function.status();
  FAIL() << "seed " << seed << ": " << Compare(p, *function, seed, runner) << "\n"
         << p.Describe() << "\nsteps: " << schedule::ToText(fewest) << "\n"
         << ir::Print(*function);
}

TEST(RandomScheduleTest, InterpretedResultsAreTheSame) {
  Tally tally;
  uint64_t seed = TestSeed(2024);
  int64_t rounds = TestRounds(1500);
  for (int64_t i = 0; i < rounds; ++i) {
    CheckPair(seed + static_cast<uint64_t>(i), &tally, {});
    ASSERT_FALSE(HasFailure());
  }
  tally.Print();
  // The test says something only while every primitive is accepted often and schedules are long.
  if (rounds < 1000) return;
  for (const schedule::StepRow& row : schedule::StepRows()) {
    EXPECT_GE(tally.accepted[row.name], 10) << row.name;
  }
  EXPECT_GE(tally.steps, 3 * rounds);
  EXPECT_LE(tally.too_slow, rounds / 20);
}

TEST(RandomScheduleTest, CompiledResultsAreTheSame) {
  Tally tally;
  uint64_t seed = TestSeed(77);
  int64_t rounds = TestRounds(150);
  std::vector<ir::Target> targets = RunnableTargets();
  for (int64_t i = 0; i < rounds; ++i) {
    const ir::Target& target = targets[static_cast<size_t>(i) % targets.size()];
    int threads = 1 + static_cast<int>(i % 2);
    CheckPair(seed + static_cast<uint64_t>(i), &tally,
              [&](const ir::Function& f, const std::vector<int64_t>& sizes,
                  std::vector<ir::TensorData*> args) {
                return RunCompiled(f, target, threads, sizes, std::move(args));
              });
    ASSERT_FALSE(HasFailure()) << target.ToString();
  }
  tally.Print();
}

}  // namespace
}  // namespace tilewright::tests
