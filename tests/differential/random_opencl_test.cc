// Random programs as OpenCL C on a device against the interpreter (random_device.h). Skips without
// a device. A compilation takes a second, so the rounds are few; TILEWRIGHT_ROUNDS makes them more
// (tests/long/opencl.py).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/targets/opencl/opencl_codegen.h"
#include "deploy/support/status.h"
#include "tests/differential/random_device.h"
#include "tests/support/run_plan.h"
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

TEST_F(RandomOpenClTest, ProgramsForPhonesComputeTheSameOnTheDevice) {
  ProgramsForPhonesComputeTheSame(kOpenCl, device_.get(), TestRounds(6));
}

// Softmax and means whose tree ends in sub-groups.
TEST_F(RandomOpenClTest, SumsOfSubGroupsAreTheSame) {
  DeviceLanguage language = kOpenCl;
  language.emit = EmulatedSubGroups;
  SubGroupTreesComputeTheSame(language, device_.get(), TestRounds(8));
}

}  // namespace
}  // namespace tilewright::tests
