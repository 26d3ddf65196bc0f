// A device behind a driver: an OpenCL device (PoCL, or whatever the machine has) measured by the
// real worker under the profile `driver`, candidates that misbehave on it, and a kernel tuned on it
// through a real tracker and agent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "deploy/runtime/device_loader.h"
#include "deploy/runtime/input_gen.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "device_agent/supervisor.h"
#include "tests/fault/driver_device.h"
#include "tests/fault/loopback_fleet.h"
#include "tests/support/measured_kernels.h"
#include "tests/support/opencl_module.h"
#include "tests/support/process_names.h"

namespace tilewright::device_agent {
namespace {

using support::StrCat;
using testing::HasSubstr;
using tests::LoopbackConsumer;
using tests::LoopbackDaemon;
using tests::WaitFor;

struct OpenCl {
  static constexpr char kName[] = "opencl";
};
class OpenClDevice : public DriverDevice<OpenCl> {
 protected:
  static v1::ModuleMeasured Measure(const std::string& name, const std::string& text) {
    return DriverDevice::Measure(name, tests::OpenClTextModule(name, text));
  }
};

constexpr char kHonest[] =
    "__kernel void honest(long n, __global const float* x, __global float* y) {\n"
    "  long i = get_global_id(0);\n"
    "  y[i] = 2 * x[i] + 1;\n"
    "}\n";

// A kernel whose only thread that does anything runs `body`; the result is the honest one.
std::string Hostile(const std::string& name, const std::string& body) {
  return StrCat(
      "long syscall3(long number, long a, long b, long c) {\n"
      "  long result;\n"
      "  __asm__ volatile(\"syscall\" : \"=a\"(result) : \"a\"(number), \"D\"(a), \"S\"(b), "
      "\"d\"(c)\n    : \"rcx\", \"r11\", \"memory\");\n"
      "  return result;\n"
      "}\n"
      "__kernel void ",
      name,
      "(long n, __global float* x, __global float* y) {\n"
      "  long i = get_global_id(0);\n"
      "  y[i] = 2 * x[i] + 1;\n"
      "  if (i == 0) {\n",
      body, "  }\n}\n");
}

TEST_F(OpenClDevice, TellsWhatItIsAndMeasures) {
  EXPECT_EQ(ready().attributes().at("kind").s(), "opencl");
  EXPECT_EQ(ready().attributes().at("sandbox").s(), "driver");
  EXPECT_NE(ready().attributes().at("name").s(), "");
  EXPECT_NE(ready().attributes().at("driver").s(), "");
  const v1::ModuleMeasured measured = Measure("honest", kHonest);
  EXPECT_EQ(measured.outcome(), v1::OK) << measured.DebugString();
  EXPECT_EQ(measured.clock(), "device");
  EXPECT_GE(measured.samples_size(), 3);
  EXPECT_GT(measured.baseline_before(), 0) << "the self-test's kernel on the same device";
  EXPECT_GT(measured.baseline_after(), 0);
}

// A build in /root, which is closed to others: measuring processes run as another user than root's
// worker, and could not load the plug-in.
TEST_F(OpenClDevice, APluginInAFolderOfRootIsLoaded) {
  if (geteuid() != 0) GTEST_SKIP() << "[SKIP] only root's worker changes its user";
  const auto folder = support::TempDir::Create();  // 0700
  ASSERT_TRUE(folder.ok()) << folder.status();
  const auto plugin = runtime::FindDevicePlugin("opencl");
  ASSERT_TRUE(plugin.ok()) << plugin.status();
  std::filesystem::copy(*plugin, folder->path());
  setenv("TILEWRIGHT_PLUGIN_DIR", folder->path().c_str(), 1);
  Supervisor worker(DriverWorker(OpenCl::kName));
  const auto started = worker.Start();
  unsetenv("TILEWRIGHT_PLUGIN_DIR");
  EXPECT_TRUE(started.ok()) << started.status();
}

TEST_F(OpenClDevice, BadCandidatesEndAsWhatTheyAre) {
  const std::string head = "(long n, __global float* x, __global float* y) {\n";
  struct Row {
    const char* name;
    std::string body;
    v1::Outcome outcome;
    const char* error_class;
    const char* detail;
  };
  const std::vector<Row> rows = {
      {"wrong", "y[get_global_id(0)] = 3;", v1::WRONG_RESULT, "FIRST_RUN", "1024 of 1024"},
      {"nothing", "if (n < 0) y[0] = x[0];", v1::WRONG_RESULT, "FIRST_RUN", ""},
      {"past_end", "long i = get_global_id(0); y[i] = 2 * x[i] + 1; y[n + 8] = 1;",
       v1::WRONG_RESULT, "OUT_OF_BOUNDS", "behind tensor 'y'"},
      {"write_input", "long i = get_global_id(0); y[i] = 2 * x[i] + 1; x[i] = 7;", v1::WRONG_RESULT,
       "OUT_OF_BOUNDS", "into input 'x'"},
      {"hang", "while (n > 0) { y[0] = n; mem_fence(CLK_GLOBAL_MEM_FENCE); }", v1::RUN_TIMEOUT,
       "WALL_LIMIT", ""},
      {"no_text", "this is no C", v1::BUILD_ERROR, "LOAD_REFUSED", "device.opencl.build"}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const v1::ModuleMeasured bad =
        Measure(row.name, StrCat("__kernel void ", row.name, head, row.body, "\n}\n"));
    EXPECT_EQ(bad.outcome(), row.outcome) << bad.DebugString();
    EXPECT_EQ(bad.error_class(), row.error_class) << bad.DebugString();
    EXPECT_THAT(bad.error_detail(), HasSubstr(row.detail));
    const v1::ModuleMeasured good = Measure("honest", kHonest);
    EXPECT_EQ(good.outcome(), v1::OK) << good.DebugString();
  }
  EXPECT_EQ(supervisor().restarts(), 0) << "the worker did not survive";
}

// Kernels of a driver that runs them on this processor can call the system. Their first run happens
// while the driver may still compile: what they reach then is the system's folders, to read and to
// run, and a folder of their own.
TEST_F(OpenClDevice, SystemCallsOfAKernelHarmNobody) {
  if (!ready().sandboxed()) GTEST_SKIP() << "[SKIP] no sandbox: " << ready().sandbox_detail();
  if (ready().attributes().at("name").s().find("pthread") == std::string::npos) {
    GTEST_SKIP() << "[SKIP] the device's kernels do not run on this processor";
  }
  ASSERT_TRUE(support::RemoveFile("/tmp/tilewright_hostile").ok());  // of a build without a filter
  const std::string secret = StrCat("/tmp/tilewright_secret_", getpid());
  ASSERT_TRUE(support::WriteFileAtomic(secret, "secret").ok());
  // Each stores at y[0] what is not expected there when the call was allowed.
  struct Row {
    const char* name;
    std::string body;
    v1::Outcome outcome;
  };
  const auto call = [](const std::string& number, const std::string& path) {
    return StrCat("char p[] = \"", path, "\"; if (syscall3(", number, ") >= 0) y[0] = 12345;");
  };
  const std::vector<Row> rows = {
      {"create", call("2, (long)p, 0x241, 0666", "/tmp/tilewright_hostile"), v1::OK},
      {"unlink", call("87, (long)p, 0, 0", secret), v1::OK},
      {"truncate", call("2, (long)p, 0x201, 0", secret), v1::OK},
      {"read_others", call("2, (long)p, 0, 0", secret), v1::OK},
      {"socket", "if (syscall3(41, 2, 1, 0) >= 0) y[0] = 12345;", v1::OK},
      {"kill_parent", StrCat("syscall3(62, ", getpid(), ", 9, 0); y[0] = 12345;"), v1::RUN_CRASH},
      {"ptrace", "syscall3(101, 16, 1, 0); y[0] = 12345;", v1::RUN_CRASH},
      {"setsid", "syscall3(112, 0, 0, 0); y[0] = 12345;", v1::RUN_CRASH},
      {"unshare", "syscall3(272, 0x10000000, 0, 0); y[0] = 12345;", v1::RUN_CRASH}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const v1::ModuleMeasured bad = Measure(row.name, Hostile(row.name, row.body));
    EXPECT_EQ(bad.outcome(), row.outcome) << bad.DebugString();
    if (row.outcome == v1::RUN_CRASH) {
      EXPECT_EQ(bad.error_class(), "SANDBOX") << bad.DebugString();
      EXPECT_EQ(bad.signal(), SIGSYS);
    }
  }
  // A process of its own, while it may: it goes with the candidate, which may not do it again.
  const v1::ModuleMeasured child =
      Measure("child", Hostile("child",
                               "if (syscall3(56, 17, 0, 0) == 0) { char p[] = \"tw_opencl\"; "
                               "syscall3(157, 15, (long)p, 0); for (;;) y[1] = 0; }"));
  EXPECT_EQ(child.outcome(), v1::RUN_CRASH) << child.DebugString();
  EXPECT_EQ(child.error_class(), "SANDBOX");
  EXPECT_EQ(tests::ProcessesCalled("tw_opencl"), 0) << "not even a zombie";
  EXPECT_EQ(support::ReadFile(secret, 100).value_or(""), "secret");
  EXPECT_FALSE(support::FileExists("/tmp/tilewright_hostile"));
  EXPECT_EQ(Measure("honest", kHonest).outcome(), v1::OK);
  EXPECT_EQ(supervisor().restarts(), 0) << "the worker did not survive";
  ASSERT_TRUE(support::RemoveTree(secret).ok());
}

TEST_F(OpenClDevice, ModulesForTheProcessorAreRefused) {
  MeasureInput input;
  input.module = tests::KernelModule("honest");
  *input.work.mutable_inputs() = tests::KernelInputs();
  const v1::ModuleMeasured measured = supervisor().Measure(input);
  EXPECT_EQ(measured.outcome(), v1::BUILD_ERROR) << measured.DebugString();
  EXPECT_THAT(measured.error_detail(), HasSubstr("runtime.load.format"));
}

// --- through the fleet

constexpr int64_t kSize = 64;

std::string MatmulProgram() {
  const std::string n = StrCat(kSize);
  const std::string shape = StrCat("f32[", n, ", ", n, "]");
  return StrCat("fn matmul(A: ", shape, " input, B: ", shape, " input, C: ", shape,
                " output) stage=scheduled {\n  for i in 0..", n, " {\n    for j in 0..", n,
                " {\n      for k in 0..", n, " {\n        block C(vi: spatial 0..", n,
                " = i, vj: spatial 0..", n, " = j, vk: reduce 0..", n,
                " = k) {\n          reads A[vi:1, vk:1], B[vk:1, vj:1];\n"
                "          writes C[vi:1, vj:1];\n          init {\n            C[vi, vj] = "
                "0.0f32;\n          }\n          C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj];\n"
                "        }\n      }\n    }\n  }\n}\n");
}

std::string MatmulSteps(int rows, int columns) {
  return StrCat("split %0 [?,", rows, "]\nsplit %1 [?,", columns,
                "]\nreorder %4 %6 %5 %7\nbind %4 blockIdx.y\nbind %6 blockIdx.x\n"
                "bind %5 threadIdx.y\nbind %7 threadIdx.x\n");
}

v1::InputSpec MatmulInputs() {
  v1::InputSpec inputs;
  for (const char* name : {"A", "B"}) {
    v1::TensorSpec* tensor = inputs.add_tensors();
    tensor->set_name(name);
    tensor->set_dtype("f32");
    tensor->add_shape(kSize);
    tensor->add_shape(kSize);
    tensor->set_seed(name[0]);
    tensor->mutable_distribution()->mutable_uniform()->set_low(-1);
    tensor->mutable_distribution()->mutable_uniform()->set_high(1);
  }
  return inputs;
}

std::string MatmulExpected() {
  const auto fill = [](uint64_t seed) {
    std::vector<float> values(kSize * kSize);
    const module::Distribution law{module::Distribution::Kind::kUniform, -1, 1};
    EXPECT_TRUE(
        runtime::GenerateInput(module::DType::kFloat32, kSize * kSize, law, seed, values.data())
            .ok());
    return values;
  };
  const std::vector<float> a = fill('A'), b = fill('B');
  std::vector<float> c(kSize * kSize);
  for (size_t i = 0; i < kSize; ++i) {
    for (size_t j = 0; j < kSize; ++j) {
      double sum = 0;
      for (size_t k = 0; k < kSize; ++k) {
        sum += static_cast<double>(a[i * kSize + k]) * static_cast<double>(b[k * kSize + j]);
      }
      c[i * kSize + j] = static_cast<float>(sum);
    }
  }
  return {reinterpret_cast<const char*>(c.data()), c.size() * sizeof(float)};
}

class OpenClFleet : public OpenClDevice {
 protected:
  void Begin() {
    dir_ = std::make_unique<support::TempDir>(*support::TempDir::Create("opencl_fleet"));
    tracker_ = std::make_unique<LoopbackDaemon>(
        "tilewright-tracker", dir_->File("tracker"),
        std::vector<std::string>{"--listen", "127.0.0.1:0", "--log-level", "info"});
    tracker_->Start();
    ASSERT_TRUE(tracker_->Ready()) << tracker_->log();
    agent_ = std::make_unique<LoopbackDaemon>(
        "tilewright-agent", dir_->File("agent"),
        std::vector<std::string>{"--tracker", tracker_->Address(), "--name", "bench", "--device",
                                 "opencl,name=gpu,label.site=here", "--log-level", "info"});
    agent_->Start();
    ASSERT_TRUE(agent_->Ready()) << agent_->log();
    consumer_.Connect(tracker_->Address());
    expected_ = consumer_.Upload(MatmulExpected());
  }

  // A candidate is the size of a group: rows x columns of the result.
  v1::WorkItem Candidate(int rows, int columns) {
    const auto module = tests::OpenClModule(MatmulProgram(), MatmulSteps(rows, columns));
    EXPECT_TRUE(module.ok()) << module.status();
    v1::WorkItem item;
    item.set_name(StrCat("matmul-", rows, "x", columns));
    item.set_target("opencl");
    item.set_job("job");
    v1::Work* work = item.mutable_work();
    work->set_work_item(item.name());
    *work->mutable_artifact() = consumer_.Upload(module.value_or(""));
    *work->mutable_expected_output() = expected_;
    *work->mutable_inputs() = MatmulInputs();
    work->mutable_tolerance()->set_abs(1e-4);
    work->mutable_wall_limit()->set_seconds(60);
    *work->mutable_plan() = tests::ShortPlan();
    return item;
  }

  // Submits what was not measured yet and waits. The best of all so far.
  std::pair<int, int> MeasureAll(const std::vector<std::pair<int, int>>& groups) {
    std::vector<v1::WorkItem> items;
    for (const auto& [rows, columns] : groups) {
      if (!names_.emplace(StrCat("matmul-", rows, "x", columns), std::pair(rows, columns)).second) {
        continue;
      }
      items.push_back(Candidate(rows, columns));
    }
    if (!items.empty()) consumer_.Submit(items);
    EXPECT_TRUE(consumer_.PullUntil(names_.size())) << agent_->log();
    std::pair<int, int> best;
    double best_ns = 0;
    for (const auto& [name, update] : consumer_.finals()) {
      const v1::MeasurementResult& result = update.result();
      EXPECT_EQ(result.outcome(), v1::OK) << name << ": " << result.DebugString();
      if (best_ns == 0 || result.median() < best_ns) {
        best_ns = result.median();
        best = names_.at(name);
      }
    }
    return best;
  }

  std::unique_ptr<support::TempDir> dir_;
  std::unique_ptr<LoopbackDaemon> tracker_;
  std::unique_ptr<LoopbackDaemon> agent_;
  LoopbackConsumer consumer_;
  v1::Digest expected_;
  std::map<std::string, std::pair<int, int>> names_;
};

// A hill climb over the size of a group, as a tuner's client of the tracker.
TEST_F(OpenClFleet, TunesAKernel) {
  Begin();
  ASSERT_FALSE(HasFatalFailure());
  const v1::Device device = consumer_.Device("devices/bench-gpu");
  EXPECT_EQ(device.attributes().at("sandbox").s(), "driver") << device.DebugString();
  EXPECT_EQ(device.attributes().at("kind").s(), "opencl");
  EXPECT_THAT(device.pool(), HasSubstr("opencl-"));
  std::pair<int, int> best = MeasureAll({{1, 1}, {4, 4}, {1, 16}, {16, 1}});
  for (int round = 0; round < 2; ++round) {
    const auto [rows, columns] = best;
    best = MeasureAll({{std::min(rows * 2, 16), columns}, {rows, std::min(columns * 2, 16)}});
  }
  std::map<std::string, double> medians;
  for (const auto& [name, update] : consumer_.finals()) {
    medians[name] = update.result().median();
    EXPECT_EQ(update.result().device(), "devices/bench-gpu");
    std::cout << name << " " << update.result().median() << " ns\n";
  }
  EXPECT_GE(medians.size(), 5U);
  // Which size is best depends on the device and on what else it does; that it matters does not.
  double slowest = 0;
  for (const auto& [name, median] : medians) slowest = std::max(slowest, median);
  EXPECT_GT(slowest, 1.1 * medians.at(StrCat("matmul-", best.first, "x", best.second)));
  EXPECT_EQ(agent_->End().exit_code, 0);
}

// What is for the processor does not go to the GPU, and a wrong kernel is told as such.
TEST_F(OpenClFleet, GetsOnlyWorkOfItsKind) {
  Begin();
  ASSERT_FALSE(HasFatalFailure());
  v1::WorkItem wrong = Candidate(8, 8);
  *wrong.mutable_work()->mutable_expected_output() =
      consumer_.Upload(std::string(kSize * kSize * sizeof(float), '\0'));
  consumer_.Submit({consumer_.Item("for-cpu", "honest"), wrong});
  ASSERT_TRUE(consumer_.PullUntil(1)) << agent_->log();
  const v1::WorkUpdate& update = consumer_.finals().at("matmul-8x8");
  EXPECT_EQ(update.result().outcome(), v1::WRONG_RESULT) << update.DebugString();
  EXPECT_EQ(consumer_.finals().count("for-cpu"), 0U);
}

}  // namespace
}  // namespace tilewright::device_agent
