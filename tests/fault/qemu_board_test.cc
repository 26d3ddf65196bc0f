// A worker inside an emulated board (device_agent/qemu_board.c): it measures virtual cycles, equal
// in every run, by the same bridge as any other board.
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "deploy/support/file.h"
#include "deploy/support/process.h"
#include "deploy/support/strings.h"
#include "device_agent/fingerprint.h"
#include "device_agent/measured_result.h"
#include "device_agent/supervisor.h"
#include "tests/support/measured_kernels.h"
#include "tests/support/patience.h"

namespace tilewright::device_agent {
namespace {

using support::StrCat;

constexpr char kQemu[] = "/usr/bin/qemu-x86_64";
constexpr char kAddress[] = "0x545743000000";

std::string Bridge(const std::string& counter) {
  return StrCat(kQemu, " -cpu max -plugin ", TILEWRIGHT_QEMU_BOARD, ",at=", kAddress, " ",
                support::FindSibling("tilewright-worker").value(), " --cycle-counter=", counter);
}

SupervisorOptions Behind(const std::string& bridge) {
  SupervisorOptions options;
  options.worker_path = "/nonexistent/worker";
  options.device = "devices/board";
  options.allow_weak_sandbox = true;  // the emulator knows no system-call filter
  options.bridge = bridge;
  options.grace_ms = tests::Patiently(60'000);
  return options;
}

MeasureInput InputOf(const std::string& kernel) {
  MeasureInput input;
  input.module = tests::KernelModule(kernel);
  *input.work.mutable_inputs() = tests::KernelInputs();
  input.expected = tests::KernelExpected();
  input.work.mutable_tolerance()->set_rel(1e-6);
  *input.work.mutable_plan() = tests::ShortPlan();
  input.work.mutable_plan()->set_min_repeats(5);
  input.work.mutable_wall_limit()->set_seconds(tests::Patiently(60));
  return input;
}

class QemuBoardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (access(kQemu, X_OK) != 0) GTEST_SKIP() << "[SKIP] no " << kQemu << " (package qemu-user)";
  }
};

TEST_F(QemuBoardTest, EqualRunsTakeEqualCycles) {
  double first = 0;
  for (int run = 0; run < 2; ++run) {
    Supervisor supervisor(Behind(Bridge(kAddress)));
    const auto ready = supervisor.Start();
    ASSERT_TRUE(ready.ok()) << ready.status();
    const v1::DeviceReport device = DeviceFrom(ready->attributes());
    EXPECT_EQ(UnitOf(device).name, "virtual_cycles");
    EXPECT_TRUE(device.key().ends_with("@virtual_cycles")) << device.key();
    // What ran before must not count: nothing, or another candidate.
    if (run == 1) {
      EXPECT_EQ(supervisor.Measure(InputOf("wrong")).outcome(), v1::WRONG_RESULT);
    }
    for (int again = 0; again < 8; ++again) {
      const MeasureInput input = InputOf("honest");
      const v1::ModuleMeasured measured = supervisor.Measure(input);
      ASSERT_EQ(measured.outcome(), v1::OK) << measured.DebugString();
      EXPECT_EQ(measured.value_kind(), v1::VALUE_KIND_VIRTUAL_CYCLES);
      ASSERT_EQ(measured.samples_size(), 1) << "one says all, whatever the plan asks for";
      EXPECT_EQ(measured.clock(), "counter");
      if (first == 0) first = measured.samples(0);
      EXPECT_EQ(measured.samples(0), first) << "run " << run << ", again " << again;
      const v1::MeasurementResult result = ResultFrom(measured, input.work.plan());
      EXPECT_TRUE(result.valid()) << result.DebugString();
      EXPECT_EQ(result.baseline_before(), 0) << "nothing drifts";
    }
  }
  EXPECT_GT(first, 100);
}

TEST_F(QemuBoardTest, WhatTheWorkerFreedBeforeDoesNotCount) {
  Supervisor supervisor(Behind(Bridge(kAddress)));
  ASSERT_TRUE(supervisor.Start().ok());
  MeasureInput pages = InputOf("pages");
  pages.module = tests::KernelModule("pages", {.workspace_bytes = 256 << 10});
  const v1::ModuleMeasured before = supervisor.Measure(pages);
  ASSERT_EQ(before.outcome(), v1::OK) << before.DebugString();

  constexpr int64_t kMany = 1 << 20;
  MeasureInput large = InputOf("honest");
  large.module = tests::KernelModule("honest", {.elements = kMany});
  *large.work.mutable_inputs() = tests::KernelInputs(kMany);
  large.expected = tests::KernelExpected(kMany);
  const v1::ModuleMeasured between = supervisor.Measure(large);
  ASSERT_EQ(between.outcome(), v1::OK) << between.DebugString();

  EXPECT_EQ(supervisor.Measure(pages).samples(0), before.samples(0));
}

TEST_F(QemuBoardTest, SlowerThanTheLimitInCyclesIsStoppedEarly) {
  Supervisor supervisor(Behind(Bridge(kAddress)));
  ASSERT_TRUE(supervisor.Start().ok());
  MeasureInput input = InputOf("honest");
  const double cycles = supervisor.Measure(input).samples(0);
  input.work.mutable_plan()->set_abort_if_slower_than_ns(cycles);
  EXPECT_EQ(supervisor.Measure(input).outcome(), v1::OK);
  input.work.mutable_plan()->set_abort_if_slower_than_ns(cycles - 1);
  EXPECT_EQ(supervisor.Measure(input).outcome(), v1::EARLY_STOPPED);
}

TEST_F(QemuBoardTest, AWorkerWithoutACounterSaysSo) {
  Supervisor supervisor(Behind(Bridge("0x1000")));
  const absl::Status status = supervisor.Start().status();
  EXPECT_NE(status.ToString().find("worker.counter.missing"), std::string::npos) << status;
}

}  // namespace
}  // namespace tilewright::device_agent
