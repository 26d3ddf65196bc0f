// Jobs beside each other on one tuner: turns, and tasks that several of them share.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "deploy/support/clock.h"
#include "tests/unit/tuner_service_fixture.h"

namespace tilewright::service {
namespace {

using testing::HasSubstr;

TEST_F(TunerServiceTest, JobsWaitForTheirTurnAndUrgentOnesGoFirst) {
  server_.reset();
  options_.running_jobs = 1;
  Start();
  fleet_->measuring = false;
  const std::string running = Value(Create(Request(4))).name();
  WatchUntilProposed(running);
  v1::CreateJobRequest later = Request(4);
  const std::string ordinary = Value(Create(later)).name();
  later.mutable_job()->set_priority(1);
  const std::string urgent = Value(Create(later)).name();
  const v1::Job waiting = Value(Get(ordinary));
  EXPECT_EQ(waiting.state(), v1::Job::QUEUED);
  ASSERT_EQ(waiting.conditions_size(), 1);
  EXPECT_EQ(waiting.conditions(0).reason(), "job.queue.waiting");
  fleet_->measuring = true;
  WaitForEnd(running);
  const v1::Job first = WaitForEnd(urgent);
  const v1::Job second = WaitForEnd(ordinary);
  EXPECT_LT(first.end_time().seconds() * 1'000'000'000 + first.end_time().nanos(),
            second.end_time().seconds() * 1'000'000'000 + second.end_time().nanos());
  EXPECT_EQ(second.state(), v1::Job::SUCCEEDED);
}

TEST_F(TunerServiceTest, TheSameTasksInTwoJobsAreTunedOnce) {
  fleet_->measuring = false;
  v1::CreateJobRequest request = Request(20);
  request.mutable_job()->set_recall(true);
  const std::string first = Value(Create(request)).name();
  WatchUntilProposed(first);
  const std::string second = Value(Create(request)).name();
  request.mutable_job()->set_recall(false);
  const std::string fresh = Value(Create(request)).name();
  // One that measures for itself runs beside the first; the second of the same waits.
  WatchUntilProposed(fresh);
  const v1::Job waiting = Value(Get(second));
  EXPECT_EQ(waiting.state(), v1::Job::QUEUED);
  ASSERT_EQ(waiting.conditions_size(), 1);
  EXPECT_EQ(waiting.conditions(0).reason(), "job.queue.same_tasks");
  fleet_->measuring = true;
  EXPECT_EQ(WaitForEnd(first).progress().measured(), 20);
  const v1::Job ended = WaitForEnd(second);
  EXPECT_EQ(ended.state(), v1::Job::SUCCEEDED) << ended.state_reason();
  EXPECT_EQ(ended.progress().measured(), 0);
  EXPECT_GE(ended.progress().cached(), 20);
  EXPECT_EQ(WaitForEnd(fresh).progress().measured(), 20);
}

// Another model of another user with the same two tasks: both jobs run, one is at work on a task at
// a time, and each program is measured once.
TEST_F(TunerServiceTest, ATaskThatTwoModelsShareIsSearchedOnce) {
  constexpr char kOther[] = "model of another size, with the same tasks";
  fleet_->measuring = false;
  v1::CreateJobRequest request = Request(30);
  request.mutable_job()->set_recall(true);
  const std::string first = Value(Create(request)).name();
  const auto proposed = [](const v1::JobEvent& event) {
    return event.has_progress() && event.progress().proposed() > 0;
  };
  Watch(first, "", proposed);
  *request.mutable_job()->mutable_model() = Value(Upload(kOther));
  const std::string second = Value(Create(request)).name();
  // It waits for what is being measured, and says so.
  v1::Job waiting;
  for (int i = 0; i < 1000; ++i) {
    waiting = Value(Get(second));
    if (waiting.conditions_size() > 0 && waiting.conditions(0).reason() == "job.tasks.shared")
      break;
    support::SleepMs(20);
  }
  ASSERT_EQ(waiting.state(), v1::Job::RUNNING);
  ASSERT_GT(waiting.conditions_size(), 0);
  EXPECT_EQ(waiting.conditions(0).reason(), "job.tasks.shared");
  EXPECT_THAT(waiting.conditions(0).message(), HasSubstr(first.substr(first.rfind('/') + 1)));
  EXPECT_EQ(waiting.progress().proposed(), 0);
  // A restart forgets nobody's work: the open trials of the log say who is at it.
  server_.reset();
  Start();
  fleet_->measuring = true;
  const v1::Job one = WaitForEnd(first);
  const v1::Job two = WaitForEnd(second);
  EXPECT_EQ(one.state(), v1::Job::SUCCEEDED) << one.state_reason();
  EXPECT_EQ(two.state(), v1::Job::SUCCEEDED) << two.state_reason();
  // Both know as much as if each had measured it all, and both modules are of the best of both.
  EXPECT_GE(one.progress().measured() + one.progress().cached(), 30);
  EXPECT_GE(two.progress().measured() + two.progress().cached(), 30);
  EXPECT_LT(one.progress().measured() + two.progress().measured(), 60);
  std::set<std::string> programs;
  for (const std::string& job : {first, second}) {
    for (const v1::Trial& trial : AllTrials(job, 100)) {
      if (trial.winner_again()) continue;
      const std::string program =
          trial.name().substr(trial.name().find("/tasks/"), 9) + trial.schedule();
      EXPECT_TRUE(programs.insert(program).second) << program << " was measured twice";
    }
  }
}

// Who is cancelled leaves its tasks to the others.
TEST_F(TunerServiceTest, ACancelledJobLeavesItsTasksToTheOthers) {
  fleet_->measuring = false;
  v1::CreateJobRequest request = Request(20);
  request.mutable_job()->set_recall(true);
  const std::string first = Value(Create(request)).name();
  WatchUntilProposed(first);
  *request.mutable_job()->mutable_model() = Value(Upload("model number three"));
  const std::string second = Value(Create(request)).name();
  v1::CancelJobRequest cancel;
  cancel.set_name(first);
  Value(Call(jobs_.get(), &v1::JobService::Stub::CancelJob, cancel));
  fleet_->measuring = true;
  EXPECT_EQ(WaitForEnd(first).state(), v1::Job::CANCELLED);
  const v1::Job ended = WaitForEnd(second);
  EXPECT_EQ(ended.state(), v1::Job::SUCCEEDED) << ended.state_reason();
  EXPECT_EQ(ended.progress().measured() + ended.progress().cached(), 20);
}

}  // namespace
}  // namespace tilewright::service
