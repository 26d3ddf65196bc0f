// The schedule primitives that decide where values are computed and kept: caches, scopes,
// places, inlining, reductions, layouts, prefetch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/structural.h"
#include "compiler/schedule/primitives.h"
#include "compiler/schedule/schedule.h"
#include "compiler/transform/passes.h"
#include "deploy/support/status.h"
#include "tests/support/equivalence.h"
#include "tests/support/schedule_case.h"
#include "tests/support/te_programs.h"
#include "tests/unit/lowered_schedule.h"

namespace tilewright::schedule {
namespace {

using tests::AddedRowsProgram;
using tests::ConvProgram;
using tests::DenseReluProgram;
using tests::ExpectGolden;
using tests::ExpectRefused;
using tests::MatmulProgram;
using tests::MeanProgram;
using tests::SameResults;
using tests::SoftmaxProgram;
using tests::StencilProgram;
using tests::SymbolicRowsProgram;

// ------------------------------------------------------------------------------------ data, place

TEST(CacheReadTest, CopiesTheOperand) {
  ExpectGolden(Scheduled(MatmulProgram(6, 5, 4),
                         "cache_read %3 read=1; split %1 [?,3]; reorder %7 %0 %8 %2;"
                         "compute_at %4 %7"),
               "cache_read");
  // An intermediate, through a copy that is complete before it is read; a padded read.
  Scheduled(StencilProgram(9), "cache_read %5 scope=global; cache_read %3");
  Scheduled(ConvProgram({}), "inline %4; cache_read %12; compute_at %18 %6; split %8 [?,4]");
  Scheduled(SymbolicRowsProgram(5), "cache_read %2", {6});
}

TEST(CacheReadTest, Refusals) {
  ir::Function f = DenseReluProgram(6, 5, 4);
  ExpectRefused(f, "cache_read %3 read=2", "schedule.cache_read.no_such_read");
  ExpectRefused(f, "reverse_compute_at %6 %0; cache_read %6", "schedule.cache_read.nested");
  // Only what the consumer needs is computed: the rest of the buffer is undefined.
  auto halves = ir::ParseFunction(R"(
    fn halves(X: f32[8] input, Y: f32[4] output) stage=scheduled {
      alloc P: f32[8];
      alloc Q: f32[4];
      for i in 0..8 {
        block P(vi: spatial 0..8 = i) {
          reads X[vi:1];
          writes P[vi:1];
          P[vi] = X[vi] + 1.0f32;
        }
      }
      for j in 0..4 {
        block Q(vj: spatial 0..4 = j) {
          reads P[vj * 2:1];
          writes Q[vj:1];
          Q[vj] = P[vj * 2];
        }
      }
      for k in 0..4 {
        block Y(vk: spatial 0..4 = k) {
          reads Q[vk:1];
          writes Y[vk:1];
          Y[vk] = Q[vk] * 2.0f32;
        }
      }
    })");
  ASSERT_TRUE(halves.ok()) << halves.status();
  ExpectRefused(*halves, "compute_at %1 %2; inline %3; cache_read %5",
                "schedule.cache_read.partial_write");
}

TEST(CacheWriteTest, CopiesTheResult) {
  ExpectGolden(Scheduled(MatmulProgram(6, 5, 4), "cache_write %3"), "cache_write");
  Schedule s = Scheduled(DenseReluProgram(6, 5, 4), "cache_write %3 scope=global; cache_write %6");
  EXPECT_EQ(s.function().allocs.size(), 3u);
}

TEST(CacheWriteTest, Refusals) {
  ir::Function f = MatmulProgram(6, 5, 4);
  ExpectRefused(f, "decompose_reduction %3 %2; cache_write %3",
                "schedule.cache_write.several_writers");
  // The sum is computed where it is used only: its padding is not.
  ExpectRefused(MeanProgram(3, 5),
                "pad_einsum %2 [4,4]; compute_at %2 %13; inline %12; cache_write %2",
                "schedule.cache_write.partial_write");
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

// Padding has points that no iteration of the producer's loop leads to.
TEST(ReverseComputeAtTest, PaddedConsumersStayOutside) {
  ExpectRefused(SoftmaxProgram(3, 7), "pad_einsum %8 [1,3]; reverse_compute_at %12 %4",
                "schedule.reverse_compute_at.domain");
}

// Tiles beyond the end run no iteration at all of a loop that repeats the producer's point: the
// consumer must not run there either.
TEST(ReverseComputeAtTest, TilesWithoutAnyIteration) {
  ExpectGolden(Scheduled(MeanProgram(4, 6),
                         "compute_at %2 %4; inline %5; split %4 [3,4]; reverse_compute_at %8 %11"),
               "reverse_compute_at_empty_tile");
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

TEST(ReverseInlineTest, TheConsumerMovesIntoItsProducer) {
  ExpectGolden(Scheduled(MeanProgram(4, 6), "reverse_inline %8"), "reverse_inline");
  // Into a producer that stands in another nest, and through a permuted copy.
  Scheduled(MeanProgram(4, 6), "compute_at %2 %3; parallel %3; reverse_inline %8");
  Scheduled(StencilProgram(9), "cache_write %5; cache_write %6; reverse_inline %6");
}

TEST(ReverseInlineTest, Refusals) {
  ir::Function f = SoftmaxProgram(4, 6);  // %2 top %5 e %8 total %11 out
  ExpectRefused(f, "reverse_inline %8", "schedule.reverse_inline.not_injective");
  ExpectRefused(f, "reverse_inline %11", "schedule.reverse_inline.other_consumer");
  ExpectRefused(DenseReluProgram(4, 5, 6), "reverse_inline %6",
                "schedule.reverse_inline.reduction");
  ExpectRefused(StencilProgram(9), "reverse_inline %5", "schedule.reverse_inline.read_form");
  ExpectRefused(StencilProgram(9), "reverse_inline %1", "schedule.reverse_inline.no_producer");
  // The sum is complete only after the loop that would hold the product.
  ExpectRefused(AddedRowsProgram(4, 6), "reverse_inline %8", "schedule.reverse_inline.input_later");
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

TEST(RfactorTest, PartialResultsAreCombined) {
  ExpectGolden(Scheduled(MatmulProgram(6, 5, 12), "split %2 [?,4]; rfactor %3 %5"), "rfactor");
  // Vectorised partial sums of a dot product; the tail of the reduction is a predicate.
  Scheduled(MatmulProgram(3, 1, 37),
            "split %2 [?,8]; rfactor %3 %5; vectorize %5; compute_at %6 %7; parallel %7");
  Scheduled(MatmulProgram(3, 4, 8), "split %2 [2,?]; rfactor %3 %4 axis=first; parallel %4");
  Scheduled(MatmulProgram(3, 4, 8), "rfactor %3 %2; unroll %2");
  Scheduled(ConvProgram({}), "inline %4; rfactor %12 %10; rfactor %18 %11");
  Scheduled(SoftmaxProgram(4, 9), "split %1 [3,?]; rfactor %2 %13; split %7 [?,2]; rfactor %8 %18");
}

// Y[i] = the sum of X[i, k] over n numbers.
ir::Function OpenSums() {
  auto f = ir::ParseFunction(R"(
    fn sums(n: size, X: f32[3,n] input, Y: f32[3] output) stage=scheduled {
      for i in 0..3 {
        for k in 0..n {
          block Y(vi: spatial 0..3 = i, vk: reduce 0..n = k) {
            reads X[vi:1, vk:1];
            writes Y[vi:1];
            init {
              Y[vi] = 0.0f32;
            }
            Y[vi] = Y[vi] + X[vi, vk];
          }
        }
      }
    })");
  EXPECT_TRUE(f.ok()) << f.status();
  return *f;
}

TEST(RfactorTest, OpenReductionsHavePartialResultsOfANumber) {
  for (int64_t n = 1; n <= 19; ++n) {
    const tests::EquivalenceOptions at = {.sizes = {n}};
    Scheduled(OpenSums(), "split %1 [?,8]; rfactor %2 %4; vectorize %4", at);
    Scheduled(OpenSums(), "split %1 [?,8]; split %4 [2,4]; rfactor %2 %6; rfactor %7 %5", at);
  }
}

TEST(RfactorTest, Refusals) {
  ir::Function f = MatmulProgram(6, 5, 12);
  ExpectRefused(f, "rfactor %3 %0", "schedule.rfactor.not_reduction");
  ExpectRefused(f, "fuse %1 %2; rfactor %3 %4", "schedule.rfactor.not_reduction");
  ExpectRefused(f, "decompose_reduction %3 %2; rfactor %3 %2", "schedule.rfactor.no_init");
  ExpectRefused(DenseReluProgram(4, 5, 6), "rfactor %3 %4", "schedule.rfactor.not_around");
  ExpectRefused(SoftmaxProgram(4, 6), "decompose_reduction %2 %1; rfactor %8 %7; rfactor %2 %1",
                "schedule.rfactor.no_init");
  ExpectRefused(OpenSums(), "rfactor %2 %1", "schedule.rfactor.extent", "the step with a number");
  ExpectRefused(OpenSums(), "split %1 [?,8]; rfactor %2 %3", "schedule.rfactor.extent");
  // Partial results of one row each, of rows that are not equally long.
  auto triangle = ir::ParseFunction(R"(
    fn triangle(X: f32[16] input, Y: f32[1] output) stage=scheduled {
      for k in 0..4 {
        for l in 0..k + 1 {
          block Y(v: spatial 0..1 = 0, vk: reduce 0..16 = k * 4 + l) {
            reads X[vk:1];
            writes Y[v:1];
            init {
              Y[v] = 0.0f32;
            }
            Y[v] = Y[v] + X[vk];
          }
        }
      }
    })");
  ASSERT_TRUE(triangle.ok()) << triangle.status();
  ExpectRefused(*triangle, "rfactor %2 %0", "schedule.rfactor.extent", "found l");
}

TEST(TransformLayoutTest, DigitsOfTheOldIndices) {
  Schedule s = Scheduled(ConvProgram({.channels_out = 6}),
                         "split %1 [?,2] tail=pad; transform_layout %4 (0,1/2,2,3,1%2);"
                         "transform_layout %12 (0,1/3,2,3,1%3)");
  ExpectGolden(s, "transform_layout");
  // A constant is packed by a block of its own, tile by tile as it is read.
  Schedule packed = Scheduled(MatmulProgram(6, 20, 7),
                              "cache_read %3 read=1 scope=global; split %6 [?,8] tail=pad;"
                              "transform_layout %4 (1/8,0,1%8);"
                              "split %1 [?,8] tail=peel; reorder %9 %0 %2 %10; vectorize %10");
  ExpectGolden(packed, "pack_constant");
  Scheduled(StencilProgram(10), "transform_layout %3 (0/6,0%3,0/3%2); compute_at %3 %4");
  Scheduled(SymbolicRowsProgram(6), "cache_write %2; transform_layout %2 (1%2,0,1/2)", {7});
  // A digit of one element keeps its iterator.
  Scheduled(StencilProgram(10), "transform_layout %3 (0/12,0%12); cache_write %3");
}

TEST(TransformLayoutTest, Refusals) {
  ir::Function f = DenseReluProgram(6, 5, 4);
  ExpectRefused(f, "transform_layout %6 (0,1)", "schedule.transform_layout.not_intermediate");
  ExpectRefused(f, "transform_layout %3 (0/4,1,0%4)", "schedule.transform_layout.uneven");
  for (const char* map :
       {"(0)", "(0,1/2)", "(0,1%2)", "(0,0,1)", "(0,1/4,1%2)", "(0,1,2)", "(0/4,0%4,1%2,1/2%2)"}) {
    ExpectRefused(f, std::string("transform_layout %3 ") + map, "schedule.transform_layout.map");
  }
  ExpectRefused(f, "transform_layout %3 (1,0); transform_layout %3 (0,1,0)",
                "schedule.transform_layout.map");
}

// Six sums in digits of two; the first nest of a divided loop computes five of them.
TEST(TransformLayoutTest, NestsThatWriteAPartOfADigit) {
  const auto parsed = ir::ParseFunction(R"(
fn f(X: f32[8] input, Y: f32[6] output) stage=scheduled {
  for i in 0..6 {
    for k in 0..3 {
      block Y(vi: spatial 0..6 = i, vk: reduce 0..3 = k) {
        reads X[vi + vk:1];
        writes Y[vi:1];
        init {
          Y[vi] = 0.0f32;
        }
        Y[vi] = Y[vi] + X[vi + vk];
      }
    }
  }
}
)");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const ir::Function& f = *parsed;
  ExpectRefused(f, "divide %0 [5]; rfactor %2 %1 axis=first; transform_layout %6 (1/2,0,1%2)",
                "schedule.transform_layout.domain");
  Scheduled(f, "divide %0 [4]; rfactor %2 %1 axis=first; transform_layout %6 (1/2,0,1%2)");
}

TEST(TransformLayoutTest, ComesBeforeAlignment) {
  ExpectRefused(DenseReluProgram(6, 5, 4), "storage_align %3; transform_layout %3 (1,0)",
                "schedule.transform_layout.aligned");
}

TEST(PadEinsumTest, OperandsAndResultArePadded) {
  ExpectGolden(Scheduled(MatmulProgram(6, 5, 7), "pad_einsum %3 [4,4,8]"), "pad_einsum");
  Scheduled(MatmulProgram(6, 5, 7), "reorder %2 %0 %1; pad_einsum %3 [1,1,4]; split %2 [?,4]");
  Scheduled(DenseReluProgram(6, 5, 7), "pad_einsum %3 [1,16,1]; vectorize %1");
}

TEST(PadEinsumTest, Refusals) {
  ir::Function f = MatmulProgram(6, 5, 7);
  ExpectRefused(f, "pad_einsum %3 [4,4]", "schedule.pad_einsum.factors");
  ExpectRefused(f, "pad_einsum %3 [4,?,4]", "schedule.pad_einsum.factors");
  ExpectRefused(f, "split %0 [2,3]; pad_einsum %3 [4,4,4]", "schedule.pad_einsum.loops");
  ExpectRefused(DenseReluProgram(6, 5, 7), "compute_at %3 %4; pad_einsum %3 [4,4,4]",
                "schedule.pad_einsum.nested");
  ExpectRefused(SoftmaxProgram(4, 6), "pad_einsum %2 [4,4]", "schedule.pad_einsum.not_einsum");
  ExpectRefused(StencilProgram(6), "pad_einsum %3 [4]", "schedule.pad_einsum.not_einsum");
}

TEST(StorageAlignTest, RowsArePadded) {
  Schedule s = Scheduled(DenseReluProgram(6, 5, 4), "storage_align %3 factor=16 offset=4");
  ExpectGolden(s, "storage_align");
  transform::PassContext context;
  auto loops = transform::LowerToLoops(s.function(), context);
  ASSERT_TRUE(loops.ok()) << loops.status();
  auto flat = transform::FlattenBuffers(*loops, context);
  ASSERT_TRUE(flat.ok()) << flat.status();
  // Rows of 5 elements, 20 apart.
  EXPECT_THAT(ir::Print(*flat), testing::HasSubstr("Y: f32[120]"));
  EXPECT_THAT(ir::Print(*flat), testing::HasSubstr("i * 20 + j"));
}

TEST(StorageAlignTest, Refusals) {
  ir::Function f = DenseReluProgram(6, 5, 4);
  ExpectRefused(f, "storage_align %6", "schedule.storage_align.not_intermediate");
  ExpectRefused(f, "storage_align %3 dim=1", "schedule.storage_align.dimension");
  ExpectRefused(f, "storage_align %3 factor=4 offset=8", "schedule.storage_align.offset");
}

TEST(SwizzleTest, RowsAreTurned) {
  Schedule s = Scheduled(DenseReluProgram(6, 8, 4), "swizzle %3 vector=2");
  ExpectGolden(s, "swizzle");
  transform::PassContext context;
  auto loops = transform::LowerToLoops(s.function(), context);
  ASSERT_TRUE(loops.ok()) << loops.status();
  auto flat = transform::FlattenBuffers(*loops, context);
  ASSERT_TRUE(flat.ok()) << flat.status();
  // Row i of four vectors of two begins with its vector -i.
  EXPECT_THAT(ir::Print(*flat), testing::HasSubstr("Y: f32[48]"));
  EXPECT_THAT(ir::Print(*flat), testing::HasSubstr("floormod(floordiv(j, 2) + i, 4) * 2"));
  // Compacted, a row is another.
  Scheduled(DenseReluProgram(6, 5, 4), "compute_at %3 %4; swizzle %3 vector=1");
  Scheduled(DenseReluProgram(6, 8, 4), "split %5 [?,4]; compute_at %3 %7; swizzle %3 vector=2");
}

TEST(SwizzleTest, Refusals) {
  ir::Function f = DenseReluProgram(6, 5, 4);
  ExpectRefused(f, "swizzle %6", "schedule.swizzle.not_intermediate");
  ExpectRefused(f, "swizzle %3 dim=1", "schedule.swizzle.dimension");
  ExpectRefused(f, "swizzle %3 vector=1", "schedule.swizzle.row");
  ExpectRefused(DenseReluProgram(6, 4, 4), "swizzle %3", "schedule.swizzle.row");
  ExpectRefused(DenseReluProgram(6, 8, 4), "swizzle %3; transform_layout %3 (1,0)",
                "schedule.transform_layout.aligned");
  const std::string tile = "tensorize %0 intrin=generic.fma_tile";
  ExpectRefused(DenseReluProgram(6, 8, 4), "swizzle %3; " + tile, "schedule.tensorize.swizzled");
  ExpectRefused(DenseReluProgram(6, 8, 4), tile + "; swizzle %3", "schedule.swizzle.tensorized");
  // An init of its own writes the buffer, too.
  ExpectRefused(MatmulProgram(16, 4, 4),
                "cache_write %3 scope=shared; decompose_reduction %3 %0; "
                "tensorize %8 intrin=generic.fma_tile; swizzle %3 vector=1",
                "schedule.swizzle.tensorized");
}

TEST(DoubleBufferTest, MarksTheProducerInALoop) {
  ExpectGolden(Scheduled(StencilProgram(10), "split %4 [?,4]; compute_at %3 %6; double_buffer %3"),
               "double_buffer");
  ir::Function f = StencilProgram(10);
  ExpectRefused(f, "double_buffer %5", "schedule.double_buffer.not_intermediate");
  ExpectRefused(f, "double_buffer %3", "schedule.double_buffer.not_in_loop");
  ExpectRefused(f, "split %4 [?,4]; compute_at %3 %6; parallel %6; double_buffer %3",
                "schedule.double_buffer.not_serial");
  ExpectRefused(DenseReluProgram(6, 5, 4),
                "compute_at %3 %4; decompose_reduction %3 %9;"
                "double_buffer %3",
                "schedule.double_buffer.several_writers");
}

TEST(StreamWritesTest, OfOutputsThatNothingReads) {
  ExpectGolden(Scheduled(DenseReluProgram(6, 5, 4), "stream_writes %6"), "stream_writes");
  Scheduled(MatmulProgram(6, 16, 5), "cache_write %3; stream_writes %4; vectorize %6");
  ExpectRefused(DenseReluProgram(6, 5, 4), "stream_writes %3", "schedule.stream_writes.not_output");
  ExpectRefused(MatmulProgram(6, 16, 5), "stream_writes %3", "schedule.stream_writes.read");
}

TEST(PrefetchTest, TouchesLaterIterations) {
  ExpectGolden(Scheduled(MatmulProgram(6, 40, 5), "prefetch %3 %2 read=1 distance=2"), "prefetch");
  Scheduled(MatmulProgram(6, 40, 5),
            "split %1 [?,16]; reorder %0 %4 %2 %5; prefetch %3 %2 read=1;"
            "vectorize %5; parallel %0; unroll %2");
  ir::Function f = DenseReluProgram(6, 5, 4);
  ExpectRefused(f, "prefetch %6 %0", "schedule.prefetch.not_around");
  ExpectRefused(f, "prefetch %6 %4", "schedule.prefetch.not_parameter");
  ExpectRefused(f, "vectorize %5; prefetch %6 %5 read=1", "schedule.prefetch.vectorized");
  ExpectRefused(MatmulProgram(6, 40, 100), "prefetch %3 %0 read=1", "schedule.prefetch.region");
}

// A fetched element has an address: no expression takes its place.
TEST(PrefetchTest, WhatIsFetchedStaysABuffer) {
  ExpectRefused(MatmulProgram(6, 8, 5), "prefetch %3 %2; cache_read %4 scope=global; inline %7",
                "schedule.inline.prefetched");
}

TEST(VariantTest, ChoosesAmongTheAlgorithms) {
  std::vector<Variant> variants = {{"direct", StencilProgram(9)},
                                   {"composed", tests::ComposedStencilProgram(9)}};
  Schedule s(variants);
  EXPECT_EQ(s.BlockNames().size(), 3u);
  ASSERT_TRUE(s.Apply(*ParseStep("variant composed")).ok());
  EXPECT_EQ(s.BlockNames(), std::vector<std::string>{"blur2"});
  EXPECT_EQ(s.handles().size(), 2u);
  ASSERT_TRUE(s.Apply(*ParseStep("split %0 [?,4]")).ok());
  auto replayed = Replay(variants, ToText(s.steps()));
  ASSERT_TRUE(replayed.ok()) << replayed.status();
  EXPECT_EQ(ir::ProgramHash(*replayed), ir::ProgramHash(s.function()));
  absl::Status same = SameResults(variants[0].function, s.function());
  EXPECT_TRUE(same.ok()) << same;
  EXPECT_EQ(support::Slug(s.Apply(*ParseStep("variant direct"))), "schedule.variant.not_first");
  Schedule t(variants);
  absl::Status unknown = t.Apply(*ParseStep("variant winograd_4"));
  EXPECT_EQ(support::Slug(unknown), "schedule.variant.unknown");
  EXPECT_THAT(support::StatusText(unknown), testing::HasSubstr("expected one of direct composed"));
  ExpectRefused(StencilProgram(9), "variant direct", "schedule.variant.unknown");
}

}  // namespace
}  // namespace tilewright::schedule
