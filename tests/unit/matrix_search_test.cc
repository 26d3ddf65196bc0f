// The search of a matrix unit's tasks: the rules' estimate of each point ranks them, so that few
// trials come to the optimum.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "compiler/driver/tasks.h"
#include "compiler/space/matrix_tiles.h"
#include "compiler/targets/backend.h"
#include "compiler/transform/passes.h"
#include "cost_model/shipped_model.h"
#include "deploy/support/status.h"
#include "tests/support/matrix_tasks.h"
#include "tuner_server/search/search_task.h"
#include "vta/isa/code_object.h"
#include "vta/sim/stream_cycles.h"

namespace tilewright::search {
namespace {

constexpr int64_t kBlock = 16;
constexpr int kTrials = 8;
constexpr double kFlops = 1e6;  // columns relate to it; the estimate does not

const target::Target& Unit() {
  static const target::Target* const unit =
      new target::Target(*target::ParseTarget("vta,config=block16"));
  return *unit;
}

// On the cycle model. Cycles do not depend on data.
int64_t CyclesOf(const schedule::Schedule& schedule) {
  const auto cycles = [&]() -> absl::StatusOr<int64_t> {
    transform::PassContext context;
    context.target = Unit();
    const targets::Backend& backend = targets::BackendOf(Unit());
    TW_ASSIGN(ir::Function lowered,
              transform::RunPipeline(schedule.function(), backend.pipeline(), context));
    const std::vector<ir::Function> functions = {std::move(lowered)};
    TW_ASSIGN(const codegen::Artifact artifact, backend.generate({functions, Unit(), {}}));
    TW_ASSIGN(const vta::CodeObject code, vta::ParseCode(artifact.bytes));
    TW_ASSIGN(const vta::Isa isa, vta::Isa::Make(code.config));
    TW_ASSIGN(const std::vector<vta::Word128> words, code.programs.at(0).Encoded(isa));
    TW_ASSIGN(std::vector<uint8_t> dram, code.programs.at(0).Image(isa));
    TW_ASSIGN(const vta::CycleReport report, vta::RunCycles(isa, words, {}, 1, &dram));
    return report.cycles;
  }();
  TW_CHECK(cycles.ok()) << support::StatusText(cycles.status());
  return *cycles;
}

std::unique_ptr<SearchTask> TaskOf(const ir::Function& function) {
  auto task = SearchTask::Create({{"direct", function}}, kFlops, Unit(), {});
  TW_CHECK(task.ok()) << support::StatusText(task.status());
  return *std::move(task);
}

const ir::Function& Convolution() {
  static const ir::Function* const function = new ir::Function(tests::FunctionOf(
      {.inputs = 2, .columns = 4, .height = 8, .width = 8, .taps = 1, .stride = 2, .pad = 0},
      kBlock));
  return *function;
}

schedule::Schedule DefaultOf(const SearchTask& task) {
  auto schedule = task.space().Apply(*task.space().DefaultPoint());
  TW_CHECK(schedule.ok()) << support::StatusText(schedule.status());
  return *std::move(schedule);
}

std::unique_ptr<cost_model::CostModel> FirstModel() {
  auto model = cost_model::ModelBeforeMeasurements(Unit().machine);
  TW_CHECK(model.ok()) << support::StatusText(model.status());
  return *std::move(model);
}

TEST(MatrixSearchTest, FewTrialsFindTheOptimum) {
  auto task = TaskOf(Convolution());
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const Point& point : task->space().BestPoints(1000)) {
    ASSERT_TRUE(task->space().Contains(point));
    least = std::min(least, CyclesOf(*task->space().Apply(point)));
  }
  const schedule::Schedule standard = DefaultOf(*task);
  int64_t found = CyclesOf(standard);
  EXPECT_GT(found, least) << "nothing to find";
  task->Tell({standard.ProgramHash(), v1::OK, static_cast<double>(found), false},
             schedule::ToText(standard.steps()));
  const auto model = FirstModel();
  for (int done = 1; done < kTrials;) {
    const auto asked =
        task->Ask(std::min(2, kTrials - done), "b" + std::to_string(done), model.get());
    ASSERT_TRUE(asked.ok()) << asked.status();
    EXPECT_EQ(asked->invalid, 0);
    ASSERT_FALSE(asked->picks.empty());
    for (const Pick& pick : asked->picks) {
      const int64_t cycles = CyclesOf(*task->space().Apply(pick.candidate.point));
      task->Tell({pick.candidate.program_hash, v1::OK, static_cast<double>(cycles), false},
                 pick.candidate.steps);
      found = std::min(found, cycles);
      ++done;
    }
  }
  EXPECT_EQ(found, least);
}

// Also that of the default, which is known by its steps.
TEST(MatrixSearchTest, EstimatesAreThoseOfTheTiles) {
  auto task = TaskOf(Convolution());
  const target::MatrixUnit& unit = Unit().machine.matrix;
  const auto problem = space::MatrixProblemOf(Convolution(), unit);
  ASSERT_TRUE(problem.has_value());
  const std::vector<space::MatrixTile> tiles = space::TilesByEstimate(unit, *problem);
  const std::vector<Point> points = task->space().BestPoints(tiles.size() + 1);
  ASSERT_EQ(points.size(), tiles.size());
  for (size_t i = 0; i < tiles.size(); ++i)
    EXPECT_EQ(task->space().Estimate(points[i]), TileCycles(unit, *problem, tiles[i]));
  const auto estimate = task->EstimateNs(schedule::ToText(DefaultOf(*task).steps()));
  ASSERT_TRUE(estimate.ok()) << estimate.status();
  const double best = TileCycles(unit, *problem, tiles[0]);
  EXPECT_NEAR(*estimate, best, 1e-3 * best);
  EXPECT_FALSE(cost_model::KnowsShippedModel(Unit().machine));
  EXPECT_TRUE(cost_model::KnowsShippedModel(target::ParseTarget("cpu,arch=x86_64")->machine));
}

// A search that is rebuilt from the log trains on the same rows; a record without its point, whose
// estimate nobody knows, is none of them.
TEST(MatrixSearchTest, RowsHaveTheEstimatesOfTheirPoints) {
  auto task = TaskOf(Convolution()), restarted = TaskOf(Convolution());
  const auto asked = task->Ask(4, "b", FirstModel().get());
  ASSERT_TRUE(asked.ok()) << asked.status();
  ASSERT_EQ(asked->picks.size(), 4U);
  for (const Pick& pick : asked->picks) {
    const Candidate& c = pick.candidate;
    const Told told{c.program_hash, v1::OK, 1000, false};
    task->Tell(told, c.steps);
    const bool with_point = &pick != &asked->picks.back();
    restarted->Tell(told, c.steps, with_point ? space::PointText(c.point) : "");
  }
  const auto before = task->TrainingRows(0), after = restarted->TrainingRows(0);
  ASSERT_EQ(before.size(), 4U);
  ASSERT_EQ(after.size(), 3U);
  for (size_t i = 0; i < after.size(); ++i) EXPECT_EQ(before[i].features, after[i].features);
}

}  // namespace
}  // namespace tilewright::search
