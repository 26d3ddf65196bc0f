// Rows (norms, softmax) and attention on GPUs whose threads go in step: one launch each that
// computes what the operator does, by the interpreter, which reports races; which graphs take part;
// and which stay as they were.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/codegen/host_device.h"
#include "compiler/driver/tasks.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/space.h"
#include "compiler/transform/passes.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/stage_tasks.h"

namespace tilewright {
namespace {

using support::StrCat;

target::Target Gpu(std::string_view text = "cuda") { return *target::ParseTarget(text); }

std::string DefaultRule(const ir::Function& program, const target::Target& target) {
  const auto space = space::Space::Create(program, target);
  EXPECT_TRUE(space.ok()) << space.status();
  const auto point = (*space)->DefaultPoint();
  return point ? (*space)->sketches()[static_cast<size_t>(point->sketch)]->name() : "none";
}

// The launches of the task's default schedule, which compute the same.
absl::StatusOr<codegen::HostPlan> DefaultPlan(const std::string& task,
                                              const target::Target& target) {
  TW_ASSIGN(const ir::Function program, driver::TaskFunction(task));
  schedule::Schedule scheduled(program);
  space::ApplyDefaultSchedule(target, {}, &scheduled);
  transform::PassContext context;
  context.target = target;
  TW_ASSIGN(const ir::Function lowered,
            transform::RunPipeline(scheduled.function(), transform::GpuPipeline(), context));
  TW_ASSIGN(codegen::HostPlan plan, codegen::SplitHostDevice(lowered));
  TW_TRY(codegen::CheckLaunchLimits(plan, target.machine.launch));
  TW_TRY(tests::SameResults(program, lowered));
  return plan;
}

void ExpectOneLaunch(const std::string& task, std::string_view rule) {
  for (const char* target :
       {"cuda", "metal", "hip,arch=gfx1100", "opencl,config=valhall", "vulkan,config=adreno"}) {
    EXPECT_EQ(DefaultRule(*driver::TaskFunction(task), Gpu(target)), rule) << target << task;
    const auto plan = DefaultPlan(task, Gpu(target));
    ASSERT_TRUE(plan.ok()) << target << plan.status() << task;
    EXPECT_EQ(plan->launches.size(), 1U) << target << task;
    EXPECT_EQ(plan->buffers.size(), plan->num_params) << "nothing goes through global memory";
  }
}

TEST(GroupStages, RowsAreOneLaunch) {
  for (const char* kind : {"layer", "rms", "softmax"}) {
    for (const int64_t length : {16, 37, 96, 130}) {
      ExpectOneLaunch(tests::RowsTask(kind, 3, length), "row_groups");
    }
  }
}

TEST(GroupStages, AttentionIsOneLaunch) {
  const std::vector<tests::AttentionTask> tasks = {
      {},
      {.tokens = 19, .keys = 21},
      {.key_heads = 1, .shared = 2, .layout = "BSHD"},
      {.shared = 3, .tokens = 9, .keys = 12, .head = 12, .value = 4},
      {.tokens = 17, .keys = 33, .causal = true},
      {.batch = 2, .mask = "[2,1,16,16]", .dead_rows_zero = true},
      {.mask = "[1,2,16,16]", .softcap = 3},
      {.keys = 20, .mask = "[1,1,1,20]"},
      {.keys = 20, .block_rows = 16, .block_keys = 16, .mask = "[1,1,16,20]", .causal = true}};
  for (const tests::AttentionTask& task : tasks) {
    ExpectOneLaunch(tests::TextOf(task), "nest_groups");
  }
}

// A scan over tokens whose state is a matrix.
TEST(GroupStages, LinearAttentionComputesTheSame) {
  const std::string task =
      "graph {\n  input %0: f32[1,3,2,32]\n  input %1: f32[1,3,2,32]\n  input %2: f32[1,3,2,48]\n"
      "  input %3: f32[1,2,32,48]\n  input %4: f32[1,3,2,1]\n  input %5: f32[1,3,2,1]\n"
      "  %6: f32[1,2,35,48] = linear_attention(%0, %1, %2, %3, %4, %5) {beta=1, decay=1}\n"
      "  output %6\n}\n";
  for (const char* target : {"cuda", "opencl"}) {
    const auto plan = DefaultPlan(task, Gpu(target));
    EXPECT_TRUE(plan.ok()) << target << plan.status();
  }
}

// Threads that a driver runs one after the other gain nothing by a group for each row.
TEST(GroupStages, ThreadsInTurnKeepOneForEachResult) {
  const auto program = driver::TaskFunction(tests::RowsTask("layer", 3, 96));
  for (const char* target : {"opencl", "vulkan"}) {
    EXPECT_EQ(DefaultRule(*program, Gpu(target)), "bound_default") << target;
  }
}

TEST(GroupStages, RowsThatAreNoneToTheLastBlockStayApart) {
  const std::string turned =
      "graph {\n  input %0: f32[48,48]\n  %1: f32[48,48] = softmax(%0)\n"
      "  %2: f32[48,48] = transpose(%1) {perm=[1,0]}\n  output %2\n}\n";
  EXPECT_EQ(DefaultRule(*driver::TaskFunction(turned), Gpu()), "bound_default");
  const auto plan = DefaultPlan(turned, Gpu());
  EXPECT_TRUE(plan.ok()) << plan.status();
  // A number of threads divides neither row: one is too long, the other too short.
  for (const int64_t length : {2053, 12}) {
    const auto program = driver::TaskFunction(tests::RowsTask("rms", 2, length));
    EXPECT_EQ(DefaultRule(*program, Gpu()), "bound_default") << length;
  }
}

// ---------------------------------------------------------------- graphs

// Of heads of `elements`, so many of which share their keys, as exporters and passes write it.
std::string AttentionGraph(int64_t tokens, int64_t elements, int64_t shared = 1) {
  const std::string x = StrCat("f32[1,1,", tokens, ",", elements, "]");
  const std::string rows = StrCat("f32[1,1,", shared * tokens, ",", elements, "]");
  const std::string turned = StrCat("f32[1,1,", elements, ",", tokens, "]");
  const auto scores = [&](int64_t heads, int64_t queries) {
    return StrCat("f32[1,", heads, ",", queries, ",", tokens, "]");
  };
  std::string text = StrCat("graph {\n  input %0: ", rows, "\n  input %1: ", x, "\n  input %2: ", x,
                            "\n  %3: ", turned,
                            " = transpose(%1) {perm=[0,1,3,2]}\n  %4: ", scores(1, shared * tokens),
                            " = matmul(%0, %3)\n");
  int id = 4;
  if (shared > 1) {
    text += StrCat("  %5: ", scores(shared, tokens), " = reshape(%4) {shape=[1,", shared, ",",
                   tokens, ",", tokens, "]}\n");
    ++id;
  }
  text += StrCat("  %", id + 1, ": ", scores(shared, tokens), " = softmax(%", id, ")\n");
  ++id;
  if (shared > 1) {
    text += StrCat("  %7: ", scores(1, shared * tokens), " = reshape(%6) {shape=[1,1,",
                   shared * tokens, ",", tokens, "]}\n");
    ++id;
  }
  return text +
         StrCat("  %", id + 1, ": ", rows, " = matmul(%", id, ", %2)\n  output %", id + 1, "\n}\n");
}

// What the pass makes of it on a target, in the attributes of attention; none where operators stay.
op::Attrs Made(const std::string& text, const target::Target& target) {
  auto graph = graph::ParseGraph(text);
  EXPECT_TRUE(graph.ok()) << graph.status();
  const auto fused = graph::FuseAttention(*std::move(graph), driver::PassContext(target));
  EXPECT_TRUE(fused.ok()) << fused.status();
  for (const graph::Node& node : fused->nodes) {
    if (node.op == "attention") return node.attrs;
  }
  return {};
}
int64_t RowsMade(const std::string& text, const target::Target& target) {
  return op::GetInt(Made(text, target), "rows", 0);
}

TEST(GroupStages, GraphsGetAttentionThatFitsAGroup) {
  EXPECT_EQ(RowsMade(AttentionGraph(128, 64), Gpu()), 32);
  EXPECT_EQ(RowsMade(AttentionGraph(128, 128), Gpu()), 32) << "with fewer keys at a time";
  EXPECT_EQ(RowsMade(AttentionGraph(128, 512), Gpu()), 0) << "no block fits";
  EXPECT_EQ(RowsMade(AttentionGraph(4, 64), Gpu()), 0) << "most rows would idle";
  EXPECT_EQ(RowsMade(AttentionGraph(128, 64), Gpu("cuda,tf32=on")), 0) << "the unit's products";
  EXPECT_EQ(RowsMade(AttentionGraph(128, 64), Gpu("opencl")), 0) << "threads in turn";
}

// What the pass makes has the schedule that it counts on: its sizes are those of the schedule.
TEST(GroupStages, WhatFitsIsScheduledInOneLaunch) {
  int made = 0;
  for (const char* target : {"cuda", "metal", "hip,arch=gfx90a"}) {
    for (const int64_t elements : {16, 32, 64, 80, 96, 128, 160, 256}) {
      for (const int64_t tokens : {64, 77, 128, 197}) {
        for (const int64_t shared : {1, 2, 4}) {
          const op::Attrs attrs = Made(AttentionGraph(tokens, elements, shared), Gpu(target));
          if (attrs.empty()) continue;
          ++made;
          const auto program =
              driver::TaskFunction(tests::TextOf({.key_heads = 1,
                                                  .shared = shared,
                                                  .tokens = tokens,
                                                  .keys = tokens,
                                                  .head = elements,
                                                  .value = elements,
                                                  .block_rows = op::GetInt(attrs, "rows", 0),
                                                  .block_keys = op::GetInt(attrs, "keys", 0)}));
          ASSERT_TRUE(program.ok()) << program.status();
          EXPECT_EQ(DefaultRule(*program, Gpu(target)), "nest_groups")
              << target << " " << tokens << " x " << elements << ", " << shared << " share";
        }
      }
    }
  }
  EXPECT_GT(made, 150);
}

}  // namespace
}  // namespace tilewright
