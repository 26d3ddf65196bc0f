// The step language: every row of steps.def prints and parses back, hostile text is refused by
// slug.
#include "compiler/schedule/step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "deploy/support/rng.h"
#include "deploy/support/status.h"

namespace tilewright::schedule {
namespace {

// A step of each row with every part present, and one with the optional parts left out.
std::vector<Step> ExamplesOf(const StepRow& row) {
  Step least{.kind = row.kind};
  for (size_t i = 0; i < row.operands.size(); ++i) least.handles.push_back(static_cast<int>(i));
  if (row.has_factors) least.factors = {8};
  if (!row.words.empty()) least.word = row.words.front();
  if (row.has_map) least.word = "(0)";
  if (row.has_name) least.word = "direct";
  if (row.has_annotation) {
    const AnnotationRow& a = AnnotationRows().front();
    least.options[std::string(a.key)] = std::to_string(a.max);
  }
  for (const StepOption& o : row.options) {
    if (o.required) least.options[o.key] = o.values.front();
  }
  Step most = least;
  if (row.variadic) most.handles.insert(most.handles.end(), {11, 12, 13});
  if (row.has_factors) most.factors = {kInfer, 3, 16};
  if (!row.words.empty()) most.word = row.words.back();
  if (row.has_map) most.word = "(0,1/32,2,1/4%8,1%4)";
  if (row.has_name) most.word = "winograd_4";
  for (const StepOption& o : row.options) most.options[o.key] = o.values.back();
  return {least, most};
}

TEST(StepTest, EveryRowPrintsAndParsesBack) {
  ASSERT_GE(StepRows().size(), 13u);
  Steps all;
  for (const StepRow& row : StepRows()) {
    for (const Step& step : ExamplesOf(row)) {
      ASSERT_TRUE(CheckStep(step).ok()) << ToText(step) << CheckStep(step);
      auto parsed = ParseStep(ToText(step));
      ASSERT_TRUE(parsed.ok()) << ToText(step) << ": " << parsed.status();
      EXPECT_EQ(*parsed, step);
      EXPECT_EQ(ToText(*parsed), ToText(step));
      EXPECT_EQ(FindRow(row.name), &RowOf(step.kind));
      all.push_back(step);
    }
  }
  auto parsed = ParseSteps(ToText(all));
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(*parsed, all);
}

TEST(StepTest, CanonicalFormDropsDefaultsSpacesAndComments) {
  auto canonical = CanonicalText(
      "  split   %3 [ 4, ? ,8 ]   tail=mask # the tile\n"
      ";;\n cache_write %2 scope=local;vectorize\t%9\r\nsplit %1 [?,4] tail=peel");
  ASSERT_TRUE(canonical.ok()) << canonical.status();
  EXPECT_EQ(*canonical, "split %3 [4,?,8]; cache_write %2; vectorize %9; split %1 [?,4] tail=peel");
  EXPECT_EQ(*CanonicalText(*canonical), *canonical);
  EXPECT_EQ(*CanonicalText(""), "");
}

TEST(StepTest, AStatedDefaultIsTheSameStep) {
  EXPECT_EQ(*ParseStep("split %0 [2,?] tail=mask"), *ParseStep("split %0 [2,?]"));
  EXPECT_EQ(ParseStep("split %0 [2,?]")->Option("tail"), "mask");
  EXPECT_EQ(ParseStep("split %0 [2,?] tail=peel")->Option("tail"), "peel");
  EXPECT_EQ(*CanonicalText("cache_write %1 scope=local"), *CanonicalText("cache_write  %1"));
  EXPECT_NE(*CanonicalText("cache_write %1 scope=global"), *CanonicalText("cache_write %1"));
}

TEST(StepTest, RefusesHostileTextBySlug) {
  const std::pair<const char*, const char*> kCases[] = {
      {"", "schedule.step.syntax"},
      {"explode %0", "schedule.step.unknown"},
      {"Split %0 [2]", "schedule.step.unknown"},
      {"split", "schedule.step.operands"},
      {"split %0", "schedule.step.factors"},
      {"split %0 [2", "schedule.step.syntax"},
      {"split %0 []", "schedule.step.factors"},
      {"split %0 [2,]", "schedule.step.factors"},
      {"split %0 [0]", "schedule.step.factors"},
      {"split %0 [-1]", "schedule.step.factors"},
      {"split %0 [?,?]", "schedule.step.factors"},
      {"split %0 [2][3]", "schedule.step.factors"},
      {"split %0 [99999999999999999999]", "schedule.step.factors"},
      {"split %0 [1,1,1,1,1,1,1,1,1]", "schedule.step.factors"},
      {"split %0 %1 [2]", "schedule.step.operands"},
      {"split %0 [2] tail=keep", "schedule.step.option"},
      {"split %0 [2] tail=peel tail=peel", "schedule.step.option"},
      {"split %0 [2] head=peel", "schedule.step.option"},
      {"split %0 [2] local", "schedule.step.syntax"},
      {"split % [2]", "schedule.step.handle"},
      {"split %x [2]", "schedule.step.handle"},
      {"split %-1 [2]", "schedule.step.handle"},
      {"split %+1 [2]", "schedule.step.handle"},
      {"split %01 [2]", "schedule.step.handle"},
      {"split %4294967297 [2]", "schedule.step.handle"},
      {"vectorize %0 [4]", "schedule.step.syntax"},
      {"set_scope %0", "schedule.step.word"},
      {"set_scope %0 nowhere", "schedule.step.syntax"},
      {"set_scope %0 local local", "schedule.step.syntax"},
      {"compute_at %0", "schedule.step.operands"},
      {"transform_layout %0", "schedule.step.word"},
      {"transform_layout %0 ()", "schedule.step.map"},
      {"transform_layout %0 (0", "schedule.step.syntax"},
      {"transform_layout %0 (0,)", "schedule.step.map"},
      {"transform_layout %0 (a)", "schedule.step.map"},
      {"transform_layout %0 (0/1)", "schedule.step.map"},
      {"transform_layout %0 (0%0)", "schedule.step.map"},
      {"transform_layout %0 (0%4/2)", "schedule.step.map"},
      {"transform_layout %0 (0/2/2)", "schedule.step.map"},
      {"transform_layout %0 (16)", "schedule.step.map"},
      {"transform_layout %0 (-1)", "schedule.step.map"},
      {"transform_layout %0 (0)(0)", "schedule.step.syntax"},
      {"transform_layout %0 (0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0)", "schedule.step.map"},
      {"annotate %0", "schedule.step.option"},
      {"annotate %0 shape=round", "schedule.step.option"},
      {"annotate %0 unroll_max=many", "schedule.step.option"},
      {"annotate %0 unroll_max=-3", "schedule.step.option"},
      {"annotate %0 unroll_max=1 unroll_max=2", "schedule.step.option"},
  };
  for (const auto& [text, slug] : kCases) {
    auto step = ParseStep(text);
    ASSERT_FALSE(step.ok()) << text;
    EXPECT_EQ(support::Slug(step.status()), slug) << text << " -> " << step.status();
    EXPECT_THAT(support::StatusText(step.status()), testing::HasSubstr("expected")) << text;
  }
  EXPECT_EQ(support::Slug(ParseSteps(std::string(2 << 20, ' ')).status()),
            "schedule.step.too_long");
  std::string many = "reorder";
  for (int i = 0; i < 100; ++i) many += " %" + std::to_string(i);
  EXPECT_EQ(support::Slug(ParseStep(many).status()), "schedule.step.operands");
}

TEST(StepTest, StepsMadeByProgramsAreChecked) {
  EXPECT_FALSE(CheckStep({.kind = StepKind::kSplit, .handles = {0}, .factors = {-7}}).ok());
  EXPECT_FALSE(CheckStep({.kind = StepKind::kSplit, .handles = {-1}, .factors = {2}}).ok());
  EXPECT_FALSE(CheckStep({.kind = StepKind::kVectorize, .handles = {0}, .word = "x"}).ok());
  EXPECT_FALSE(CheckStep({.kind = StepKind::kComputeAt, .handles = {0}}).ok());
  EXPECT_FALSE(
      CheckStep({.kind = StepKind::kCacheWrite, .handles = {0}, .options = {{"scope", "nowhere"}}})
          .ok());
  EXPECT_TRUE(CheckStep({.kind = StepKind::kSplit, .handles = {0}, .factors = {kInfer, 4}}).ok());
}

// Whatever a mutation of good text gives, the parser answers; what it accepts has a fixed point.
TEST(StepTest, MutatedTextNeverCrashesAndCanonicalTextIsAFixedPoint) {
  Steps all;
  for (const StepRow& row : StepRows()) {
    for (const Step& step : ExamplesOf(row)) all.push_back(step);
  }
  const std::string good = ToText(all);
  const std::string alphabet = std::string("%[]()/?,;=# \n-0129azpmktl_\"\xff") + std::string(1, 0);
  support::Rng rng(7);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = good;
    for (uint64_t n = rng.Uniform(4) + 1; n > 0; --n) {
      size_t at = rng.Uniform(text.size());
      switch (rng.Uniform(3)) {
        case 0:
          text[at] = alphabet[rng.Uniform(alphabet.size())];
          break;
        case 1:
          text.erase(at, rng.Uniform(12) + 1);
          break;
        default:
          text.insert(at, text.substr(rng.Uniform(text.size()), rng.Uniform(12)));
      }
      if (text.empty()) text = " ";
    }
    auto steps = ParseSteps(text);
    if (!steps.ok()) continue;
    ++accepted;
    auto again = ParseSteps(ToText(*steps));
    ASSERT_TRUE(again.ok()) << text;
    ASSERT_EQ(*again, *steps) << text;
  }
  EXPECT_GT(accepted, 100);  // the mutations are small enough to say something about both sides
}

}  // namespace
}  // namespace tilewright::schedule
