// The default schedule of devices of groups and threads, and the space around it: for every kind of
// program and at random points the kernels compute what the program does (by the interpreter, which
// reports races), fit the kind's limits, and one thread computes the tile that was asked for.
#include <string>
#include <vector>

#include "compiler/codegen/host_device.h"
#include "compiler/ir/ir_text.h"
#include "compiler/schedule/default_schedule.h"
#include "compiler/transform/passes.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "gtest/gtest.h"
#include "tests/support/equivalence.h"
#include "tests/support/random_ir.h"
#include "tests/support/run_plan.h"
#include "tests/support/te_programs.h"
#include "tuner_server/search/space.h"

namespace tilewright {
namespace {

const ir::Target& OpenCl() {
  static const ir::Target target = *ir::ParseTarget("opencl");
  return target;
}

std::vector<ir::Function> Programs() {
  std::vector<ir::Function> programs = {tests::MatmulProgram(6, 80, 7),
                                        tests::DenseReluProgram(5, 70, 6),
                                        tests::ConvProgram({}),
                                        tests::StencilProgram(90),
                                        tests::SoftmaxProgram(4, 6),
                                        tests::MeanProgram(70, 5),
                                        tests::MaxPoolProgram(3, 12, 3, 2),
                                        tests::QuantizedDenseProgram(3, 5, 8)};
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    programs.push_back(
        tests::RandomTe(seed, {.max_elements = 300, .max_work = 2000, .symbolic = false}).function);
  }
  return programs;
}

// The launches of a scheduled program, after they computed the same as the program.
absl::StatusOr<codegen::HostPlan> Checked(const ir::Function& program,
                                          const schedule::Schedule& scheduled) {
  transform::PassContext context;
  context.target = OpenCl();
  TW_ASSIGN(const ir::Function lowered,
            transform::RunPipeline(scheduled.function(), transform::GpuPipeline(), context));
  TW_ASSIGN(codegen::HostPlan plan, codegen::SplitHostDevice(lowered));
  TW_TRY(codegen::CheckLaunchLimits(plan, *ir::FindGpu("opencl")));
  TW_TRY(tests::SameResults(program, lowered));
  return plan;
}

TEST(DefaultBound, EveryProgramIsLaunchesThatComputeTheSame) {
  for (const ir::Function& program : Programs()) {
    schedule::Schedule scheduled(program);
    schedule::ApplyDefaultSchedule(OpenCl(), {}, &scheduled);
    auto plan = Checked(program, scheduled);
    ASSERT_TRUE(plan.ok()) << plan.status() << "\n"
                           << schedule::ToText(scheduled.steps()) << "\n"
                           << ir::Print(program);
  }
}

TEST(DefaultBound, AReductionIsComputedInTheThreadOfItsResults) {
  const ir::Function program = tests::DenseReluProgram(16, 64, 32);
  schedule::Schedule scheduled(program);
  schedule::ApplyDefaultSchedule(OpenCl(), {{"Y", {.vectors = 4, .rows = 2, .threads = 32}}},
                                 &scheduled);
  auto plan = Checked(program, scheduled);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->launches.size(), 1u);
  EXPECT_EQ(plan->buffers.size(), plan->num_params) << "the sums stay in the thread";
  EXPECT_TRUE(ir::IsInt(plan->launches[0].group[0], 32));
  EXPECT_TRUE(ir::IsInt(plan->launches[0].grid[0], 16 * 64 / (2 * 4) / 32));
}

TEST(DefaultBound, EveryPointOfTheSpaceAroundItComputesTheSame) {
  int points = 0;
  for (const ir::Function& program : Programs()) {
    auto space = search::Space::Create(program, OpenCl());
    ASSERT_TRUE(space.ok()) << space.status();
    support::Rng rng(17);
    const auto start = (*space)->DefaultPoint();
    for (int i = 0; i < 6; ++i) {
      search::Point point;
      if (i == 0 && start.has_value()) {
        point = *start;
      } else if (!(*space)->Sample(&rng, &point)) {
        continue;
      }
      auto scheduled = (*space)->Apply(point);
      ASSERT_TRUE(scheduled.ok()) << scheduled.status();
      auto plan = Checked(program, *scheduled);
      ASSERT_TRUE(plan.ok()) << plan.status() << "\n"
                             << schedule::ToText(scheduled->steps()) << "\n"
                             << ir::Print(program);
      ++points;
    }
  }
  EXPECT_GT(points, 60);
}

}  // namespace
}  // namespace tilewright
