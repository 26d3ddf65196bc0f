// Random programs as OpenCL C on a device against the interpreter: flat ones (vectors, masks,
// casts, integer types, lets, conditions), and random schedules for groups of threads. The same
// bits for integers, floats within rounding. Skips without a device. A compilation takes a second,
// so the rounds are few; TILEWRIGHT_ROUNDS makes them more.
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <vector>

#include "compiler/codegen/host_device.h"
#include "compiler/ir/ir_text.h"
#include "compiler/schedule/schedule.h"
#include "compiler/targets/opencl/opencl_codegen.h"
#include "compiler/transform/passes.h"
#include "deploy/support/status.h"
#include "tests/support/equivalence.h"
#include "tests/support/random_bound.h"
#include "tests/support/random_ir.h"
#include "tests/support/run_plan.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

TEST(RandomOpenClTest, DeviceComputesWhatTheInterpreterDoes) {
  auto device = PlanDevice::Open(TILEWRIGHT_DEVICE_OPENCL);
  if (!device.ok())
    GTEST_SKIP() << "[SKIP] no OpenCL device: " << support::StatusText(device.status());
  uint64_t seed = TestSeed(2718);
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
    // dot4: OpenCL C has no such instruction before 3.0.
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
  std::cout << ran << " of " << rounds << " programs ran on the device\n";
  EXPECT_GE(ran, rounds / 4);
}

// Schedule → passes → generator's artifact limits → device.
TEST(RandomOpenClTest, ScheduledProgramsComputeTheSameOnTheDevice) {
  auto device = PlanDevice::Open(TILEWRIGHT_DEVICE_OPENCL);
  if (!device.ok())
    GTEST_SKIP() << "[SKIP] no OpenCL device: " << support::StatusText(device.status());
  const uint64_t first = TestSeed(31415);
  const int64_t rounds = TestRounds(24);
  transform::PassContext context;
  context.target = *ir::ParseTarget("opencl");
  int64_t ran = 0;
  for (uint64_t seed = first; ran < rounds; ++seed) {
    ASSERT_LT(seed, first + static_cast<uint64_t>(4 * rounds)) << "most schedules are refused";
    const ir::Function program = GpuProgram(seed);
    const schedule::Schedule scheduled = RandomBoundSchedule(program, seed);
    auto lowered = transform::RunPipeline(scheduled.function(), transform::GpuPipeline(), context);
    if (!lowered.ok()) {
      ASSERT_TRUE(support::Slug(lowered.status()).starts_with("transform.merge_threads."))
          << "seed " << seed << ": " << lowered.status();
      continue;
    }
    auto plan = codegen::SplitHostDevice(*lowered);
    ASSERT_TRUE(plan.ok()) << "seed " << seed << ": " << plan.status();
    if (!codegen::CheckLaunchLimits(*plan, *ir::FindGpu("opencl")).ok()) continue;
    std::vector<ir::Function> kernels;
    for (const codegen::Launch& l : plan->launches) kernels.push_back(l.kernel);
    auto text = opencl::EmitOpenCl(kernels);
    ASSERT_TRUE(text.ok()) << "seed " << seed << ": " << text.status();
    EquivalenceOptions options;
    options.seed = seed;
    options.run_other = [&](const ir::Function&, const std::vector<int64_t>& sizes,
                            std::vector<ir::TensorData*> args) {
      return (*device)->Run(*plan, *text, sizes, args);
    };
    const absl::Status same = SameResults(program, program, options);
    ASSERT_TRUE(same.ok()) << "seed " << seed << ": " << same
                           << "\nsteps: " << schedule::ToText(scheduled.steps()) << "\n"
                           << ir::Print(program) << *text;
    ++ran;
  }
  std::cout << ran << " scheduled programs ran on the device\n";
}

}  // namespace
}  // namespace tilewright::tests
