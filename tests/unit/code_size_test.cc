#include "tuner_server/search/code_size.h"

#include <gtest/gtest.h>

#include "compiler/ir/ir_text.h"
#include "compiler/target/target.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::search {
namespace {

double SizeOf(std::string_view loop) {
  const auto function = ir::ParseFunction(support::StrCat(
      "fn f(x: f32[64, 256] input, y: f32[64, 256] output) stage=loops {\n", loop, "\n}\n"));
  TW_CHECK(function.ok()) << support::StatusText(function.status());
  return CodeSize(*function, *target::ParseTarget("cpu,arch=x86_64,cpu=znver4,threads=1"));
}

TEST(CodeSizeTest, OnlyUnrolledLoopsCopyTheirBodies) {
  const double one = SizeOf("for i in 0..256 { y[0, i] = x[0, i] + 1.0f32; }");
  EXPECT_GT(one, 0);
  EXPECT_EQ(SizeOf("for i in 0..256 unrolled { y[0, i] = x[0, i] + 1.0f32; }"), 256 * one);
  EXPECT_EQ(
      SizeOf("for i in 0..64 unrolled { for j in 0..4 { y[0, i * 4 + j] = x[0, i] + 1.0f32; } }"),
      64 * one);
  EXPECT_EQ(SizeOf("for i in 0..256 @{tail=\"peel\"} { y[0, i] = x[0, i] + 1.0f32; }"), 2 * one);
}

TEST(CodeSizeTest, VectorsCountTheRegistersTheyFill) {
  const double one = SizeOf("y[0, 0] = x[0, 0] + 1.0f32;");
  EXPECT_EQ(SizeOf("for i in 0..16 vectorized { y[0, i] = x[0, i] + 1.0f32; }"), one);
  EXPECT_EQ(SizeOf("for i in 0..64 vectorized { y[0, i] = x[0, i] + 1.0f32; }"), 4 * one);
}

TEST(CodeSizeTest, ScalarsAreOneElementForAllLanes) {
  const auto function = ir::ParseFunction(
      "fn f(s: f32[] input, y: f32[256] output) stage=loops {\n"
      "for i in 0..16 vectorized { y[i] = s[]; }\n}\n");
  ASSERT_TRUE(function.ok()) << support::StatusText(function.status());
  EXPECT_EQ(CodeSize(*function, *target::ParseTarget("cpu,arch=x86_64,cpu=znver4,threads=1")), 2);
}

TEST(CodeSizeTest, LanesApartInMemoryAndCallsAreDear) {
  const double together = SizeOf("for i in 0..16 vectorized { y[0, i] = x[0, i]; }");
  EXPECT_GT(SizeOf("for i in 0..16 vectorized { y[0, i] = x[i, 0]; }"), 8 * together);
  EXPECT_GT(SizeOf("for i in 0..16 vectorized { y[0, i] = exp(x[0, i]); }"), 8 * together);
}

}  // namespace
}  // namespace tilewright::search
