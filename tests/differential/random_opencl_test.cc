// Random programs as OpenCL C on a device against the interpreter: flat ones (vectors, masks,
// casts, integer types, lets, conditions), random schedules for groups of threads, and random
// points of the search's spaces. The same bits for integers, floats within rounding. Skips without
// a device. A compilation takes a second, so the rounds are few; TILEWRIGHT_ROUNDS makes them more
// (tests/long/opencl.py).
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include "compiler/codegen/host_device.h"
#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/space.h"
#include "compiler/targets/opencl/opencl_codegen.h"
#include "compiler/transform/passes.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/support/equivalence.h"
#include "tests/support/random_bound.h"
#include "tests/support/random_ir.h"
#include "tests/support/run_plan.h"
#include "tests/support/te_programs.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

TEST(RandomOpenClTest, DeviceComputesWhatTheInterpreterDoes) {
  auto device = PlanDevice::Open(TILEWRIGHT_DEVICE_OPENCL);
  if (!device.ok())
    GTEST_SKIP() << "[SKIP] no OpenCL device: " << support::StatusText(device.status());
  uint64_t seed = 1000 * TestSeed(2718);  // the next seed is of another chunk of a lane
  int64_t rounds = TestRounds(16), ran = 0;
  for (int64_t i = 0; i < rounds; ++i) {
    ir::Function f = RandomFlat(seed + static_cast<uint64_t>(i));
    auto plan = codegen::SplitHostDevice(f);
    if (!plan.ok()) {  // a global buffer inside of loops
      EXPECT_EQ(support::Slug(plan.status()), "codegen.split_host_device.global_alloc");
      continue;
    }
    std::vector<ir::Function> kernels;
    for (const codegen::Launch& l : plan->launches) kernels.push_back(l.kernel);
    auto text = opencl::EmitOpenCl(kernels);
    if (support::Slug(text.status()) == "codegen.opencl.unsupported") continue;
    ASSERT_TRUE(text.ok()) << text.status() << ir::Print(f);
    EquivalenceOptions options;
    options.run_other = [&](const ir::Function&, const std::vector<int64_t>& sizes,
                            std::vector<ir::TensorData*> args) {
      return (*device)->Run(*plan, *text, sizes, args);
    };
    absl::Status same = SameResults(f, f, options);
    ASSERT_TRUE(same.ok()) << "seed " << seed + static_cast<uint64_t>(i) << ": " << same << "\n"
                           << ir::Print(f) << *text;
    ++ran;
  }
  std::cout << "counts: programs=" << ran << "\n";
  EXPECT_GE(ran, rounds / 4);
}

// Program and schedule → passes → generator's limits → device. False: nothing to run. Sub-groups
// are emulated.
bool RunsTheSame(PlanDevice* device, const ir::Function& program,
                 const schedule::Schedule& scheduled, uint64_t seed, bool sub_groups = false) {
  const std::string what = support::StrCat("seed ", seed, ": ");
  transform::PassContext context;
  context.target = *target::ParseTarget("opencl");
  auto lowered = transform::RunPipeline(scheduled.function(), transform::GpuPipeline(), context);
  if (!lowered.ok()) {
    EXPECT_TRUE(support::Slug(lowered.status()).starts_with("transform.merge_threads."))
        << what << lowered.status();
    return false;
  }
  auto plan = codegen::SplitHostDevice(*lowered);
  EXPECT_TRUE(plan.ok()) << what << plan.status();
  if (!plan.ok() ||
      !codegen::CheckLaunchLimits(*plan, target::ParseTarget("opencl")->machine.launch).ok())
    return false;
  std::vector<ir::Function> kernels;
  for (const codegen::Launch& l : plan->launches) kernels.push_back(l.kernel);
  auto text = opencl::EmitOpenCl(kernels, sub_groups);
  EXPECT_TRUE(text.ok()) << what << text.status();
  if (!text.ok()) return false;
  if (sub_groups) {
    EXPECT_NE(text->find("sub_group_reduce_"), std::string::npos) << what << *text;
    text = WithEmulatedSubGroups(*text);
  }
  EquivalenceOptions options;
  options.seed = seed;
  options.run_other = [&](const ir::Function&, const std::vector<int64_t>& sizes,
                          std::vector<ir::TensorData*> args) {
    return device->Run(*plan, *text, sizes, args);
  };
  const absl::Status same = SameResults(program, program, options);
  EXPECT_TRUE(same.ok()) << what << same << "\nsteps: " << schedule::ToText(scheduled.steps())
                         << "\n"
                         << ir::Print(program) << *text;
  return true;
}

TEST(RandomOpenClTest, ScheduledProgramsComputeTheSameOnTheDevice) {
  auto device = PlanDevice::Open(TILEWRIGHT_DEVICE_OPENCL);
  if (!device.ok())
    GTEST_SKIP() << "[SKIP] no OpenCL device: " << support::StatusText(device.status());
  const uint64_t first = 1000 * TestSeed(31415);
  const int64_t rounds = TestRounds(24);
  int64_t ran = 0;
  for (uint64_t seed = first; ran < rounds && !HasFailure(); ++seed) {
    ASSERT_LT(seed, first + static_cast<uint64_t>(4 * rounds)) << "most schedules are refused";
    const ir::Function program = GpuProgram(seed);
    ran += RunsTheSame(device->get(), program, RandomBoundSchedule(program, seed), seed);
  }
  std::cout << "counts: schedules=" << ran << "\n";
}

// Softmax and means whose tree ends in sub-groups.
TEST(RandomOpenClTest, SumsOfSubGroupsAreTheSame) {
  auto device = PlanDevice::Open(TILEWRIGHT_DEVICE_OPENCL);
  if (!device.ok())
    GTEST_SKIP() << "[SKIP] no OpenCL device: " << support::StatusText(device.status());
  target::Target target = *target::ParseTarget("opencl");
  target.machine.launch.sub_groups = true;
  const uint64_t first = 1000 * TestSeed(2236);
  const int64_t rounds = TestRounds(8);
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
    EXPECT_TRUE(RunsTheSame(device->get(), program, *scheduled, seed, /*sub_groups=*/true));
  }
}

TEST(RandomOpenClTest, PointsOfTheSearchComputeTheSameOnTheDevice) {
  auto device = PlanDevice::Open(TILEWRIGHT_DEVICE_OPENCL);
  if (!device.ok())
    GTEST_SKIP() << "[SKIP] no OpenCL device: " << support::StatusText(device.status());
  const uint64_t first = 1000 * TestSeed(1618);
  const int64_t rounds = TestRounds(24);
  int64_t ran = 0;
  for (uint64_t seed = first; ran < rounds && !HasFailure(); ++seed) {
    ASSERT_LT(seed, first + static_cast<uint64_t>(4 * rounds)) << "most spaces are empty";
    const ir::Function program = SpaceProgram(seed);
    auto space = space::Space::Create(program, *target::ParseTarget("opencl"));
    ASSERT_TRUE(space.ok()) << space.status();
    support::Rng rng(seed);
    space::Point point;
    if (!(*space)->Sample(&rng, &point)) continue;
    auto scheduled = (*space)->Apply(point);
    ASSERT_TRUE(scheduled.ok()) << "seed " << seed << ": " << scheduled.status();
    ran += RunsTheSame(device->get(), program, *scheduled, seed);
  }
  std::cout << "counts: points=" << ran << "\n";
}

}  // namespace
}  // namespace tilewright::tests
