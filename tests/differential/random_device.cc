#include "tests/differential/random_device.h"

#include <gtest/gtest.h>

#include <iostream>

#include "compiler/codegen/host_device.h"
#include "compiler/ir/ir_text.h"
#include "compiler/space/space.h"
#include "compiler/transform/passes.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/random_bound.h"
#include "tests/support/random_ir.h"
#include "tests/support/stage_tasks.h"
#include "tests/support/te_programs.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

target::Target TargetOf(const DeviceLanguage& language) {
  return *target::ParseTarget(language.target);
}

std::vector<ir::Function> KernelsOf(const codegen::HostPlan& plan) {
  std::vector<ir::Function> kernels;
  for (const codegen::Launch& l : plan.launches) kernels.push_back(l.kernel);
  return kernels;
}

EquivalenceOptions OnDevice(PlanDevice* device, const codegen::HostPlan& plan,
                            const std::string& code) {
  EquivalenceOptions options;
  options.run_other = [=, &plan, &code](const ir::Function&, const std::vector<int64_t>& sizes,
                                        std::vector<ir::TensorData*> args) {
    return device->Run(plan, code, sizes, args);
  };
  return options;
}

// The next seed is of another chunk of a lane.
uint64_t FirstSeed(uint64_t standard) { return 1000 * TestSeed(standard); }

}  // namespace

void FlatProgramsComputeTheSame(const DeviceLanguage& language, PlanDevice* device,
                                int64_t rounds) {
  const uint64_t seed = FirstSeed(2718);
  int64_t ran = 0;
  for (int64_t i = 0; i < rounds; ++i) {
    ir::Function f = RandomFlat(seed + static_cast<uint64_t>(i));
    auto plan = codegen::SplitHostDevice(f);
    if (!plan.ok()) {  // a global buffer inside of loops
      EXPECT_EQ(support::Slug(plan.status()), "codegen.split_host_device.global_alloc");
      continue;
    }
    auto code = language.emit(KernelsOf(*plan));
    if (support::Slug(code.status()) == language.unsupported) continue;
    ASSERT_TRUE(code.ok()) << code.status() << ir::Print(f);
    absl::Status same = SameResults(f, f, OnDevice(device, *plan, *code));
    ASSERT_TRUE(same.ok()) << "seed " << seed + static_cast<uint64_t>(i) << ": " << same << "\n"
                           << ir::Print(f) << language.show(*code);
    ++ran;
  }
  std::cout << "counts: programs=" << ran << "\n";
  EXPECT_GE(ran, rounds / 4);
}

bool RunsTheSame(const DeviceLanguage& language, PlanDevice* device, const ir::Function& program,
                 const schedule::Schedule& scheduled, uint64_t seed) {
  const std::string what = support::StrCat("seed ", seed, ": ");
  transform::PassContext context;
  context.target = TargetOf(language);
  auto lowered = transform::RunPipeline(scheduled.function(), transform::GpuPipeline(), context);
  if (!lowered.ok()) {
    EXPECT_TRUE(support::Slug(lowered.status()).starts_with("transform.merge_threads."))
        << what << lowered.status();
    return false;
  }
  auto plan = codegen::SplitHostDevice(*lowered);
  EXPECT_TRUE(plan.ok()) << what << plan.status();
  if (!plan.ok() || !codegen::CheckLaunchLimits(*plan, context.target.machine.launch).ok())
    return false;
  auto code = language.emit(KernelsOf(*plan));
  EXPECT_TRUE(code.ok()) << what << code.status() << ir::Print(*lowered);
  if (!code.ok()) return false;
  EquivalenceOptions options = OnDevice(device, *plan, *code);
  options.seed = seed;
  const absl::Status same = SameResults(program, program, options);
  EXPECT_TRUE(same.ok()) << what << same << "\nsteps: " << schedule::ToText(scheduled.steps())
                         << "\n"
                         << ir::Print(program) << language.show(*code);
  return true;
}

void SchedulesComputeTheSame(const DeviceLanguage& language, PlanDevice* device, int64_t rounds) {
  const uint64_t first = FirstSeed(31415);
  int64_t ran = 0;
  for (uint64_t seed = first; ran < rounds && !testing::Test::HasFailure(); ++seed) {
    ASSERT_LT(seed, first + static_cast<uint64_t>(4 * rounds)) << "most schedules are refused";
    const ir::Function program = GpuProgram(seed);
    ran += RunsTheSame(language, device, program, RandomBoundSchedule(program, seed), seed);
  }
  std::cout << "counts: schedules=" << ran << "\n";
}

void PointsOfTheSearchComputeTheSame(const DeviceLanguage& language, PlanDevice* device,
                                     int64_t rounds) {
  const uint64_t first = FirstSeed(1618);
  int64_t ran = 0;
  for (uint64_t seed = first; ran < rounds && !testing::Test::HasFailure(); ++seed) {
    ASSERT_LT(seed, first + static_cast<uint64_t>(4 * rounds)) << "most spaces are empty";
    const ir::Function program = SpaceProgram(seed);
    auto space = space::Space::Create(program, TargetOf(language));
    ASSERT_TRUE(space.ok()) << space.status();
    support::Rng rng(seed);
    space::Point point;
    if (!(*space)->Sample(&rng, &point)) continue;
    auto scheduled = (*space)->Apply(point);
    const auto& sketch = *(*space)->sketches()[static_cast<size_t>(point.sketch)];
    ASSERT_TRUE(scheduled.ok()) << "seed " << seed << ", " << sketch.name() << ": "
                                << scheduled.status() << "\n"
                                << ir::Print(program);
    ran += RunsTheSame(language, device, program, *scheduled, seed);
  }
  std::cout << "counts: points=" << ran << "\n";
}

namespace {

// Rows and attention, each in one launch, for a machine whose threads go in step.
void StagesComputeTheSame(const DeviceLanguage& language, PlanDevice* device, int64_t rounds) {
  const uint64_t first = FirstSeed(1414);
  int64_t ran = 0;
  for (uint64_t seed = first; ran < rounds && !testing::Test::HasFailure(); ++seed, ++ran) {
    const StageCase stages = RandomStageCase(seed, TargetOf(language));
    EXPECT_TRUE(RunsTheSame(language, device, stages.program, stages.scheduled, seed));
  }
  std::cout << "counts: stages=" << ran << "\n";
}

}  // namespace

void ProgramsForPhonesComputeTheSame(const DeviceLanguage& language, PlanDevice* device,
                                     int64_t rounds) {
  for (const char* config : {"valhall", "adreno"}) {
    const std::string target = support::StrCat(language.target, ",config=", config);
    DeviceLanguage phone = language;
    phone.target = target.c_str();
    PointsOfTheSearchComputeTheSame(phone, device, rounds);
    StagesComputeTheSame(phone, device, rounds);
  }
}

void SubGroupTreesComputeTheSame(const DeviceLanguage& language, PlanDevice* device,
                                 int64_t rounds) {
  target::Target target = TargetOf(language);
  target.machine.launch.sub_groups = true;
  const uint64_t first = FirstSeed(2236);
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(rounds); ++seed) {
    const ir::Function program = seed % 2 == 0 ? SoftmaxProgram(4, 96) : MeanProgram(3, 120);
    auto space = space::Space::Create(program, target);
    ASSERT_TRUE(space.ok()) << space.status();
    support::Rng rng(seed);
    space::Point point;
    do {
      ASSERT_TRUE((*space)->Sample(&rng, &point));
    } while ((*space)->sketches()[static_cast<size_t>(point.sketch)]->name() != "tree_reduction");
    const auto& knobs = (*space)->sketches()[static_cast<size_t>(point.sketch)]->knobs();
    for (size_t k = 0; k < knobs.size(); ++k) {
      if (knobs[k].name.starts_with("fan_in_"))
        point.choices[k] = static_cast<int>(knobs[k].menu.size()) - 1;
    }
    auto scheduled = (*space)->Apply(point);
    ASSERT_TRUE(scheduled.ok()) << "seed " << seed << ": " << scheduled.status();
    EXPECT_TRUE(RunsTheSame(language, device, program, *scheduled, seed));
  }
}

void FlatComputesTheSame(const DeviceLanguage& language, PlanDevice* device,
                         const ir::Function& f) {
  const auto plan = codegen::SplitHostDevice(f);
  ASSERT_TRUE(plan.ok()) << plan.status();
  const auto code = language.emit(KernelsOf(*plan));
  ASSERT_TRUE(code.ok()) << code.status() << ir::Print(f);
  const absl::Status same = SameResults(f, f, OnDevice(device, *plan, *code));
  EXPECT_TRUE(same.ok()) << same << "\n" << ir::Print(f) << language.show(*code);
}

}  // namespace tilewright::tests
