// Random programs as SPIR-V on a Vulkan device against the interpreter (random_device.h). Every
// module is validated by the tools of its makers first. Skips without a device; TILEWRIGHT_ROUNDS
// makes the rounds more (tests/long/vulkan.py).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compiler/targets/vulkan/vulkan_codegen.h"
#include "deploy/support/status.h"
#include "tests/differential/random_device.h"
#include "tests/support/run_plan.h"
#include "tests/support/spirv_check.h"
#include "tests/support/test_seed.h"

namespace tilewright::tests {
namespace {

absl::StatusOr<std::string> Validated(const std::vector<ir::Function>& kernels) {
  TW_ASSIGN(codegen::KernelCode code, vulkan::EmitSpirv(kernels));
  TW_TRY(ValidateSpirv(code.bytes));
  return std::move(code.bytes);
}

constexpr DeviceLanguage kSpirv = {"vulkan", "codegen.vulkan.unsupported", Validated,
                                   DisassembledSpirv};

class RandomVulkanTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = PlanDevice::Open(TILEWRIGHT_DEVICE_VULKAN);
    if (!device.ok())
      GTEST_SKIP() << "[SKIP] no Vulkan device: " << support::StatusText(device.status());
    device_ = *std::move(device);
  }
  std::unique_ptr<PlanDevice> device_;
};

TEST_F(RandomVulkanTest, DeviceComputesWhatTheInterpreterDoes) {
  FlatProgramsComputeTheSame(kSpirv, device_.get(), TestRounds(60));
}

TEST_F(RandomVulkanTest, ScheduledProgramsComputeTheSameOnTheDevice) {
  SchedulesComputeTheSame(kSpirv, device_.get(), TestRounds(60));
}

TEST_F(RandomVulkanTest, PointsOfTheSearchComputeTheSameOnTheDevice) {
  PointsOfTheSearchComputeTheSame(kSpirv, device_.get(), TestRounds(60));
}

}  // namespace
}  // namespace tilewright::tests
