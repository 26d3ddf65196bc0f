// A Vulkan device (lavapipe, or what the machine has) measured by the real worker under the profile
// `driver`, and candidates that misbehave on it. tests/e2e/networks_vulkan.py tunes on it through a
// real tracker and agent.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "device_agent/supervisor.h"
#include "tests/fault/driver_device.h"
#include "tests/support/measured_kernels.h"
#include "tests/support/vulkan_module.h"

namespace tilewright::device_agent {
namespace {

using support::StrCat;
using testing::HasSubstr;

// A kernel of groups of `threads` whose element is `i`.
std::string Kernel(const std::string& name, const std::string& body, int64_t threads = 64,
                   const std::string& x_role = "input") {
  return StrCat("fn ", name, "(n: size, X: f32[n] ", x_role, ", Y: f32[n] output) stage=flat {\n",
                "  for g in 0..floordiv(n + ", threads - 1, ", ", threads, ") blockIdx.x {\n",
                "    for t in 0..", threads, " threadIdx.x {\n      let i = g * ", threads,
                " + t {\n        if (i < n) {\n", body, "\n        }\n      }\n    }\n  }\n}\n");
}
constexpr char kHonest[] = "Y[i] = X[i] * 2.0f32 + 1.0f32;";

struct Vulkan {
  static constexpr char kName[] = "vulkan";
};
using VulkanDevice = DriverDevice<Vulkan>;

TEST_F(VulkanDevice, TellsWhatItIsAndMeasures) {
  EXPECT_EQ(ready().attributes().at("kind").s(), "vulkan");
  EXPECT_EQ(ready().attributes().at("sandbox").s(), "driver");
  EXPECT_NE(ready().attributes().at("name").s(), "");
  EXPECT_NE(ready().attributes().at("driver_compiler").s(), "");
  const bool lavapipe = ready().attributes().at("name").s().find("llvmpipe") != std::string::npos;
  if (lavapipe) {
    EXPECT_EQ(ready().attributes().at("config_accepts").s(), "roadmap2022");
  }
  const v1::ModuleMeasured measured =
      Measure("honest", tests::VulkanModule("honest", Kernel("honest", kHonest)));
  EXPECT_EQ(measured.outcome(), v1::OK) << measured.DebugString();
  EXPECT_EQ(measured.clock(), "device");
  EXPECT_GE(measured.samples_size(), 3);
  EXPECT_GT(measured.baseline_before(), 0) << "the self-test's kernel on the same device";
  EXPECT_GT(measured.baseline_after(), 0);
}

TEST_F(VulkanDevice, BadCandidatesEndAsWhatTheyAre) {
  struct Row {
    const char* name;
    std::string module;
    v1::Outcome outcome;
    const char* error_class;
    const char* detail;
  };
  const auto of = [](const char* name, const std::string& body) {
    return tests::VulkanModule(name, Kernel(name, body));
  };
  const std::string code = "this is no list of modules";
  // The loops end one day; on lavapipe, which leaves long ones, the bodies take the time.
  const bool lavapipe = ready().attributes().at("name").s().find("llvmpipe") != std::string::npos;
  std::string hang =
      lavapipe ? "for a in 0..60000 {\n" : "for b in 0..1000000000 {\nfor a in 0..1000000000 {\n";
  for (int k = 0; k < 100; ++k) hang += "Y[i] = sin(Y[i] + X[i]);\n";
  hang += lavapipe ? "}" : "}}";
  const std::string loops = "for a in 0..2000000 {\nY[i] = Y[i] * 0.5f32 + X[i];\n}";
  const std::string shared =
      "fn shared(n: size, X: f32[n] input, Y: f32[n] output) stage=flat {\n"
      "  alloc S: f32[4000000] scope=shared {\n    for t in 0..64 threadIdx.x {\n"
      "      S[t * 60000] = X[t];\n      sync barrier;\n      Y[t] = S[(63 - t) * 60000];\n"
      "    }\n  }\n}\n";
  std::vector<Row> rows = {
      {"wrong", of("wrong", "Y[i] = 3.0f32;"), v1::WRONG_RESULT, "FIRST_RUN", "1024 of 1024"},
      {"nothing", of("nothing", "if (i < 0) { Y[i] = X[i]; }"), v1::WRONG_RESULT, "FIRST_RUN", ""},
      {"past_end", of("past_end", StrCat(kHonest, "Y[n + 8] = 1.0f32;")), v1::WRONG_RESULT,
       "OUT_OF_BOUNDS", "behind tensor 'y'"},
      {"write_input",
       tests::VulkanModule("write_input",
                           Kernel("write_input", StrCat(kHonest, "X[i] = 7.0f32;"), 64, "output")),
       v1::WRONG_RESULT, "OUT_OF_BOUNDS", "into input 'x'"},
      {"hang", of("hang", hang), v1::RUN_TIMEOUT, "WALL_LIMIT", ""},
      {"no_code", tests::VulkanCodeModule("no_code", code), v1::BUILD_ERROR, "LOAD_REFUSED",
       "device.vulkan.code"},
      {"group", tests::VulkanModule("group", Kernel("group", kHonest, 1 << 16), 1024, 1 << 16),
       v1::BUILD_ERROR, "LOAD_REFUSED", "device.vulkan.kernel"},
      {"shared", tests::VulkanModule("shared", shared), v1::BUILD_ERROR, "LOAD_REFUSED",
       "bytes of shared memory"},
      {"other_group", tests::VulkanModule("other_group", Kernel("other_group", kHonest), 1024, 32),
       v1::BUILD_ERROR, "LOAD_REFUSED", "groups of 64 threads"}};
  if (lavapipe) {
    rows.push_back({"loops", of("loops", loops), v1::BUILD_ERROR, "LOAD_REFUSED",
                    "where this driver leaves them"});
  }
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    const v1::ModuleMeasured bad = Measure(row.name, row.module);
    EXPECT_EQ(bad.outcome(), row.outcome) << bad.DebugString();
    EXPECT_EQ(bad.error_class(), row.error_class) << bad.DebugString();
    EXPECT_THAT(bad.error_detail(), HasSubstr(row.detail));
    const v1::ModuleMeasured good =
        Measure("honest", tests::VulkanModule("honest", Kernel("honest", kHonest)));
    EXPECT_EQ(good.outcome(), v1::OK) << good.DebugString();
  }
  EXPECT_EQ(supervisor().restarts(), 0) << "the worker did not survive";
}

// As on a machine without a driver: the loader is told of none.
TEST(VulkanDriver, AWorkerWithoutOneSaysSo) {
  for (const char* name : {"VK_ICD_FILENAMES", "VK_DRIVER_FILES"}) setenv(name, "/no/such.json", 1);
  Supervisor worker(DriverWorker(Vulkan::kName));
  const auto started = worker.Start();
  for (const char* name : {"VK_ICD_FILENAMES", "VK_DRIVER_FILES"}) unsetenv(name);
  ASSERT_FALSE(started.ok());
  EXPECT_THAT(support::StatusText(started.status()), HasSubstr("of 0 devices"));
}

}  // namespace
}  // namespace tilewright::device_agent
