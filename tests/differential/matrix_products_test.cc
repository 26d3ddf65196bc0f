// Matrix products of bytes on Arm (i8mm): the instruction is exact at the ends of its types; the
// default schedule and the rules use it where rows and groups of terms are whole, and what they
// make equals the interpreter in the emulator of a processor that has it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include "compiler/driver/tasks.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/verify.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/space.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/assembly.h"
#include "tests/support/count_text.h"
#include "tests/support/equivalence.h"
#include "tests/support/run_compiled.h"
#include "tests/support/run_emulated.h"
#include "tests/support/test_seed.h"

namespace tilewright::space {
namespace {

using support::StrCat;

target::Target Arm(std::string_view cpu) {
  return *target::ParseTarget(StrCat("cpu,arch=aarch64,threads=1,cpu=", cpu));
}

// A convolution of bytes in blocks of 16 channels, requantised.
struct Conv {
  int64_t size = 8, kernel = 1, stride = 1, in_blocks = 2, out_blocks = 2;
  std::string type = "u8";
};

std::string Task(const Conv& c) {
  const int64_t pad = c.kernel / 2, out = (c.size + 2 * pad - c.kernel) / c.stride + 1;
  const std::string image = StrCat("[1,", c.out_blocks, ",", out, ",", out, ",16]");
  return StrCat("graph {\n  input %0: ", c.type, "[1,", c.in_blocks, ",", c.size, ",", c.size,
                ",16]\n  weight %1: i8[", c.out_blocks, ",", c.in_blocks, ",", c.kernel, ",",
                c.kernel, ",4,16,4]\n  weight %2: f32[", c.out_blocks, ",1,1,16]\n  %3: i32", image,
                " = conv2d(%0, %1) {data_layout=\"NCHW16c\", pads=[", pad, ",", pad, ",", pad, ",",
                pad, "], strides=[", c.stride, ",", c.stride,
                "], weight_layout=\"OIHW4i16o4i\"}\n  %4: f32", image,
                " = cast(%3) {dtype=\"f32\"}\n  %5: f32", image, " = mul(%4, %2)\n  %6: f32", image,
                " = round(%5)\n  %7: u8", image, " = cast(%6) {dtype=\"u8\"}\n  output %7\n}\n");
}

std::string Dense(int64_t rows, int64_t columns, int64_t terms) {
  const std::string y = StrCat("[", rows, ",", columns, "]");
  return StrCat("graph {\n  input %0: i8[", rows, ",", terms, "]\n  weight %1: i8[", columns / 16,
                ",", terms / 4, ",16,4]\n  %2: i32", y,
                " = dense(%0, %1) {weight_layout=\"NK16n4k\"}\n  output %2\n}\n");
}

std::vector<schedule::Variant> VariantsOf(const std::string& task) {
  auto variants = driver::TaskVariants(task);
  TW_CHECK(variants.ok()) << support::StatusText(variants.status()) << task;
  return *std::move(variants);
}

ir::Function DefaultOf(const std::string& task, const target::Target& target, std::string* steps) {
  schedule::Schedule s(VariantsOf(task)[0].function);
  space::ApplyDefaultSchedule(target, {}, &s);
  *steps = schedule::ToText(s.steps());
  return s.function();
}

class MatrixProducts : public testing::Test {
 protected:
  void SetUp() override {
    if (tests::EmulatedTargets().empty()) GTEST_SKIP() << "no emulator of AArch64 here";
  }
  // The function against the interpreter of `plain`.
  absl::Status Equal(const ir::Function& plain, const ir::Function& scheduled) {
    tests::EquivalenceOptions options;
    options.run_other = [&](const ir::Function& g, const std::vector<int64_t>& sizes,
                            std::vector<ir::TensorData*> args) {
      return tests::RunEmulated(g, target_, sizes, std::move(args));
    };
    return tests::SameResults(plain, scheduled, options);
  }
  target::Target target_ = Arm("neoverse-v1");
};

// Three pairs of rows, which lie apart, times four columns that lie as dot products read them.
ir::Function Squares(const std::string& type, const std::string& intrinsic) {
  auto f =
      ir::ParseFunction("fn squares(C: i32[6, 4] output, A: " + type +
                        "[6, 24] input, B: i8[2, 4, 4] input) stage=scheduled { for p in 0..3 {"
                        " for i in 0..2 @{tensor=\"" +
                        intrinsic +
                        ".reset\"} { for j in 0..4 {"
                        " C[2*p + i, j] = 0i32; } }"
                        " for i in 0..2 @{tensor=\"" +
                        intrinsic +
                        "\"} { for j in 0..4 { for g in 0..2 {"
                        " for k in 0..4 { C[2*p + i, j] = C[2*p + i, j] +"
                        " i32(A[2*p + i, 8*p + 4*g + k]) * i32(B[g, j, k]); } } } } } }");
  TW_CHECK(f.ok()) << support::StatusText(f.status());
  const absl::Status valid = ir::Verify(*f);
  TW_CHECK(valid.ok()) << support::StatusText(valid);
  return *std::move(f);
}

constexpr std::pair<const char*, const char*> kInstructions[] = {{"i8", "arm.smmla"},
                                                                 {"u8", "arm.usmmla"}};

// Operands at the ends of their types, and the sums of their products.
struct Ends {
  explicit Ends(const ir::Function& f) {
    constexpr uint8_t kEnds[] = {0, 1, 127, 128, 129, 255};
    for (size_t i = 0; i < 6 * 24; ++i) a.bytes.push_back(kEnds[(i * 5 + i / 7) % 6]);
    for (size_t i = 0; i < 32; ++i) b.bytes.push_back(kEnds[(i * 7 + i / 5) % 6]);
    TW_CHECK(ir::Interpret(f, {}, {&sums, &a, &b}).ok());
  }
  ir::TensorData a, b, sums;
};

TEST_F(MatrixProducts, AreExactAtTheEndsOfTheirTypes) {
  for (const auto& [type, name] : kInstructions) {
    const ir::Function f = Squares(type, name);
    Ends ends(f);
    ir::TensorData found;
    const absl::Status ran = tests::RunEmulated(f, target_, {}, {&found, &ends.a, &ends.b});
    ASSERT_TRUE(ran.ok()) << support::StatusText(ran);
    EXPECT_EQ(found.bytes, ends.sums.bytes) << name;
  }
}

TEST_F(MatrixProducts, DefaultSchedulesEqualTheInterpreter) {
  for (const std::string& task :
       {Task({}), Task({.type = "i8"}), Task({.kernel = 3}), Task({.size = 9, .stride = 2}),
        Task({.size = 12, .kernel = 3, .stride = 2, .type = "i8"}), Dense(6, 32, 24),
        Task({.size = 7})}) {
    std::string steps;
    const ir::Function scheduled = DefaultOf(task, target_, &steps);
    const absl::Status same = Equal(VariantsOf(task)[0].function, scheduled);
    EXPECT_TRUE(same.ok()) << task << steps << "\n" << support::StatusText(same);
  }
}

TEST_F(MatrixProducts, SampledSchedulesEqualTheInterpreter) {
  support::Rng rng(tests::TestSeed(12));
  int squares = 0;
  for (const std::string& task :
       {Task({.kernel = 3}), Task({.size = 10, .type = "i8"}), Dense(12, 48, 40)}) {
    const auto variants = VariantsOf(task);
    const auto space = Space::Create(variants, target_);
    ASSERT_TRUE(space.ok()) << support::StatusText(space.status());
    int sampled = 0;
    for (int i = 0; i < 4000 && sampled < tests::TestRounds(4); ++i) {
      Point point;
      ASSERT_TRUE((*space)->Sample(&rng, &point));
      const auto made = (*space)->Apply(point);
      ASSERT_TRUE(made.ok()) << support::StatusText(made.status());
      const std::string steps = schedule::ToText(made->steps());
      if (steps.find("mmla") == steps.npos) continue;
      ++sampled;
      const absl::Status same = Equal(variants[0].function, made->function());
      ASSERT_TRUE(same.ok()) << task << steps << "\n" << support::StatusText(same);
    }
    squares += sampled;
  }
  EXPECT_EQ(squares, 3 * tests::TestRounds(4));
}

// Against the same products by sdot, on a processor without the instruction: the whole kernel with
// its loads, borders and requantisation.
TEST_F(MatrixProducts, NeedFewerInstructionsThanDotProducts) {
  const target::Target dots = Arm("neoverse-n1");
  for (const std::string& task :
       {Task({.size = 28, .in_blocks = 4, .out_blocks = 4, .type = "i8"}),
        Task({.size = 28, .kernel = 3, .in_blocks = 4, .out_blocks = 4, .type = "i8"}),
        Dense(64, 256, 256)}) {
    tests::EmulatedCost costs[2];
    for (const bool squares : {false, true}) {
      const target::Target& target = squares ? target_ : dots;
      std::string steps;
      const ir::Function f = DefaultOf(task, target, &steps);
      ASSERT_EQ(steps.find("mmla") != steps.npos, squares) << steps;
      std::vector<ir::TensorData> args = tests::SeededArguments(f, {}, 1);
      std::vector<ir::TensorData*> pointers;
      for (ir::TensorData& arg : args) pointers.push_back(&arg);
      const auto cost = tests::CountEmulated(f, target, {}, pointers);
      ASSERT_TRUE(cost.ok()) << support::StatusText(cost.status());
      costs[squares ? 1 : 0] = *cost;
    }
    std::cout << "instructions " << costs[0].instructions << " with sdot, " << costs[1].instructions
              << " with smmla; cycles " << costs[0].cycles << ", " << costs[1].cycles << "\n";
    EXPECT_GT(costs[0].instructions, costs[1].instructions * 4 / 3) << task;
    EXPECT_GT(costs[0].cycles, costs[1].cycles * 4 / 3) << task;
  }
}

// ------------------------------------------------------------------------- needs no emulator

TEST(MatrixProductsCode, LoweredNestsMeanTheSame) {
  for (const auto& [type, name] : kInstructions) {
    const ir::Function f = Squares(type, name);
    const auto lowered = tests::LowerChecked(f, Arm("neoverse-v1"));
    ASSERT_TRUE(lowered.ok()) << support::StatusText(lowered.status());
    EXPECT_THAT(ir::Print(*lowered), testing::HasSubstr("dot_tile("));
    Ends ends(f);
    ir::TensorData found;
    const absl::Status ran = ir::Interpret(*lowered, {}, {&found, &ends.a, &ends.b});
    ASSERT_TRUE(ran.ok()) << support::StatusText(ran);
    EXPECT_EQ(found.bytes, ends.sums.bytes) << name;
  }
}

TEST(MatrixProductsCode, TypesOfOperandsAreChecked) {
  const auto verify = [](const std::string& call) {
    const auto f = ir::ParseFunction(
        "fn f(C: i32[8] output, A: i8[64] input, B: i8[32] input) stage=loops {"
        " C[ramp(0, 1, 8)] = " +
        call + "; }");
    return f.ok() ? ir::Verify(*f) : f.status();
  };
  const std::string sums = "dot_tile(C[ramp(0, 1, 8)], A[ramp(0, 1, 8)], ";
  const std::string columns = "B[ramp(0, 1, 16)], B[ramp(16, 1, 16)])";
  EXPECT_TRUE(verify(sums + "A[ramp(8, 1, 8)], " + columns).ok());
  EXPECT_FALSE(verify(sums + "A[ramp(8, 1, 16)], " + columns).ok());
  EXPECT_FALSE(verify(sums + "A[ramp(8, 1, 8)], B[ramp(0, 1, 16)], B[ramp(16, 1, 8)])").ok());
  EXPECT_FALSE(verify(sums + columns).ok());
}

TEST(MatrixProductsCode, ProcessorsWithoutThemRefuseTheirNameAndUseDotProducts) {
  const absl::Status refused =
      tests::LowerChecked(Squares("i8", "arm.smmla"), Arm("cortex-a76")).status();
  EXPECT_EQ(support::Slug(refused), "transform.lower_tensor_nests.missing_feature");
  std::string steps;
  DefaultOf(Task({.type = "i8"}), Arm("cortex-a76"), &steps);
  EXPECT_THAT(steps, testing::HasSubstr("generic.dot4_s8.4"));
  // An odd number of rows has no whole pairs.
  DefaultOf(Task({.size = 7, .type = "i8"}), Arm("neoverse-v1"), &steps);
  EXPECT_THAT(steps, testing::HasSubstr("generic.dot4_s8.4"));
}

// Half the multiplications, and their sums stay in registers as the instruction has them: a loop
// has nothing else but loads and one interleaving for each of the columns' registers.
TEST(MatrixProductsCode, HalfTheMultiplications) {
  const std::string task = Task({.size = 56, .in_blocks = 4, .out_blocks = 4, .type = "i8"});
  std::string steps, dots_steps;
  const std::string text =
      tests::AssemblyOf(DefaultOf(task, Arm("neoverse-v1"), &steps), Arm("neoverse-v1"));
  EXPECT_THAT(steps, testing::HasSubstr("intrin=arm.smmla")) << steps;
  EXPECT_GT(tests::CountOf(text, "\tsmmla\t"), 7) << text;
  EXPECT_EQ(tests::CountOf(text, "\tsdot\t"), 0) << text;
  EXPECT_LE(tests::CountOf(text, "\tzip"), tests::CountOf(text, "\tsmmla\t")) << text;
}

}  // namespace
}  // namespace tilewright::space
