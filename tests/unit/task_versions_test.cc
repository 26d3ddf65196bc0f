// Kernels of open sizes that choose by the rows of a call, or by all of its sizes.
#include "compiler/driver/task_versions.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/driver/lowered_task.h"
#include "compiler/driver/tasks.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/verify.h"
#include "compiler/space/algorithms_by_size.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/run_loops.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"

namespace tilewright::driver {
namespace {

target::Target Zen3() { return *target::ParseTarget("cpu,arch=x86_64,cpu=znver3"); }

graph::Graph Layer(const std::string& data, int64_t columns) {
  const std::string text = support::StrCat(
      "graph \"layer\" {\n  input %0 \"x\": f32[", data, ",128]\n  weight %1 \"w\": f32[",
      columns / 16, ",128,16]\n  %2: f32[", data, ",", columns,
      "] = dense(%0, %1) {weight_layout=\"NK16n\"} \"y\"\n  output %2\n}");
  const auto parsed = graph::ParseGraph(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return *parsed;
}

std::vector<TaskVersion> VersionsOf(const graph::Graph& task, bool given = false) {
  const auto variants = TaskVariants(task);
  EXPECT_TRUE(variants.ok()) << variants.status();
  const auto versions = TaskVersions(task, *variants, Zen3(), {}, (*variants)[0].function, given);
  EXPECT_TRUE(versions.ok()) << versions.status();
  return *versions;
}

LoweredTask Lowered(const ir::Function& scheduled) {
  const auto lowered = LowerTask(scheduled, Zen3(), "", "");
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  return *lowered;
}

// Whether the task, what it prepares first, computes what `function` does.
absl::Status Computes(const LoweredTask& task, const ir::Function& function,
                      const std::vector<int64_t>& sizes) {
  tests::EquivalenceOptions options{.sizes = sizes};
  options.run_other = [&](const ir::Function&, const std::vector<int64_t>& at,
                          const std::vector<ir::TensorData*>& args) -> absl::Status {
    std::vector<ir::TensorData> prepared(task.prepared.tensors.size());
    std::vector<ir::TensorData*> fresh;
    for (ir::TensorData& data : prepared) fresh.push_back(&data);
    if (task.prepare.has_value()) {
      std::vector<ir::TensorData*> reads;
      for (const size_t operand : task.prepared.reads) reads.push_back(args[operand]);
      reads.insert(reads.end(), fresh.begin(), fresh.end());
      TW_TRY(ir::Verify(*task.prepare));
      TW_TRY(ir::Interpret(*task.prepare, {}, reads));
    }
    std::vector<ir::TensorData*> all = args;
    all.insert(all.end() - 1, fresh.begin(), fresh.end());  // one output
    TW_TRY(ir::Verify(task.main));
    return ir::Interpret(task.main, at, all);
  };
  return tests::SameResults(function, function, options);
}

ir::Function Replay(const ir::Function& function, const std::string& steps) {
  const auto replayed =
      schedule::Replay(std::vector<schedule::Variant>{{"direct", function}}, steps);
  EXPECT_TRUE(replayed.ok()) << replayed.status();
  return *replayed;
}

// A layer of an image of open size, in blocks of eight channels.
graph::Graph Image(int blocks) {
  const std::string type = support::StrCat("f32[1,", blocks, ",H,W,8]");
  const auto parsed = graph::ParseGraph(
      support::StrCat("graph {\n  input %0: ", type, "\n  weight %1: f32[", blocks, ",", blocks,
                      ",3,3,8,8]\n  %2: ", type, " = conv2d(%0, %1) {data_layout=\"NCHW8c\", ",
                      "pads=[1,1,1,1], weight_layout=\"OIHW8i8o\"}\n  output %2\n}\n"));
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return *parsed;
}

TEST(TaskVersions, LargeLayersOfAnOpenNumberOfRows) {
  EXPECT_TRUE(VersionsOf(Layer("3", 2048)).empty());  // known
  EXPECT_TRUE(VersionsOf(Layer("N", 512)).empty());   // a cache holds the weights
  for (const bool given : {false, true}) {
    const std::vector<TaskVersion> versions = VersionsOf(Layer("N,M", 2048), given);
    ASSERT_EQ(versions.size(), 1U);
    EXPECT_EQ(versions[0].name, "few_rows");
    EXPECT_EQ(ir::Print(versions[0].count), "N * M");
    EXPECT_EQ(versions[0].most, 2);
    EXPECT_TRUE(versions[0].few);
  }
}

TEST(TaskVersions, TheCallChooses) {
  const graph::Graph layer = Layer("N", 2048);
  const auto variants = TaskVariants(layer);
  ASSERT_TRUE(variants.ok()) << variants.status();
  const ir::Function& function = (*variants)[0].function;
  const std::vector<TaskVersion> versions = VersionsOf(layer);
  ASSERT_EQ(versions.size(), 1U);
  schedule::Schedule main(function);
  space::ApplyDefaultSchedule(Zen3(), {}, &main);
  const LoweredTask many = Lowered(main.function()), few = Lowered(versions[0].scheduled);
  LoweredTask both = many;
  AddVersion(versions[0].ConditionFor(both.main), few, &both);
  ASSERT_EQ(both.main.body->kind, ir::StmtKind::kIf);
  EXPECT_EQ(ir::Print(both.main.body->condition), "N <= 2");
  // Another tile, and each right at all sizes.
  EXPECT_NE(ir::Print(both.main.body->body), ir::Print(both.main.body->else_body));
  for (const LoweredTask* version : std::initializer_list<const LoweredTask*>{&many, &few, &both}) {
    for (const int64_t rows : {1, 2, 3, 5}) {
      const absl::Status same = Computes(*version, function, {rows});
      EXPECT_TRUE(same.ok()) << rows << " " << support::StatusText(same);
    }
  }
}

// A layer with many channels: what an algorithm needs more weights for pays for large images only.
TEST(TaskVersions, AlgorithmsOfLargeAndSmallImages) {
  const auto variants = *TaskVariants(Image(64));
  const space::SizeSpan span{{{"H", 2}, {"W", 2}}, {{"H", 4}, {"W", 4}}, {{"H", 32}, {"W", 32}}};
  schedule::Schedule main(variants[0].function);
  space::ApplyDefaultSchedule(Zen3(), {}, &main, nullptr, span.typical);
  const auto found = space::AlgorithmsBySize(variants, Zen3(), span, main.function());
  ASSERT_TRUE(found.ok()) << found.status();
  ASSERT_FALSE(found->empty());
  const space::AlgorithmAtSizes& at = found->front();
  EXPECT_GE(at.bound, 4 * 4);
  EXPECT_LT(at.bound, 32 * 32);
  const auto ns = space::EstimateRunNs(at.scheduled, Zen3(), span.most);
  const auto ns_before = space::EstimateRunNs(main.function(), Zen3(), span.most);
  EXPECT_LT(*ns, *ns_before) << variants[at.variant].name;
  const ir::Function replayed = Replay(variants[at.variant].function, at.steps);
  EXPECT_EQ(ir::ProgramHash(replayed), ir::ProgramHash(at.scheduled));
  EXPECT_TRUE(found->front().larger);
  // Of no typical sizes, of fixed ones, and where threads are groups there is nothing to compare.
  const target::Target gpu = *target::ParseTarget("cuda,arch=sm_80");
  EXPECT_TRUE(space::AlgorithmsBySize(variants, Zen3(), {}, main.function())->empty());
  EXPECT_TRUE(space::AlgorithmsBySize(variants, gpu, span, main.function())->empty());
  const space::SizeSpan one{span.typical, span.typical, span.typical};
  EXPECT_TRUE(space::AlgorithmsBySize(variants, Zen3(), one, main.function())->empty());
}

// Three algorithms in one kernel: two prepare other copies of the same weights.
TEST(TaskVersions, EachPreparesItsWeights) {
  const auto variants = *TaskVariants(Image(2));
  ASSERT_GE(variants.size(), 3U);
  std::vector<LoweredTask> lowered;
  for (size_t v = 0; v < 3; ++v) {
    schedule::Schedule schedule(variants[v].function);
    space::ApplyDefaultSchedule(Zen3(), {}, &schedule, nullptr, {{"H", 8}, {"W", 8}});
    lowered.push_back(Lowered(schedule.function()));
  }
  EXPECT_FALSE(lowered[0].prepare.has_value());
  for (const auto& order : {std::vector<size_t>{0, 1, 2}, {1, 0, 2}, {2, 1, 0}}) {
    LoweredTask all = lowered[order[0]];
    for (const size_t v : {order[1], order[2]}) {
      const ir::Expr rows = all.main.size_params[0];
      AddVersion(ir::Int(v == order[1] ? 3 : 6) < rows, lowered[v], &all);
    }
    EXPECT_EQ(all.prepared.tensors.size(), 2U);
    EXPECT_EQ(all.prepared.reads, std::vector<size_t>{1});
    for (const int64_t height : {2, 5, 8}) {
      const absl::Status same = Computes(all, variants[0].function, {height, 7});
      EXPECT_TRUE(same.ok()) << height << " " << support::StatusText(same);
    }
  }
}

}  // namespace
}  // namespace tilewright::driver
