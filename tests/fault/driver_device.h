// A device behind a driver, measured by the real worker under the profile `driver`. One worker
// serves all tests of a kind; without a device of the kind they skip. For tests of one thread.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "device_agent/supervisor.h"
#include "tests/support/measured_kernels.h"

namespace tilewright::device_agent {

inline SupervisorOptions DriverWorker(const std::string& kind) {
  SupervisorOptions options;
  options.worker_path = *support::FindSibling("tilewright-worker");
  options.device_kind = kind;
  options.allow_weak_sandbox = true;  // what a container permits is tested
  options.sandbox_profile = "driver";
  options.threads = 1;
  return options;
}

// `Kind::kName`: the word of target strings.
template <typename Kind>
class DriverDevice : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    supervisor_ = std::make_unique<Supervisor>(DriverWorker(Kind::kName));
    auto ready = supervisor_->Start();
    if (ready.ok()) ready_ = std::make_unique<v1::WorkerReady>(*std::move(ready));
    if (!ready.ok()) why_not_ = support::StatusText(ready.status());
  }
  static void TearDownTestSuite() {
    supervisor_.reset();
    ready_.reset();
  }
  void SetUp() override {
    if (ready_ != nullptr) return;
    // No driver, no device: everything else is a fault of ours.
    ASSERT_THAT(why_not_, testing::HasSubstr("of 0 devices"));
    GTEST_SKIP() << "[SKIP] no device of the kind " << Kind::kName << ": " << why_not_;
  }

  // y = 2 x + 1 is what is expected. A module that hangs is called so: it is given up sooner.
  static v1::ModuleMeasured Measure(const std::string& name, std::string module) {
    MeasureInput input;
    input.module = std::move(module);
    input.expected = tests::KernelExpected();
    *input.work.mutable_inputs() = tests::KernelInputs();
    input.work.mutable_tolerance()->set_rel(1e-6);
    input.work.mutable_wall_limit()->set_seconds(name == "hang" ? 2 : 20);
    *input.work.mutable_plan() = tests::ShortPlan();
    return supervisor_->Measure(input);
  }

  static const v1::WorkerReady& ready() { return *ready_; }
  static Supervisor& supervisor() { return *supervisor_; }

 private:
  static inline std::unique_ptr<Supervisor> supervisor_;
  static inline std::unique_ptr<v1::WorkerReady> ready_;
  static inline std::string why_not_;
};

}  // namespace tilewright::device_agent
