// Code for AArch64, run in an emulator of each processor, against the interpreter: random programs
// × random legal schedules, dot products of bytes at the ends of their types, rounding. Skips
// loudly where the emulator or the cross compiler is missing. TILEWRIGHT_SEED repeats a run,
// TILEWRIGHT_ROUNDS makes it longer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iostream>

#include "compiler/codegen/codegen.h"
#include "compiler/ir/ir_text.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "tests/support/run_compiled.h"
#include "tests/support/run_emulated.h"
#include "tests/support/schedule_pair.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

ir::Function Parsed(const std::string& text) {
  absl::StatusOr<ir::Function> f = ir::ParseFunction(text);
  TW_CHECK(f.ok()) << support::StatusText(f.status());
  return *f;
}

class EmulatedTest : public testing::Test {
 protected:
  void SetUp() override {
    if (targets_.empty()) GTEST_SKIP() << "no emulator of AArch64 here";
  }
  std::vector<target::Target> targets_ = EmulatedTargets();
};

TEST_F(EmulatedTest, RandomSchedulesComputeTheSame) {
  // Thread axes are no loops of a CPU; random_gpu_test runs them.
  const std::vector<std::string> without = {"bind", "virtual_thread"};
  PairTally tally;
  const uint64_t seed = TestSeed(4100);
  const int64_t rounds = TestRounds(60);
  for (int64_t i = 0; i < rounds; ++i) {
    const target::Target& target = targets_[static_cast<size_t>(i) % targets_.size()];
    PairOptions options;
    options.symbolic = false;
    options.without = without;
    options.runner = [&](const ir::Function& f, const std::vector<int64_t>& sizes,
                         std::vector<ir::TensorData*> args) {
      return RunEmulated(f, target, sizes, std::move(args));
    };
    ASSERT_EQ(CheckPair(seed + static_cast<uint64_t>(i), options, &tally), "") << target.ToString();
  }
  std::cout << tally.Table();
  if (rounds >= 500) {
    EXPECT_EQ(tally.AppliedLessThan(3, without), "");
  }
}

// One marked nest with that many lanes, 64 of them one after another.
ir::Function Dots(const std::string& intrinsic, const std::string& type, int lanes) {
  const std::string n = std::to_string(lanes);
  return Parsed("fn dots(C: i32[64, " + n + "] output, A: " + type + "[64, 4] input, B: i8[64, " +
                n + ", 4] input) stage=scheduled { for i in 0..64 {" + " for j in 0.." + n +
                " { C[i, j] = 2147483000i32; } for j in 0.." + n + " @{tensor=\"" + intrinsic + n +
                "\"} { for k in 0..4 {"
                " C[i, j] = C[i, j] + i32(A[i, k]) * i32(B[i, j, k]); } } } }");
}

TEST_F(EmulatedTest, DotProductsAreExactAtTheEndsOfTheirTypes) {
  constexpr uint8_t kEnds[] = {0, 1, 127, 128, 129, 255};
  for (const auto& [intrinsic, type] :
       {std::pair{"generic.dot4.", "u8"}, {"generic.dot4_s8.", "i8"}}) {
    for (int lanes : {4, 8, 16}) {
      const ir::Function f = Dots(intrinsic, type, lanes);
      std::vector<ir::TensorData> expected = SeededArguments(f, {}, 1);
      for (size_t input : {1, 2}) {
        std::vector<uint8_t>& bytes = expected[input].bytes;
        for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = kEnds[(i * 7 + i / 5 + input) % 6];
      }
      std::vector<ir::TensorData> found = expected;
      ASSERT_TRUE(ir::Interpret(f, {}, {&expected[0], &expected[1], &expected[2]}).ok());
      for (const target::Target& target : targets_) {
        const absl::Status ran = RunEmulated(f, target, {}, {&found[0], &found[1], &found[2]});
        ASSERT_TRUE(ran.ok()) << target.ToString() << ": " << ran;
        EXPECT_EQ(found[0].bytes, expected[0].bytes) << target.ToString() << " " << lanes;
      }
    }
  }
}

TEST_F(EmulatedTest, RoundedBytesSaturateAndNanIsZero) {
  const ir::Function f = Parsed(
      "fn bytes(X: f32[16] input, Y: u8[16] output) stage=scheduled {"
      " for i in 0..16 vectorized { Y[i] = u8(round_even(X[i])); } }");
  const float values[16] = {0.5F,  1.5F,   2.5F,   -0.5F,   -1,     254.5F, 255.5F, 256,
                            1e10F, -1e10F, 127.5F, 128.49F, 253.5F, 0.49F,  NAN,    INFINITY};
  ir::TensorData x, expected, found;
  x.bytes.resize(sizeof(values));
  std::memcpy(x.bytes.data(), values, sizeof(values));
  ASSERT_TRUE(ir::Interpret(f, {}, {&x, &expected}).ok());
  for (const target::Target& target : targets_) {
    const absl::Status ran = RunEmulated(f, target, {}, {&x, &found});
    ASSERT_TRUE(ran.ok()) << ran;
    EXPECT_EQ(found.bytes, expected.bytes) << target.ToString();
  }
}

// What the emulator must catch: an instruction that the target's processor does not have.
TEST_F(EmulatedTest, AnInstructionThatTheProcessorLacksIsAFault) {
  const ir::Function f = Dots("generic.dot4_s8.", "i8", 4);
  target::Target lying = *target::ParseTarget("cpu,arch=aarch64,cpu=cortex-a76");
  std::vector<ir::TensorData> args = SeededArguments(f, {}, 1);
  std::vector<ir::TensorData*> pointers = {&args[0], &args[1], &args[2]};
  ASSERT_TRUE(RunEmulated(f, lying, {}, pointers).ok());
  EXPECT_THAT(std::string(RunEmulatedOn("cortex-a53", f, lying, {}, pointers).message()),
              testing::HasSubstr("signal"));
}

// ------------------------------------------------------------------- needs no emulator

std::string AssemblyFor(const ir::Function& f, const std::string& cpu) {
  const target::Target target = *target::ParseTarget("cpu,arch=aarch64,cpu=" + cpu);
  const auto lowered = LowerChecked(f, target);
  TW_CHECK(lowered.ok()) << support::StatusText(lowered.status());
  codegen::CodegenOptions options;
  options.dump_dir = testing::TempDir() + "/emulated_" + cpu;
  const auto artifact = codegen::Generate({*lowered}, target, options);
  TW_CHECK(artifact.ok()) << support::StatusText(artifact.status());
  return *support::ReadFile(options.dump_dir + "/" + f.name + ".s", 1 << 24);
}

TEST(Aarch64CodeTest, ProcessorsGetTheDotProductsThatTheyHave) {
  const ir::Function mixed = Dots("generic.dot4.", "u8", 16);
  const ir::Function same = Dots("generic.dot4_s8.", "i8", 16);
  EXPECT_THAT(AssemblyFor(mixed, "neoverse-v1"), testing::HasSubstr("usdot"));
  EXPECT_THAT(AssemblyFor(mixed, "cortex-a76"), testing::HasSubstr("sdot"));
  EXPECT_THAT(AssemblyFor(mixed, "cortex-a76"), testing::Not(testing::HasSubstr("usdot")));
  EXPECT_THAT(AssemblyFor(same, "neoverse-n1"), testing::HasSubstr("sdot"));
  const std::string plain = AssemblyFor(same, "cortex-a72");
  EXPECT_THAT(plain, testing::HasSubstr("smull"));
  EXPECT_THAT(plain, testing::Not(testing::HasSubstr("sdot")));
}

TEST(Aarch64CodeTest, ProductsAndSumsAreOneInstruction) {
  const ir::Function f = Parsed(
      "fn axpy(A: f32[64] input, X: f32[64] input, Y: f32[64] input, Z: f32[64] output)"
      " stage=scheduled { for i in 0..16 { for l in 0..4 vectorized {"
      " Z[4*i + l] = A[4*i + l] * X[4*i + l] + Y[4*i + l]; } } }");
  const std::string text = AssemblyFor(f, "cortex-a72");
  EXPECT_THAT(text, testing::HasSubstr("fmla"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("fmul")));
}

// Vectors of the machine's length are one SVE register, where the machine has longer ones than
// NEON's.
TEST(Aarch64CodeTest, LongVectorsAreOfSve) {
  const ir::Function f = Parsed(
      "fn sums(A: f32[64] input, X: f32[64] input, Z: f32[64] output) stage=scheduled {"
      " for i in 0..4 { for l in 0..16 vectorized { Z[16*i + l] = A[16*i + l] + X[16*i + l]; } } "
      "}");
  const std::string text = AssemblyFor(f, "a64fx");
  EXPECT_THAT(text, testing::ContainsRegex("fadd\tz[0-9]+\\.s, z[0-9]+\\.s, z[0-9]+\\.s"));
  EXPECT_THAT(AssemblyFor(f, "neoverse-v1"), testing::Not(testing::HasSubstr("\tz")));
}

}  // namespace
}  // namespace tilewright::tests
