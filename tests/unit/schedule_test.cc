// Every primitive: what it accepts keeps the meaning (interpreter, golden text), what it refuses it
// refuses by slug and leaves the schedule unchanged.
#include "compiler/schedule/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/structural.h"
#include "compiler/schedule/primitives.h"
#include "deploy/support/status.h"
#include "tests/support/equivalence.h"
#include "tests/support/golden.h"
#include "tests/support/race_check.h"
#include "tests/support/te_programs.h"

namespace tilewright::schedule {
namespace {

using tests::ConvProgram;
using tests::DenseReluProgram;
using tests::MatchesGolden;
using tests::MatmulProgram;
using tests::MeanProgram;
using tests::SameResults;
using tests::SoftmaxProgram;
using tests::StencilProgram;
using tests::SymbolicRowsProgram;

// Applies steps one by one with verification; the result must compute the same as the start.
Schedule Scheduled(const ir::Function& f, std::string_view steps, std::vector<int64_t> sizes = {}) {
  Schedule s(f);
  s.set_verify_each(true);
  auto parsed = ParseSteps(steps);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  for (const Step& step : *parsed) {
    absl::Status status = s.Apply(step);
    EXPECT_TRUE(status.ok()) << ToText(step) << ": " << status;
    if (!status.ok()) break;
  }
  tests::EquivalenceOptions options;
  options.sizes = std::move(sizes);
  absl::Status same = SameResults(f, s.function(), options);
  EXPECT_TRUE(same.ok()) << same << "\n" << s.Describe();
  absl::Status races = tests::CheckRaces(s.function(), options.sizes);
  EXPECT_TRUE(races.ok()) << races << "\n" << s.Describe();
  return s;
}

// The last of `steps` must be refused with `slug` and change nothing; the others are applied.
void ExpectRefused(const ir::Function& f, std::string_view steps, std::string_view slug) {
  Schedule s(f);
  s.set_verify_each(true);
  auto parsed = ParseSteps(steps);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  for (size_t i = 0; i + 1 < parsed->size(); ++i) {
    absl::Status status = s.Apply((*parsed)[i]);
    ASSERT_TRUE(status.ok()) << ToText((*parsed)[i]) << ": " << status;
  }
  std::string before = s.Describe();
  for (bool verify : {true, false}) {
    s.set_verify_each(verify);
    absl::Status refused = s.Apply(parsed->back());
    EXPECT_EQ(support::Slug(refused), slug) << steps << "\n" << refused << "\n" << s.Describe();
    EXPECT_THAT(support::StatusText(refused), testing::HasSubstr("expected")) << steps;
    EXPECT_EQ(s.Describe(), before) << steps;
    EXPECT_EQ(s.steps().size() + 1, parsed->size());
    // Names and handles of later steps do not depend on refused ones.
    EXPECT_TRUE(ir::StructuralEqual(Replay(f, ToText(s.steps())).value(), s.function()));
  }
}

void ExpectGolden(const Schedule& s, std::string_view name) {
  EXPECT_TRUE(MatchesGolden("schedule/" + std::string(name) + ".txt", s.Describe()));
}

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
  ExpectRefused(f, "reorder %1 %0; fuse %1 %0", "schedule.fuse.symbolic_extent");
}

TEST(SplitTest, Refusals) {
  ir::Function f = MatmulProgram(12, 10, 7);
  ExpectRefused(f, "split %0 [2,5]", "schedule.split.too_few");
  ExpectRefused(f, "unroll %0; split %0 [2,?]", "schedule.split.not_serial");
  ExpectRefused(f, "split %0 [2147483648,2147483648]", "schedule.split.too_large");
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

// -------------------------------------------------------------------------------------- data,
// place

TEST(CacheWriteTest, CopiesTheResult) {
  ExpectGolden(Scheduled(MatmulProgram(6, 5, 4), "cache_write %3"), "cache_write");
  Schedule s = Scheduled(DenseReluProgram(6, 5, 4), "cache_write %3 scope=global; cache_write %6");
  EXPECT_EQ(s.function().allocs.size(), 3u);
}

TEST(CacheWriteTest, Refusals) {
  ir::Function f = MatmulProgram(6, 5, 4);
  ExpectRefused(f, "decompose_reduction %3 %2; cache_write %3",
                "schedule.cache_write.several_writers");
  ExpectRefused(StencilProgram(8), "compute_at %3 %4; cache_write %3",
                "schedule.cache_write.nested");
}

TEST(SetScopeTest, ChangesTheBufferEverywhere) {
  ExpectGolden(Scheduled(DenseReluProgram(6, 5, 4), "set_scope %3 local"), "set_scope");
  ExpectRefused(DenseReluProgram(6, 5, 4), "set_scope %6 local",
                "schedule.set_scope.not_intermediate");
}

TEST(ComputeAtTest, ComputesTheRegionThatConsumersNeed) {
  // Stencil: overlapping boxes; ragged tiles are cut at the buffer's end.
  ExpectGolden(Scheduled(StencilProgram(10), "split %4 [?,4]; compute_at %3 %6; compute_at %1 %6"),
               "compute_at_stencil");
  // Into the reduction of a padded convolution, one channel and row at a time.
  Scheduled(ConvProgram({}), "compute_at %4 %11");
  Scheduled(ConvProgram({.stride = 2}),
            "split %8 [?,2]; reorder %18 %9 %10 %19; compute_at %4 %10");
}

TEST(ComputeAtTest, AccumulatorsUnderTheEpilogue) {
  Schedule s = Scheduled(DenseReluProgram(9, 20, 6),
                         "split %5 [?,8]; set_scope %3 local; compute_at %3 %7; reorder %11 %9 %10;"
                         "vectorize %10; vectorize %8; parallel %4");
  ExpectGolden(s, "compute_at_dense");
}

TEST(ComputeAtTest, Refusals) {
  ir::Function f = SoftmaxProgram(4, 6);  // %0 i %1 k %2 top %3 i %4 j %5 e %6 i %7 m %8 total ...
  ExpectRefused(f, "compute_at %5 %7", "schedule.compute_at.consumer_outside");
  ExpectRefused(f, "compute_at %2 %0", "schedule.compute_at.already_below");
  ExpectRefused(f, "compute_at %8 %3", "schedule.compute_at.after");
  ExpectRefused(f, "compute_at %11 %0", "schedule.compute_at.output");
  ExpectRefused(f, "vectorize %4; compute_at %2 %4", "schedule.compute_at.vectorized");
  ExpectRefused(f, "decompose_reduction %2 %0; compute_at %2 %4",
                "schedule.compute_at.several_writers");
  ExpectRefused(StencilProgram(8), "compute_at %1 %2; compute_at %3 %4",
                "schedule.compute_at.shared_nest");
}

TEST(ReverseComputeAtTest, ConsumersFollowTheTile) {
  Schedule s = Scheduled(MatmulProgram(12, 20, 6),
                         "cache_write %3; split %0 [?,4]; split %1 [?,8]; reorder %7 %9 %2 %8 %10;"
                         "reverse_compute_at %4 %9; vectorize %10; vectorize %12; parallel %7");
  ExpectGolden(s, "reverse_compute_at");
  // Ragged tiles, and tiles cut inside by a split that does not divide them.
  Scheduled(MatmulProgram(13, 21, 3),
            "cache_write %3; split %0 [?,4]; split %1 [?,8]; split %10 [?,3]; reorder %7 %9 %8;"
            "reverse_compute_at %4 %9; parallel %7");
}

// The tile's rows are cut inside by an uneven split: the copy must not run for rows that the next
// tile computes, whichever of the loops it stands in.
TEST(ReverseComputeAtTest, TilesCutInside) {
  const std::string steps = "cache_write %3; split %0 [?,4]; split %8 [?,3]; ";
  Scheduled(MatmulProgram(10, 5, 3), steps + "reverse_compute_at %4 %1");
  Scheduled(MatmulProgram(10, 5, 3), steps + "reverse_compute_at %4 %10");
  ExpectRefused(MatmulProgram(10, 5, 3), steps + "reverse_compute_at %4 %9",
                "schedule.reverse_compute_at.inexact_region");
  Scheduled(MatmulProgram(10, 5, 3), steps + "reverse_compute_at %4 %7");
}

TEST(ReverseComputeAtTest, Refusals) {
  ir::Function f = DenseReluProgram(6, 5, 4);
  ExpectRefused(f, "reorder %2 %0 %1; reverse_compute_at %6 %0",
                "schedule.reverse_compute_at.incomplete");
  ExpectRefused(f, "reverse_compute_at %6 %2", "schedule.reverse_compute_at.incomplete");
  ExpectRefused(f, "reverse_compute_at %3 %5", "schedule.reverse_compute_at.before");
  ExpectRefused(f, "vectorize %0; reverse_compute_at %6 %0",
                "schedule.reverse_compute_at.vectorized");
  ExpectRefused(f, "reverse_compute_at %6 %1; reverse_compute_at %6 %0",
                "schedule.reverse_compute_at.already_below");
  ExpectRefused(f, "fuse %0 %1; split %7 [?,3]; reverse_compute_at %6 %8",
                "schedule.reverse_compute_at.inexact_region");
  ExpectRefused(StencilProgram(8), "reverse_compute_at %3 %0",
                "schedule.reverse_compute_at.read_form");
  ExpectRefused(SoftmaxProgram(4, 6), "reverse_compute_at %8 %4",
                "schedule.reverse_compute_at.reduction");
  ExpectRefused(SoftmaxProgram(4, 6), "reverse_compute_at %11 %3",
                "schedule.reverse_compute_at.input_later");
}

TEST(InlineTest, ExpressionsReplaceLoads) {
  Schedule s = Scheduled(ConvProgram({}), "inline %4");
  EXPECT_TRUE(s.handles()[4].dead);
  EXPECT_TRUE(s.handles()[0].dead);
  ExpectGolden(s, "inline");
  Scheduled(StencilProgram(9), "inline %1; inline %3");
  Scheduled(SoftmaxProgram(3, 5), "inline %5");
}

TEST(InlineTest, Refusals) {
  ir::Function f = SoftmaxProgram(4, 6);
  ExpectRefused(f, "inline %2", "schedule.inline.not_injective");
  ExpectRefused(f, "inline %11", "schedule.inline.output");
}

TEST(DecomposeReductionTest, InitComesFirst) {
  ExpectGolden(Scheduled(MatmulProgram(6, 10, 4),
                         "split %1 [?,4]; split %2 [?,3]; reorder %0 %4 %6 %5 %7;"
                         "decompose_reduction %3 %6; vectorize %9"),
               "decompose_reduction");
  Scheduled(MatmulProgram(6, 10, 4), "decompose_reduction %3 %0; reorder %2 %0 %1");
}

TEST(DecomposeReductionTest, Refusals) {
  ir::Function f = DenseReluProgram(6, 5, 4);
  ExpectRefused(f, "decompose_reduction %6 %4", "schedule.decompose_reduction.no_init");
  ExpectRefused(f, "decompose_reduction %3 %4", "schedule.decompose_reduction.not_around");
  ExpectRefused(f, "reorder %2 %0; decompose_reduction %3 %0",
                "schedule.decompose_reduction.reduction_outside");
  ExpectRefused(f, "fuse %1 %2; decompose_reduction %3 %7",
                "schedule.decompose_reduction.mixed_loop");
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
