#include "tests/support/foreign_code.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <iostream>
#include <utility>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "deploy/support/status.h"
#include "tests/support/equivalence.h"
#include "tests/support/schedule_pair.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {

ir::Function Parsed(const std::string& text) {
  absl::StatusOr<ir::Function> f = ir::ParseFunction(text);
  TW_CHECK(f.ok()) << support::StatusText(f.status());
  return *f;
}

ir::Function Dots(const std::string& intrinsic, const std::string& type, int lanes) {
  const std::string n = std::to_string(lanes);
  return Parsed("fn dots(C: i32[64, " + n + "] output, A: " + type + "[64, 4] input, B: i8[64, " +
                n + ", 4] input) stage=scheduled { for i in 0..64 {" + " for j in 0.." + n +
                " { C[i, j] = 2147483000i32; } for j in 0.." + n + " @{tensor=\"" + intrinsic + n +
                "\"} { for k in 0..4 {"
                " C[i, j] = C[i, j] + i32(A[i, k]) * i32(B[i, j, k]); } } } }");
}

ir::Function FieldDots(int bits, int lanes) {
  const std::string n = std::to_string(lanes);
  const std::string name = (bits == 4 ? ir::kNibbleDots : ir::kByteDots) + n;
  const std::string body =
      bits == 4 ? "for p in 0..2 { for k in 0..4 { C[i, j] = C[i, j] + i32(A[i, p, k]) * "
                  "bit_and(shift_right(shift_right(W[i, j], i32(p * 4)), i32(k * 8)), 15i32); } }"
                : "for k in 0..4 { C[i, j] = C[i, j] + i32(A[i, 0, k]) * "
                  "bit_and(shift_right(W[i, j], i32(k * 8)), 255i32); }";
  return Parsed("fn fields(C: i32[64, " + n + "] output, A: i8[64, 2, 4] input, W: i32[64, " + n +
                "] input) stage=scheduled { for i in 0..64 { for j in 0.." + n +
                " { C[i, j] = 2147483000i32; } for j in 0.." + n + " @{tensor=\"" + name +
                "\"} { " + body + " } } }");
}

ir::TensorData Floats(const std::vector<float>& values) {
  ir::TensorData data;
  data.bytes.resize(values.size() * sizeof(float));
  std::memcpy(data.bytes.data(), values.data(), data.bytes.size());
  return data;
}

void ExpectRandomSchedules(const ForeignProcessors& processors, uint64_t seed) {
  // Thread axes are no loops of a CPU; random_gpu_test runs them.
  const std::vector<std::string> without = {"bind", "virtual_thread"};
  PairTally tally;
  const int64_t rounds = TestRounds(60);
  for (int64_t i = 0; i < rounds; ++i) {
    const target::Target& target =
        processors.targets[static_cast<size_t>(i) % processors.targets.size()];
    PairOptions options;
    options.symbolic = false;
    options.without = without;
    options.runner = [&](const ir::Function& f, const std::vector<int64_t>& sizes,
                         std::vector<ir::TensorData*> args) {
      return processors.run(f, target, sizes, std::move(args));
    };
    ASSERT_EQ(CheckPair(seed + static_cast<uint64_t>(i), options, &tally), "") << target.ToString();
  }
  std::cout << tally.Table();
  if (rounds >= 500) {
    EXPECT_EQ(tally.AppliedLessThan(3, without), "");
  }
}

void ExpectDotProducts(const ForeignProcessors& processors) {
  constexpr uint8_t kEnds[] = {0, 1, 127, 128, 129, 255};
  for (int lanes : {4, 8, 16}) {
    for (const ir::Function& f :
         {Dots("generic.dot4.", "u8", lanes), Dots("generic.dot4_s8.", "i8", lanes),
          FieldDots(4, lanes), FieldDots(8, lanes)}) {
      std::vector<ir::TensorData> expected = SeededArguments(f, {}, 1);
      for (size_t input : {1, 2}) {
        std::vector<uint8_t>& bytes = expected[input].bytes;
        for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = kEnds[(i * 7 + i / 5 + input) % 6];
      }
      std::vector<ir::TensorData> found = expected;
      ASSERT_TRUE(ir::Interpret(f, {}, {&expected[0], &expected[1], &expected[2]}).ok());
      for (const target::Target& target : processors.targets) {
        const absl::Status ran = processors.run(f, target, {}, {&found[0], &found[1], &found[2]});
        ASSERT_TRUE(ran.ok()) << target.ToString() << ": " << ran;
        EXPECT_EQ(found[0].bytes, expected[0].bytes) << target.ToString() << " " << f.name << lanes;
      }
    }
  }
}

void ExpectRoundedBytes(const ForeignProcessors& processors) {
  const ir::Function f = Parsed(
      "fn bytes(X: f32[16] input, Y: u8[16] output) stage=scheduled {"
      " for i in 0..16 vectorized { Y[i] = u8(round_even(X[i])); } }");
  ir::TensorData expected, found;
  ir::TensorData x = Floats({0.5F, 1.5F, 2.5F, -0.5F, -1, 254.5F, 255.5F, 256, 1e10F, -1e10F,
                             127.5F, 128.49F, 253.5F, 0.49F, NAN, INFINITY});
  ASSERT_TRUE(ir::Interpret(f, {}, {&x, &expected}).ok());
  for (const target::Target& target : processors.targets) {
    const absl::Status ran = processors.run(f, target, {}, {&x, &found});
    ASSERT_TRUE(ran.ok()) << ran;
    EXPECT_EQ(found.bytes, expected.bytes) << target.ToString();
  }
}

}  // namespace tilewright::tests
