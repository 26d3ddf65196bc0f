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
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "tests/support/foreign_code.h"
#include "tests/support/run_compiled.h"
#include "tests/support/run_wasm.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

class WasmTest : public testing::Test {
 protected:
  void SetUp() override {
    if (processors_.targets.empty()) GTEST_SKIP() << "no Node.js here";
  }
  const ForeignProcessors processors_ = {WasmTargets(), RunWasm};
};

TEST_F(WasmTest, RandomSchedulesComputeTheSame) {
  ExpectRandomSchedules(processors_, TestSeed(5200));
}
TEST_F(WasmTest, DotProductsAreExactAtTheEndsOfTheirTypes) { ExpectDotProducts(processors_); }
TEST_F(WasmTest, RoundedBytesSaturateAndNanIsZero) { ExpectRoundedBytes(processors_); }

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
    for (const target::Target& target : processors_.targets) {
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
  const absl::Status ran = RunWasm(f, processors_.targets[0], {}, {&x, &y});
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
