// Long sums of floats as sums of blocks: which loops are cut, and what it does for the error.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/ir/interp.h"
#include "tests/unit/pass_checks.h"

namespace tilewright::transform {
namespace {

// Sums S, set before `loops` and copied to the result behind it.
std::string Summing(std::string_view loops, std::string_view type = "f32") {
  return support::StrCat("fn f(X: ", type, "[64] input, W: ", type, "[64] constant, Y: ", type,
                         "[8] output) stage=flat {\n  alloc S: ", type, "[8] scope=local {\n",
                         "    S[ramp(0, 1, 8)] = W[ramp(0, 1, 8)];\n", loops,
                         "    Y[ramp(0, 1, 8)] = S[ramp(0, 1, 8)];\n  }\n}\n");
}

PassContext Blocks(int64_t terms) {
  PassContext ctx = Context();
  ctx.block_terms = terms;
  return ctx;
}

std::string InBlocks(const std::string& text, int64_t terms) {
  const ir::Function before = Parsed(text);
  const absl::StatusOr<ir::Function> after =
      RunPipeline(before, Rows("sum_in_blocks"), Blocks(terms));
  EXPECT_TRUE(after.ok()) << support::StatusText(after.status()) << text;
  if (!after.ok()) return "";
  const absl::Status same = tests::SameResults(before, *after);
  EXPECT_TRUE(same.ok()) << support::StatusText(same) << ir::Print(*after);
  return ir::Print(*after);
}

TEST(SumInBlocks, TheLoopIsCutWhereABlockIsFull) {
  const std::string two =
      "S[ramp(0, 1, 4)] = fma(X[ramp(a * 8 + b, 1, 4)], W[ramp(b, 1, 4)], S[ramp(0, 1, 4)]);\n"
      "S[4] = W[a] + S[4];\n";
  // 8 · 3 terms: blocks of two turns of the outer loop; of three turns, one of the inner loop.
  const std::string nest = support::StrCat("for a in 0..8 {\nfor b in 0..3 {\n", two, "}\n}\n");
  CheckGolden("sum_in_blocks_outer", "sum_in_blocks", Summing(nest), Blocks(6));
  CheckGolden("sum_in_blocks_inner", "sum_in_blocks",
              Summing("for a in 0..4 {\nfor b in 0..12 {\nS[0] = S[0] + X[a * 12 + b];\n}\n}\n"),
              Blocks(4));
  // 8 turns of 9 terms: blocks of 4 turns are nearer to 32 terms than blocks of 2.
  CheckGolden("sum_in_blocks_nearest", "sum_in_blocks",
              Summing("for a in 0..8 {\nfor b in 0..9 {\nS[0] = S[0] + X[a * 7 + b];\n}\n}\n"),
              Blocks(32));
  // 13 turns are no blocks of 4: the last one is of one turn.
  CheckGolden("sum_in_blocks_rest", "sum_in_blocks",
              Summing("for k in 2..15 {\nS[1] = X[k] * W[k] + S[1];\n}\n"), Blocks(4));
}

TEST(SumInBlocks, OnlyLoopsThatDoNothingButAdd) {
  const std::pair<std::string_view, std::string> loops[] = {
      {"cut", "for k in 0..32 {\nS[0] = S[0] + X[k];\n}\n"},
      {"cut: another place is another sum",
       "for k in 0..32 {\nS[0] = S[0] + X[k];\n"
       "S[1] = S[1] + W[k];\n}\n"},
      {"short", "for k in 0..7 {\nS[0] = S[0] + X[k];\n}\n"},
      {"a maximum", "for k in 0..32 {\nS[0] = max(S[0], X[k]);\n}\n"},
      {"a difference", "for k in 0..32 {\nS[0] = S[0] - X[k];\n}\n"},
      {"a scan", "for k in 0..32 {\nS[0] = S[0] + X[k];\nY[1] = S[0];\n}\n"},
      {"a choice by the sum",
       "for k in 0..32 {\nif (S[0] < 3.0f32) {\nS[0] = S[0] + X[k];\n}\n}\n"},
      {"the sum is a factor", "for k in 0..32 {\nS[0] = fma(S[0], X[k], W[k]);\n}\n"},
      {"the sum is in the term", "for k in 0..32 {\nS[0] = S[0] + S[0] * X[k];\n}\n"},
      {"a neighbour is in the term", "for k in 0..32 {\nS[0] = S[0] + S[1];\n}\n"},
      {"it is set again", "for k in 0..32 {\nS[0] = S[0] + X[k];\nS[1] = X[k];\n}\n"},
      {"places move", "for k in 0..32 {\nS[min(k, 7)] = S[min(k, 7)] + X[k];\n}\n"},
      {"places overlap",
       "for k in 0..32 {\nS[ramp(0, 1, 4)] = S[ramp(0, 1, 4)] + X[ramp(k, 1, 4)];\n"
       "S[3] = S[3] + X[k];\n}\n"},
      {"some lanes",
       "for k in 0..32 {\nS[ramp(0, 1, 4)] masked(ramp(k, 1, 4) < broadcast(9, 4)) = "
       "S[ramp(0, 1, 4)] + X[ramp(k, 1, 4)];\n}\n"},
  };
  for (const auto& [what, loop] : loops) {
    SCOPED_TRACE(what);
    const std::string after = InBlocks(Summing(loop), 4);
    EXPECT_EQ(after.find("S_total") != std::string::npos, what.starts_with("cut")) << after;
  }
  // Numbers that do not round stay as they are.
  EXPECT_EQ(InBlocks(Summing("for k in 0..32 {\nS[0] = S[0] + X[k];\n}\n", "i32"), 4).find("total"),
            std::string::npos);
}

TEST(SumInBlocks, LongSumsRoundLess) {
  // 65,536 terms of a third: one after the other, each is rounded to the last bit of the sum.
  const std::string text =
      "fn f(Y: f32[1] output) stage=flat {\n  alloc S: f32[1] scope=local {\n    S[0] = 0.0f32;\n"
      "    for k in 0..65536 {\n      S[0] = S[0] + 0.33333334f32;\n    }\n    Y[0] = S[0];\n"
      "  }\n}\n";
  const auto error = [](const ir::Function& f) {
    ir::TensorData y;
    y.bytes.resize(sizeof(float));
    EXPECT_TRUE(ir::Interpret(f, {}, {&y}).ok());
    float sum = 0;
    std::memcpy(&sum, y.bytes.data(), sizeof(sum));
    return std::abs(sum / (65536 * 0.33333334) - 1);
  };
  const ir::Function before = Parsed(text);
  const auto after = RunPipeline(before, Rows("sum_in_blocks"), Context());
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_GT(error(before), 1e-4);
  EXPECT_LT(error(*after), 1e-5);
}

}  // namespace
}  // namespace tilewright::transform
