// The design space: large, legal, and every program in it computes what the task computes.
#include "compiler/space/space.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "compiler/driver/tasks.h"
#include "compiler/ir/build.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/verify.h"
#include "compiler/space/block_info.h"
#include "compiler/space/default_schedule.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/te_programs.h"
#include "tests/support/test_seed.h"

namespace tilewright::space {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Int;
using ir::Var;

std::vector<Expr> Shape(std::vector<int64_t> dims) {
  std::vector<Expr> shape;
  for (const int64_t d : dims) shape.push_back(Int(d));
  return shape;
}

// Convolution, bias, relu as the driver builds them for DQN; weights [ic, kh, kw, oc].
ir::Function Conv(int64_t ic, int64_t size, int64_t oc, int64_t kernel, int64_t stride) {
  ir::FunctionBuilder b("conv");
  const int64_t out = (size - kernel) / stride + 1;
  Buffer x = b.Input("x", ir::kF32, Shape({1, ic, size, size}));
  Buffer w = b.Constant("w", ir::kF32, Shape({ic, kernel, kernel, oc}));
  Buffer bias = b.Constant("bias", ir::kF32, Shape({oc}));
  ir::Axis rc = b.ReduceAxis("ic", Int(ic)), rh = b.ReduceAxis("kh", Int(kernel)),
           rw = b.ReduceAxis("kw", Int(kernel));
  Buffer conv = b.Reduce("conv", ir::kF32, Shape({1, oc, out, out}), {"n", "oc", "oh", "ow"},
                         {rc, rh, rw}, ir::Combiner::kSum, [&](const std::vector<Var>& v) {
                           return ir::Load(x, {v[0], rc.var, v[2] * Int(stride) + rh.var,
                                               v[3] * Int(stride) + rw.var}) *
                                  ir::Load(w, {rc.var, rh.var, rw.var, v[1]});
                         });
  Buffer y =
      b.Compute("out", ir::kF32, Shape({1, oc, out, out}), {"n", "oc", "oh", "ow"},
                [&](const std::vector<Var>& v) {
                  return ir::Max(ir::Load(conv, {v[0], v[1], v[2], v[3]}) + ir::Load(bias, {v[1]}),
                                 ir::Float(0));
                });
  return b.Finish({y});
}

target::Target Cpu(const std::string& cpu, int threads) {
  auto target =
      target::ParseTarget("cpu,arch=x86_64,cpu=" + cpu + ",threads=" + std::to_string(threads));
  TW_CHECK(target.ok()) << support::StatusText(target.status());
  return *target;
}

std::unique_ptr<Space> MakeSpace(const ir::Function& function, const target::Target& target) {
  auto space = Space::Create(function, target);
  TW_CHECK(space.ok()) << support::StatusText(space.status());
  return *std::move(space);
}

TEST(SpaceTest, DqnConvolutionHasTenThousandDistinctLegalPrograms) {
  auto space = MakeSpace(Conv(32, 20, 64, 4, 2), Cpu("znver3", 2));
  support::Rng rng(tests::TestSeed(1));
  std::set<std::string> programs;
  int samples = 0;
  for (; programs.size() < 10'000 && samples < 30'000; ++samples) {
    Point point;
    ASSERT_TRUE(space->Sample(&rng, &point));
    auto schedule = space->Apply(point);
    ASSERT_TRUE(schedule.ok()) << support::StatusText(schedule.status());
    programs.insert(ir::ProgramHash(schedule->function()));
  }
  EXPECT_GE(programs.size(), 10'000U) << "after " << samples << " samples";
}

// A convolution in bytes on blocks of `block` channels, requantised, as a task of the driver.
ir::Function ByteConv(int64_t block) {
  const std::string tail = support::StrCat(",", block, "]");
  const std::string image = support::StrCat("[1,3,4,7", tail), channels = "[3,1,1" + tail;
  auto function = driver::TaskFunction(support::StrCat(
      "graph {\n  input %0: u8[1,2,8,7", tail, "\n  weight %1: i8[3,2,3,2,", block / 4, ",", block,
      ",4]\n  weight %2: f32", channels, "\n  %3: i32", image,
      " = conv2d(%0, %1) {data_layout=\"NCHW", block,
      "c\", pads=[1,1,0,0], strides=[2,1], "
      "weight_layout=\"OIHW",
      block / 4, "i", block, "o4i\"}\n  %4: f32", image, " = cast(%3) {dtype=\"f32\"}\n  %5: f32",
      image, " = mul(%4, %2)\n  %6: f32", image, " = round(%5)\n  %7: u8", image,
      " = cast(%6) {dtype=\"u8\"}\n  output %7\n}\n"));
  TW_CHECK(function.ok()) << support::StatusText(function.status());
  return *std::move(function);
}

struct Case {
  std::string name;
  ir::Function function;
  std::string cpu;
};
std::vector<Case> Cases() {
  return {{"conv", Conv(3, 11, 10, 3, 2), "x86-64-v3"},
          {"conv_wide", Conv(2, 9, 20, 2, 1), "x86-64-v4"},
          {"dense_relu", tests::DenseReluProgram(5, 13, 7), "x86-64-v3"},
          {"matmul", tests::MatmulProgram(9, 17, 6), "x86-64"},
          {"softmax", tests::SoftmaxProgram(5, 19), "x86-64-v3"},
          {"bytes", ByteConv(16), "x86-64-v4"},
          {"bytes_avx2", ByteConv(8), "x86-64-v3"},
          {"bytes_ragged", ByteConv(4), "x86-64-v4"},
          {"stencil", tests::StencilProgram(37), "x86-64-v3"},
          {"padded_conv", tests::ConvProgram({}), "x86-64-v3"}};
}

TEST(SpaceTest, EverySampledProgramIsLegalAndComputesTheSame) {
  support::Rng rng(tests::TestSeed(2));
  for (const Case& c : Cases()) {
    auto space = MakeSpace(c.function, Cpu(c.cpu, 2));
    ASSERT_FALSE(space->sketches().empty()) << c.name;
    for (int64_t i = 0; i < tests::TestRounds(12); ++i) {
      Point point;
      ASSERT_TRUE(space->Sample(&rng, &point)) << c.name;
      auto schedule = space->Apply(point);
      ASSERT_TRUE(schedule.ok()) << c.name << ": " << support::StatusText(schedule.status());
      const std::string steps = schedule::ToText(schedule->steps());
      ASSERT_TRUE(ir::Verify(schedule->function()).ok()) << c.name << ": " << steps;
      const absl::Status same = tests::SameResults(c.function, schedule->function());
      ASSERT_TRUE(same.ok()) << c.name << ": " << steps << "\n" << support::StatusText(same);
    }
  }
}

TEST(SpaceTest, PaddingIsKeptInlinedOrMadePerTile) {
  auto space = MakeSpace(tests::ConvProgram({}), Cpu("x86-64-v3", 2));
  support::Rng rng(tests::TestSeed(5));
  std::set<std::string> places;
  for (int i = 0; i < 400; ++i) {
    Point point;
    ASSERT_TRUE(space->Sample(&rng, &point));
    const Sketch& sketch = *space->sketches()[static_cast<size_t>(point.sketch)];
    if (sketch.name() != "multi_level_tiling") continue;
    auto schedule = space->Apply(point);
    ASSERT_TRUE(schedule.ok()) << support::StatusText(schedule.status());
    const int pad = schedule->BlockHandle("pad"), conv = schedule->BlockHandle("conv");
    if (pad < 0) {
      places.insert("inlined");
    } else {
      const bool shared = schedule->LoopsOf(pad).front() == schedule->LoopsOf(conv).front();
      places.insert(shared ? "per tile" : "kept");
    }
  }
  EXPECT_EQ(places, (std::set<std::string>{"inlined", "kept", "per tile"}));
}

// A convolution on channel blocks with a residual, as a task of the driver.
std::string BlockedConvTask(int64_t height, int64_t width) {
  const std::string y = support::StrCat("f32[1,3,", height, ",", width, ",4]");
  return support::StrCat("graph {\n  input %0: f32[1,2,", height, ",", width,
                         ",4]\n  input %1: ", y, "\n  weight %2: f32[3,2,3,3,4,4]\n  %3: ", y,
                         " = conv2d(%0, %2) {data_layout=\"NCHW4c\", pads=[1,1,1,1], "
                         "weight_layout=\"OIHW4i4o\"}\n  %4: ",
                         y, " = add(%3, %1)\n  %5: ", y, " = relu(%4)\n  output %5\n}\n");
}

TEST(SpaceTest, AnOperatorsAlgorithmsAreInItsSpace) {
  support::Rng rng(tests::TestSeed(7));
  for (const auto& [height, width] : {std::pair<int64_t, int64_t>{8, 12}, {7, 5}}) {
    auto variants = driver::TaskVariants(BlockedConvTask(height, width));
    ASSERT_TRUE(variants.ok()) << support::StatusText(variants.status());
    auto space = Space::Create(*variants, Cpu("x86-64", 2));
    ASSERT_TRUE(space.ok());
    std::map<std::string, int> seen;
    for (int64_t i = 0; i < tests::TestRounds(60); ++i) {
      Point point;
      ASSERT_TRUE((*space)->Sample(&rng, &point));
      auto schedule = (*space)->Apply(point);
      ASSERT_TRUE(schedule.ok()) << support::StatusText(schedule.status());
      const std::string steps = schedule::ToText(schedule->steps());
      size_t variant = 0;
      for (size_t v = 1; v < variants->size(); ++v) {
        if (steps.rfind("variant " + (*variants)[v].name + ";", 0) == 0) variant = v;
      }
      // The direct form has tests of its own.
      if (++seen[(*variants)[variant].name] > 6 || variant == 0) continue;
      ASSERT_TRUE(ir::Verify(schedule->function()).ok()) << steps;
      const absl::Status same =
          tests::SameResults((*variants)[variant].function, schedule->function());
      ASSERT_TRUE(same.ok()) << steps << "\n" << support::StatusText(same);
      const auto replayed = schedule::Replay(*variants, steps);
      ASSERT_TRUE(replayed.ok());
      EXPECT_EQ(ir::ProgramHash(*replayed), ir::ProgramHash(schedule->function()));
    }
    EXPECT_GT(seen["direct"], 0);
    EXPECT_GT(seen["winograd"], 0);
    EXPECT_GT(seen["winograd_2"], 0);
    EXPECT_EQ(seen["winograd_5"] > 0, height == 7);  // one tile of five across
  }
}

// Whatever the default schedule does, the space can do.
TEST(SpaceTest, TheDefaultScheduleIsAPoint) {
  for (const Case& c : Cases()) {
    const target::Target target = Cpu(c.cpu, 2);
    auto space = MakeSpace(c.function, target);
    const auto point = space->DefaultPoint();
    ASSERT_TRUE(point.has_value()) << c.name;
    EXPECT_TRUE(space->Feasible(*point)) << c.name;
    const auto schedule = space->Apply(*point);
    ASSERT_TRUE(schedule.ok()) << c.name << ": " << support::StatusText(schedule.status());
    const auto by_default =
        schedule::Replay(c.function, schedule::ToText(DefaultSchedule(c.function, target)));
    ASSERT_TRUE(by_default.ok()) << c.name;
    EXPECT_EQ(ir::ProgramHash(schedule->function()), ir::ProgramHash(*by_default)) << c.name;
    EXPECT_FALSE(space->Neighbours(*point).empty()) << c.name;
  }
}

TEST(SpaceTest, SumsOfBytesAreDotProductsWhereVectorsAreWhole) {
  const target::Target target = Cpu("x86-64-v4", 1);
  const auto uses = [](const std::string& steps) {
    return steps.find("intrin=generic.dot4.16") != std::string::npos;
  };
  support::Rng rng(tests::TestSeed(8));
  for (const int64_t block : {16, 8}) {
    const ir::Function function = ByteConv(block);
    EXPECT_EQ(uses(schedule::ToText(DefaultSchedule(function, target))), block == 16);
    auto space = MakeSpace(function, target);
    int tiled = 0;
    for (int i = 0; i < 40; ++i) {
      Point point;
      ASSERT_TRUE(space->Sample(&rng, &point));
      const Sketch& sketch = *space->sketches()[static_cast<size_t>(point.sketch)];
      if (sketch.name() != "multi_level_tiling") continue;
      auto schedule = space->Apply(point);
      ASSERT_TRUE(schedule.ok()) << support::StatusText(schedule.status());
      EXPECT_EQ(uses(schedule::ToText(schedule->steps())), block == 16);
      ++tiled;
    }
    EXPECT_GT(tiled, 0);
  }
}

// Σ over all of x, 16 × 8 × 512, or the largest element.
ir::Function WholeSum(ir::Combiner combiner, bool scalar = false) {
  ir::FunctionBuilder b("whole");
  Buffer x = b.Input("x", ir::kF32, Shape({16, 8, 512}));
  ir::Axis i = b.ReduceAxis("i", Int(16)), j = b.ReduceAxis("j", Int(8)),
           k = b.ReduceAxis("k", Int(512));
  const std::vector<std::string> dims(scalar ? 0 : 1, "o");
  Buffer y = b.Reduce("y", ir::kF32, Shape(std::vector<int64_t>(dims.size(), 1)), dims, {i, j, k},
                      combiner,
                      [&](const std::vector<Var>&) { return ir::Load(x, {i.var, j.var, k.var}); });
  return b.Finish({y});
}

const Sketch* SplitReductionOf(const Space& space) {
  for (const auto& sketch : space.sketches()) {
    if (sketch->name() == "split_reduction") return sketch.get();
  }
  return nullptr;
}

TEST(SpaceTest, ALongReductionToFewResultsIsSharedByThreads) {
  support::Rng rng(tests::TestSeed(9));
  const std::pair<std::string, ir::Function> cases[] = {
      {"vector of results", tests::MatmulProgram(1, 20, 4096)},
      {"few results", tests::MatmulProgram(1, 3, 16384)},
      {"one sum", WholeSum(ir::Combiner::kSum)},
      {"one maximum", WholeSum(ir::Combiner::kMax)},
      {"a scalar", WholeSum(ir::Combiner::kSum, true)}};
  for (const auto& [name, function] : cases) {
    EXPECT_EQ(SplitReductionOf(*MakeSpace(function, Cpu("x86-64-v3", 1))), nullptr) << name;
    auto space = MakeSpace(function, Cpu("x86-64-v3", 2));
    ASSERT_NE(SplitReductionOf(*space), nullptr) << name;
    int shared = 0;
    for (int64_t i = 0; i < tests::TestRounds(60); ++i) {
      Point point;
      ASSERT_TRUE(space->Sample(&rng, &point)) << name;
      const Sketch& sketch = *space->sketches()[static_cast<size_t>(point.sketch)];
      if (sketch.name() != "split_reduction") continue;
      ++shared;
      auto schedule = space->Apply(point);
      ASSERT_TRUE(schedule.ok()) << name << ": " << support::StatusText(schedule.status());
      const std::string steps = schedule::ToText(schedule->steps());
      ASSERT_TRUE(ir::Verify(schedule->function()).ok()) << name << ": " << steps;
      const absl::Status same = tests::SameResults(function, schedule->function());
      ASSERT_TRUE(same.ok()) << name << ": " << steps << "\n" << support::StatusText(same);
    }
    EXPECT_GT(shared, 0) << name;
  }
  // Results enough, or too little to share.
  for (const ir::Function& f :
       {tests::MatmulProgram(8, 64, 4096), tests::MatmulProgram(1, 8, 64)}) {
    EXPECT_EQ(SplitReductionOf(*MakeSpace(f, Cpu("x86-64-v3", 2))), nullptr);
  }
}

TEST(SpaceTest, StepsReplayToTheSameProgram) {
  const ir::Function function = Conv(3, 11, 10, 3, 2);
  auto space = MakeSpace(function, Cpu("znver3", 2));
  support::Rng rng(3);
  for (int i = 0; i < 20; ++i) {
    Point point;
    ASSERT_TRUE(space->Sample(&rng, &point));
    auto schedule = space->Apply(point);
    ASSERT_TRUE(schedule.ok());
    auto replayed = schedule::Replay(function, schedule::ToText(schedule->steps()));
    ASSERT_TRUE(replayed.ok()) << support::StatusText(replayed.status());
    EXPECT_EQ(ir::ProgramHash(*replayed), ir::ProgramHash(schedule->function()));
  }
}

TEST(SpaceTest, MutationsAndCrossingsStayFeasible) {
  auto space = MakeSpace(Conv(32, 20, 64, 4, 2), Cpu("znver3", 2));
  support::Rng rng(4);
  Point a, b, child;
  ASSERT_TRUE(space->Sample(&rng, &a));
  ASSERT_TRUE(space->Sample(&rng, &b));
  int made = 0;
  for (int i = 0; i < 100; ++i) {
    if (space->Mutate(a, &rng, &child)) {
      EXPECT_TRUE(space->Feasible(child));
      EXPECT_NE(child, a);
      ++made;
    }
    if (space->Cross(a, b, &rng, &child)) {
      EXPECT_TRUE(space->Feasible(child));
      ++made;
    }
  }
  EXPECT_GT(made, 50);
  for (const Point& next : space->Neighbours(a)) EXPECT_TRUE(space->Feasible(next));
}

TEST(SpaceTest, RegisterTilesFitTheTarget) {
  // SSE has 16 registers: no sampled tile may name more accumulators than that.
  auto space = MakeSpace(Conv(8, 20, 64, 3, 1), Cpu("x86-64", 1));
  support::Rng rng(5);
  for (int i = 0; i < 50; ++i) {
    Point point;
    ASSERT_TRUE(space->Sample(&rng, &point));
    const auto& knobs = space->sketches()[static_cast<size_t>(point.sketch)]->knobs();
    // Lanes run along oc (weights contiguous) or ow (input contiguous, stride 1).
    int64_t rows = 1, vectors = 1, axis = 0;
    for (size_t k = 0; k < knobs.size(); ++k) {
      const int64_t value = knobs[k].menu[static_cast<size_t>(point.choices[k])];
      if (knobs[k].name == "vector_axis") axis = value;
      if (knobs[k].name == "vectors") vectors = value;
      const bool lanes_run_here = knobs[k].name.ends_with(axis == 0 ? "oc" : "ow");
      if (knobs[k].name.starts_with("register_") && !lanes_run_here) rows *= value;
    }
    EXPECT_LE(rows * vectors + vectors + 1, 16);
  }
}

// Around the default schedule, bodies are written out as far as the machine says.
TEST(SpaceTest, WrittenOutBodiesFitTheMachine) {
  for (const ir::Function& function :
       {tests::DenseReluProgram(16, 64, 48), tests::SoftmaxProgram(8, 64)}) {
    target::Target target = Cpu("x86-64-v3", 1);
    auto all = MakeSpace(function, target);
    target.machine.searched_body_ops = target.machine.searched_body_calls = 4;
    auto small = MakeSpace(function, target);
    ASSERT_EQ(all->sketches().size(), small->sketches().size());
    support::Rng rng(tests::TestSeed(1));
    int fits = 0, refused = 0;
    for (int i = 0; i < 3000; ++i) {
      Point point;
      ASSERT_TRUE(all->Sample(&rng, &point));
      if (all->sketches()[static_cast<size_t>(point.sketch)]->name() != "around_default") continue;
      ++(small->Feasible(point) ? fits : refused);
    }
    EXPECT_GT(fits, 0);
    EXPECT_GT(refused, 0);
  }
}

TEST(TileMenuTest, HoldsDivisorsAndSmallNumbers) {
  EXPECT_EQ(TileMenu(7, 16), (std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(TileMenu(1, 16), (std::vector<int64_t>{1}));
  const std::vector<int64_t> menu = TileMenu(49, 64);
  EXPECT_NE(std::find(menu.begin(), menu.end(), 49), menu.end());
}

}  // namespace
}  // namespace tilewright::space
