// The driver compiler as a part of the toolchain, from the pool's load to recall.
#include "tuner_server/jobs/fleet_compiler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/job_world.h"

namespace tilewright::jobs {
namespace {

using testing::HasSubstr;
using tests::JobWorld;
using tests::kManySteps;
using tests::Value;

TEST(FleetCompiler, MostDevicesDecideOnceAndOthersAreToldOnce) {
  FleetCompiler compiler;
  v1::PoolLoad load;
  EXPECT_EQ(compiler.Note(load), "");
  EXPECT_FALSE(compiler.known());
  load.set_online(3);
  (*load.mutable_driver_compilers())["new 2"] = 2;
  EXPECT_EQ(compiler.Note(load), "");
  EXPECT_EQ(compiler.name(), "new-2");
  (*load.mutable_driver_compilers())["old 1"] = 5;
  EXPECT_THAT(compiler.Note(load), HasSubstr("old-1"));
  EXPECT_EQ(compiler.Note(load), "");
  EXPECT_EQ(compiler.name(), "new-2");
  (*load.mutable_driver_compilers())[""] = 1;
  EXPECT_THAT(compiler.Note(load), HasSubstr("does not name, old-1"));
}

TEST(FleetCompiler, WhatDriversDoNotCompileHasNone) {
  FleetCompiler compiler;
  compiler.Fix("");
  v1::PoolLoad load;
  load.set_online(1);
  (*load.mutable_driver_compilers())["maker 1"] = 1;
  EXPECT_EQ(compiler.Note(load), "");
  EXPECT_TRUE(compiler.known());
  EXPECT_EQ(compiler.name(), "");
  FleetCompiler old;  // a tracker of an older version
  load.clear_driver_compilers();
  EXPECT_EQ(old.Note(load), "");
  EXPECT_TRUE(old.known());
}

// A job whose code is compiled by drivers: it measures with one compiler, and recalls what was
// measured with that.
TEST(DriverCompiler, ADriverCompilerIsPartOfTheToolchain) {
  JobWorld world(3, {});
  world.target = "opencl";
  world.devices = 0;
  const auto tune = [&](const char* job, const char* compiler) {
    world.NextJob(job);
    world.driver_compilers = {{compiler, 1}};
    world.measured_with = compiler;
    world.CreateJob(20, [](v1::Job* spec) { spec->set_recall(true); });
    world.StartCore();
  };
  tune("job1", "maker 1+a");
  for (int step = 0; step < 200; ++step) world.Step();
  EXPECT_EQ(world.job().toolchain, "") << "no device says which compiler it has";
  EXPECT_TRUE(Value(world.log().ListTasks("job1")).empty());
  world.devices = 1;
  world.RunToEnd(kManySteps, 60);
  EXPECT_EQ(log::JobStateName(world.job().state), "SUCCEEDED") << world.job().state_reason;
  EXPECT_EQ(world.job().toolchain, "tc+maker-1+a");
  for (const log::RecordRow& record :
       Value(world.log().ListRecords({.job = "job1", .limit = 999}))) {
    EXPECT_EQ(record.key.toolchain, "tc+maker-1+a");
  }
  tune("job2", "maker 1+a");
  world.RunToEnd(kManySteps);
  EXPECT_EQ(Value(world.log().CountTrials("job2")).proposed, 0);
  EXPECT_EQ(world.core()->progress().cached(), 20);
  tune("job3", "maker 2");
  world.RunToEnd(kManySteps);
  EXPECT_EQ(world.job().toolchain, "tc+maker-2");
  EXPECT_EQ(Value(world.log().CountTrials("job3")).ended, 20);
  EXPECT_EQ(world.core()->progress().cached(), 0);
}

// Its devices were updated while it ran.
TEST(DriverCompiler, WhatAnotherDriverCompilerMadeIsLoggedAndNotUsed) {
  JobWorld world(3, {});
  world.target = "opencl";
  world.driver_compilers = {{"maker 1", 2}, {"maker 2", 1}};
  world.measured_with = "maker 2";
  world.CreateJob(6);
  world.StartCore();
  world.RunToEnd(kManySteps);
  EXPECT_EQ(world.job().toolchain, "tc+maker-1");
  const auto records = Value(world.log().ListRecords({.job = "job1", .limit = 999}));
  EXPECT_FALSE(records.empty());
  for (const log::RecordRow& record : records) {
    EXPECT_FALSE(record.valid);
    EXPECT_EQ(record.key.toolchain, "tc+maker-2");
    EXPECT_THAT(record.invalid_reasons, testing::Contains("tuner.compiler.differs"));
  }
  std::string texts;
  for (const log::EventRow& event : Value(world.log().ListEvents("job1", 0, 999))) {
    texts += event.text + "\n";
  }
  EXPECT_THAT(texts, HasSubstr("some devices have another driver compiler (maker-2)"));
}

// A job that has all its time, and never a device.
TEST(DriverCompiler, WaitingForADriverCompilerIsWaitingForTheTimeOfTheJob) {
  JobWorld world(3, {});
  world.target = "opencl";
  world.devices = 0;
  world.CreateJob(6,
                  [](v1::Job* job) { job->mutable_budget()->mutable_max_wall()->set_seconds(1); });
  world.StartCore();
  for (int step = 0; step < 20; ++step) world.Step();
  EXPECT_EQ(log::JobStateName(world.job().state), "RUNNING");
  world.clock().AdvanceNs(2'000'000'000);
  world.RunToEnd(kManySteps);
}

}  // namespace
}  // namespace tilewright::jobs
