// Jobs whose children find a machine that is short of something: they wait for as long as it takes,
// say what for, lose nothing, and end when somebody cancels them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/job_world.h"
#include "tuner_server/jobs/job_core.h"

namespace tilewright::jobs {
namespace {

using testing::HasSubstr;
using tests::JobWorld;
using tests::kManySteps;
using tests::Value;

constexpr int64_t kTrials = 40;

void ExpectSucceeded(JobWorld* world) {
  world->CheckEnded();
  const log::JobRow job = world->job();
  EXPECT_EQ(log::JobStateName(job.state), "SUCCEEDED") << job.state_reason;
  EXPECT_EQ(Value(world->log().CountTrials("job1")).ended, kTrials);
  EXPECT_EQ(job.published_module, "projects/default/modules/net/versions/1");
}

// Says yes so many times, of each request that `matches`.
std::function<bool(const v1::BuilderRequest&)> Times(int times,
                                                     bool (v1::BuilderRequest::*matches)() const) {
  return [times, matches](const v1::BuilderRequest& request) mutable {
    return (request.*matches)() && times-- > 0;
  };
}

struct AskedStep {
  const char* name;
  bool (v1::BuilderRequest::*matches)() const;
};
const AskedStep kAskedSteps[] = {{"OpenJob", &v1::BuilderRequest::has_open_job},
                                 {"MakeChecks", &v1::BuilderRequest::has_make_checks},
                                 {"Tell", &v1::BuilderRequest::has_tell},
                                 {"TrainModel", &v1::BuilderRequest::has_train_model},
                                 {"TakeModel", &v1::BuilderRequest::has_take_model},
                                 {"Ask", &v1::BuilderRequest::has_ask},
                                 {"CompileModule", &v1::BuilderRequest::has_compile_module}};

bool HasCondition(const JobCore& core, const std::string& reason) {
  const std::vector<v1::Condition> conditions = core.conditions();
  return std::any_of(conditions.begin(), conditions.end(),
                     [&](const v1::Condition& condition) { return condition.reason() == reason; });
}

TEST(JobWaitsTest, AFullDiskOfTheSearchIsWaitedForHoweverLongItLasts) {
  for (const AskedStep& step : kAskedSteps) {
    SCOPED_TRACE(step.name);
    constexpr int kTries = 30;
    JobWorld world(1, {});
    world.search_short = Times(kTries, step.matches);
    world.CreateJob(kTrials);
    world.StartCore();
    int64_t waiting = 0;
    for (int64_t i = 0; i < kManySteps && !world.core()->done(); ++i) {
      ASSERT_NO_FATAL_FAILURE(world.Step());
      if (world.core()->shortage() == support::Shortage::kNone) continue;
      ++waiting;
      EXPECT_EQ(world.core()->shortage(), support::Shortage::kDiskFull);
      EXPECT_TRUE(HasCondition(*world.core(), "job.waits.disk_full"));
      EXPECT_EQ(world.core()->progress().phase(), "waiting for room on the disk");
    }
    EXPECT_GE(waiting, kTries);
    ExpectSucceeded(&world);
    EXPECT_EQ(world.searches_started(), 1) << "a live child is asked again";
    EXPECT_FALSE(HasCondition(*world.core(), "job.waits.disk_full"));
  }
}

TEST(JobWaitsTest, AFullDiskOfTheBuildsCostsNoTrial) {
  JobWorld world(1, {});
  int times = 100;
  world.build_short = [&times](int64_t) {
    return times-- > 0 ? support::Shortage::kDiskFull : support::Shortage::kNone;
  };
  world.CreateJob(kTrials);
  world.StartCore();
  bool waited = false;
  for (int64_t i = 0; i < kManySteps && !world.core()->done(); ++i) {
    ASSERT_NO_FATAL_FAILURE(world.Step());
    waited = waited || HasCondition(*world.core(), "job.waits.disk_full");
  }
  EXPECT_TRUE(waited);
  EXPECT_LT(times, 0);
  ExpectSucceeded(&world);
  for (const log::TrialRow& trial : Value(world.log().ListTrials({.job = "job1", .limit = 99}))) {
    EXPECT_EQ(trial.outcome, log::Outcome::kOk) << trial.number;
  }
}

TEST(JobWaitsTest, AJobThatWaitsIsCancelledWithoutDelay) {
  for (const bool builds : {false, true}) {
    JobWorld world(1, {});
    if (builds) {
      world.build_short = [](int64_t) { return support::Shortage::kDiskReadOnly; };
    } else {
      world.search_short = [](const v1::BuilderRequest& request) {
        return request.has_make_checks();
      };
    }
    world.CreateJob(kTrials);
    world.StartCore();
    for (int i = 0; i < 2000; ++i) ASSERT_NO_FATAL_FAILURE(world.Step());
    ASSERT_NE(world.core()->shortage(), support::Shortage::kNone);
    const int64_t asked_ns = world.clock().NowNs();
    world.Cancel();
    world.RunToEnd(kManySteps);
    world.CheckEnded();
    EXPECT_EQ(world.job().state, log::JobState::kCancelled);
    EXPECT_LT(world.clock().NowNs() - asked_ns, 5'000'000'000);
  }
}

// Memory that is short for a while costs nothing. A request that always needs too much of it does
// not hold its job for ever.
TEST(JobWaitsTest, KillsFromOutsideAreEnduredUpToALimit) {
  for (const AskedStep& step : kAskedSteps) {
    SCOPED_TRACE(step.name);
    JobWorld world(1, {});
    world.search_killer = Times(15, step.matches);
    world.CreateJob(kTrials);
    world.StartCore();
    world.RunToEnd(kManySteps);
    ExpectSucceeded(&world);
  }
  JobWorld world(1, {});
  world.search_killer = [](const v1::BuilderRequest& request) { return request.has_make_checks(); };
  world.CreateJob(kTrials);
  world.StartCore();
  world.RunToEnd(kManySteps);
  EXPECT_EQ(world.job().state, log::JobState::kFailed);
  EXPECT_THAT(world.job().state_reason, HasSubstr("job.search.killed"));
  EXPECT_EQ(world.searches_started(), JobCoreOptions().max_search_kills);
}

TEST(JobWaitsTest, ACandidateWhoseBuildsAreAlwaysKilledIsABuildError) {
  JobWorld world(1, {});
  int64_t kills = 0;
  world.build_short = [&kills](int64_t trial) {
    if (trial != 5) return support::Shortage::kNone;
    ++kills;
    return support::Shortage::kKilled;
  };
  world.CreateJob(kTrials);
  world.StartCore();
  world.RunToEnd(kManySteps);
  ExpectSucceeded(&world);
  EXPECT_EQ(Value(world.log().GetTrial("job1", 5)).outcome, log::Outcome::kBuildError);
  EXPECT_EQ(kills, JobCoreOptions().max_build_kills);
}

// One task after the other; a child that dies in between makes only what is missing.
TEST(JobWaitsTest, ExpectedOutputsAreMadeTaskByTaskAndOnce) {
  JobWorld world(1, {});
  std::vector<std::string> asked;
  world.search_poison = [&asked](const v1::BuilderRequest& request) {
    if (!request.has_make_checks()) return false;
    EXPECT_EQ(request.make_checks().tasks_size(), 1);
    asked.push_back(request.make_checks().tasks(0));
    return asked.size() == 2;
  };
  world.CreateJob(kTrials);
  world.StartCore();
  std::set<std::string> phases;
  while (!world.core()->done()) {
    ASSERT_NO_FATAL_FAILURE(world.Step());
    phases.insert(world.core()->progress().phase());
  }
  ExpectSucceeded(&world);
  EXPECT_THAT(asked, testing::ElementsAre("h0", "h1", "h1", "h2"));
  EXPECT_EQ(phases.count("computing expected outputs, task 3 of 3"), 1U);
  EXPECT_EQ(phases.count("compiling the module"), 1U);
}

}  // namespace
}  // namespace tilewright::jobs
