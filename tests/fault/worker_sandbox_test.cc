// Candidates that misbehave, measured by the real worker binary under both profiles of the sandbox:
// each ends as the outcome it is, the worker survives, and the next candidate is measured as if
// nothing had happened.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "device_agent/control_group.h"
#include "device_agent/measure_child.h"
#include "device_agent/supervisor.h"
#include "tests/support/measured_kernels.h"
#include "tests/support/process_names.h"

namespace tilewright::device_agent {
namespace {

constexpr int64_t kMemoryLimit = int64_t{512} << 20;

struct Case {
  const char* name;  // of the test, and of the kernel unless `kernel` is set
  v1::Outcome outcome;
  const char* error_class;
  int signal = 0;
  const char* phase = "first_run";
  const char* detail = "";  // must be part of the error's text
  const char* kernel = nullptr;
  int64_t elements = 1024;
  int constructor = 0;
  int threads = 1;
  const char* profile = "strict";
};

void PrintTo(const Case& row, std::ostream* out) { *out << row.name; }

class WorkerSandboxTest : public ::testing::TestWithParam<Case> {
 protected:
  struct Worker {
    explicit Worker(const SupervisorOptions& options) : supervisor(options) {}
    Supervisor supervisor;
    v1::WorkerReady ready;
  };

  // One worker of each profile for all cases, as for an agent: what one case breaks, the next ones
  // feel.
  static void SetUpTestSuite() {
    // What a build without a filter may have left.
    ASSERT_TRUE(support::RemoveFile("/tmp/tilewright_hostile").ok());
    const auto path = support::FindSibling("tilewright-worker");
    ASSERT_TRUE(path.ok()) << path.status();
    for (const char* profile : {"strict", "driver"}) {
      SupervisorOptions options;
      options.worker_path = *path;
      options.allow_weak_sandbox = true;  // what a container permits is tested
      options.memory_limit_bytes = kMemoryLimit;
      options.threads = 2;
      options.sandbox_profile = profile;
      auto worker = std::make_unique<Worker>(options);
      const auto ready = worker->supervisor.Start();
      ASSERT_TRUE(ready.ok()) << ready.status();
      EXPECT_EQ(ready->attributes().at("sandbox").s(), profile);
      worker->ready = *ready;
      workers_[profile] = std::move(worker);
    }
  }
  static void TearDownTestSuite() { workers_.clear(); }

  void SetUp() override { Use("strict"); }
  void Use(const std::string& profile) { worker_ = workers_.at(profile).get(); }

  v1::ModuleMeasured Measure(const std::string& kernel, const tests::KernelOptions& options = {},
                             v1::InjectedFault fault = v1::INJECTED_FAULT_UNSPECIFIED) {
    MeasureInput input;
    input.module = tests::KernelModule(kernel, options);
    input.expected = tests::KernelExpected(options.elements);
    input.fault = fault;
    *input.work.mutable_inputs() = tests::KernelInputs(options.elements);
    input.work.mutable_tolerance()->set_rel(1e-6);
    input.work.mutable_wall_limit()->set_seconds(20);
    if (kernel == "hang" || kernel == "flood_error" || fault == v1::INJECTED_FAULT_HANG) {
      input.work.mutable_wall_limit()->set_seconds(1);
    }
    *input.work.mutable_plan() = tests::ShortPlan();
    return worker_->supervisor.Measure(input);
  }

  bool sandboxed() const { return worker_->ready.sandboxed(); }
  std::string why_not() const { return worker_->ready.sandbox_detail(); }
  int64_t restarts() const { return worker_->supervisor.restarts(); }

 private:
  static std::map<std::string, std::unique_ptr<Worker>> workers_;  // by profile
  Worker* worker_ = nullptr;
};

std::map<std::string, std::unique_ptr<WorkerSandboxTest::Worker>> WorkerSandboxTest::workers_;

TEST_P(WorkerSandboxTest, EndsAsItIsAndHarmsNobody) {
  const Case& row = GetParam();
  Use(row.profile);
  const bool confined = std::string(row.error_class) == "SANDBOX" || row.constructor == 2 ||
                        std::string_view(row.profile) == "driver";
  if (!sandboxed() && confined) {
    GTEST_SKIP() << "[SKIP] this machine or build has no system-call filter: " << why_not();
  }
  const int64_t restarts_before = restarts();
  tests::KernelOptions options;
  options.elements = row.elements;
  options.constructor = row.constructor;
  options.threads = row.threads;
  const v1::ModuleMeasured bad = Measure(row.kernel != nullptr ? row.kernel : row.name, options);
  EXPECT_EQ(bad.outcome(), row.outcome) << bad.DebugString();
  EXPECT_EQ(bad.error_class(), row.error_class) << bad.DebugString();
  EXPECT_EQ(bad.signal(), row.signal) << bad.DebugString();
  EXPECT_NE(bad.error_detail().find(row.detail), std::string::npos) << bad.error_detail();
  const std::string phase = v1::WorkerPhase_Name(bad.phase());
  std::string expected_phase = "WORKER_PHASE_";
  for (const char* c = row.phase; *c != 0; ++c) expected_phase += static_cast<char>(toupper(*c));
  EXPECT_EQ(phase, expected_phase);

  const v1::ModuleMeasured good = Measure("honest");
  EXPECT_EQ(good.outcome(), v1::OK) << good.DebugString();
  EXPECT_EQ(restarts(), restarts_before) << "the worker did not survive";
  EXPECT_FALSE(support::FileExists("/tmp/tilewright_hostile"));
}

const std::vector<Case>& StrictCases() {
  static const std::vector<Case> cases = {
      Case{"wrong", v1::WRONG_RESULT, "FIRST_RUN", 0, "check", "1 of 1024 elements differ"},
      Case{"wrong_later", v1::WRONG_RESULT, "LAST_RUN", 0, "last_check"},
      Case{"lazy", v1::WRONG_RESULT, "LAST_RUN", 0, "last_check"},
      Case{"nothing", v1::WRONG_RESULT, "FIRST_RUN", 0, "check"},
      Case{"past_end", v1::RUN_CRASH, "SIGNAL", SIGSEGV},
      Case{"past_end_padded", v1::WRONG_RESULT, "OUT_OF_BOUNDS", 0, "check", "'y'", "past_end",
           1000},
      Case{"before_begin", v1::RUN_CRASH, "SIGNAL", SIGSEGV},
      Case{"before_begin_padded", v1::WRONG_RESULT, "OUT_OF_BOUNDS", 0, "check", "'y'",
           "before_begin", 1000},
      Case{"write_input", v1::RUN_CRASH, "SIGNAL", SIGSEGV},
      Case{"error", v1::RUN_CRASH, "KERNEL_ERROR", 0, "first_run", "returned 42"},
      Case{"hang", v1::RUN_TIMEOUT, "WALL_LIMIT", SIGKILL},
      Case{"crash", v1::RUN_CRASH, "SIGNAL", SIGSEGV},
      Case{"exit_zero", v1::RUN_CRASH, "EXITED", 0, "first_run", "exit code 0"},
      Case{"abort", v1::RUN_CRASH, "SIGNAL", SIGABRT},
      Case{"stack_smash", v1::RUN_CRASH, "SIGNAL", SIGABRT, "first_run", "stack smashing"},
      Case{"stack_overflow", v1::RUN_CRASH, "SIGNAL", SIGSEGV},
      Case{"chatter", v1::RUN_CRASH, "SIGNAL", SIGABRT, "first_run", "last words"},
      Case{"fork_bomb", v1::RUN_CRASH, "SANDBOX", SIGSYS},
      Case{"connect", v1::RUN_CRASH, "SANDBOX", SIGSYS},
      Case{"open_write", v1::RUN_CRASH, "SANDBOX", SIGSYS},
      Case{"open_read", v1::RUN_CRASH, "KERNEL_ERROR", 0, "first_run", "returned 1"},
      Case{"open_by_thread", v1::RUN_CRASH, "KERNEL_ERROR", 0, "first_run", "returned 1", nullptr,
           1024, 0, 2},
      Case{"unlink", v1::RUN_CRASH, "SANDBOX", SIGSYS},
      Case{"exec", v1::RUN_CRASH, "SANDBOX", SIGSYS},
      Case{"ptrace", v1::RUN_CRASH, "SANDBOX", SIGSYS},
      Case{"kill_parent", v1::RUN_CRASH, "SANDBOX", SIGSYS},
      Case{"big_malloc", v1::RUN_CRASH, "KERNEL_ERROR", 0, "first_run", "returned 12"},
      Case{"memory_hog", v1::RUN_CRASH, "SIGNAL", SIGABRT},
      Case{"thread_bomb", v1::RUN_CRASH, "KERNEL_ERROR", 0, "first_run", "returned 11"},
      Case{"flood_result", v1::RUN_CRASH, "SANDBOX", 0, "first_run", "forged"},
      Case{"flood_error", v1::RUN_TIMEOUT, "WALL_LIMIT", SIGKILL},
      Case{"escape", v1::RUN_CRASH, "SANDBOX", SIGSYS},
      Case{"forge", v1::RUN_CRASH, "SANDBOX", 0, "first_run", "forged"},
      Case{"forge_cancelled", v1::RUN_CRASH, "SANDBOX", 0, "first_run", "forged"},
      Case{"forge_now", v1::RUN_CRASH, "SANDBOX", 0, "first_run", "forged"},
      Case{"forge_whole", v1::WRONG_RESULT, "FIRST_RUN", 0, "check"},
      Case{"forge_rest", v1::WRONG_RESULT, "LAST_RUN", 0, "last_check"},
      Case{"forge_impossible", v1::RUN_CRASH, "SANDBOX", 0, "baseline", "forged"},
      Case{"forge_lost", v1::RUN_CRASH, "SANDBOX", 0, "first_run", "a lost device"},
      Case{"slow_clock", v1::RUN_CRASH, "SANDBOX", 0, "last_check", "one run took"},
      Case{"thief", v1::OK, "", 0, "unspecified"},
      Case{"garble", v1::RUN_CRASH, "SANDBOX", 0, "first_run", "forged"},
      Case{"exit_on_load", v1::RUN_CRASH, "EXITED", 0, "load", "exit code 0", "honest", 1024, 1},
      Case{"open_on_load", v1::RUN_CRASH, "SANDBOX", SIGSYS, "load", "", "honest", 1024, 2}};
  return cases;
}

// What ends otherwise under `driver`, by name. A driver may look for files and other processes at
// any time, so that a refusal is an error to whoever asked and not the process's end; what a
// candidate makes of it is its own.
const std::vector<Case>& OtherwiseUnderDriver() {
  static const std::vector<Case> cases = {
      Case{"connect", v1::RUN_CRASH, "KERNEL_ERROR", 0, "first_run", "returned -1"},
      Case{"open_write", v1::RUN_CRASH, "KERNEL_ERROR", 0, "first_run", "returned 1"},
      Case{"unlink", v1::RUN_CRASH, "KERNEL_ERROR", 0, "first_run", "returned 1"},
      Case{"open_on_load", v1::OK, "", 0, "unspecified", "", "honest", 1024, 2}};
  return cases;
}

std::vector<Case> DriverCases() {
  std::vector<Case> cases = StrictCases();
  for (Case& row : cases) {
    for (const Case& other : OtherwiseUnderDriver()) {
      if (std::string_view(row.name) == other.name) row = other;
    }
    row.profile = "driver";
  }
  return cases;
}

const auto kCaseName = [](const auto& info) { return std::string(info.param.name); };
INSTANTIATE_TEST_SUITE_P(Kernels, WorkerSandboxTest, ::testing::ValuesIn(StrictCases()), kCaseName);
INSTANTIATE_TEST_SUITE_P(KernelsUnderDriver, WorkerSandboxTest, ::testing::ValuesIn(DriverCases()),
                         kCaseName);

using Honest = WorkerSandboxTest;

TEST_F(Honest, OneAndTwoThreads) {
  const v1::ModuleMeasured one = Measure("honest");
  EXPECT_EQ(one.outcome(), v1::OK) << one.DebugString();
  EXPECT_EQ(one.clock(), "thread_cpu");
  EXPECT_GE(one.samples_size(), 3);
  EXPECT_GT(one.baseline_before(), 0);
  EXPECT_GT(one.baseline_after(), 0);
  tests::KernelOptions options;
  options.threads = 2;
  const v1::ModuleMeasured two = Measure("parallel", options);
  EXPECT_EQ(two.outcome(), v1::OK) << two.DebugString();
}

TEST_F(Honest, MemoryBeyondTheLimitIsOutOfMemory) {
  tests::KernelOptions options;
  options.elements = kMemoryLimit / 4;  // two tensors of the whole limit
  const v1::ModuleMeasured measured = Measure("honest", {});
  EXPECT_EQ(measured.outcome(), v1::OK);
  MeasureInput input;
  input.module = tests::KernelModule("honest", options);
  *input.work.mutable_inputs() = tests::KernelInputs(options.elements);
  SupervisorOptions limits;
  limits.worker_path = *support::FindSibling("tilewright-worker");
  limits.allow_weak_sandbox = true;
  limits.memory_limit_bytes = kMemoryLimit;
  Supervisor supervisor(limits);
  const v1::ModuleMeasured big = supervisor.Measure(input);
  if (!sandboxed()) GTEST_SKIP() << "[SKIP] no address-space limit in this build: " << why_not();
  EXPECT_EQ(big.outcome(), v1::OUT_OF_MEMORY) << big.DebugString();
}

TEST_F(Honest, RefusedModulesAreBuildErrors) {
  SupervisorOptions options;
  options.worker_path = *support::FindSibling("tilewright-worker");
  options.allow_weak_sandbox = true;
  Supervisor supervisor(options);
  MeasureInput input;
  input.module = tests::KernelModule("honest");
  input.module[input.module.size() / 2] ^= 1;
  v1::ModuleMeasured measured = supervisor.Measure(input);
  EXPECT_EQ(measured.outcome(), v1::BUILD_ERROR) << measured.DebugString();
  EXPECT_EQ(measured.error_class(), "LOAD_REFUSED");
  input.module = tests::KernelModule("no_such_kernel");
  measured = supervisor.Measure(input);
  EXPECT_EQ(measured.outcome(), v1::BUILD_ERROR) << measured.DebugString();
  input.module = "";
  measured = supervisor.Measure(input);
  EXPECT_EQ(measured.outcome(), v1::BUILD_ERROR) << measured.DebugString();
}

TEST_F(Honest, InjectedFaultsAreFoundTheOrdinaryWay) {
  const v1::ModuleMeasured wrong = Measure("honest", {}, v1::INJECTED_FAULT_WRONG);
  EXPECT_EQ(wrong.outcome(), v1::WRONG_RESULT) << wrong.DebugString();
  const v1::ModuleMeasured crash = Measure("honest", {}, v1::INJECTED_FAULT_CRASH);
  EXPECT_EQ(crash.outcome(), v1::RUN_CRASH) << crash.DebugString();
  EXPECT_EQ(crash.signal(), SIGSEGV);
  const v1::ModuleMeasured hang = Measure("honest", {}, v1::INJECTED_FAULT_HANG);
  EXPECT_EQ(hang.outcome(), v1::RUN_TIMEOUT) << hang.DebugString();
}

// Where the kernel has no filter, a candidate can start processes and leave its group.
TEST(WithoutAFilter, DescendantsAreKilledAndReapedWhereverTheyWent) {
  ASSERT_EQ(tests::ProcessesCalled("tw_escaped"), 0);
  v1::MeasureModule request;
  *request.mutable_inputs() = tests::KernelInputs();
  request.mutable_wall_limit()->set_seconds(3);  // long enough for them to get away
  ChildJob job;
  const std::string module = tests::KernelModule("escape");
  job.measure.module = module;
  job.measure.request = &request;
  job.memory_limit_bytes = kMemoryLimit;
  job.sandboxed = false;
  int alive = 0;
  std::atomic<bool> over{false};
  std::thread witness([&] {
    while (alive < 3 && !over.load()) {
      support::SleepMs(10);
      alive = std::max(alive, tests::ProcessesCalled("tw_escaped"));
    }
  });
  v1::ModuleMeasured measured;
  MeasureInChild(
      job, [](v1::WorkerPhase) {},
      [&](v1::ModuleMeasured answer) { measured = std::move(answer); });
  over = true;
  witness.join();
  EXPECT_EQ(measured.outcome(), v1::RUN_TIMEOUT) << measured.DebugString();
  EXPECT_GE(alive, 3) << "they did not escape";
  EXPECT_EQ(tests::ProcessesCalled("tw_escaped"), 0) << "not even a zombie";
}

TEST_F(Honest, AnAbortedMeasurementIsCancelledAndTheNextOneWorks) {
  SupervisorOptions options;
  options.worker_path = *support::FindSibling("tilewright-worker");
  options.allow_weak_sandbox = true;
  Supervisor supervisor(options);
  MeasureInput input;
  input.module = tests::KernelModule("hang");
  *input.work.mutable_inputs() = tests::KernelInputs();
  supervisor.Abort();  // before it begins: the decision counts all the same
  EXPECT_EQ(supervisor.Measure(input).outcome(), v1::CANCELLED);
  input.module = tests::KernelModule("honest");
  EXPECT_EQ(supervisor.Measure(input).outcome(), v1::OK);
}

// The kernel's score for each descendant of this process, by how many generations it is away; the
// highest of each generation.
std::map<int, int> OomScores() {
  std::map<int, int> parents;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    const auto pid = support::ParseInt64(entry.path().filename().string());
    const auto status = support::ReadFile((entry.path() / "status").string(), 1 << 14);
    const size_t at = status.ok() ? status->find("PPid:\t") : std::string::npos;
    if (!pid || at == std::string::npos) continue;
    parents[static_cast<int>(*pid)] = std::atoi(status->c_str() + at + 6);
  }
  std::map<int, int> scores;
  for (const auto& [pid, parent] : parents) {
    int generations = 1, ancestor = parent;
    for (; ancestor > 1 && ancestor != getpid(); ++generations) ancestor = parents[ancestor];
    if (ancestor != getpid()) continue;
    const auto score = support::ReadFile(support::StrCat("/proc/", pid, "/oom_score_adj"), 100);
    int& highest = scores[generations];
    if (score.ok()) highest = std::max(highest, std::atoi(score->c_str()));
  }
  return scores;
}

// When memory is short the kernel ends the process with the highest score first.
TEST_F(Honest, WhenMemoryIsShortTheCandidateEndsBeforeTheWorkerAndThatBeforeTheAgent) {
  for (const char* profile : {"strict", "driver"}) {
    SCOPED_TRACE(profile);
    Use(profile);
    std::map<int, int> scores;
    std::atomic<bool> over{false};
    std::thread witness([&] {
      while (!over.load() && (scores.empty() || scores.rbegin()->second < kCandidateOomScore)) {
        support::SleepMs(10);
        scores = OomScores();
      }
    });
    EXPECT_EQ(Measure("hang").outcome(), v1::RUN_TIMEOUT);
    over = true;
    witness.join();
    EXPECT_EQ(scores[1], kWorkerOomScore) << "the workers";
    EXPECT_GE(scores.size(), 2U);
    EXPECT_EQ(scores.rbegin()->second, kCandidateOomScore) << "the candidate";
    const auto own = support::ReadFile("/proc/self/oom_score_adj", 100);
    ASSERT_TRUE(own.ok()) << own.status();
    EXPECT_LT(std::atoi(own->c_str()), kWorkerOomScore) << "this process, as an agent";
  }
}

TEST_F(Honest, AMissingWorkerIsNotTheCandidatesFault) {
  SupervisorOptions options;
  options.worker_path = "/nonexistent/tilewright-worker";
  Supervisor supervisor(options);
  MeasureInput input;
  input.module = tests::KernelModule("honest");
  const v1::ModuleMeasured measured = supervisor.Measure(input);
  EXPECT_EQ(measured.outcome(), v1::DEVICE_LOST);
  EXPECT_EQ(measured.error_class(), "AGENT");
  EXPECT_EQ(measured.phase(), v1::WORKER_PHASE_UNSPECIFIED);
  EXPECT_TRUE(supervisor.broken());
}

TEST_F(Honest, ASlowCandidateIsStoppedEarly) {
  SupervisorOptions options;
  options.worker_path = *support::FindSibling("tilewright-worker");
  options.allow_weak_sandbox = true;
  Supervisor supervisor(options);
  MeasureInput input;
  input.module = tests::KernelModule("slow");
  input.expected = tests::KernelExpected();
  *input.work.mutable_inputs() = tests::KernelInputs();
  input.work.mutable_tolerance()->set_rel(1e-6);
  input.work.mutable_plan()->set_abort_if_slower_than_ns(10'000);
  const v1::ModuleMeasured measured = supervisor.Measure(input);
  EXPECT_EQ(measured.outcome(), v1::EARLY_STOPPED) << measured.DebugString();
  ASSERT_EQ(measured.samples_size(), 1);
  EXPECT_GT(measured.samples(0), 10'000);
}

}  // namespace
}  // namespace tilewright::device_agent
