// Sessions whose launches run in part on a device: every assignment of three launches to the
// processor and to a device gives the same result, and only the copies that it needs are made. The
// device is the processor behind the plug-in's interface, with memory of its own.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "deploy/module/module_file.h"
#include "deploy/module/module_writer.h"
#include "deploy/runtime/code_loader.h"
#include "deploy/runtime/cpu_info.h"
#include "deploy/runtime/runtime.h"
#include "deploy/runtime/transfer_plan.h"
#include "deploy/support/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/module_fixture.h"

namespace tilewright::runtime {
namespace {

using Kind = ExecutionStep::Kind;

// Code 0 is the processor's, code 1 the device's.
module::ModuleParts Assigned(bool pack, bool matmul, bool add) {
  module::ModuleParts parts = test::DenseModule();
  module::Manifest& m = parts.manifest;
  m.code.push_back(m.code[0]);
  m.code[1].device = "cpu";
  parts.code.push_back(parts.code[0]);
  m.functions[0].prepare[0].code = pack ? 1 : 0;
  m.functions[0].launches[0].code = matmul ? 1 : 0;
  m.functions[0].launches[1].code = add ? 1 : 0;
  return parts;
}

absl::StatusOr<std::shared_ptr<const LoadedModule>> Loaded(const module::ModuleParts& parts) {
  TW_ASSIGN(const std::string bytes, module::SerializeModule(parts));
  TW_ASSIGN(module::ModuleFile file, module::ModuleFile::FromBytes(bytes));
  return LoadedModule::Load(std::move(file));
}

std::vector<float> Floats(const TensorView& view) {
  std::vector<float> values(view.bytes / sizeof(float));
  std::memcpy(values.data(), view.data, view.bytes);
  return values;
}

TEST(MixedSessionTest, EveryAssignmentComputesTheSame) {
  for (int bits = 0; bits < 8; ++bits) {
    auto module = Loaded(Assigned((bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0));
    ASSERT_TRUE(module.ok()) << module.status();
    auto session = Session::Create(*module);
    ASSERT_TRUE(session.ok()) << session.status();
    for (float start : {1.0f, -3.0f}) {  // the second run has another input
      std::vector<float> x;
      for (int i = 0; i < test::kRows * test::kInner; ++i) x.push_back(start + 0.5f * i);
      ASSERT_TRUE((*session)->SetInput(0, x.data(), x.size() * sizeof(float)).ok());
      (*session)->Poison(0xFF);
      ASSERT_EQ((*session)->Run(), absl::OkStatus());
      EXPECT_THAT(Floats((*session)->output(0)),
                  testing::Pointwise(testing::FloatNear(1e-3f), test::DenseReference(x)))
          << bits;
    }
    std::span<const TwLaunchTime> times;
    ASSERT_EQ((*session)->RunProfiled(&times), absl::OkStatus());
    ASSERT_EQ(times.size(), 2u);
    EXPECT_GT(times[0].ns + times[1].ns, 0);
  }
}

ExecutionPlan PlanOf(const module::ModuleParts& parts) {
  return PlanExecution(parts.manifest, parts.manifest.functions[0],
                       [](const module::Launch& launch) { return launch.code == 1; });
}

// Tensors: x 0, w 1, packed 2, product 3, b 4, y 5.
TEST(MixedSessionTest, OnlyNeededCopiesArePlanned) {
  using testing::ElementsAre;
  const ExecutionPlan host = PlanOf(Assigned(false, false, false));
  EXPECT_THAT(host.prepare, ElementsAre(ExecutionStep{Kind::kHostLaunch, 0}));
  EXPECT_THAT(host.run, ElementsAre(ExecutionStep{Kind::kHostLaunch, 0},
                                    ExecutionStep{Kind::kHostLaunch, 1}));
  const ExecutionPlan device = PlanOf(Assigned(true, true, true));
  EXPECT_THAT(device.prepare, ElementsAre(ExecutionStep{Kind::kDeviceLaunch, 0}));
  EXPECT_THAT(
      device.run,
      ElementsAre(ExecutionStep{Kind::kUpload, 0}, ExecutionStep{Kind::kDeviceLaunch, 0},
                  ExecutionStep{Kind::kDeviceLaunch, 1}, ExecutionStep{Kind::kDownload, 5}));
  // What was packed on the processor moves once, not in each run.
  const ExecutionPlan mixed = PlanOf(Assigned(false, true, false));
  EXPECT_THAT(mixed.prepare,
              ElementsAre(ExecutionStep{Kind::kHostLaunch, 0}, ExecutionStep{Kind::kUpload, 2}));
  EXPECT_THAT(mixed.run,
              ElementsAre(ExecutionStep{Kind::kUpload, 0}, ExecutionStep{Kind::kDeviceLaunch, 0},
                          ExecutionStep{Kind::kDownload, 3}, ExecutionStep{Kind::kHostLaunch, 1}));
}

int64_t AddressSpaceBytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * getpagesize();
}

// What passes between launches of a device needs no memory of the processor's.
TEST(MixedSessionTest, TheArenaIsWhereItsLaunchesAre) {
  constexpr int64_t kArenaBytes = 128 << 20;
  const auto arenas = [](bool pack, bool matmul, bool add) {
    module::ModuleParts parts = Assigned(pack, matmul, add);
    parts.manifest.arena_bytes = kArenaBytes;
    auto module = Loaded(parts);
    EXPECT_TRUE(module.ok()) << module.status();
    const int64_t before = AddressSpaceBytes();
    auto session = Session::Create(*module, {.num_threads = 1});
    EXPECT_TRUE(session.ok()) << session.status();
    return (AddressSpaceBytes() - before) / (kArenaBytes / 4 * 3);
  };
  EXPECT_EQ(arenas(true, true, true), 1) << "the device's";
  EXPECT_EQ(arenas(false, false, false), 1) << "the processor's";
  EXPECT_EQ(arenas(true, true, false), 2);
  EXPECT_EQ(arenas(false, true, true), 2) << "what is packed once, too";
}

TEST(MixedSessionTest, ADeviceMustHaveWhatCodeNeeds) {
  module::ModuleParts parts = Assigned(true, true, true);
  const std::string has = DetectCpu().features.front();
  parts.manifest.code[1].features = {has};
  auto module = Loaded(parts);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(Session::Create(*module).status(), absl::OkStatus());
  parts.manifest.code[1].features = {"antigravity", has};
  std::sort(parts.manifest.code[1].features.begin(), parts.manifest.code[1].features.end());
  module = Loaded(parts);
  ASSERT_TRUE(module.ok()) << module.status();
  const absl::Status status = Session::Create(*module).status();
  EXPECT_EQ(support::Slug(status), "runtime.load.device_features");
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("needs antigravity, which"));
  EXPECT_THAT(std::string(status.message()), testing::Not(testing::HasSubstr(has + ",")));
}

TEST(MixedSessionTest, WhatCannotRunHereIsRefused) {
  module::ModuleParts parts = Assigned(true, true, true);
  parts.manifest.code[1].device = "abacus";
  EXPECT_EQ(support::Slug(Loaded(parts).status()), "runtime.device.missing");
  parts.manifest.code[0].device = "cpu";
  EXPECT_EQ(support::Slug(Loaded(parts).status()), "runtime.load.devices");
  parts.manifest.code[0].device = "";
  parts.manifest.code[1].device = "cpu";
  parts.manifest.code[1].format = "opencl-c";
  auto module = Loaded(parts);
  ASSERT_TRUE(module.ok()) << module.status();
  EXPECT_EQ(support::Slug(Session::Create(*module).status()), "runtime.load.format");
  parts = Assigned(true, true, true);
  parts.manifest.arena_bytes += 64;
  parts.manifest.tensors[3].offset += 8;
  EXPECT_EQ(support::Slug(Loaded(parts).status()), "module.manifest.tensor_offset");
}

}  // namespace
}  // namespace tilewright::runtime
