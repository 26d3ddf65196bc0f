// Modules on a device behind the C interface of plug-ins; here the processor's own. OpenCL devices:
// tests/fault/opencl_device_test.cc.
#include "deploy/runtime/device_session.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>

#include "deploy/module/kernel_module.h"
#include "deploy/module/module_file.h"
#include "deploy/module/module_writer.h"
#include "deploy/runtime/device_loader.h"
#include "deploy/runtime/result_check.h"
#include "deploy/support/status.h"
#include "tests/support/measured_kernels.h"

namespace tilewright::runtime {
namespace {

class DeviceSessionTest : public ::testing::Test {
 protected:
  DeviceSessionTest() { EXPECT_EQ(plugin_.open(0, &device_, nullptr, 0), TW_DEVICE_OK); }
  ~DeviceSessionTest() override { plugin_.close(device_); }

  absl::StatusOr<std::unique_ptr<DeviceSession>> Create(const std::string& bytes,
                                                        const std::string& function = "main") {
    auto file = module::ModuleFile::FromBytes(bytes);
    EXPECT_TRUE(file.ok()) << file.status();
    return DeviceSession::Create(*std::move(file), plugin_, device_, function);
  }

  const TwDevicePlugin& plugin_ = *CpuDevicePlugin();
  TwDevice* device_ = nullptr;
};

const std::vector<module::InputSpec> kInputs = {
    {0, 7, {module::Distribution::Kind::kUniform, -1, 1}}};

TEST_F(DeviceSessionTest, RunsChecksAndTimesAKernel) {
  auto session = Create(tests::KernelModule("honest"));
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE(FillInputs(kInputs, session->get()).ok());
  ASSERT_TRUE((*session)->Prepare().ok());
  ASSERT_TRUE((*session)->Poison(0xFF).ok());
  ASSERT_EQ((*session)->Run(), absl::OkStatus());
  ASSERT_TRUE((*session)->Collect().ok());
  const auto compared = CheckOutputs(**session, tests::KernelExpected(), {0, 1e-6});
  ASSERT_TRUE(compared.ok()) << compared.status();
  EXPECT_TRUE((*compared)[0].ok());
  const auto ns = (*session)->Time(100);
  ASSERT_TRUE(ns.ok()) << ns.status();
  EXPECT_GT(*ns, 100) << "1024 multiplications, a hundred times";
}

TEST_F(DeviceSessionTest, PoisonIsWhatAKernelThatDoesNothingLeaves) {
  auto session = Create(tests::KernelModule("nothing"));
  ASSERT_TRUE(session.ok()) << session.status();
  ASSERT_TRUE((*session)->Prepare().ok());
  ASSERT_TRUE((*session)->Poison(0xFF).ok());
  ASSERT_EQ((*session)->Run(), absl::OkStatus());
  ASSERT_TRUE((*session)->Collect().ok());
  EXPECT_EQ(OutputBytes(**session), std::string(4096, '\xFF'));
}

TEST_F(DeviceSessionTest, WritesThatAreNotItsOwnAreFound) {
  for (const char* kernel : {"past_end", "write_input"}) {
    auto session = Create(tests::KernelModule(kernel));
    ASSERT_TRUE(session.ok()) << session.status();
    ASSERT_TRUE(FillInputs(kInputs, session->get()).ok());
    ASSERT_TRUE((*session)->Prepare().ok());
    ASSERT_EQ((*session)->Run(), absl::OkStatus());
    const absl::Status collected = (*session)->Collect();
    EXPECT_EQ(support::Slug(collected), "runtime.guard.overwritten") << kernel << collected;
  }
}

TEST_F(DeviceSessionTest, WhatDoesNotFitIsRefused) {
  const std::string good = tests::KernelModule("honest");
  EXPECT_EQ(support::Slug(Create(good, "other").status()), "runtime.session.function");
  module::KernelModule kernel;
  kernel.name = "k";
  kernel.target = "opencl";
  kernel.format = "opencl-c";
  kernel.code = "no C";
  kernel.inputs = {{"x", {4}}};
  kernel.outputs = {{"y", {4}}};
  kernel.launches.emplace_back().symbol = "tw_kernel_k";
  const auto foreign = module::SerializeKernelModule(kernel);
  ASSERT_TRUE(foreign.ok()) << foreign.status();
  EXPECT_EQ(support::Slug(Create(*foreign).status()), "runtime.load.format");
  kernel.inputs[0].shape = {-1};
  EXPECT_EQ(support::Slug(module::SerializeKernelModule(kernel).status()), "module.manifest.shape");
}

// The processor's own path runs no groups of threads, and says so.
TEST_F(DeviceSessionTest, AGridIsNothingForTheProcessor) {
  auto parts = module::ModuleFile::FromBytes(tests::KernelModule("honest"));
  ASSERT_TRUE(parts.ok());
  module::ModuleParts again;
  again.manifest = parts->manifest();
  again.manifest.functions[0].launches[0].grid = {2, 1, 1};
  again.manifest.functions[0].launches[0].group = {8, 1, 1};
  again.code = {std::string(parts->code(0))};
  const auto bytes = module::SerializeModule(again);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  auto file = module::ModuleFile::FromBytes(*bytes);
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(support::Slug(LoadedModule::Load(*std::move(file)).status()), "runtime.load.grid");
}

}  // namespace
}  // namespace tilewright::runtime
