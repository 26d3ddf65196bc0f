// Features, models and rank measures of the cost model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "compiler/estimate/analytical_model.h"
#include "compiler/estimate/loop_summary.h"
#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/default_schedule.h"
#include "compiler/transform/passes.h"
#include "cost_model/features.h"
#include "cost_model/model.h"
#include "cost_model/pair_objective.h"
#include "cost_model/shipped_model.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/te_programs.h"

namespace tilewright::cost_model {
namespace {

using estimate::AnalyzeTile;
using estimate::EstimateTime;
using estimate::ProgramSummary;
using estimate::RegisterTile;
using estimate::StatementSummary;
using estimate::Summarize;
using estimate::TimeEstimate;

const target::Target& Cpu() {
  static const target::Target* target =
      new target::Target(*target::ParseTarget("cpu,arch=x86_64,cpu=znver3,threads=2"));
  return *target;
}

ir::Function Lowered(const ir::Function& function, const std::string& steps) {
  auto scheduled = schedule::Replay(function, steps);
  TW_CHECK(scheduled.ok()) << support::StatusText(scheduled.status());
  transform::PassContext context;
  context.target = Cpu();
  auto loops = transform::LowerToLoops(*scheduled, context);
  TW_CHECK(loops.ok()) << support::StatusText(loops.status());
  return *loops;
}

FeatureVector Features(const std::string& steps) {
  auto features =
      ComputeFeatures(Lowered(tests::MatmulProgram(64, 64, 64), steps), 2.0 * 64 * 64 * 64, Cpu());
  TW_CHECK(features.ok()) << support::StatusText(features.status());
  return *features;
}

double Column(const FeatureVector& row, std::string_view name) { return row[FeatureIndex(name)]; }

constexpr char kPlain[] = "";
constexpr char kTiled[] =
    "cache_write %3; split %5 [?,4]; split %6 [?,2,8]; reorder %7 %9 %8 %10 %11; parallel %7; "
    "compute_at %3 %9; split %13 [2,8]; reorder %14 %12 %15 %16; unroll %12; unroll %15; "
    "vectorize %16; unroll %8; unroll %10; vectorize %11";

TEST(FeaturesTest, SchemaIsFixedAndNamesAreUnique) {
  const std::vector<std::string>& names = FeatureNames();
  EXPECT_GE(names.size(), 60U);
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
  EXPECT_EQ(SchemaHash().size(), 16U);
}

// 64 rounds of the sum in fives or 64 rows in sixes: the last of either is not a full one.
TEST(FeaturesTest, TailOfASumKeepsItsAccumulators) {
  const auto tail = [](const std::string& rows, const std::string& sum) {
    return Column(
        Features(
            "cache_write %3; split %5 [?," + rows +
            "] tail=peel; split %6 [?,2,8]; reorder %7 %9 %8 %10 %11; compute_at %3 %9; "
            "split %13 [2,8]; split %14 [?," +
            sum +
            "] tail=peel; reorder %17 %18 %12 %15 %16; decompose_reduction %3 %17; unroll %12; "
            "unroll %15; vectorize %16; unroll %18; unroll %8; unroll %10; vectorize %11"),
        "time.tail");
  };
  EXPECT_DOUBLE_EQ(tail("4", "4"), 1);
  EXPECT_FLOAT_EQ(tail("4", "5"), 64.0F / 65);
  EXPECT_GT(tail("6", "4"), 64.0 / 66);  // four rows hide less latency than six
}

// 64 columns in vectors of 12: the last vector does less, in the same time.
TEST(FeaturesTest, TailThatCutsAVectorTakesAsLong) {
  const auto tail = [](const std::string& columns) {
    return Column(
        Features("split %1 [?," + columns + "] tail=peel; reorder %0 %4 %2 %5; vectorize %5"),
        "time.tail");
  };
  EXPECT_DOUBLE_EQ(tail("16"), 1);
  EXPECT_DOUBLE_EQ(tail("12"), 1);
}

TEST(FeaturesTest, AreFiniteAndDeterministic) {
  for (const char* steps : {kPlain, kTiled}) {
    const FeatureVector row = Features(steps);
    ASSERT_EQ(row.size(), FeatureNames().size());
    for (size_t i = 0; i < row.size(); ++i) EXPECT_TRUE(std::isfinite(row[i])) << FeatureNames()[i];
    EXPECT_EQ(FeaturesHash(row), FeaturesHash(Features(steps)));
  }
  EXPECT_NE(FeaturesHash(Features(kPlain)), FeaturesHash(Features(kTiled)));
}

TEST(FeaturesTest, DescribeTheRegisterTile) {
  const FeatureVector row = Features(kTiled);
  EXPECT_EQ(Column(row, "tile.lanes"), 8);
  EXPECT_EQ(Column(row, "tile.accumulators"), 8);  // 4 rows x 2 vectors
  EXPECT_EQ(Column(row, "loop.vector_length"), 8);
  EXPECT_EQ(Column(row, "op.accumulates"), 1);
  EXPECT_NEAR(Column(row, "loop.waste"), 0, 1e-6);
  EXPECT_FLOAT_EQ(static_cast<float>(Column(row, "loop.parallel_tasks")), std::log2(17.0F));
}

// Rows of A far apart are walked along at once, as many as the tile has; B's vectors are
// neighbours.
TEST(FeaturesTest, CountTheStreamsOfATile) {
  const auto streams = [](int64_t k) {
    const ir::Function loops = Lowered(tests::MatmulProgram(64, 64, k), kTiled);
    const auto row = ComputeFeatures(loops, 2.0 * 64 * 64 * static_cast<double>(k), Cpu());
    TW_CHECK(row.ok()) << support::StatusText(row.status());
    return std::max(Column(*row, "access1.streams"), Column(*row, "access2.streams"));
  };
  EXPECT_EQ(streams(1024), 4);  // rows of 4 KB
  EXPECT_EQ(streams(64), 1);    // of 256 bytes
}

// What a window needs of its neighbour is loaded once where registers keep it, and has to be kept.
TEST(AnalyticalModelTest, NeighbouringWindowsShareLoads) {
  const ProgramSummary program =
      Summarize(Lowered(tests::ConvProgram({1, 16, 16, 1}),
                        "split %8 [?,4]; reorder %5 %6 %7 %18 %9 %10 %11 %19; "
                        "unroll %11; unroll %19"));
  const RegisterTile tile = AnalyzeTile(program.statements[program.critical], Cpu());
  // Of the image 4 + 3 - 1 instead of 4 x 3; of the window 3; the sums, which are in memory.
  EXPECT_DOUBLE_EQ(tile.loads_per_op - tile.distinct_loads_per_op, 6.0 / 12);
  EXPECT_GE(tile.live, 4 + 6 + 3);
}

// An exponential of a vector costs what one of a number does.
TEST(AnalyticalModelTest, ExponentialsOfVectorsAreCheaper) {
  const auto ns = [](const char* steps) {
    return EstimateTime(Summarize(Lowered(tests::SoftmaxProgram(64, 64), steps)), Cpu()).total_ns;
  };
  EXPECT_LT(ns("split %4 [?,8]; vectorize %13") * 1.5, ns(""));
}

TEST(FeaturesTest, RefuseAnotherStage) {
  const auto row = ComputeFeatures(tests::MatmulProgram(4, 4, 4), 128, Cpu());
  EXPECT_EQ(support::Slug(row.status()), "features.stage");
}

TEST(AnalyticalModelTest, PrefersTheTiledProgram) {
  const auto plain =
      EstimateTime(Summarize(Lowered(tests::MatmulProgram(64, 64, 64), kPlain)), Cpu());
  const auto tiled =
      EstimateTime(Summarize(Lowered(tests::MatmulProgram(64, 64, 64), kTiled)), Cpu());
  EXPECT_LT(tiled.total_ns * 4, plain.total_ns);
  EXPECT_GT(tiled.total_ns, 0);
}

// Rows of a transformation, in copies of the body: each has its own terms, and all of them read the
// same three elements.
TEST(AnalyticalModelTest, CopiesOfABodyCostWhatTheyCompute) {
  const auto summary = [](const char* kind) {
    const auto f = ir::ParseFunction(support::StrCat(
        "fn rows(A: f32[3, 8], C: f32[4, 8] output) stage=loops { for i in 0..4 ", kind,
        "{ for j in 0..8 { C[i, j] = select(i == 0, A[0, j] + A[1, j], select(i == 1, "
        "A[0, j] * 4.0f32, select(j < 5, A[2, j], A[1, j] - A[0, j] * 2.0f32))); } } }"));
    TW_CHECK(f.ok()) << support::StatusText(f.status());
    return Summarize(*f).statements[0];
  };
  const StatementSummary loop = summary(""), copies = summary("unrolled ");
  EXPECT_EQ(loop.ops.add, 2);
  EXPECT_EQ(loop.ops.mul, 2);
  EXPECT_EQ(loop.ops.select, 3);
  // Of four rows one adds, one multiplies, and two choose by the column and do both.
  EXPECT_EQ(copies.ops.add, (1 + 2) / 4.0);
  EXPECT_EQ(copies.ops.mul, (1 + 2) / 4.0);
  EXPECT_EQ(copies.ops.select, 2 / 4.0);
  EXPECT_EQ(copies.accesses.size(), 1 + 3);
}

// Fields of words: an instruction multiplies four of a word, which is one load.
TEST(AnalyticalModelTest, FieldsOfWordsAreFactorsOfDotProducts) {
  const auto f = ir::ParseFunction(
      "fn fields(A: i8[10, 2, 4] input, W: i32[10, 16] constant, C: i32[16] output) stage=loops {"
      " for w in 0..10 { for j in 0..16 @{tensor=\"generic.dot4_nibbles.16\"} {"
      " for p in 0..2 { for k in 0..4 { C[j] = C[j] + i32(A[w, p, k]) * "
      "bit_and(shift_right(shift_right(W[w, j], i32(p * 4)), i32(k * 8)), 15i32); } } } } }");
  ASSERT_TRUE(f.ok()) << f.status();
  const ProgramSummary program = Summarize(*f);
  const StatementSummary& dots = program.statements[program.critical];
  EXPECT_EQ(dots.ops.dots, 1);
  EXPECT_EQ(dots.flops(), 2.0 * 10 * 16 * 2 * 4);
}

// A program is run again and again: memory is read only for what the caches do not keep.
TEST(AnalyticalModelTest, WhatFitsIntoTheCachesIsNotReadFromMemory) {
  const auto estimate = [](int64_t n) {
    return EstimateTime(Summarize(Lowered(tests::MatmulProgram(n, n, n), "")), Cpu());
  };
  const TimeEstimate small = estimate(64), large = estimate(2048);
  EXPECT_EQ(small.memory_bytes, 0);
  EXPECT_EQ(small.memory_ns, 0);
  EXPECT_GE(large.memory_bytes, 3.0 * 4 * 2048 * 2048);
}

// The stages beside the one with most arithmetic are part of the time, with what they move.
// A convolution of bytes: nine taps of 32 channels for each of 32 channels at 8 x 8 places.
TEST(AnalyticalModelTest, DotProductsAreTheWorkOfBytes) {
  target::Target target = *target::ParseTarget("cpu,arch=x86_64,cpu=znver4,threads=1");
  const ir::Function bytes = tests::PackedInt8ConvProgram(2, 8, 16);
  const auto scheduled =
      schedule::Replay(bytes, schedule::ToText(space::DefaultSchedule(bytes, target)));
  ASSERT_TRUE(scheduled.ok()) << scheduled.status();
  transform::PassContext context;
  context.target = target;
  const auto loops = transform::LowerToLoops(*scheduled, context);
  ASSERT_TRUE(loops.ok()) << loops.status();
  const ProgramSummary program = Summarize(*loops);
  const StatementSummary& dots = program.statements[program.critical];
  EXPECT_EQ(dots.ops.dots, 1);
  EXPECT_EQ(dots.flops(), 2.0 * 32 * 8 * 8 * 32 * 9);
  EXPECT_TRUE(dots.accumulates);
  const RegisterTile tile = AnalyzeTile(dots, target);
  EXPECT_EQ(tile.lanes, 16);
  EXPECT_EQ(tile.slow_lanes_per_op, 0) << "four bytes of a lane are one load";
  EXPECT_GT(tile.accumulators, 4);
  EXPECT_LT(tile.loads_per_op, 1.5);

  const auto compute_ns = [&] { return EstimateTime(program, target).compute_ns; };
  const double at_once = compute_ns();
  target.machine.dot_latency = 2 * tile.accumulators;
  EXPECT_GT(compute_ns(), 1.5 * at_once) << "too few sums hide that latency";
  target.machine.dot_latency = 4;
  target.machine.dots_per_cycle = 0.25;
  EXPECT_GT(compute_ns(), 2 * at_once);
}

// No multiplier adds integers: a sum of products is an addition and a product, which is slower.
TEST(AnalyticalModelTest, SumsOfIntegersTakeLongerThanSumsOfFloats) {
  const target::Target target = *target::ParseTarget("cpu,arch=x86_64,cpu=haswell,threads=1");
  const auto compute_ns = [&](std::string_view type) {
    const std::string vector = std::string(type) + "[4096]";
    const auto loops = ir::ParseFunction(
        "fn sum(x: " + vector + " input, y: " + vector + " output) stage=loops {\n" +
        "  for i in 0..4096 {\n    y[i] = y[i] + x[i] * x[i];\n  }\n}\n");
    EXPECT_TRUE(loops.ok()) << loops.status();
    return EstimateTime(Summarize(*loops), target).compute_ns;
  };
  EXPECT_GT(compute_ns("i32"), 2 * compute_ns("f32"));
}

TEST(AnalyticalModelTest, OtherStagesCount) {
  constexpr int64_t kRows = 512;
  const auto estimate = [](const char* steps) {
    return EstimateTime(Summarize(Lowered(tests::MatmulProgram(kRows, 8, kRows), steps)), Cpu());
  };
  const TimeEstimate alone = estimate(""), copied = estimate("cache_read %3 read=0 scope=global");
  EXPECT_GT(copied.other_ns, alone.other_ns);
  EXPECT_GT(copied.other_traffic_ns, alone.other_traffic_ns);
  EXPECT_GE(copied.total_ns - copied.other_ns - copied.other_traffic_ns,
            0.9 * (alone.total_ns - alone.other_ns - alone.other_traffic_ns));
}

// Rows whose time depends on one column.
Dataset Synthetic(int rows, uint64_t seed) {
  support::Rng rng(seed);
  Dataset data;
  for (int i = 0; i < rows; ++i) {
    FeatureVector row(FeatureNames().size());
    for (float& value : row) value = static_cast<float>(rng.UniformDouble());
    const double time = 100 * (1 + 3 * row[5] + row[9]);
    data.rows.push_back({row, i % 3, i % 17 == 0 ? 0 : time});
  }
  return data;
}

std::vector<FeatureVector> Rows(const Dataset& data) {
  std::vector<FeatureVector> rows;
  for (const DataRow& row : data.rows) rows.push_back(row.features);
  return rows;
}

// Of pairs that the model puts in the right order.
double Accuracy(CostModel* model, const Dataset& test) {
  return MeasureRanking(test, *model->Predict(Rows(test))).pairwise_accuracy;
}

TEST(XgbModelTest, LearnsAndKeepsItsPredictionsWhenSaved) {
  auto model = MakeXgbModel(7);
  ASSERT_TRUE(model->Fit(Synthetic(300, 1)).ok());
  const Dataset test = Synthetic(200, 2);
  const std::vector<float> scores = *model->Predict(Rows(test));
  EXPECT_GT(Accuracy(model.get(), test), 0.8);
  auto loaded = MakeXgbModel(1);
  ASSERT_TRUE(loaded->Load(*model->Save()).ok());
  EXPECT_EQ(*loaded->Predict(Rows(test)), scores);
}

TEST(XgbModelTest, IsDeterministicBySeed) {
  auto a = MakeXgbModel(7), b = MakeXgbModel(7);
  const Dataset data = Synthetic(100, 1);
  ASSERT_TRUE(a->Fit(data).ok());
  ASSERT_TRUE(b->Fit(data).ok());
  EXPECT_EQ(*a->Save(), *b->Save());
}

TEST(XgbModelTest, RefusesWhatItCannotUse) {
  auto model = MakeXgbModel(1);
  EXPECT_EQ(support::Slug(model->Fit(Synthetic(3, 1))), "cost_model.fit.too_few");
  EXPECT_FALSE(model->Predict({FeatureVector(FeatureNames().size())}).ok());
  EXPECT_EQ(support::Slug(model->Load("not a model")), "cost_model.load.corrupt");
  ASSERT_TRUE(model->Fit(Synthetic(50, 1)).ok());
  EXPECT_EQ(support::Slug(model->Predict({FeatureVector(3)}).status()), "cost_model.columns");
}

// What is common to two tasks comes from the base, what is not from the new rows.
TEST(XgbModelTest, GoesOnFromItsBase) {
  auto base = MakeXgbModel(7);
  ASSERT_TRUE(base->Fit(Synthetic(600, 1)).ok());
  const std::string bytes = *base->Save();
  const auto changed = [](Dataset data) {
    for (DataRow& row : data.rows) {
      if (row.time_ns > 0) row.time_ns *= 10 * (1 + 2 * row.features[20]);
    }
    return data;
  };
  const Dataset few = changed(Synthetic(40, 2)), test = changed(Synthetic(300, 3));
  auto onward = MakeXgbModel(7, bytes), again = MakeXgbModel(7, bytes), alone = MakeXgbModel(7);
  ASSERT_TRUE(onward->Fit(few).ok());
  ASSERT_TRUE(again->Fit(few).ok());
  ASSERT_TRUE(alone->Fit(few).ok());
  EXPECT_EQ(*onward->Save(), *again->Save());
  EXPECT_GT(Accuracy(onward.get(), test), Accuracy(base.get(), test) + 0.02);
  EXPECT_GT(Accuracy(onward.get(), test), Accuracy(alone.get(), test) + 0.02);
  EXPECT_EQ(support::Slug(MakeXgbModel(7, "junk")->Fit(few)), "cost_model.load.corrupt");
}

// Many rows are fitted to their order, and scores stay in units of log2 of time all the same: the
// training on a job's own rows goes on from them.
TEST(XgbModelTest, ManyRowsAreOrderedAndTheScoreKeepsItsUnit) {
  auto model = MakeXgbModel(7);
  ASSERT_TRUE(model->Fit(Synthetic(6000, 1)).ok());
  const Dataset test = Synthetic(400, 2);
  EXPECT_GT(Accuracy(model.get(), test), 0.9);
  const std::vector<float> scores = *model->Predict(Rows(test));
  double xy = 0, xx = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!(test.rows[i].time_ns > 0) || !(test.rows[j].time_ns > 0)) continue;
      const double x = std::log2(test.rows[j].time_ns / test.rows[i].time_ns);
      xy += x * static_cast<double>(scores[i] - scores[j]);
      xx += x * x;
    }
  }
  EXPECT_NEAR(xy / xx, 1, 0.25);
}

Dataset TimesByTask(const std::vector<std::pair<int, double>>& rows) {
  Dataset data;
  for (const auto& [task, time] : rows) data.rows.push_back({FeatureVector(), task, time});
  return data;
}

TEST(PairObjectiveTest, DerivesTheLossOfAPair) {
  const Dataset data = TimesByTask({{0, 100}, {0, 200}});
  const std::vector<float> trees = {-0.3F, 0.1F}, offsets = {0.2F, 0.1F};
  // The squared error has its least where the trees are: what is left is the pair's.
  PairObjective objective(data, Labels(data), offsets, trees, {1, 1}, 5);
  std::vector<float> gradient, hessian;
  objective.Differentiate(trees, &gradient, &hessian);
  const auto loss = [](double apart) { return std::log1p(std::exp(-4 * apart)); };
  const double at = -0.3, h = 1e-4;  // trees and offsets of the faster less those of the slower
  EXPECT_NEAR(gradient[0], (loss(at + h) - loss(at - h)) / (2 * h), 1e-3);
  EXPECT_NEAR(gradient[1], -gradient[0], 1e-6);
  const double second = (loss(at + h) - 2 * loss(at) + loss(at - h)) / (h * h);
  EXPECT_NEAR(hessian[0], second + 0.3, 1e-2) << "0.3: the share of the squared error";
}

TEST(PairObjectiveTest, ComparesOnlyWhatHasAnOrder) {
  // Two within a hundredth of each other, and one alone in its task.
  const Dataset data = TimesByTask({{0, 100}, {0, 101}, {1, 500}});
  const std::vector<float> zero(3, 0), targets = {0, 0, 2};
  PairObjective objective(data, Labels(data), zero, targets, {1, 1, 0.5F}, 5);
  std::vector<float> gradient, hessian;
  objective.Differentiate(zero, &gradient, &hessian);
  EXPECT_EQ(gradient[0], 0);
  EXPECT_EQ(gradient[1], 0);
  EXPECT_NEAR(gradient[2], -0.3 * 0.5 * 2, 1e-6);
}

// Who changes the features or the estimate trains the shipped model again (cost_model/README.md).
TEST(ShippedModelTest, IsOfTheseFeatures) {
  auto model = MakeXgbModel(1);
  const absl::Status loaded = model->Load(ShippedModel());
  ASSERT_TRUE(loaded.ok()) << support::StatusText(loaded);
  EXPECT_EQ(ShippedModelId().substr(0, 8), "shipped-");
  const auto plain = *ComputeFeatures(Lowered(tests::MatmulProgram(64, 64, 64), kPlain),
                                      2.0 * 64 * 64 * 64, Cpu());
  const auto tiled = *ComputeFeatures(Lowered(tests::MatmulProgram(64, 64, 64), kTiled),
                                      2.0 * 64 * 64 * 64, Cpu());
  const std::vector<float> scores = *model->Predict({plain, tiled});
  EXPECT_GT(scores[1], scores[0] + 1) << "tiles are more than twice as fast";
}

TEST(RankingTest, PerfectAndReversedOrders) {
  Dataset data = Synthetic(60, 3);
  std::vector<float> perfect, reversed;
  for (const DataRow& row : data.rows) {
    perfect.push_back(row.time_ns > 0 ? static_cast<float>(-row.time_ns) : -1e9F);
    reversed.push_back(-perfect.back());
  }
  const RankQuality good = MeasureRanking(data, perfect), bad = MeasureRanking(data, reversed);
  EXPECT_EQ(good.pairwise_accuracy, 1);
  EXPECT_EQ(good.recall_at_8, 1);
  EXPECT_EQ(good.best_at_1, 1);
  EXPECT_EQ(bad.pairwise_accuracy, 0);
  EXPECT_EQ(good.groups, 3);
}

TEST(DatasetTest, LabelsPutFailuresLast) {
  Dataset data;
  for (const double time : {100.0, 200.0, 0.0}) {
    data.rows.push_back({FeatureVector(FeatureNames().size()), 0, time});
  }
  EXPECT_EQ(Labels(data), (std::vector<float>{0, -1, -2}));
}

TEST(DatasetTest, HeldOutRowsStayHeldOutAsTheLogGrows) {
  const Dataset big = Synthetic(200, 5);
  Dataset small = big;
  small.rows.resize(100);
  Dataset train, held, train_small, held_small;
  SplitHeldOut(big, 5, &train, &held);
  SplitHeldOut(small, 5, &train_small, &held_small);
  EXPECT_EQ(train.rows.size() + held.rows.size(), 200U);
  EXPECT_GT(held.rows.size(), 15U);
  for (size_t i = 0; i < held_small.rows.size(); ++i) {
    EXPECT_EQ(held_small.rows[i].features, held.rows[i].features);
  }
}

}  // namespace
}  // namespace tilewright::cost_model
