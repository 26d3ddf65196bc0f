// Code for AArch64, run in an emulator of each processor, against the interpreter: random programs
// × random legal schedules, dot products of bytes at the ends of their types, rounding. Skips
// loudly where the emulator or the cross compiler is missing. TILEWRIGHT_SEED repeats a run,
// TILEWRIGHT_ROUNDS makes it longer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "deploy/support/status.h"
#include "tests/support/assembly.h"
#include "tests/support/equivalence.h"
#include "tests/support/foreign_code.h"
#include "tests/support/run_compiled.h"
#include "tests/support/run_emulated.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

class EmulatedTest : public testing::Test {
 protected:
  void SetUp() override {
    if (processors_.targets.empty()) GTEST_SKIP() << "no emulator of AArch64 here";
  }
  const ForeignProcessors processors_ = {EmulatedTargets(), RunEmulated};
};

TEST_F(EmulatedTest, RandomSchedulesComputeTheSame) {
  ExpectRandomSchedules(processors_, TestSeed(4100));
}
TEST_F(EmulatedTest, DotProductsAreExactAtTheEndsOfTheirTypes) { ExpectDotProducts(processors_); }
TEST_F(EmulatedTest, RoundedBytesSaturateAndNanIsZero) { ExpectRoundedBytes(processors_); }

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
  return AssemblyOf(f, *target::ParseTarget("cpu,arch=aarch64,cpu=" + cpu));
}

TEST(Aarch64CodeTest, ProcessorsGetTheDotProductsThatTheyHave) {
  const ir::Function mixed = Dots("generic.dot4.", "u8", 16);
  const ir::Function same = Dots("generic.dot4_s8.", "i8", 16);
  EXPECT_THAT(AssemblyFor(mixed, "neoverse-v1"), testing::HasSubstr("usdot"));
  EXPECT_THAT(AssemblyFor(mixed, "cortex-a76"), testing::HasSubstr("sdot"));
  EXPECT_THAT(AssemblyFor(mixed, "cortex-a76"), testing::Not(testing::HasSubstr("usdot")));
  EXPECT_THAT(AssemblyFor(same, "neoverse-n1"), testing::HasSubstr("sdot"));
  // Fields of four bits have no sign to lose.
  EXPECT_THAT(AssemblyFor(FieldDots(4, 16), "cortex-a76"), testing::Not(testing::HasSubstr("eor")));
  EXPECT_THAT(AssemblyFor(FieldDots(8, 16), "cortex-a76"), testing::HasSubstr("eor"));
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
