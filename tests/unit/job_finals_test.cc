// Winners are measured again (job_finals.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "deploy/support/strings.h"
#include "tests/support/test_seed.h"
#include "tests/unit/job_world.h"
#include "tuner_server/jobs/job_recall.h"
#include "tuner_server/jobs/work_items.h"
#include "tuner_server/log/schedule_rule.h"

namespace tilewright::jobs {
namespace {

using support::StrCat;
using testing::HasSubstr;
using tests::JobWorld;
using tests::kManySteps;
using tests::Value;

// Of each task the programs that were measured again, in that order.
std::map<std::string, std::string> Finals(JobWorld* world, const std::string& job = "job1") {
  std::map<std::string, std::string> finals;
  for (const log::TrialRow& trial : Value(world->log().ListTrials({.job = job, .limit = 999}))) {
    if (trial.generated_by == log::kFinal) finals[trial.task] += trial.steps.substr(6);
  }
  return finals;
}

std::string EachTask(const std::string& steps) {
  return "h0:" + steps + ";h1:" + steps + ";h2:" + steps + ";";
}

// The fastest program claims much less than it takes, once in each of three tasks: by luck or by
// malice. It is the choice without finals, and loses with them, whatever happens on the way.
TEST(JobFinals, AProgramThatWasFastOnceIsNoWinner) {
  for (const bool finals : {false, true}) {
    for (const int64_t restart_at : {int64_t{-1}, int64_t{40}, int64_t{200}}) {
      SCOPED_TRACE(StrCat(finals, " ", restart_at));
      JobWorld world(tests::TestSeed(2), {});
      std::map<std::string, int> runs;
      world.time_of = [&](const std::string& steps) {
        if (steps == "split 1") return ++runs[steps] <= 3 ? 50.0 : 1100.0;
        return steps == "split 2" ? 1000.0 : 3000.0;
      };
      world.CreateJob(96, [&](v1::Job* job) {
        if (!finals) job->add_search_parts("finals=off");
      });
      world.StartCore();
      world.RunToEnd(kManySteps, restart_at);
      world.CheckEnded();
      EXPECT_EQ(world.steps_of_module, EachTask(finals ? "split 2" : "split 1"));
      for (const auto& [task, order] : Finals(&world)) EXPECT_EQ(order, "12") << task;
      const log::TrialCounts counts = Value(world.log().CountTrials("job1"));
      EXPECT_EQ(counts.ended, 96) << "finals take nothing from the search";
      EXPECT_EQ(counts.finals, finals ? 6 : 0);
    }
  }
}

TEST(JobFinals, AWinnerThatComputesWrongResultsTheSecondTimeIsNoWinner) {
  JobWorld world(tests::TestSeed(3), {});
  std::map<std::string, int> runs;
  world.time_of = [](const std::string& steps) {
    return steps == "split 1" ? 500.0 : steps == "split 2" ? 1000.0 : 3000.0;
  };
  world.wrong_when = [&](const std::string& steps) {
    return steps == "split 1" && ++runs[steps] > 3;
  };
  world.CreateJob(96);
  world.StartCore();
  world.RunToEnd(kManySteps);
  world.CheckEnded();
  EXPECT_EQ(world.steps_of_module, EachTask("split 2"));
}

// Nothing claims that a default schedule is fast.
TEST(JobFinals, ADefaultScheduleThatWinsNeedsNone) {
  JobWorld world(tests::TestSeed(4), {});
  world.time_of = [](const std::string& steps) { return steps == "default" ? 500.0 : 3000.0; };
  world.CreateJob(48);
  world.StartCore();
  world.RunToEnd(kManySteps);
  world.CheckEnded();
  EXPECT_EQ(Value(world.log().CountTrials("job1")).finals, 0);
}

// Crashes may be the device's: one in a final does not end a program, two do.
TEST(JobFinals, AWinnerThatCrashesTwiceInItsFinalsIsNoWinner) {
  for (const int crashes : {1, 2}) {
    SCOPED_TRACE(crashes);
    JobWorld world(tests::TestSeed(3), {});
    std::map<std::string, int> runs;
    world.time_of = [](const std::string& steps) {
      return steps == "split 1" ? 500.0 : steps == "split 2" ? 1000.0 : 3000.0;
    };
    world.crash_when = [&](const std::string& steps) {
      if (steps != "split 1" || ++runs[steps] <= 3) return false;
      return runs[steps] <= 3 + 3 * crashes;
    };
    world.CreateJob(96);
    world.StartCore();
    world.RunToEnd(kManySteps);
    world.CheckEnded();
    EXPECT_EQ(world.steps_of_module, EachTask(crashes == 1 ? "split 1" : "split 2"));
    for (const auto& [task, order] : Finals(&world)) {
      EXPECT_EQ(order, crashes == 1 ? "11" : "112") << task;
    }
  }
}

// Seven programs of each task were fast once. The job publishes none of them unconfirmed.
TEST(JobFinals, AJobThatUsedUpItsFinalsPublishesWhatWasConfirmed) {
  for (const bool default_is_best : {false, true}) {
    SCOPED_TRACE(default_is_best);
    JobWorld world(tests::TestSeed(2), {});
    std::map<std::string, int> runs;
    world.time_of = [&](const std::string& steps) {
      if (steps == "default") return default_is_best ? 1000.0 : 9000.0;
      const int number = std::stoi(steps.substr(6));
      if (number > 6) return 8000.0;
      return ++runs[steps] <= 3 ? 50.0 + number : 2000.0 + number;
    };
    world.CreateJob(96);
    world.StartCore();
    world.RunToEnd(kManySteps);
    world.CheckEnded();
    EXPECT_EQ(world.job().state, log::JobState::kSucceeded) << world.job().state_reason;
    for (const auto& [task, order] : Finals(&world)) EXPECT_EQ(order, "012345") << task;
    EXPECT_EQ(world.steps_of_module, EachTask(default_is_best ? "default" : "split 0"));
  }
}

// Noise, or a device that goes away, in both finals of a winner: the next one wins.
TEST(JobFinals, AWinnerWhoseFinalsSayNothingIsNotPublished) {
  JobWorld world(tests::TestSeed(3), {});
  std::map<std::string, int> runs;
  world.time_of = [](const std::string& steps) {
    return steps == "split 1" ? 500.0 : steps == "split 2" ? 1000.0 : 3000.0;
  };
  world.invalid_when = [&](const std::string& module) {
    return module.ends_with("|split 1") && ++runs[module] > 1;
  };
  world.CreateJob(96);
  world.StartCore();
  world.RunToEnd(kManySteps);
  world.CheckEnded();
  for (const auto& [task, order] : Finals(&world)) EXPECT_EQ(order, "112") << task;
  EXPECT_EQ(world.steps_of_module, EachTask("split 2"));
}

// The time of `split 1` is a lie, which a job tells that is cancelled in its finals.
TEST(JobFinals, AWinnerOfACancelledJobIsConfirmedByTheNextJob) {
  JobWorld world(tests::TestSeed(5), {});
  std::map<std::string, int> runs;
  world.time_of = [&](const std::string& steps) {
    if (steps == "split 1") return ++runs[steps] <= 3 ? 50.0 : 4000.0;
    return steps == "split 2" ? 1000.0 : 3000.0;
  };
  const auto recall = [](v1::Job* job) { job->set_recall(true); };
  world.CreateJob(48, recall);
  world.StartCore();
  while (Finals(&world).empty()) {
    world.Step();
    ASSERT_FALSE(log::IsFinal(world.job().state));
  }
  world.tracker_measures = false;
  world.Cancel();
  world.RunToEnd(kManySteps);
  EXPECT_EQ(world.job().state, log::JobState::kCancelled);
  world.tracker_measures = true;
  world.NextJob("job2");
  world.CreateJob(48, recall);
  world.StartCore();
  world.RunToEnd(kManySteps);
  EXPECT_EQ(world.job().state, log::JobState::kSucceeded) << world.job().state_reason;
  const log::TrialCounts counts = Value(world.log().CountTrials("job2"));
  EXPECT_EQ(counts.proposed, 0);
  for (const auto& [task, order] : Finals(&world, "job2")) EXPECT_EQ(order, "12") << task;
  EXPECT_EQ(world.steps_of_module, EachTask("split 2"));
}

// Another job searches the same tasks for as long as this one lasts.
TEST(JobFinals, ATaskOfAnotherJobIsConfirmedAllTheSame) {
  JobWorld world(tests::TestSeed(6), {});
  const auto recall = [](v1::Job* job) { job->set_recall(true); };
  world.CreateJob(48, recall);
  world.StartCore();
  bool held = false;
  for (int64_t steps = 0; !log::IsFinal(world.job().state); ++steps) {
    ASSERT_LT(steps, kManySteps);
    world.Step();
    const log::TrialCounts counts = Value(world.log().CountTrials("job1"));
    if (counts.ended < 40 || held) continue;
    held = true;
    for (const char* hash : {"h0", "h1", "h2"}) {
      const v1::Job spec = Value(SpecFromJson(world.job().spec_json));
      world.claims().Restore(ClaimName(world.job(), spec, hash), "other", world.clock().NowNs());
    }
  }
  EXPECT_EQ(world.job().state, log::JobState::kSucceeded) << world.job().state_reason;
  EXPECT_EQ(Value(world.log().CountTrials("job1")).finals, 3);
}

TEST(JobFinals, WhatOneJobConfirmedAnotherDoesNotMeasureAgain) {
  JobWorld world(tests::TestSeed(5), {});
  const auto recall = [](v1::Job* job) { job->set_recall(true); };
  world.CreateJob(48, recall);
  world.StartCore();
  world.RunToEnd(kManySteps);
  world.CheckEnded();
  EXPECT_EQ(Value(world.log().CountTrials("job1")).finals, 3);
  world.NextJob("job2");
  world.CreateJob(48, recall);
  world.StartCore();
  world.RunToEnd(kManySteps);
  EXPECT_EQ(world.job().state, log::JobState::kSucceeded) << world.job().state_reason;
  const log::TrialCounts counts = Value(world.log().CountTrials(world.job().id));
  EXPECT_EQ(counts.finals + counts.proposed, 0);
}

// A job whose limit is a time keeps the last of it for its winners.
TEST(JobFinals, ATimeLimitLeavesRoomForThem) {
  JobWorld world(tests::TestSeed(6), {});
  world.CreateJob(0,
                  [](v1::Job* job) { job->mutable_budget()->mutable_max_wall()->set_seconds(20); });
  world.StartCore();
  world.RunToEnd(kManySteps);
  world.CheckEnded();
  EXPECT_THAT(world.job().state_reason, HasSubstr("the time of the job is over"));
  EXPECT_EQ(Value(world.log().CountTrials("job1")).finals, 3);
  EXPECT_LT(world.job().elapsed_s, 20);
}

}  // namespace
}  // namespace tilewright::jobs
