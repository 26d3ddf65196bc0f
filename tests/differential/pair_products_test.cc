// Products of bf16 in pairs: the default schedule and the search's rules compute them by the tensor
// intrinsic, and what they make equals the interpreter where processors have the instruction and
// where they make it of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include "compiler/driver/tasks.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/dot_product.h"
#include "compiler/space/space.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/run_compiled.h"
#include "tests/support/run_emulated.h"
#include "tests/support/test_seed.h"

namespace tilewright::space {
namespace {

using support::StrCat;

std::string Dense(int64_t rows, int64_t blocks, int64_t pairs) {
  const std::string y = StrCat("[", rows, ",", 16 * blocks, "]");
  return StrCat("graph {\n  input %0: bf16[", rows, ",", 2 * pairs, "]\n  weight %1: bf16[", blocks,
                ",", pairs, ",16,2]\n  %2: f32", y,
                " = dense(%0, %1) {weight_layout=\"NK16n2k\"}\n  %3: bf16", y,
                " = cast(%2) {dtype=\"bf16\"}\n  %4: f32", y,
                " = cast(%3) {dtype=\"f32\"}\n  output %4\n}\n");
}

// An image in blocks of 16 channels.
std::string Conv(int64_t size, int64_t kernel, int64_t stride, int64_t in_blocks,
                 int64_t out_blocks) {
  const int64_t pad = kernel / 2, out = (size + 2 * pad - kernel) / stride + 1;
  const std::string y = StrCat("[1,", out_blocks, ",", out, ",", out, ",16]");
  return StrCat("graph {\n  input %0: bf16[1,", in_blocks, ",", size, ",", size,
                ",16]\n  weight %1: bf16[", out_blocks, ",", in_blocks, ",", kernel, ",", kernel,
                ",8,16,2]\n  %2: f32", y, " = conv2d(%0, %1) {data_layout=\"NCHW16c\", pads=[", pad,
                ",", pad, ",", pad, ",", pad, "], strides=[", stride, ",", stride,
                "], weight_layout=\"OIHW8i16o2i\"}\n  %3: f32", y, " = relu(%2)\n  output %3\n}\n");
}

// One row, whole tiles, and rows and columns that no tile divides; windows over the border.
std::vector<std::string> Tasks() {
  return {Dense(1, 4, 40),     Dense(12, 3, 16),    Dense(17, 7, 5),     Dense(3, 1, 1),
          Conv(7, 1, 1, 2, 3), Conv(9, 3, 2, 1, 2), Conv(6, 3, 1, 2, 1), Conv(8, 1, 2, 1, 2)};
}

std::vector<schedule::Variant> VariantsOf(const std::string& task) {
  auto variants = driver::TaskVariants(task);
  TW_CHECK(variants.ok()) << support::StatusText(variants.status()) << task;
  return *std::move(variants);
}

// A sum that is near the middle of two bf16 may become either of them.
constexpr double kTolerance = 1.0 / 128;

// In an emulator of another processor where `emulated`.
absl::Status Equal(const ir::Function& plain, const ir::Function& scheduled,
                   const target::Target& target, bool emulated = false) {
  tests::EquivalenceOptions options;
  options.tolerance = kTolerance;
  options.run_other = [&](const ir::Function& g, const std::vector<int64_t>& sizes,
                          std::vector<ir::TensorData*> args) {
    return emulated ? tests::RunEmulated(g, target, sizes, std::move(args))
                    : tests::RunCompiled(g, target, 1, sizes, std::move(args));
  };
  return tests::SameResults(plain, scheduled, options);
}

TEST(PairProducts, DefaultSchedulesEqualTheInterpreter) {
  for (const target::Target& target : tests::RunnableDotTargets()) {
    for (const std::string& task : Tasks()) {
      const ir::Function plain = VariantsOf(task)[0].function;
      schedule::Schedule s(plain);
      ApplyDefaultSchedule(target, {}, &s);
      const std::string steps = schedule::ToText(s.steps());
      EXPECT_THAT(steps, testing::HasSubstr("intrin=generic.dot2_bf16."));
      const absl::Status same = Equal(plain, s.function(), target);
      EXPECT_TRUE(same.ok()) << target.ToString() << task << steps << "\n"
                             << support::StatusText(same);
    }
  }
}

// bfdot.
TEST(PairProducts, DefaultSchedulesEqualTheInterpreterOnArm) {
  if (tests::EmulatedTargets().empty()) GTEST_SKIP() << "no emulator of AArch64 here";
  const target::Target target = *target::ParseTarget("cpu,arch=aarch64,threads=1,cpu=neoverse-v1");
  EXPECT_TRUE(HasPairDots(ir::kBF16, target.machine));
  for (const std::string& task : Tasks()) {
    const ir::Function plain = VariantsOf(task)[0].function;
    schedule::Schedule s(plain);
    ApplyDefaultSchedule(target, {}, &s);
    EXPECT_THAT(schedule::ToText(s.steps()), testing::HasSubstr("intrin=generic.dot2_bf16.4"));
    const absl::Status same = Equal(plain, s.function(), target, /*emulated=*/true);
    EXPECT_TRUE(same.ok()) << task << support::StatusText(same);
  }
}

// Against a processor without the instruction.
TEST(PairProducts, TakeHalfTheInstructionsOnArm) {
  if (tests::EmulatedTargets().empty()) GTEST_SKIP() << "no emulator of AArch64 here";
  int64_t instructions[2];
  for (const bool has : {false, true}) {
    const target::Target target =
        *target::ParseTarget(StrCat("cpu,arch=aarch64,threads=1,cpu=neoverse-", has ? "v1" : "n1"));
    schedule::Schedule s(VariantsOf(Dense(12, 4, 128))[0].function);
    ApplyDefaultSchedule(target, {}, &s);
    std::vector<ir::TensorData> args = tests::SeededArguments(s.function(), {}, 1);
    std::vector<ir::TensorData*> pointers;
    for (ir::TensorData& arg : args) pointers.push_back(&arg);
    const auto cost = tests::CountEmulated(s.function(), target, {}, pointers);
    ASSERT_TRUE(cost.ok()) << support::StatusText(cost.status());
    instructions[has ? 1 : 0] = cost->instructions;
  }
  std::cout << "instructions " << instructions[0] << " without bfdot, " << instructions[1]
            << " with it\n";
  EXPECT_GT(instructions[0], 2 * instructions[1]);
}

TEST(PairProducts, SampledSchedulesEqualTheInterpreter) {
  support::Rng rng(tests::TestSeed(12));
  const target::Target target = tests::RunnableDotTargets().back();
  int pairs = 0;
  for (const std::string& task : Tasks()) {
    const auto variants = VariantsOf(task);
    const auto space = Space::Create(variants, target);
    ASSERT_TRUE(space.ok()) << support::StatusText(space.status());
    for (int i = 0; i < tests::TestRounds(10); ++i) {
      Point point;
      ASSERT_TRUE((*space)->Sample(&rng, &point));
      const auto made = (*space)->Apply(point);
      ASSERT_TRUE(made.ok()) << support::StatusText(made.status());
      const std::string steps = schedule::ToText(made->steps());
      pairs += steps.find("generic.dot2_bf16.") != steps.npos;
      const absl::Status same = Equal(variants[0].function, made->function(), target);
      ASSERT_TRUE(same.ok()) << task << steps << "\n" << support::StatusText(same);
    }
  }
  EXPECT_GT(pairs, 0);
}

}  // namespace
}  // namespace tilewright::space
