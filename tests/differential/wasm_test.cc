// Code for WebAssembly, run in Node.js, against the interpreter: random programs × random legal
// schedules, dot products of bytes at the ends of their types, rounding, functions of libm. Skips
// loudly without Node.js. TILEWRIGHT_SEED repeats a run, TILEWRIGHT_ROUNDS makes it longer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iostream>

#include "compiler/codegen/codegen.h"
#include "compiler/ir/ir_text.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "tests/support/run_compiled.h"
#include "tests/support/run_wasm.h"
#include "tests/support/schedule_pair.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

ir::Function Parsed(const std::string& text) {
  absl::StatusOr<ir::Function> f = ir::ParseFunction(text);
  TW_CHECK(f.ok()) << support::StatusText(f.status());
  return *f;
}

class WasmTest : public testing::Test {
 protected:
  void SetUp() override {
    if (targets_.empty()) GTEST_SKIP() << "no Node.js here";
  }
  std::vector<target::Target> targets_ = WasmTargets();
};

TEST_F(WasmTest, RandomSchedulesComputeTheSame) {
  // Thread axes are no loops of a processor; random_gpu_test runs them.
  const std::vector<std::string> without = {"bind", "virtual_thread"};
  PairTally tally;
  const uint64_t seed = TestSeed(5200);
  const int64_t rounds = TestRounds(60);
  for (int64_t i = 0; i < rounds; ++i) {
    const target::Target& target = targets_[static_cast<size_t>(i) % targets_.size()];
    PairOptions options;
    options.symbolic = false;
    options.without = without;
    options.runner = [&](const ir::Function& f, const std::vector<int64_t>& sizes,
                         std::vector<ir::TensorData*> args) {
      return RunWasm(f, target, sizes, std::move(args));
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

TEST_F(WasmTest, DotProductsAreExactAtTheEndsOfTheirTypes) {
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
        const absl::Status ran = RunWasm(f, target, {}, {&found[0], &found[1], &found[2]});
        ASSERT_TRUE(ran.ok()) << target.ToString() << ": " << ran;
        EXPECT_EQ(found[0].bytes, expected[0].bytes) << target.ToString() << " " << lanes;
      }
    }
  }
}

ir::TensorData Floats(const std::vector<float>& values) {
  ir::TensorData data;
  data.bytes.resize(values.size() * sizeof(float));
  std::memcpy(data.bytes.data(), values.data(), data.bytes.size());
  return data;
}

TEST_F(WasmTest, RoundedBytesSaturateAndNanIsZero) {
  const ir::Function f = Parsed(
      "fn bytes(X: f32[16] input, Y: u8[16] output) stage=scheduled {"
      " for i in 0..16 vectorized { Y[i] = u8(round_even(X[i])); } }");
  ir::TensorData expected, found;
  ir::TensorData x = Floats({0.5F, 1.5F, 2.5F, -0.5F, -1, 254.5F, 255.5F, 256, 1e10F, -1e10F,
                             127.5F, 128.49F, 253.5F, 0.49F, NAN, INFINITY});
  ASSERT_TRUE(ir::Interpret(f, {}, {&x, &expected}).ok());
  for (const target::Target& target : targets_) {
    const absl::Status ran = RunWasm(f, target, {}, {&x, &found});
    ASSERT_TRUE(ran.ok()) << ran;
    EXPECT_EQ(found.bytes, expected.bytes) << target.ToString();
  }
}

// One of the emitter's own polynomials, and one of libm's, on vectors.
TEST_F(WasmTest, FunctionsAreNearTheirValues) {
  std::vector<float> points;
  for (int i = 0; i < 64; ++i) points.push_back(-8 + 0.25F * static_cast<float>(i));
  for (const auto& [name, exact] : {std::pair<const char*, double (*)(double)>{"exp", std::exp},
                                    {"tanh", std::tanh},
                                    {"sin", std::sin}}) {
    const ir::Function f = Parsed(std::string("fn math(X: f32[64] input, Y: f32[64] output)") +
                                  " stage=scheduled { for i in 0..16 { for l in 0..4 vectorized {" +
                                  " Y[4*i + l] = " + name + "(X[4*i + l]); } } }");
    for (const target::Target& target : targets_) {
      ir::TensorData x = Floats(points), y;
      const absl::Status ran = RunWasm(f, target, {}, {&x, &y});
      if (support::Slug(ran) == "codegen.link.libm") {
        std::cerr << "[SKIP] " << name << ": " << ran.message() << "\n";
        EXPECT_STREQ(name, "sin") << "needs no library";
        continue;
      }
      ASSERT_TRUE(ran.ok()) << name << ": " << ran;
      for (size_t i = 0; i < points.size(); ++i) {
        float value = 0;
        std::memcpy(&value, y.bytes.data() + i * sizeof(float), sizeof(float));
        const double expected = exact(points[i]);
        EXPECT_NEAR(value, expected, 2e-7 * std::max(1e-3, std::abs(expected)))
            << name << "(" << points[i] << ")";
      }
    }
  }
}

// What Node.js must catch: an access that leaves the memory.
TEST_F(WasmTest, AnAccessBeyondTheMemoryIsATrap) {
  const ir::Function f = Parsed(
      "fn far(X: i64[1] input, Y: f32[8] output) stage=scheduled {"
      " Y[X[0]] = 1f32; }");
  ir::TensorData x, y;
  const int64_t index = int64_t{1} << 29;
  x.bytes.resize(sizeof(index));
  std::memcpy(x.bytes.data(), &index, sizeof(index));
  const absl::Status ran = RunWasm(f, targets_[0], {}, {&x, &y});
  EXPECT_THAT(std::string(ran.message()), testing::HasSubstr("out of bounds"));
}

// ------------------------------------------------------------------- needs no Node.js

ir::Function Axpy() {
  return Parsed(
      "fn axpy(A: f32[64] input, X: f32[64] input, Y: f32[64] input, Z: f32[64] output)"
      " stage=scheduled { for i in 0..16 { for l in 0..4 vectorized {"
      " Z[4*i + l] = A[4*i + l] * X[4*i + l] + Y[4*i + l]; } } }");
}

absl::StatusOr<codegen::Artifact> Compiled(const ir::Function& f, const std::string& text,
                                           const std::string& dump_dir = "") {
  TW_ASSIGN(const target::Target target, target::ParseTarget(text));
  TW_ASSIGN(const ir::Function lowered, LowerChecked(f, target));
  return codegen::Generate({lowered}, target, {.dump_dir = dump_dir});
}

std::string Assembly(const std::string& cpu) {
  const std::string folder = testing::TempDir() + "/wasm_" + cpu;
  const auto artifact = Compiled(Axpy(), "wasm,cpu=" + cpu, folder);
  TW_CHECK(artifact.ok()) << support::StatusText(artifact.status());
  return *support::ReadFile(folder + "/axpy.s", 1 << 24);
}

TEST(WasmCodeTest, ProductsAndSumsAreOneInstructionWhereItIsThere) {
  EXPECT_THAT(Assembly("relaxed_simd"), testing::HasSubstr("f32x4.relaxed_madd"));
  const std::string plain = Assembly("simd128");
  EXPECT_THAT(plain, testing::HasSubstr("f32x4.mul"));
  EXPECT_THAT(plain, testing::Not(testing::HasSubstr("relaxed")));
}

// A call for each lane would cost ten times as much, and need a library.
TEST(WasmCodeTest, RoundedBytesNeedNoFunctions) {
  const ir::Function f = Parsed(
      "fn bytes(X: f32[16] input, Y: u8[16] output) stage=scheduled {"
      " for i in 0..16 vectorized { Y[i] = u8(round_even(X[i])); } }");
  const std::string folder = testing::TempDir() + "/wasm_bytes";
  ASSERT_TRUE(Compiled(f, "wasm", folder).ok());
  const std::string text = *support::ReadFile(folder + "/bytes.s", 1 << 24);
  EXPECT_THAT(text, testing::Not(testing::HasSubstr("fmaxf")));
  EXPECT_THAT(text, testing::HasSubstr("f32x4.nearest"));
}

TEST(WasmCodeTest, CodeIsAModuleAndTheSameEveryTime) {
  const auto first = Compiled(Axpy(), "wasm"), second = Compiled(Axpy(), "wasm");
  ASSERT_TRUE(first.ok() && second.ok()) << first.status();
  EXPECT_EQ(first->format, "wasm");
  EXPECT_EQ(first->bytes.substr(0, 4), std::string("\0asm", 4));
  EXPECT_EQ(first->bytes, second->bytes);
  EXPECT_EQ(first->required_features, std::vector<std::string>{"simd128"});
  EXPECT_THAT(first->bytes, testing::HasSubstr("tw_kernel_axpy"));
  EXPECT_LT(first->bytes.size(), 4096U) << "something else came with it";
}

TEST(WasmCodeTest, WhatTheTargetCannotDoIsRefused) {
  EXPECT_EQ(support::Slug(Compiled(Axpy(), "wasm,threads=2").status()), "codegen.target.threads");
  const ir::Function large = Parsed(
      "fn large(X: f32[2000000000] input, Y: f32[1] output) stage=scheduled {"
      " Y[0] = X[1999999999]; }");
  const absl::Status refused = Compiled(large, "wasm").status();
  EXPECT_EQ(support::Slug(refused), "codegen.buffer.too_large");
  EXPECT_THAT(std::string(refused.message()), testing::HasSubstr("8000000000"));
  EXPECT_TRUE(Compiled(large, "cpu").ok());
}

}  // namespace
}  // namespace tilewright::tests
