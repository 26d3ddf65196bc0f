// What schedule steps may do with reductions of tuples and with scans: accepted ones keep the
// meaning, the others are refused by slug.
#include <gtest/gtest.h>

#include <string>

#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "deploy/support/status.h"
#include "tests/support/equivalence.h"
#include "tests/support/race_check.h"
#include "tests/support/te_programs.h"

namespace tilewright::schedule {
namespace {

// "" when all steps are accepted and the result computes the same; else the slug of the refusal.
std::string Try(const ir::Function& f, const std::string& steps) {
  Schedule s(f);
  s.set_verify_each(true);
  auto parsed = ParseSteps(steps);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  absl::Status applied = s.ApplyAll(*parsed);
  if (!applied.ok()) return support::Slug(applied);
  absl::Status same = tests::SameResults(f, s.function());
  EXPECT_TRUE(same.ok()) << same << "\n" << ir::Print(s.function());
  absl::Status races = tests::CheckRaces(s.function(), {});
  EXPECT_TRUE(races.ok()) << races;
  return "";
}

ir::Function Ordered(bool ordered) {
  std::string text = ir::Print(tests::ArgMaxProgram(6, 12));
  if (ordered) text.replace(text.find("combine ("), 9, "combine ordered (");
  return *ir::ParseFunction(text);
}

TEST(TupleSchedules, LoopsOfACommutativeCombinerMayChangePlaces) {
  EXPECT_EQ(Try(Ordered(false), "split %1 [3,4]; reorder %4 %0 %3"), "");
  EXPECT_EQ(Try(Ordered(false), "reorder %1 %0; vectorize %0"), "");
}

TEST(TupleSchedules, AnOrderedCombinerKeepsTheOrderOfItsValues) {
  EXPECT_EQ(Try(Ordered(true), "split %1 [3,4]"), "");
  EXPECT_EQ(Try(Ordered(true), "split %1 [3,4]; fuse %3 %4"), "");
  EXPECT_EQ(Try(Ordered(true), "reorder %1 %0"), "");
  EXPECT_EQ(Try(Ordered(true), "split %1 [3,4]; reorder %4 %3"), "schedule.reorder.order_matters");
  EXPECT_EQ(Try(Ordered(true), "split %1 [3,4]; reorder %4 %0 %3"),
            "schedule.reorder.order_matters");
}

TEST(TupleSchedules, LoopsOverTheTupleRunAtOnceLoopsOverItsValuesDoNot) {
  EXPECT_EQ(Try(Ordered(false), "parallel %0"), "");
  EXPECT_EQ(Try(Ordered(false), "parallel %1"), "schedule.parallel.conflict");
  EXPECT_EQ(Try(Ordered(false), "vectorize %1"), "schedule.vectorize.conflict");
}

TEST(TupleSchedules, TheInitOfATupleIsOneBlock) {
  EXPECT_EQ(Try(Ordered(false), "decompose_reduction %2 %1"), "");
  EXPECT_EQ(Try(Ordered(false), "split %0 [?,4] tail=mask; decompose_reduction %2 %4"), "");
}

// Once its init is a block of its own, a tuple is read by its update.
TEST(TupleSchedules, InliningIntoAnUpdateKeepsItsReads) {
  ir::Function f =
      *ir::ParseFunction(R"(fn f(x: f32[3, 5] input, b: f32[3] output, p: i64[3] output) {
  alloc y: f32[3, 5];
  for i in 0..3 { for k in 0..5 { block y(vi: spatial 0..3 = i, vk: spatial 0..5 = k) {
    reads x[vi:1, vk:1]; writes y[vi:1, vk:1]; y[vi, vk] = x[vi, vk] * 2.0f32; } } }
  for i in 0..3 { for k in 0..5 { block b(vi: spatial 0..3 = i, vk: reduce 0..5 = k) {
    reads y[vi:1, vk:1]; writes b[vi:1], p[vi:1];
    init { b[vi] = 0.0f32; p[vi] = 0; }
    combine (b[vi], p[vi]) with (y[vi, vk], vk) by (s, m), (t, n) = (s + t, max(m, n)); } } }
})");
  EXPECT_EQ(Try(f, "decompose_reduction %5 %4; inline %2"), "");
}

TEST(TupleSchedules, ATupleMovesAsAWhole) {
  ir::Function f = tests::AttentionProgram(6, 10, 3, 8);
  EXPECT_EQ(Try(f, "compute_at %7 %8"), "");
  EXPECT_EQ(Try(f, "split %8 [?,4]; split %9 [?,4]; reorder %11 %13 %12 %14; compute_at %7 %13"),
            "");
  // Only some of its values are outputs of the block: the argmax program's are both.
  EXPECT_EQ(Try(Ordered(false), "compute_at %2 %0"), "schedule.compute_at.already_below");
  EXPECT_EQ(Try(f, "inline %7"), "schedule.inline.write_form");
}

TEST(ScanSchedules, TheStepsKeepTheirOrder) {
  ir::Function f = tests::LstmProgram(3, 2, 5);
  EXPECT_EQ(Try(f, "parallel %6"), "schedule.parallel.conflict");
  EXPECT_EQ(Try(f, "split %6 [?,2]; unroll %19"), "");
  EXPECT_EQ(Try(f, "parallel %7; parallel %12; parallel %15"), "");
  EXPECT_EQ(Try(f, "inline %14"), "schedule.inline.write_form");
  EXPECT_EQ(Try(f, "compute_at %11 %12"), "schedule.compute_at.write_form");
  ir::Function single = *ir::ParseFunction(R"(fn f(x: i64[4, 6] input, s: i64[5, 6] output) {
  for i in 0..6 { block start(vi: spatial 0..6 = i) { writes s[0:1, vi:1]; s[0, vi] = 7; } }
  for t in 0..4 { for i in 0..6 {
    block next(vt: sequential 0..4 = t, vi: spatial 0..6 = i) {
      reads x[vt:1, vi:1], s[vt:1, vi:1]; writes s[vt + 1:1, vi:1];
      s[vt + 1, vi] = s[vt, vi] * 3 - x[vt, vi]; } } }
})");
  EXPECT_EQ(Try(single, "vectorize %3"), "");
  EXPECT_EQ(Try(single, "reorder %3 %2"), "schedule.reorder.order_matters");
  EXPECT_EQ(Try(single, "fuse %2 %3; unroll %5"), "");
}

}  // namespace
}  // namespace tilewright::schedule
