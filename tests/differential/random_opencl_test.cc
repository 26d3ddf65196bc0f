// Random programs as OpenCL C on a device against the interpreter (random_device.h). Skips without
// a device. A compilation takes a second, so the rounds are few; TILEWRIGHT_ROUNDS makes them more
// (tests/long/opencl.py).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/space/space.h"
#include "compiler/targets/opencl/opencl_codegen.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/differential/random_device.h"
#include "tests/support/run_plan.h"
#include "tests/support/te_programs.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

std::string Shown(const std::string& text) { return text; }

constexpr DeviceLanguage kOpenCl = {
    "opencl", "codegen.opencl.unsupported",
    [](const std::vector<ir::Function>& kernels) { return opencl::EmitOpenCl(kernels); }, Shown};

// With sub-groups, which are emulated.
absl::StatusOr<std::string> EmulatedSubGroups(const std::vector<ir::Function>& kernels) {
  TW_ASSIGN(const std::string text, opencl::EmitOpenCl(kernels, /*sub_groups=*/true));
  EXPECT_NE(text.find("sub_group_reduce_"), std::string::npos) << text;
  return WithEmulatedSubGroups(text);
}

class RandomOpenClTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = PlanDevice::Open(TILEWRIGHT_DEVICE_OPENCL);
    if (!device.ok())
      GTEST_SKIP() << "[SKIP] no OpenCL device: " << support::StatusText(device.status());
    device_ = *std::move(device);
  }
  std::unique_ptr<PlanDevice> device_;
};

TEST_F(RandomOpenClTest, DeviceComputesWhatTheInterpreterDoes) {
  FlatProgramsComputeTheSame(kOpenCl, device_.get(), TestRounds(16));
}

TEST_F(RandomOpenClTest, ScheduledProgramsComputeTheSameOnTheDevice) {
  SchedulesComputeTheSame(kOpenCl, device_.get(), TestRounds(24));
}

TEST_F(RandomOpenClTest, PointsOfTheSearchComputeTheSameOnTheDevice) {
  PointsOfTheSearchComputeTheSame(kOpenCl, device_.get(), TestRounds(24));
}

// Softmax and means whose tree ends in sub-groups.
TEST_F(RandomOpenClTest, SumsOfSubGroupsAreTheSame) {
  DeviceLanguage language = kOpenCl;
  language.emit = EmulatedSubGroups;
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
    EXPECT_TRUE(RunsTheSame(language, device_.get(), program, *scheduled, seed));
  }
}

}  // namespace
}  // namespace tilewright::tests
