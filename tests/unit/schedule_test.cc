// Schedules: handles, replay, and the primitives that change loops.
#include "compiler/schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <string>
#include <utility>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/structural.h"
#include "compiler/schedule/primitives.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/schedule_case.h"
#include "tests/support/te_programs.h"
#include "tests/unit/lowered_schedule.h"

namespace tilewright::schedule {
namespace {

using tests::ConvProgram;
using tests::DenseReluProgram;
using tests::ExpectGolden;
using tests::ExpectRefused;
using tests::MatmulProgram;
using tests::MeanProgram;
using tests::SoftmaxProgram;
using tests::StencilProgram;
using tests::SymbolicRowsProgram;

// ------------------------------------------------------------------------------ handles and replay

TEST(ScheduleTest, HandlesAreNumberedInPreOrder) {
  Schedule s(DenseReluProgram(4, 5, 6));
  ASSERT_EQ(s.handles().size(), 7u);  // i j k Y i j Z
  EXPECT_EQ(s.handles()[0].loop->name, "i");
  EXPECT_EQ(s.handles()[2].loop->name, "k");
  EXPECT_EQ(s.handles()[3].block, "Y");
  EXPECT_EQ(s.BlockHandle("Z"), 6);
  EXPECT_EQ(s.LoopsOf(6), (std::vector<int>{4, 5}));
  EXPECT_EQ(s.BlockNames(), (std::vector<std::string>{"Y", "Z"}));
  EXPECT_EQ(s.BlockHandle("nothing"), -1);
  ASSERT_TRUE(s.Apply(*ParseStep("split %1 [?,2]")).ok());
  EXPECT_EQ(s.LastResults(), (std::vector<int>{7, 8}));
  EXPECT_TRUE(s.handles()[1].dead);
  EXPECT_EQ(s.LoopsOf(3), (std::vector<int>{0, 7, 8, 2}));
  EXPECT_EQ(s.StmtOf(1), nullptr);
  EXPECT_EQ(s.StmtOf(8)->var->name, "j_1");
}

TEST(ScheduleTest, WrongHandlesAreRefused) {
  ir::Function f = MatmulProgram(4, 5, 6);
  ExpectRefused(f, "vectorize %9", "schedule.handle.unknown");
  ExpectRefused(f, "vectorize %3", "schedule.handle.kind");
  ExpectRefused(f, "inline %0", "schedule.handle.kind");
  ExpectRefused(f, "split %1 [5]; unroll %1", "schedule.handle.dead");
}

// Sequences that share beginnings, ends in a refusal among them: whether a step is new, or somebody
// took it before, or is taken over, nobody can tell from the results.
TEST(ScheduleTest, RememberedStepsGiveWhatStepsGive) {
  const ir::Function f = ConvProgram({});
  const std::string start = "inline %4; split %6 [?,4]; split %8 [2,?]; ";
  const std::vector<std::string> sequences = {
      start + "reorder %18 %20 %19 %21; unroll %21",
      start + "vectorize %19; unroll %18",
      start + "unroll %6; vectorize %19",  // %6 is dead
      start + "set_scope %5 nowhere; unroll %21",
      "split %8 [2,?]; " + start,
  };
  Schedule root(f);
  root.RememberSteps();
  std::map<std::string, ir::Stmt> bodies;
  size_t remembered = 0;
  for (int round = 0; round < 4; ++round) {
    for (const std::string& steps : sequences) {
      Schedule plain(f), copy = root;
      for (const std::string& line : support::Split(steps, ';')) {
        if (support::Trim(line).empty()) continue;
        const auto step = ParseStep(line);
        if (!step.ok()) continue;
        EXPECT_EQ(copy.Apply(*step), plain.Apply(*step)) << line;
        EXPECT_EQ(copy.LastResults(), plain.LastResults());
        EXPECT_EQ(copy.Describe(), plain.Describe());
      }
      EXPECT_EQ(copy.steps(), plain.steps());
      EXPECT_EQ(copy.ProgramHash(), ir::ProgramHash(plain.function()));
      // From the third on it is the same tree, not one like it.
      const ir::Stmt body = std::exchange(bodies[steps], copy.function().body);
      if (round > 1) {
        EXPECT_EQ(body, bodies[steps]);
      }
      // A way of its own: the next copy does not see it.
      if (round == 2) copy.SetBody(plain.function().body);
    }
    if (round > 0) {
      EXPECT_EQ(root.remembered(), remembered);
    }
    remembered = root.remembered();
  }
  EXPECT_EQ(ir::Print(root.function()), ir::Print(f));
  EXPECT_GT(remembered, 8u);
}

TEST(ScheduleTest, ReplayGivesTheSameProgram) {
  ir::Function f = ConvProgram({});
  std::string steps =
      "inline %4; split %6 [?,4]; split %8 [2,?]; reorder %18 %20 %19 %21; unroll %21";
  Schedule s(f);
  auto parsed = ParseSteps(steps);
  ASSERT_TRUE(parsed.ok());
  absl::Status status = s.ApplyAll(*parsed);
  ASSERT_TRUE(status.ok()) << status << s.Describe();
  auto replayed = Replay(f, ToText(s.steps()));
  ASSERT_TRUE(replayed.ok()) << replayed.status();
  EXPECT_EQ(ir::ProgramHash(*replayed), ir::ProgramHash(s.function()));
  EXPECT_EQ(ir::Print(*replayed), ir::Print(s.function()));
  EXPECT_NE(ir::ProgramHash(f), ir::ProgramHash(s.function()));
  auto bad = Replay(f, "unroll %0; split %0 [2,?]");
  EXPECT_EQ(support::Slug(bad.status()), "schedule.split.not_serial");
  EXPECT_THAT(support::StatusText(bad.status()), testing::HasSubstr("step 1 `split %0 [2,?]`"));
}

// --------------------------------------------------------------------------------- reshaping loops

TEST(SplitTest, EvenUnevenAndNested) {
  ExpectGolden(Scheduled(MatmulProgram(12, 10, 7), "split %0 [2,?,3]; split %1 [?,4] tail=peel"),
               "split");
  Scheduled(MatmulProgram(5, 7, 11), "split %0 [?,2]; split %1 [3,3]; split %2 [?,4]");
  // A ragged split of a ragged split, of the reduction too.
  Scheduled(MatmulProgram(13, 3, 13),
            "split %0 [?,5]; split %5 [?,2]; split %2 [?,5]; split %9 [2,?]");
  Scheduled(MatmulProgram(3, 1, 1), "split %0 [8,?]; split %1 [1]; split %2 [2,2]");
}

TEST(SplitTest, SymbolicExtent) {
  ir::Function f = SymbolicRowsProgram(5);
  for (int64_t rows : {1, 7, 8}) {
    Scheduled(f, "split %0 [?,4]; split %1 [?,2]; parallel %3", {rows});
  }
  ExpectRefused(f, "split %0 [4,?]", "schedule.split.symbolic_extent");
  ExpectRefused(f, "split %0 [4,4]", "schedule.split.symbolic_extent");
}

// The inner loop of a fused one may be open; a tile then goes along several rows.
TEST(FuseTest, OpenInnerLoop) {
  const ir::Function f = SymbolicRowsProgram(5);
  for (int64_t rows : {1, 3, 7, 8}) {
    Scheduled(f, "reorder %1 %0; fuse %1 %0; split %3 [?,4] tail=peel", {rows});
  }
  const auto none = ir::ParseFunction(
      "fn f(X: f32[2] input, Y: f32[2] output) stage=scheduled {\nfor i in 0..2 {\nfor j in 0..0 "
      "{\n"
      "block Y(vi: spatial 0..2 = i) {\nreads X[vi:1];\nwrites Y[vi:1];\nY[vi] = "
      "X[vi];\n}\n}\n}\n}\n");
  ASSERT_TRUE(none.ok()) << none.status();
  ExpectRefused(*none, "fuse %0 %1", "schedule.fuse.empty");
  // What ends the rows ends the loop; what rows and columns decide together stays a condition.
  for (const char* where : {"r * 3 + i < n", "r * 3 + i < n && i + j < n", "i + j < n"}) {
    const auto parsed = ir::ParseFunction(support::StrCat(
        "fn f(n: size, X: f32[n] input, Y: f32[n + 3, n] output) stage=scheduled {\n"
        "for i in 0..n + 3 {\nfor j in 0..n {\nblock Z(vi: spatial 0..n + 3 = i, vj: spatial 0..n "
        "= j) "
        "{\nwrites Y[vi:1, vj:1];\nY[vi, vj] = 0.0f32;\n}\n}\n}\n"
        "for r in 0..floordiv(n + 2, 3) {\nfor i in 0..3 {\nfor j in 0..n {\n"
        "block Y(vi: spatial 0..n + 3 = r * 3 + i, vj: spatial 0..n = j) where (",
        where,
        ") {\nreads X[vj:1];\nwrites Y[vi:1, vj:1];\nY[vi, vj] = X[vj] + "
        "1.0f32;\n}\n}\n}\n}\n}\n"));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    for (int64_t n : {1, 2, 4, 7}) {
      const Schedule fused = Scheduled(*parsed, "fuse %4 %5; split %7 [?,4] tail=peel", {n});
      EXPECT_EQ(ir::Print(fused.function()).find("min(3, n - r * 3)") != std::string::npos,
                std::string_view(where) != "i + j < n")
          << ir::Print(fused.function());
    }
  }
}

TEST(SplitTest, Refusals) {
  ir::Function f = MatmulProgram(12, 10, 7);
  ExpectRefused(f, "split %0 [2,5]", "schedule.split.too_few");
  ExpectRefused(f, "unroll %0; split %0 [2,?]", "schedule.split.not_serial");
  ExpectRefused(f, "split %0 [2147483648,2147483648]", "schedule.split.too_large");
}

TEST(SplitTest, OverlappingTiles) {
  ExpectGolden(Scheduled(MatmulProgram(10, 6, 3),
                         "split %0 [?,4] tail=overlap; reorder %1 %2 %5; vectorize %5"),
               "split_overlap");
  Scheduled(StencilProgram(10), "split %4 [?,4] tail=overlap; compute_at %3 %6; vectorize %7");
  Scheduled(MatmulProgram(12, 6, 3), "split %0 [?,4] tail=overlap; parallel %4");  // no tail
  ir::Function f = MatmulProgram(10, 6, 3);
  ExpectRefused(f, "split %2 [?,2] tail=overlap", "schedule.split.not_repeatable");
  ExpectRefused(f, "reorder %2 %0; split %0 [?,4] tail=overlap", "schedule.split.not_repeatable");
  ExpectRefused(f, "decompose_reduction %3 %2; split %0 [?,4] tail=overlap",
                "schedule.split.not_repeatable");
  ExpectRefused(f, "split %0 [?,16] tail=overlap", "schedule.split.too_short");
  ExpectRefused(f, "split %0 [?,4] tail=overlap; parallel %4", "schedule.parallel.conflict");
  ExpectRefused(f, "split %0 [?,4] tail=overlap; reorder %2 %4 %1 %5",
                "schedule.reorder.order_matters");
  ExpectRefused(SymbolicRowsProgram(5), "split %0 [?,4] tail=overlap",
                "schedule.split.symbolic_extent");
}

TEST(SplitTest, PaddedBuffers) {
  // The packed operand holds zeros behind its end; what reads it there needs no condition.
  ExpectGolden(Scheduled(MatmulProgram(6, 5, 4),
                         "cache_read %3 read=1; split %6 [?,4] tail=pad; cache_write %3;"
                         "split %1 [?,4] tail=pad; reorder %12 %2 %13; vectorize %13"),
               "split_pad");
  Scheduled(StencilProgram(9), "split %2 [?,4] tail=pad; split %0 [?,8] tail=pad; vectorize %7");
  Scheduled(MatmulProgram(6, 5, 4),
            "cache_write %3; split %0 [?,4] tail=pad; decompose_reduction %3 %2");
  ir::Function f = MatmulProgram(6, 5, 4);
  ExpectRefused(f, "split %1 [?,4] tail=pad", "schedule.split.output");
  ExpectRefused(f, "cache_write %3; split %2 [?,3] tail=pad", "schedule.split.pad_form");
  ExpectRefused(f, "cache_write %3; fuse %0 %1; split %7 [?,4] tail=pad",
                "schedule.split.pad_form");
  ExpectRefused(f, "cache_write %3; decompose_reduction %3 %2; split %0 [?,4] tail=pad",
                "schedule.split.several_writers");
}

TEST(FuseTest, DividesBindings) {
  ExpectGolden(Scheduled(DenseReluProgram(4, 6, 5), "fuse %4 %5; parallel %7; fuse %0 %1 %2"),
               "fuse");
  // A split joined again is the loop it was.
  Schedule s = Scheduled(MatmulProgram(12, 10, 7), "split %0 [3,?]; fuse %4 %5");
  EXPECT_TRUE(ir::StructuralEqual(s.function(), MatmulProgram(12, 10, 7)));
  Scheduled(MatmulProgram(6, 5, 4), "fuse %0 %1; split %4 [?,7]; parallel %5; vectorize %6");
  // Spatial and reduction loops together keep their order.
  Scheduled(MatmulProgram(3, 5, 4), "fuse %1 %2; split %4 [?,3]; unroll %6");
}

TEST(FuseTest, Refusals) {
  ir::Function f = MatmulProgram(12, 10, 7);
  ExpectRefused(f, "fuse %0 %2", "schedule.fuse.not_nested");
  ExpectRefused(f, "fuse %1 %0", "schedule.fuse.not_nested");
  ExpectRefused(f, "unroll %1; fuse %0 %1", "schedule.fuse.not_serial");
}

TEST(ReorderTest, NamedLoopsFillNamedPlaces) {
  Schedule s = Scheduled(MatmulProgram(4, 5, 6), "reorder %2 %0");
  EXPECT_EQ(s.LoopsOf(3), (std::vector<int>{2, 1, 0}));
  s = Scheduled(ConvProgram({}),
                "inline %4; split %7 [?,2]; split %8 [?,3]; split %9 [?,2];"
                "reorder %18 %20 %22 %10 %11 %23 %19 %21");
  ExpectGolden(s, "reorder");
}

TEST(ReorderTest, Refusals) {
  ir::Function f = MatmulProgram(4, 6, 8);
  ExpectRefused(f, "reorder %0 %0", "schedule.reorder.repeated");
  ExpectRefused(f, "vectorize %1; reorder %2 %1", "schedule.reorder.not_serial");
  ExpectRefused(DenseReluProgram(4, 5, 6), "reorder %0 %4", "schedule.reorder.not_nested");
  // A loop that feeds both kinds, split unevenly: the first visit of a point would move.
  ExpectRefused(f, "fuse %1 %2; split %4 [?,5]; reorder %6 %5", "schedule.reorder.order_matters");
  // Tiles that overlap follow each other; inside of the parallel loop two iterations meet in a row.
  f = MatmulProgram(6, 8, 7);
  ExpectRefused(f, "split %0 [?,4] tail=overlap; parallel %5; reorder %1 %4",
                "schedule.reorder.conflict");
  Scheduled(f, "split %0 [?,4] tail=overlap; parallel %5; reorder %2 %1");
}

// A sum computed inside a loop that it does not depend on is the same sum again and again, init
// included; once the loop's other work has moved away nothing but the sum is left in it.
TEST(ReorderTest, RepeatedWorkAndReductionDoNotChangePlaces) {
  ir::Function f = MeanProgram(4, 6);  // %0 i %1 k %2 sum %3 i %4 j %5 apart %6 i %7 j %8 out
  Scheduled(f, "compute_at %2 %4; inline %5; reorder %4 %3");
  ExpectRefused(f, "compute_at %2 %4; inline %5; reorder %10 %4", "schedule.reorder.order_matters");
  ExpectRefused(f, "compute_at %2 %4; decompose_reduction %2 %4",
                "schedule.decompose_reduction.repeated");
}

// ------------------------------------------------------------------------------------ mapping
// loops

TEST(MapLoopsTest, AcceptedMappingsKeepTheMeaning) {
  ExpectGolden(
      Scheduled(DenseReluProgram(8, 20, 5),
                "split %1 [?,8]; reorder %7 %0 %2 %8; parallel %7; vectorize %8; unroll %2;"
                "parallel %4; split %5 [?,16]; vectorize %10; annotate %4 unroll_max=64"),
      "map_loops");
}

TEST(MapLoopsTest, Refusals) {
  ir::Function f = MatmulProgram(8, 100, 5);
  ExpectRefused(f, "vectorize %2", "schedule.vectorize.conflict");
  ExpectRefused(f, "parallel %2", "schedule.parallel.conflict");
  ExpectRefused(f, "vectorize %1", "schedule.vectorize.extent");
  ExpectRefused(f, "split %1 [1,?]; vectorize %4", "schedule.vectorize.extent");
  ExpectRefused(MatmulProgram(300, 2, 2), "unroll %0", "schedule.unroll.extent");
  ExpectRefused(f, "parallel %0; parallel %1", "schedule.parallel.nested");
  ExpectRefused(f, "parallel %1; parallel %0", "schedule.parallel.nested");
  ExpectRefused(f, "vectorize %0; parallel %1", "schedule.parallel.nested");
  ExpectRefused(f, "split %1 [?,4]; vectorize %5; vectorize %0", "schedule.vectorize.nested");
  ExpectRefused(f, "parallel %0; unroll %0", "schedule.unroll.not_serial");
  ExpectRefused(f, "fuse %1 %2; parallel %4", "schedule.parallel.conflict");
}

TEST(MapLoopsTest, LanesAndThreadsMustNotShareWhatTheyWrite) {
  ir::Function f = StencilProgram(12);
  // blur1 inside blur2's tiles overlaps by two elements. Threads have it to themselves ...
  Scheduled(f, "split %4 [?,4]; compute_at %3 %6; parallel %6");
  // ... lanes share it in any case.
  ExpectRefused(f, "split %4 [?,4]; compute_at %3 %6; vectorize %6", "schedule.vectorize.conflict");
  // A uniform value is everybody's: computed once per lane or thread, written to one place.
  ExpectRefused(SoftmaxProgram(4, 6), "compute_at %2 %4; vectorize %4",
                "schedule.vectorize.conflict");
  ExpectRefused(MeanProgram(4, 6), "compute_at %2 %4; inline %5; parallel %4",
                "schedule.parallel.conflict");
}

// ----------------------------------------------------------------------------------------- speed

constexpr std::string_view kTwentySteps =
    "inline %4; split %6 [?,4]; split %7 [?,2]; split %8 [?,4]; split %9 [?,2];"
    "reorder %5 %18 %20 %22 %24 %10 %11 %25 %19 %21 %23;"
    "split %14 [?,4]; split %15 [?,2]; split %16 [?,4]; reorder %13 %26 %28 %30 %27 %29 %31;"
    "set_scope %12 local; compute_at %12 %30; fuse %13 %26; parallel %39; vectorize %31;"
    "unroll %27; reorder %36 %37 %38 %33 %34 %35; vectorize %35; unroll %34;"
    "annotate %30 unroll_max=64";

// The search replays thousands of schedules per second: a bound that only a quadratic mistake or a
// stray print would break, not a benchmark.
TEST(ScheduleTest, TwentyStepsReplayFast) {
  ir::Function f = ConvProgram({.channels_in = 4, .height = 10, .width = 10, .channels_out = 16});
  Scheduled(f, kTwentySteps);
  auto steps = ParseSteps(kTwentySteps);
  ASSERT_TRUE(steps.ok());
  ASSERT_EQ(steps->size(), 20u);
  std::clock_t best_us = 1'000'000'000;
  for (int round = 0; round < 20; ++round) {
    std::clock_t start = std::clock();  // processor time: other tests run beside this one
    for (int i = 0; i < 20; ++i) {
      Schedule s(f);
      absl::Status status = s.ApplyAll(*steps);
      ASSERT_TRUE(status.ok()) << status;
    }
    best_us = std::min(best_us, (std::clock() - start) * 1'000'000 / CLOCKS_PER_SEC / 20);
  }
  std::cout << "replay of 20 steps: " << best_us << " us\n";
  EXPECT_LT(best_us, 5000);
}

}  // namespace
}  // namespace tilewright::schedule
