// The default schedule: legal and meaning-preserving for whatever the builder can describe, and
// with lanes, threads and register tiles where a kernel has room for them.
#include "compiler/space/default_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "compiler/ir/build.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/lane_axes.h"
#include "compiler/space/trace.h"
#include "deploy/support/status.h"
#include "tests/support/equivalence.h"
#include "tests/support/golden.h"
#include "tests/support/random_ir.h"
#include "tests/support/te_programs.h"
#include "tests/support/test_seed.h"

namespace tilewright::space {
namespace {

using schedule::BlocksIn;
using schedule::BlockSite;
using schedule::Schedule;
using schedule::Steps;

target::Target MakeTarget(int vector_bytes, int registers, int threads) {
  target::Target target;
  target.machine.vector_bytes = vector_bytes;
  target.machine.vector_registers = registers;
  target.threads = threads;
  return target;
}

const target::Target kTargets[] = {MakeTarget(16, 16, 1), MakeTarget(32, 16, 3),
                                   MakeTarget(64, 32, 2)};

// The scheduled function; every step must be accepted and verified, the result must be the same.
ir::Function Check(const ir::Function& f, const target::Target& target,
                   const std::vector<int64_t>& sizes = {}) {
  Steps steps = DefaultSchedule(f, target);
  EXPECT_EQ(ToText(steps), ToText(DefaultSchedule(f, target)));
  Schedule s(f);
  s.set_verify_each(true);
  absl::Status applied = s.ApplyAll(steps);
  EXPECT_TRUE(applied.ok()) << applied << "\n" << ir::Print(f);
  tests::EquivalenceOptions options;
  options.sizes = sizes;
  absl::Status same = tests::SameResults(f, s.function(), options);
  EXPECT_TRUE(same.ok()) << same << "\n" << ToText(steps) << "\n" << ir::Print(f) << s.Describe();
  return s.function();
}

bool Contains(const ir::Function& f, std::string_view text) {
  return ir::Print(f).find(text) != std::string::npos;
}

TEST(DefaultScheduleTest, KernelsOfEveryKind) {
  for (const target::Target& target : kTargets) {
    Check(tests::MatmulProgram(13, 37, 5), target);
    Check(tests::MatmulProgram(1, 6, 40), target);
    Check(tests::DenseReluProgram(8, 40, 9), target);
    Check(tests::ConvProgram({.height = 8, .width = 20, .channels_out = 6}), target);
    Check(tests::ConvProgram({.height = 8, .width = 8, .channels_out = 3, .stride = 2}), target);
    Check(tests::StencilProgram(50), target);
    Check(tests::SoftmaxProgram(7, 19), target);
    for (int64_t rows : {1, 9}) Check(tests::SymbolicRowsProgram(21), target, {rows});
  }
}

TEST(DefaultScheduleTest, LargeKernelsGetThreadsLanesAndRegisterTiles) {
  ir::Function f = tests::DenseReluProgram(48, 64, 32);
  ir::Function scheduled = Check(f, kTargets[2]);
  EXPECT_TRUE(Contains(scheduled, "parallel"));
  EXPECT_TRUE(Contains(scheduled, "in 0..16 vectorized"));
  EXPECT_TRUE(Contains(scheduled, "unrolled"));
  EXPECT_TRUE(Contains(scheduled, "scope=local"));
  EXPECT_TRUE(tests::MatchesGolden("schedule/default_dense.txt", ir::Print(scheduled)));
  EXPECT_FALSE(Contains(Check(f, kTargets[0]), "parallel"));  // one thread
}

// A batch that may be one image does not keep threads busy: the loops inside of it do, with it.
TEST(DefaultScheduleTest, OpenLoopsAreFusedWithThoseInside) {
  const auto f = ir::ParseFunction(
      "fn relu(N: size, X: f32[N,24,40,40] input, Y: f32[N,24,40,40] output) stage=scheduled {"
      " for n in 0..N { for c in 0..24 { for h in 0..40 { for w in 0..40 {"
      " block Y(vn: spatial 0..N = n, vc: spatial 0..24 = c, vh: spatial 0..40 = h,"
      " vw: spatial 0..40 = w) { reads X[vn:1, vc:1, vh:1, vw:1]; writes Y[vn:1, vc:1, vh:1, vw:1];"
      " Y[vn, vc, vh, vw] = max(X[vn, vc, vh, vw], 0.0f32); } } } } } }");
  ASSERT_TRUE(f.ok()) << f.status();
  for (int64_t batch : {1, 3}) {
    EXPECT_TRUE(Contains(Check(*f, kTargets[2], {batch}), "in 0..N * 24 parallel"));
  }
}

// Weights packed in fours of 16 columns: their indices divide, and seven vectors are no tile of
// eight.
// y = x w of open rows, where w is made by a stage: a panel of it within the loop over columns. A
// thread that gets some of the rows would make it once for each of them, so then it stays whole.
TEST(DefaultScheduleTest, AStageIsPlacedInALoopOfKnownTurnsOnly) {
  const auto product = [](int64_t columns) {
    ir::FunctionBuilder b("product");
    const ir::Expr rows = b.Size("n"), depth = ir::Int(8);
    const ir::Buffer x = b.Input("x", ir::kF32, {rows, depth});
    const ir::Buffer q = b.Input("q", ir::kF32, {depth, ir::Int(columns)});
    const ir::Buffer w = b.Compute(
        "w", ir::kF32, {depth, ir::Int(columns)}, {"k", "j"}, [&](const std::vector<ir::Var>& v) {
          return ir::Call(ir::Intrinsic::kExp, {ir::Load(q, {v[0], v[1]})});
        });
    const ir::Axis k = b.ReduceAxis("k", depth);
    return b.Finish({b.Reduce("y", ir::kF32, {rows, ir::Int(columns)}, {"i", "j"}, {k},
                              ir::Combiner::kSum, [&](const std::vector<ir::Var>& v) {
                                return ir::Load(x, {v[0], k.var}) * ir::Load(w, {k.var, v[1]});
                              })});
  };
  Choices choices;
  choices["w"].place = 1;
  const auto placed = [&](const ir::Function& f, const target::Target& target) {
    Schedule s(f);
    ApplyDefaultSchedule(target, choices, &s);
    tests::EquivalenceOptions options;
    options.sizes = {21};
    const absl::Status same = tests::SameResults(f, s.function(), options);
    EXPECT_TRUE(same.ok()) << same << ir::Print(s.function());
    return s.LoopsOf(s.BlockHandle("w"))[0] == s.LoopsOf(s.BlockHandle("y"))[0];
  };
  target::Target one = MakeTarget(64, 32, 1), several = MakeTarget(64, 32, 4);
  several.machine.parallel_work = 1;
  EXPECT_TRUE(placed(product(1024), one));
  EXPECT_TRUE(placed(product(1024), several));
  EXPECT_TRUE(placed(product(256), one));
  EXPECT_FALSE(placed(product(256), several));
}

TEST(DefaultScheduleTest, PackedBytesAreDotProducts) {
  auto f = ir::ParseFunction(
      "fn dense(A: u8[3,8] input, B: i8[7,2,16,4] constant, C: i32[3,112] output) stage=scheduled {"
      " for m in 0..3 { for n in 0..112 { for k in 0..2 { for l in 0..4 {"
      " block dense(vm: spatial 0..3 = m, vn: spatial 0..112 = n, vk: reduce 0..2 = k, "
      "vl: reduce 0..4 = l) {"
      " reads A[vm:1, vk * 4 + vl:1], B[floordiv(vn, 16):1, vk:1, floormod(vn, 16):1, vl:1];"
      " writes C[vm:1, vn:1]; init { C[vm, vn] = 0i32; }"
      " C[vm, vn] = C[vm, vn] + i32(A[vm, vk * 4 + vl]) * "
      "i32(B[floordiv(vn, 16), vk, floormod(vn, 16), vl]); } } } } } }");
  ASSERT_TRUE(f.ok()) << f.status();
  EXPECT_TRUE(Contains(Check(*f, kTargets[2]), "generic.dot4.16"));
  EXPECT_TRUE(Contains(Check(*f, kTargets[1]), "generic.dot4.8"));
}

// An image of three channels as dot products of four want it: its channels written out, so that
// their stores fill vectors, and lanes that divide its width, so that none is masked.
TEST(DefaultScheduleTest, BytesInFoursAreWrittenOut) {
  auto f = ir::ParseFunction(
      "fn fours(X: u8[3,5,96] input, Y: u8[5,96,4] output) stage=scheduled {"
      " for h in 0..5 { for w in 0..96 { for c in 0..4 {"
      " block fours(vh: spatial 0..5 = h, vw: spatial 0..96 = w, vc: spatial 0..4 = c) {"
      " reads X[vc:1, vh:1, vw:1]; writes Y[vh:1, vw:1, vc:1];"
      " Y[vh, vw, vc] = select(vc < 3, X[vc, vh, vw], 0u8); } } } } }");
  ASSERT_TRUE(f.ok()) << f.status();
  const ir::Function scheduled = Check(*f, kTargets[2]);
  EXPECT_TRUE(Contains(scheduled, "in 0..4 unrolled"));
  EXPECT_TRUE(Contains(scheduled, "in 0..32 vectorized"));
  EXPECT_FALSE(Contains(scheduled, "where"));
}

// Vectors of what lies side by side before, four rows of them at a time, which are stored as rows.
TEST(DefaultScheduleTest, TransposesAreStoredInRows) {
  auto transpose = [](int64_t rows, int64_t columns) {
    const std::string r = std::to_string(rows), c = std::to_string(columns);
    return ir::ParseFunction("fn t(X: f32[" + r + "," + c + "] input, Y: f32[" + c + "," + r +
                             "] output) stage=scheduled { for i in 0.." + c + " { for j in 0.." +
                             r + " { block Y(vi: spatial 0.." + c + " = i, vj: spatial 0.." + r +
                             " = j) { reads X[vj:1, vi:1]; writes Y[vi:1, vj:1];"
                             " Y[vi, vj] = X[vj, vi]; } } } }");
  };
  auto whole = transpose(8, 48), ragged = transpose(9, 48);
  ASSERT_TRUE(whole.ok() && ragged.ok()) << whole.status() << ragged.status();
  EXPECT_NE(ToText(DefaultSchedule(*whole, kTargets[2])).find("split %1 [?,4]"), std::string::npos);
  EXPECT_TRUE(Contains(Check(*whole, kTargets[2]), "in 0..4 unrolled"));
  EXPECT_FALSE(Contains(Check(*ragged, kTargets[2]), "unrolled"));
}

// Depthwise windows share what they read: those of five rows and columns are written out for whole
// rows of the image and several of them; of three and at stride 1 the factors stay in registers
// beside six sums.
TEST(DefaultScheduleTest, DepthwiseWindowsAreWrittenOut) {
  auto depthwise = [](int image, int kernel) {
    const std::string i = std::to_string(image), k = std::to_string(kernel);
    const std::string padded = std::to_string(image + kernel - 1);
    return ir::ParseFunction(
        "fn d(X: f32[" + padded + "," + padded + ",32] input, W: f32[" + k + "," + k +
        ",32] constant, Y: f32[" + i + "," + i + ",32] output) stage=scheduled { for y in 0.." + i +
        " { for x in 0.." + i + " { for c in 0..32 { for u in 0.." + k + " { for v in 0.." + k +
        " { block d(vy: spatial 0.." + i + " = y, vx: spatial 0.." + i +
        " = x, vc: spatial 0..32 = c, vu: reduce 0.." + k + " = u, vv: reduce 0.." + k +
        " = v) { reads X[vy + vu:1, vx + vv:1, vc:1], W[vu:1, vv:1, vc:1];"
        " writes Y[vy:1, vx:1, vc:1]; init { Y[vy, vx, vc] = 0f32; }"
        " Y[vy, vx, vc] = Y[vy, vx, vc] + X[vy + vu, vx + vv, vc] * W[vu, vv, vc]; } } } } } } }");
  };
  auto five = depthwise(7, 5), three = depthwise(14, 3);
  ASSERT_TRUE(five.ok() && three.ok()) << five.status() << three.status();
  const ir::Function whole = Check(*five, kTargets[2]), row = Check(*three, kTargets[2]);
  EXPECT_TRUE(Contains(whole, "in 0..5 unrolled"));
  EXPECT_TRUE(Contains(whole, "in 0..7 unrolled"));
  EXPECT_TRUE(Contains(row, "in 0..3 unrolled"));
  EXPECT_TRUE(Contains(row, "in 0..6 unrolled"));
  EXPECT_FALSE(Contains(row, "in 0..14 unrolled"));
}

// A pool that steps over every second column: shuffled vectors cost less than lanes of channels,
// each of which lies elsewhere.
TEST(DefaultScheduleTest, LanesRunAlongSmallStrides) {
  for (const auto& [stride, axis] : {std::pair(2, 1), std::pair(4, 1), std::pair(40, 0)}) {
    const std::string s = std::to_string(stride), width = std::to_string(15 * stride + 3);
    auto f = ir::ParseFunction(
        "fn pool(X: f32[32," + width +
        "] input, P: f32[32,16] output) stage=scheduled {"
        " for c in 0..32 { for o in 0..16 { for k in 0..3 {"
        " block pool(vc: spatial 0..32 = c, vo: spatial 0..16 = o, vk: reduce 0..3 = k)"
        " { reads X[vc:1, vo * " +
        s +
        " + vk:1]; writes P[vc:1, vo:1];"
        " init { P[vc, vo] = -inf(f32); }"
        " P[vc, vo] = max(P[vc, vo], X[vc, vo * " +
        s + " + vk]); } } } } }");
    ASSERT_TRUE(f.ok()) << f.status();
    const std::vector<BlockSite> blocks = BlocksIn(f->body);
    ASSERT_EQ(blocks.size(), 1u);
    // Along the later of equals, so channels win only where both are far apart.
    const int found = VectorAxis(target::Machine(), *blocks[0].block, 16, /*count_store=*/false);
    EXPECT_EQ(found, axis) << stride;
    Check(*f, kTargets[2]);
  }
}

// A convolution of blocks of eight channels: lanes are one vector, the next one is the next block.
ir::Function BlockedProgram(const std::string& factor, const std::string& pixels = "12") {
  auto f = ir::ParseFunction(
      "fn blocked(X: f32[3," + pixels + ",8] input, W: f32[4,3,8,8] constant, Y: f32[4," + pixels +
      ",8] output) stage=scheduled { for c in 0..4 { for w in 0.." + pixels +
      " { for o in 0..8 { for k in 0..3 { for i in 0..8 { block Y(vc: spatial 0..4 = c,"
      " vw: spatial 0.." +
      pixels +
      " = w, vo: spatial 0..8 = o, vk: reduce 0..3 = k, vi: reduce 0..8 = i)"
      " { reads X[0:3, vw:1, 0:8], W[vc:1, vk:1, vi:1, vo:1]; writes Y[vc:1, vw:1, vo:1];"
      " init { Y[vc, vw, vo] = 0.0f32; } Y[vc, vw, vo] = Y[vc, vw, vo] + " +
      factor + " * W[vc, vk, vi, vo]; } } } } } } }");
  EXPECT_TRUE(f.ok()) << f.status();
  return *std::move(f);
}

TEST(DefaultScheduleTest, TilesHaveSeveralBlocksWhereABroadcastIsALoad) {
  const ir::Function f = BlockedProgram("X[vk, vw, vi]");
  EXPECT_EQ(BlockAxis(*BlocksIn(f.body)[0].block, 2), 0);
  EXPECT_EQ(BlockAxis(*BlocksIn(f.body)[0].block, 1), -1) << "pixels have no weights of their own";
  const ir::Function own = BlockedProgram("X[floormod(vc, 3), vw, vi]");
  EXPECT_EQ(BlockAxis(*BlocksIn(own.body)[0].block, 2), -1) << "each block reads its own pixels";

  target::Target target = MakeTarget(32, 16, 1);
  const ir::Function tile = Check(f, target);
  EXPECT_TRUE(Contains(tile, "in 0..2 unrolled")) << ir::Print(tile);
  EXPECT_TRUE(Contains(tile, "in 0..6 unrolled")) << ir::Print(tile);
  // The loop of eight channels is short, and the tile small enough to write it out.
  EXPECT_TRUE(Contains(tile, "in 0..8 unrolled")) << ir::Print(tile);
  // A single pixel: all blocks share its broadcasts.
  const ir::Function pixel = Check(BlockedProgram("X[vk, vw, vi]", "1"), target);
  EXPECT_TRUE(Contains(pixel, "in 0..4 unrolled")) << ir::Print(pixel);
  target.machine.body_ops = 8 * 2 * 6 - 1;
  EXPECT_FALSE(Contains(Check(f, target), "in 0..8 unrolled"));
  target.machine.multiplies_broadcasts = true;
  const ir::Function row = Check(f, target);
  EXPECT_TRUE(Contains(row, "in 0..2 unrolled")) << ir::Print(row);
  EXPECT_FALSE(Contains(row, "in 0..4 unrolled")) << "a second block is enough";
}

// What a vector, a tile or a second thread is worth, the machine says.
TEST(DefaultScheduleTest, FollowsTheMachine) {
  target::Target target = MakeTarget(32, 16, 2);
  const ir::Function product = tests::MatmulProgram(64, 64, 64);
  EXPECT_TRUE(Contains(Check(product, target), "parallel"));
  target.machine.parallel_work = 64 * 64 * 64 + 1;
  EXPECT_FALSE(Contains(Check(product, target), "parallel"));

  target.machine.tile.max_vectors = 1;
  EXPECT_EQ(ChooseTile(8, 100, 1, 64, target).vectors, 1);
  target.machine.tile = {.max_rows = 2};
  EXPECT_EQ(ChooseTile(8, 100, 1, 64, target).rows, 2);
  // A panel behind the caches that costs as much as one in the first cache makes no difference.
  target.machine.tile = {.second_cache_load = 0.8, .far_load = 0.8};
  const Tile any = ChooseTile(8, 100, 1, 64, target), far = ChooseTile(8, 100, 1, 1 << 30, target);
  EXPECT_EQ(std::pair(any.vectors, any.rows), std::pair(far.vectors, far.rows));
  target.machine.tile.far_load = 100;
  EXPECT_LT(ChooseTile(8, 100, 1, 1 << 30, target).vectors, any.vectors);

  auto f = ir::ParseFunction(
      "fn thirds(X: f32[32,48] input, Y: f32[32,16] output) stage=scheduled {"
      " for i in 0..32 { for j in 0..16 { block Y(vi: spatial 0..32 = i, vj: spatial 0..16 = j)"
      " { reads X[vi:1, vj * 3:1]; writes Y[vi:1, vj:1]; Y[vi, vj] = X[vi, vj * 3]; } } } }");
  ASSERT_TRUE(f.ok()) << f.status();
  const std::vector<BlockSite> blocks = BlocksIn(f->body);
  target::Machine machine;
  EXPECT_EQ(VectorAxis(machine, *blocks[0].block, 8, /*count_store=*/false), 1);
  machine.shuffled_stride = 2;  // lanes one by one along either axis
  EXPECT_EQ(VectorAxis(machine, *blocks[0].block, 8, /*count_store=*/false), 0);
}

// Passes over a row follow each other while it is near; nothing larger than a row lies between
// them.
TEST(DefaultScheduleTest, RowsAreFinishedOneByOne) {
  const ir::Function f = tests::SoftmaxProgram(400, 197);
  target::Machine machine;
  EXPECT_TRUE(ReducesRows(f, machine));
  EXPECT_FALSE(ReducesRows(tests::MatmulProgram(8, 8, 8), machine));
  EXPECT_FALSE(ReducesRows(tests::SoftmaxProgram(1, 5000), machine)) << "too long for 32 KiB";
  machine.l1.bytes = 64 << 10;
  EXPECT_TRUE(ReducesRows(tests::SoftmaxProgram(1, 5000), machine));
  const auto nests = [](const ir::Function& scheduled) {
    int count = 0;
    ir::VisitStmts(scheduled.body, [&](const ir::Stmt& s) {
      count += s->kind == ir::StmtKind::kFor;
      return s->kind != ir::StmtKind::kFor;
    });
    return count;
  };
  const ir::Function rows = Check(f, kTargets[2]);
  EXPECT_TRUE(Contains(rows, "parallel"));
  EXPECT_TRUE(Contains(rows, "in 0..16 vectorized"));
  EXPECT_EQ(nests(rows), 1) << ir::Print(rows);
  // Decided otherwise.
  Choices choices;
  choices["out"].in_rows = 0;
  Schedule apart(f);
  ASSERT_TRUE(apart.ApplyAll(DefaultSchedule(f, kTargets[2], choices)).ok());
  EXPECT_EQ(nests(apart.function()), 4);
  EXPECT_TRUE(tests::SameResults(f, apart.function(), {}).ok());
  // Short rows have no lanes along themselves.
  const ir::Function narrow = tests::SoftmaxProgram(64, 5);
  EXPECT_EQ(ToText(DefaultSchedule(narrow, kTargets[2])),
            ToText(DefaultSchedule(narrow, kTargets[2], choices)));
}

// The trace has each decision with its block, rule and reason, and what was refused.
TEST(DefaultScheduleTest, TheTraceSaysWhy) {
  const auto trace_of = [](const ir::Function& f, const Choices& choices) {
    Schedule schedule(f);
    Trace trace;
    ApplyDefaultSchedule(kTargets[2], choices, &schedule, &trace);
    EXPECT_EQ(ToText(schedule.steps()), ToText(DefaultSchedule(f, kTargets[2], choices)));
    return trace;
  };
  const ir::Function rows = tests::SoftmaxProgram(400, 197);
  const std::string text = ToText(trace_of(rows, {}));
  EXPECT_THAT(text, ::testing::HasSubstr(
                        "rows: all blocks within its rows; every reduction is contiguous"));
  EXPECT_THAT(text, ::testing::HasSubstr("parallel: the outer 1 loops in parallel; "));
  EXPECT_THAT(text, ::testing::Not(::testing::HasSubstr("refused")));
  Choices choices;
  choices["out"].in_rows = 0;
  EXPECT_THAT(ToText(trace_of(rows, choices)),
              ::testing::HasSubstr("out\n  rows: blocks one after the other; chosen\n"));
  // A step that is refused is a line with the step and the slug.
  Trace refused;
  refused.Refuse("y", "place", {.kind = schedule::StepKind::kComputeAt, .handles = {3, 4}},
                 support::FailedPrecondition("schedule.compute_at.order", "expected it earlier"));
  EXPECT_EQ(ToText(refused), "y\n  place: refused compute_at %3 %4 (schedule.compute_at.order)\n");
}

TEST(DefaultScheduleTest, RandomPrograms) {
  uint64_t seed = tests::TestSeed(11);
  int64_t rounds = tests::TestRounds(150);
  for (int64_t round = 0; round < rounds; ++round) {
    tests::RandomIrOptions small;
    small.max_work = 4000;
    tests::RandomProgram p = tests::RandomTe(seed + static_cast<uint64_t>(round) * 7919, small);
    Check(p.function, kTargets[round % 3], p.sizes);
    ASSERT_FALSE(HasFailure()) << "round " << round << " of seed " << seed;
  }
}

}  // namespace
}  // namespace tilewright::space
