#include "tuner_server/jobs/job_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "deploy/support/strings.h"
#include "tests/support/test_seed.h"
#include "tests/unit/job_world.h"
#include "tuner_server/jobs/job_recall.h"
#include "tuner_server/jobs/work_items.h"
#include "tuner_server/log/log_stats.h"
#include "tuner_server/log/model_sizes.h"

namespace tilewright::jobs {
namespace {

using support::StrCat;
using testing::HasSubstr;
using tests::Faults;
using tests::JobWorld;
using tests::kManySteps;
using tests::Value;

// The module that the job must publish: of each task the schedule that the rule finds in the log.
std::string BestSteps(JobWorld* world) {
  std::string steps;
  const JobTimes times = Value(ReadJobTimes(&world->log(), world->job(), {}));
  for (size_t i = 0; i < times.rows.size(); ++i) {
    if (times.tasks[i].best.time <= 0) continue;
    steps += times.rows[i].hash + ":" + times.tasks[i].best_steps + ";";
  }
  return steps;
}

void ExpectSucceeded(JobWorld* world, int64_t trials) {
  world->CheckEnded();
  const log::JobRow job = world->job();
  EXPECT_EQ(log::JobStateName(job.state), "SUCCEEDED") << job.state_reason;
  EXPECT_EQ(Value(world->log().CountTrials("job1")).ended, trials);
  EXPECT_EQ(job.published_module, "projects/default/modules/net/versions/1");
  EXPECT_EQ(world->steps_of_module, BestSteps(world));
}

// Devices are shared between users: whom a job belongs to.
TEST(UserNameTest, IsTheCallerWithoutThePortOfItsConnection) {
  EXPECT_EQ(UserName("ipv4:10.0.0.2:5123"), "10.0.0.2");
  EXPECT_EQ(UserName("ipv6:%5B::1%5D:80"), "%5B::1%5D");
  EXPECT_EQ(UserName("ann"), "ann");
  EXPECT_EQ(UserName("people:ann"), "people:ann") << "a name, no address";
  EXPECT_EQ(UserName(""), "");
}

TEST(JobCore, RunsAJobFromQueuedToAPublishedModule) {
  JobWorld world(tests::TestSeed(1), {});
  world.CreateJob(40);
  world.StartCore();
  world.RunToEnd(kManySteps);
  ExpectSucceeded(&world, 40);
  const log::JobStats stats = Value(log::ComputeJobStats(&world.log(), "job1"));
  for (const log::TaskStats& task : stats.tasks) {
    EXPECT_EQ(task.default_median, 5000) << task.task.name;
    EXPECT_LT(task.best_median, task.default_median);
    EXPECT_GE(task.ended, 3) << "similar tasks get similar shares";
  }
  // The default schedule of each task comes first.
  for (int64_t number = 1; number <= 3; ++number) {
    EXPECT_TRUE(Value(world.log().GetTrial("job1", number)).is_default);
  }
  EXPECT_GE(stats.models.size(), 3U);
  EXPECT_EQ(stats.models[0].id, "shipped-1");
  EXPECT_EQ(world.searches_started(), 1);
  // Picks that a model chose name a model that the log has.
  int64_t by_model = 0;
  for (const log::TrialRow& trial : Value(world.log().ListTrials({.job = "job1", .limit = 99}))) {
    if (trial.is_default || trial.generated_by == log::kFinal) continue;
    EXPECT_EQ(trial.proposed_by, "model") << "the shipped model ranks from the first pick on";
    ++by_model;
    EXPECT_TRUE(world.log().GetModel("job1", trial.model_id).ok()) << trial.model_id;
  }
  EXPECT_GT(by_model, 0);
  const log::ModuleVersionRow module = Value(world.log().GetModuleVersion("net", 1));
  EXPECT_NEAR(module.median_us, stats.best_total() / 1000, 1e-9);
  EXPECT_NEAR(module.speedup, stats.default_total() / stats.best_total(), 1e-9);
  EXPECT_EQ(module.devices, 1);
}

TEST(JobCore, TheDefaultStaysUnlessBeatenBeyondNoise) {
  for (const double pick : {4990.0, 4000.0}) {
    for (const int64_t restart_at : {int64_t{-1}, int64_t{30}}) {
      JobWorld world(tests::TestSeed(2), {});
      world.time_of = [pick](const std::string& steps) { return steps == "default" ? 5000 : pick; };
      world.CreateJob(20);
      world.StartCore();
      world.RunToEnd(kManySteps, restart_at);
      world.CheckEnded();
      const log::ModuleVersionRow module = Value(world.log().GetModuleVersion("net", 1));
      const bool kept = pick > 4900;
      EXPECT_EQ(world.steps_of_module.find("default") != std::string::npos, kept) << pick;
      EXPECT_NEAR(module.speedup, kept ? 1 : 1.25, 1e-9) << pick;
    }
  }
}

TEST(JobCore, StagesOverlapAndAreBounded) {
  JobWorld world(3, {});
  world.CreateJob(120);
  world.StartCore();
  int64_t most_open = 0;
  bool proposed_while_open = false;
  int64_t last_proposed = 0;
  while (!world.core()->done()) {
    world.Step();
    const v1::Progress progress = world.core()->progress();
    const int64_t open = progress.proposed() - progress.measured();
    most_open = std::max(most_open, open);
    if (progress.proposed() > last_proposed && last_proposed > 0 && open > 8) {
      proposed_while_open = true;
    }
    last_proposed = progress.proposed();
  }
  ExpectSucceeded(&world, 120);
  EXPECT_TRUE(proposed_while_open) << "a new batch waited for the last one";
  EXPECT_LE(most_open, 24);
}

// The search goes on while a model is trained, and uses it one batch later, however long it took.
TEST(JobCore, TrainingRunsBesideTheSearch) {
  JobWorld world(2, {});
  world.CreateJob(120);
  world.StartCore();
  world.RunToEnd(kManySteps);
  ExpectSucceeded(&world, 120);
  int trained = 0, taken = 0;
  for (const log::ModelRow& model : Value(world.log().ListModels("job1"))) {
    trained += model.train_rows > 0;
  }
  EXPECT_GE(trained, 3);
  for (const auto& [asks, times] : world.models_taken) {
    EXPECT_LE(asks, 1);  // none: the job ended
    taken += times;
  }
  EXPECT_GE(world.models_taken[1], 2);
  EXPECT_EQ(taken, trained);
}

TEST(JobCore, OtherCostModelsTrainNothing) {
  JobWorld world(1, {});
  world.CreateJob(40, nullptr, "prior");
  world.StartCore();
  world.RunToEnd(kManySteps);
  ExpectSucceeded(&world, 40);
  EXPECT_TRUE(Value(world.log().ListModels("job1")).empty());
}

void Recalled(v1::Job* job) { job->set_recall(true); }

TEST(JobCore, ASecondTuningMeasuresNothingAndPublishesTheSame) {
  JobWorld world(3, {});
  world.CreateJob(40);
  world.StartCore();
  world.RunToEnd(kManySteps);
  ExpectSucceeded(&world, 40);
  const std::string first_steps = world.steps_of_module;

  world.NextJob("job2");
  world.CreateJob(40, Recalled);
  world.StartCore();
  world.RunToEnd(kManySteps);
  world.CheckEnded();
  EXPECT_EQ(log::JobStateName(world.job().state), "SUCCEEDED") << world.job().state_reason;
  EXPECT_EQ(Value(world.log().CountTrials("job2")).proposed, 0);
  EXPECT_EQ(world.core()->progress().cached(), 40);
  // What is known from the log is shown, with where it is from.
  v1::Job spec;
  spec.set_recall(true);
  const JobTimes times = Value(ReadJobTimes(&world.log(), world.job(), spec));
  EXPECT_EQ(times.recalled, 40);
  for (const TaskTimes& task : times.tasks) {
    EXPECT_EQ(task.standard.time, 5000);
    EXPECT_EQ(task.standard.job, "job1");
    EXPECT_LT(task.best.time, 5000);
    EXPECT_EQ(task.best.job, "job1");
    EXPECT_EQ(task.ended, 0);
  }
  const v1::Progress live = world.core()->progress();
  const v1::Progress stored = MakeProgress({}, times.tasks);
  EXPECT_GT(live.gain(), 1);
  EXPECT_EQ(live.gain(), stored.gain());
  EXPECT_EQ(live.best_us(), stored.best_us());
  EXPECT_THAT(BestTrial(times.tasks), HasSubstr("job1/tasks/task2/trials/"));
  EXPECT_EQ(world.core()->best_trial(), BestTrial(times.tasks));
  EXPECT_EQ(world.steps_of_module, first_steps);
  EXPECT_EQ(world.job().published_module, "projects/default/modules/net/versions/2");
  const log::ModuleVersionRow one = Value(world.log().GetModuleVersion("net", 1));
  const log::ModuleVersionRow two = Value(world.log().GetModuleVersion("net", 2));
  EXPECT_EQ(one.median_us, two.median_us);
  EXPECT_EQ(one.speedup, two.speedup);

  // A larger budget is spent on what is not known yet, whatever happens on the way.
  world.NextJob("job3");
  world.CreateJob(64, Recalled);
  world.StartCore();
  world.RunToEnd(kManySteps, 30);
  world.CheckEnded();
  EXPECT_EQ(Value(world.log().CountTrials("job3")).ended, 24);
  std::map<std::string, std::set<std::string>> programs;
  for (const char* job : {"job1", "job3"}) {
    for (const log::TrialRow& t : Value(world.log().ListTrials({.job = job, .limit = 999}))) {
      if (t.generated_by == log::kFinal) continue;  // again, on purpose
      EXPECT_TRUE(programs[t.task].insert(t.program_hash).second) << t.steps << " measured twice";
    }
  }

  // Without recall a job knows nothing of the others.
  world.NextJob("job4");
  world.CreateJob(40);
  world.StartCore();
  world.RunToEnd(kManySteps);
  EXPECT_EQ(Value(world.log().CountTrials("job4")).ended, 40);
}

// One default that could not be measured hides neither the others' gain nor the reason.
TEST(JobCore, AnInvalidBaselineLeavesTheOthersGain) {
  JobWorld world(3, {});
  world.invalid_when = [](const std::string& module) {
    return module.starts_with("text of 1 ") && module.ends_with("|default");
  };
  world.CreateJob(40);
  world.StartCore();
  world.RunToEnd(kManySteps);
  EXPECT_EQ(world.job().state, log::JobState::kSucceeded);
  const v1::Progress live = world.core()->progress();
  EXPECT_EQ(live.baseline_us(), 0);
  EXPECT_GT(live.gain(), 1);
  EXPECT_EQ(live.timed_tasks(), 2);
  EXPECT_EQ(live.tasks(), 3);
  JobTimes times = Value(ReadJobTimes(&world.log(), world.job(), {}));
  EXPECT_EQ(times.tasks[1].standard.time, 0);
  EXPECT_EQ(times.tasks[1].why_no_default, "not valid: measure.baseline.drift");
  EXPECT_GT(times.tasks[1].best.time, 0);

  // A later job that knows this one's records measures that default, and only that.
  world.invalid_when = nullptr;
  world.NextJob("job2");
  world.CreateJob(40, Recalled);
  world.StartCore();
  world.RunToEnd(kManySteps);
  v1::Job spec;
  spec.set_recall(true);
  times = Value(ReadJobTimes(&world.log(), world.job(), spec));
  EXPECT_EQ(times.tasks[1].standard.job, "job2");
  EXPECT_EQ(times.tasks[0].standard.job, "job1");
  EXPECT_EQ(world.core()->progress().timed_tasks(), 3);
}

TEST(JobCore, AModuleOfTheSameModelSchedulesAndCompilerIsNotCompiledAgain) {
  JobWorld world(3, {});
  const auto tune = [&world](const char* job, const char* build) {
    world.compiler_build = build;
    world.steps_of_module.clear();
    world.NextJob(job);
    world.CreateJob(40, Recalled);
    world.StartCore();
    world.RunToEnd(kManySteps);
    world.CheckEnded();
    EXPECT_EQ(log::JobStateName(world.job().state), "SUCCEEDED") << world.job().state_reason;
    return world.job().published_module.substr(world.job().published_module.rfind('/') + 1) +
           (world.steps_of_module.empty() ? " as it was" : " compiled");
  };
  EXPECT_EQ(tune("job2", "b1"), "1 compiled");
  EXPECT_EQ(tune("job3", "b1"), "1 as it was");
  EXPECT_EQ(tune("job4", "b2"), "2 compiled");
  EXPECT_EQ(tune("job5", ""), "3 compiled");
  EXPECT_EQ(tune("job6", ""), "4 compiled");
  EXPECT_EQ(tune("job7", "b2"), "2 as it was");
}

TEST(JobCore, AJobThatEndsSlowerSaysSoAndItsModuleIsNotTheDefault) {
  JobWorld world(3, {});
  const auto tune = [&world](const char* job, int trials) {
    world.NextJob(job);
    world.CreateJob(trials);
    world.StartCore();
    world.RunToEnd(kManySteps);
    world.CheckEnded();
    EXPECT_EQ(log::JobStateName(world.job().state), "SUCCEEDED") << world.job().state_reason;
  };
  tune("job2", 40);
  EXPECT_EQ(world.job().state_reason, "");
  tune("job3", 6);  // two for each task: fewer leave a task, and so the module, without a time
  EXPECT_LT(Value(world.log().GetModuleVersion("net", 1)).median_us,
            Value(world.log().GetModuleVersion("net", 2)).median_us);
  EXPECT_EQ(world.job().published_module, "projects/default/modules/net/versions/2");
  EXPECT_THAT(world.job().state_reason, HasSubstr("net without a number stays net/1"));
  std::string said;
  for (const log::EventRow& event : Value(world.log().ListEvents("job3", 0, 1000)))
    said += event.text;
  EXPECT_THAT(said, HasSubstr("net/2 takes"));
}

// A record that is accepted after another one that came later must not be read past.
TEST(JobCore, ARecordAcceptedLongAfterItWasStoredReachesAJobThatRuns) {
  JobWorld world(3, {});
  world.CreateJob(8);
  world.StartCore();
  world.RunToEnd(kManySteps);
  ExpectSucceeded(&world, 8);
  log::TuningLog& log = world.log();
  const std::string task = Value(log.ListTasks("job1")).front().name;
  const std::string hash = Value(log.ListTasks("job1")).front().hash;
  std::vector<log::TrialRow> trials = Value(log.ListTrials({.job = "job1", .task = task}));
  const log::TrialRow model = trials.front();
  const log::RecordRow record = Value(log.GetRecord(model.measurement_id));
  log::NewBatch batch;
  for (const char* program : {"late", "soon"}) {
    log::TrialRow& trial = batch.trials.emplace_back();
    trial.job = "job1";
    trial.task = task;
    trial.steps = trial.program_hash = program;
  }
  const std::vector<int64_t> numbers = Value(log.AddBatch("job1", batch));
  const auto news = [&](size_t i, bool final) {
    log::TrialNews one;
    one.number = numbers[i];
    one.record = record;
    one.record->measurement_id = StrCat("other/", i);
    one.record->trial = numbers[i];
    one.record->stored_us = world.clock().WallMicros();
    one.final = final;
    one.outcome = log::Outcome::kOk;
    Value(log.StoreNews("job1", {one}, 0, world.clock().WallMicros()));
    world.claims().NoteRecord(hash);
  };

  world.NextJob("job2");
  world.CreateJob(1000, Recalled);
  world.StartCore();
  world.tracker_measures = false;
  const auto wait_and_count = [&] {
    world.clock().AdvanceNs(2'000'000'000);
    for (int i = 0; i < 20; ++i) world.Step();
    return world.core()->progress().cached();
  };
  EXPECT_EQ(wait_and_count(), 8);
  news(0, false);
  EXPECT_EQ(wait_and_count(), 8) << "not accepted yet";
  news(1, true);
  EXPECT_EQ(wait_and_count(), 9);
  news(0, true);
  EXPECT_EQ(wait_and_count(), 10) << "accepted, stored before the one that was read last";
}

// The server never sees the weights: what it would publish could only compute nonsense.
// Other tasks of the same kinds: what was best for those is told first of all, to each child the
// same, and only to jobs that may know of others.
TEST(JobCore, ANewTaskInheritsFromItsRelativesInTheLog) {
  JobWorld world(3, {});
  world.CreateJob(40);
  world.StartCore();
  world.RunToEnd(kManySteps);
  ExpectSucceeded(&world, 40);
  EXPECT_TRUE(world.relatives_told.front().empty());

  const auto tune = [&](const std::string& id, const std::function<void(v1::Job*)>& edit) {
    world.relatives_told.clear();
    world.NextJob(id);
    world.CreateJob(24, edit);
    world.StartCore();
    while (world.relatives_told.empty() && !testing::Test::HasFatalFailure()) world.Step();
    world.RunToEnd(kManySteps, world.events() + 1);
    world.CheckEnded();
    ASSERT_GE(world.relatives_told.size(), 2U) << "a child before the restart, one after it";
    for (const auto& told : world.relatives_told) {
      ASSERT_EQ(told.size(), world.relatives_told.front().size());
      for (size_t i = 0; i < told.size(); ++i) {
        EXPECT_EQ(told[i].SerializeAsString(), world.relatives_told.front()[i].SerializeAsString());
      }
    }
  };
  world.extent = 16;
  tune("job2", Recalled);
  const std::vector<v1::RelativeProgram> told = world.relatives_told.front();
  std::map<std::string, std::vector<double>> times;  // by task, in the order told
  std::map<std::string, double> best;
  for (const v1::RelativeProgram& program : told) {
    EXPECT_THAT(program.canonical_text(), HasSubstr("f32[64]"));
    for (const log::TrialRow& trial :
         Value(world.log().ListTrials({.job = "job1", .limit = 999}))) {
      if (trial.median > 0 && !trial.is_default &&
          program.task().substr(0, 2) == "h" + trial.task.substr(4)) {
        double& least = best.emplace(program.task(), trial.median).first->second;
        least = std::min(least, trial.median);
      }
      if (trial.program_hash != program.program_hash()) continue;
      EXPECT_EQ(trial.point, program.point());
      times[program.task()].push_back(trial.median);
    }
  }
  EXPECT_EQ(times.size(), 3U) << "each task has a relative";
  for (const auto& [task, medians] : times) {
    EXPECT_EQ(medians.front(), best[task]) << task;
    EXPECT_TRUE(std::is_sorted(medians.begin(), medians.end())) << task;
  }

  world.extent = 24;
  tune("job3", [](v1::Job* job) {
    job->set_recall(true);
    job->add_search_parts("transfer=off");
  });
  EXPECT_TRUE(world.relatives_told.front().empty());
  world.extent = 32;
  tune("job4", nullptr);
  EXPECT_TRUE(world.relatives_told.front().empty());
  world.extent = 64 * 20;
  tune("job5", Recalled);
  EXPECT_TRUE(world.relatives_told.front().empty()) << "too far";
}

TEST(JobCore, AJobWithMadeUpWeightsEndsWithItsRecords) {
  for (const int64_t restart_at : {int64_t{-1}, int64_t{60}}) {
    JobWorld world(tests::TestSeed(4), {});
    world.CreateJob(20, [](v1::Job* job) { job->set_records_only(true); });
    world.StartCore();
    world.RunToEnd(kManySteps, restart_at);
    EXPECT_EQ(log::JobStateName(world.job().state), "SUCCEEDED") << world.job().state_reason;
    EXPECT_EQ(Value(world.log().CountTrials("job1")).ended, 20);
    EXPECT_EQ(world.job().published_module, "");
    EXPECT_EQ(world.steps_of_module, "") << "a module was compiled";
    EXPECT_TRUE(Value(world.log().ListModuleVersions({})).versions.empty());
    std::string said;
    for (const log::EventRow& event : Value(world.log().ListEvents("job1", 0, 1000))) {
      said += event.text + "\n";
    }
    EXPECT_THAT(said, HasSubstr("no module is published"));
  }
}

TEST(JobCore, ARestartAtEveryEventLosesNothing) {
  // How many events a run takes without restarts.
  int64_t events = 0;
  {
    JobWorld world(5, {});
    world.CreateJob(20);
    world.StartCore();
    world.RunToEnd(kManySteps);
    events = world.events();
  }
  const int64_t step = std::max<int64_t>(1, events / tests::TestRounds(60));
  for (int64_t at = 1; at < events; at += step) {
    SCOPED_TRACE(StrCat("restart after event ", at, " of ", events));
    JobWorld world(5, {});
    world.CreateJob(20);
    world.StartCore();
    world.RunToEnd(kManySteps, at);
    ASSERT_FALSE(testing::Test::HasFailure());
    ExpectSucceeded(&world, 20);
  }
}

TEST(JobCore, EveryKindOfFaultAtOnce) {
  const uint64_t first = tests::TestSeed(100);
  for (uint64_t seed = first; seed < first + static_cast<uint64_t>(tests::TestRounds(40)); ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Faults faults;
    faults.search_dies = 0.03;
    faults.search_is_short = 0.1;
    faults.search_is_killed = 0.03;
    faults.build_is_short = 0.1;
    faults.build_is_killed = 0.05;
    faults.build_crashes = 0.1;
    faults.build_fails = 0.05;
    faults.build_times_out = 0.02;
    faults.submit_fails = 0.2;
    faults.pull_fails = 0.1;
    faults.ack_is_lost = 0.3;
    faults.attempt_is_lost = 0.1;
    faults.invalid = 0.1;
    faults.wrong_result = 0.1;
    faults.tracker_restarts = 0.01;
    faults.core_restarts = 0.02;
    JobWorld world(seed, faults);
    world.CreateJob(40);
    world.StartCore();
    world.RunToEnd(kManySteps);
    ASSERT_FALSE(testing::Test::HasFailure());
    const log::JobRow job = world.job();
    if (job.state_reason.find("job.search.crashed") == 0) continue;  // three deaths in a row
    if (job.state_reason.find("job.task.wrong_result") == 0) continue;
    ExpectSucceeded(&world, 40);
  }
}

TEST(JobCore, ATrackerThatForgetsEverythingGetsEverythingAgain) {
  for (uint64_t seed = 1; seed <= 15; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Faults faults;
    faults.tracker_loses_all = 0.01;
    faults.core_restarts = 0.01;
    faults.ack_is_lost = 0.2;
    JobWorld world(seed, faults);
    world.CreateJob(30);
    world.StartCore();
    world.RunToEnd(kManySteps);
    ASSERT_FALSE(testing::Test::HasFailure());
    ExpectSucceeded(&world, 30);
  }
}

// Steps until so many trials have ended; the virtual seconds that it took.
double StepUntilMeasured(JobWorld* world, int64_t measured) {
  const int64_t start_ns = world->clock().NowNs();
  for (int i = 0; i < kManySteps && world->core()->progress().measured() < measured; ++i) {
    world->Step();
    if (testing::Test::HasFatalFailure()) break;
  }
  EXPECT_GE(world->core()->progress().measured(), measured) << "the job stands still";
  return static_cast<double>(world->clock().NowNs() - start_ns) * 1e-9;
}

constexpr double kWithinS = 60;  // of a restore the job goes on

// What was open in the backup has ended meanwhile, and new trials get numbers that the tracker
// knows of other programs: what it still has comes again, what is not this log's is left out, and
// each record is of its own trial's program (CheckEnded).
TEST(JobCore, ATunerRestoredFromABackupGoesOn) {
  jobs::Reconciled all;
  for (uint64_t seed = 1; seed <= 15; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Faults faults;
    faults.ack_is_lost = 0.1;
    faults.invalid = 0.1;
    JobWorld world(seed, faults);
    world.KeepLogInFile();
    world.CreateJob(60);
    world.StartCore();
    StepUntilMeasured(&world, 10);
    world.BackUpTuner();
    StepUntilMeasured(&world, 30);
    if (seed % 2 == 0) world.first_candidate = 300;
    if (seed % 3 == 0) world.BackUpTracker();
    if (seed % 3 == 0) world.RestoreTracker();
    world.RestoreTuner();
    ASSERT_LE(world.core()->progress().measured(), 29);
    EXPECT_LT(StepUntilMeasured(&world, world.core()->progress().measured() + 1), kWithinS);
    world.RunToEnd(kManySteps);
    ASSERT_FALSE(testing::Test::HasFailure());
    ExpectSucceeded(&world, 60);
    all.ended.insert(all.ended.end(), world.reconciled().ended.begin(),
                     world.reconciled().ended.end());
    all.foreign.insert(all.foreign.end(), world.reconciled().foreign.begin(),
                       world.reconciled().foreign.end());
  }
  EXPECT_GE(all.ended.size(), 15u);
  EXPECT_GE(all.foreign.size(), 5u);
}

// The tracker knows nothing of newer work, and measures again what has ended: that counts once.
TEST(JobCore, ATrackerRestoredFromABackupGetsWhatItLost) {
  size_t unknown = 0;
  for (uint64_t seed = 1; seed <= 15; ++seed) {
    SCOPED_TRACE(StrCat("seed ", seed));
    Faults faults;
    faults.ack_is_lost = 0.1;
    JobWorld world(seed, faults);
    world.CreateJob(60);
    world.StartCore();
    StepUntilMeasured(&world, 10);
    world.BackUpTracker();
    StepUntilMeasured(&world, 30);
    const bool same_epoch = seed % 2 == 0;
    world.tracker_away = true;
    for (int i = 0; i < 50; ++i) world.Step();
    world.tracker_away = false;
    world.RestoreTracker(same_epoch);
    EXPECT_LT(StepUntilMeasured(&world, world.core()->progress().measured() + 1), kWithinS);
    world.RunToEnd(kManySteps);
    ASSERT_FALSE(testing::Test::HasFailure());
    ExpectSucceeded(&world, 60);
    unknown += world.reconciled().unknown.size();
  }
  EXPECT_GE(unknown, 15u);
}

TEST(JobCore, ATrackerThatIsAwayIsWaitedFor) {
  JobWorld world(2, {});
  world.tracker_away = true;
  world.CreateJob(20);
  world.StartCore();
  for (int i = 0; i < 3000; ++i) world.Step();
  EXPECT_EQ(world.job().state, log::JobState::kRunning);
  ASSERT_FALSE(world.core()->conditions().empty());
  EXPECT_EQ(world.core()->conditions().back().type(), "TRACKER_UNREACHABLE");
  EXPECT_LE(world.core()->progress().proposed(), 16) << "nothing bounds what is proposed";
  world.tracker_away = false;
  world.RunToEnd(kManySteps);
  ExpectSucceeded(&world, 20);
  EXPECT_TRUE(world.core()->conditions().empty());
}

TEST(JobCore, WithoutADeviceTheJobWaitsAndSaysSo) {
  JobWorld world(2, {});
  world.devices = 0;
  world.tracker_measures = false;
  world.CreateJob(20);
  world.StartCore();
  for (int i = 0; i < 2000; ++i) world.Step();
  ASSERT_EQ(world.core()->conditions().size(), 1U);
  EXPECT_EQ(world.core()->conditions()[0].reason(), "job.pool.no_device");
  world.devices = 1;
  world.tracker_measures = true;
  world.RunToEnd(kManySteps);
  ExpectSucceeded(&world, 20);
}

TEST(JobCore, WrongAndFailedTrialsCountAndNeverWin) {
  Faults faults;
  faults.wrong_result = 0.3;
  faults.build_fails = 0.2;
  JobWorld world(11, faults);
  world.CreateJob(60);
  world.StartCore();
  world.RunToEnd(kManySteps);
  ExpectSucceeded(&world, 60);
  const log::TrialCounts counts = Value(world.log().CountTrials("job1"));
  EXPECT_GT(counts.by_outcome.at(log::Outcome::kWrongResult), 5);
  EXPECT_GT(counts.by_outcome.at(log::Outcome::kBuildError), 5);
  // A wrong result was told to be "measured" in 1 ns.
  for (const log::TaskStats& task : Value(log::ComputeTaskStats(&world.log(), "job1"))) {
    EXPECT_GT(task.best_median, 1);
  }
  // Failed builds have a record too: attempt 0.
  int64_t build_records = 0;
  for (const log::RecordRow& record : Value(world.log().ListRecords({.job = "job1"}))) {
    if (record.outcome == log::Outcome::kBuildError && record.attempt == 0) ++build_records;
  }
  EXPECT_GE(build_records, counts.by_outcome.at(log::Outcome::kBuildError));
  EXPECT_LE(build_records, counts.by_outcome.at(log::Outcome::kBuildError) + counts.finals);
}

TEST(JobCore, ATaskWithOnlyWrongResultsFailsTheJob) {
  Faults faults;
  faults.wrong_result = 1;
  JobWorld world(1, faults);
  world.CreateJob(20);
  world.StartCore();
  world.RunToEnd(kManySteps);
  world.CheckEnded();
  EXPECT_EQ(world.job().state, log::JobState::kFailed);
  EXPECT_THAT(world.job().state_reason, HasSubstr("job.task.wrong_result"));
}

TEST(JobCore, ARequestThatKillsEveryChildFailsTheJob) {
  JobWorld world(1, {});
  world.search_poison = [](const v1::BuilderRequest& request) { return request.has_open_job(); };
  world.CreateJob(20);
  world.StartCore();
  world.RunToEnd(kManySteps);
  world.CheckEnded();
  EXPECT_EQ(world.job().state, log::JobState::kFailed);
  EXPECT_THAT(world.job().state_reason, HasSubstr("job.search.crashed"));
  EXPECT_EQ(world.searches_started(), 3);
}

TEST(JobCore, ATaskThatKillsTheSearchIsGivenUpAndTheOthersGoOn) {
  JobWorld world(1, {});
  world.search_poison = [](const v1::BuilderRequest& request) {
    return request.has_ask() && request.ask().task() == "h1";
  };
  world.CreateJob(40);
  world.StartCore();
  world.RunToEnd(kManySteps);
  ExpectSucceeded(&world, 40);
  const auto tasks = Value(log::ComputeTaskStats(&world.log(), "job1"));
  EXPECT_EQ(tasks[1].ended, 1);  // its default
  EXPECT_GT(tasks[0].ended, 5);
}

TEST(JobCore, AModelThatIsRefusedFailsTheJobWithTheReason) {
  JobWorld world(1, {});
  world.search_refusal = [](const v1::BuilderRequest& request) -> std::string {
    return request.has_open_job() ? "onnx.node.unknown_operator: found Foo" : "";
  };
  world.CreateJob(20);
  world.StartCore();
  world.RunToEnd(kManySteps);
  EXPECT_EQ(world.job().state, log::JobState::kFailed);
  EXPECT_THAT(world.job().state_reason, HasSubstr("onnx.node.unknown_operator"));
}

void AtBatchOneAndEight(v1::Job* job) {
  (*job->mutable_open_sizes())["batch"].set_min(1);
  (*job->mutable_open_sizes())["batch"].set_max(32);
  for (const int64_t batch : {1, 8}) (*job->add_specialise()->mutable_sizes())["batch"] = batch;
  job->set_recall(true);
}

TEST(JobCore, OpenSizesReachTheSearchAndThePublishedVersion) {
  JobWorld world(1, {});
  world.compiler_build = "b1";
  v1::OpenJob open;
  world.search_refusal = [&open](const v1::BuilderRequest& request) -> std::string {
    if (request.has_open_job()) open = request.open_job();
    return "";
  };
  world.CreateJob(12, AtBatchOneAndEight);
  world.StartCore();
  world.RunToEnd(kManySteps);
  ExpectSucceeded(&world, 12);
  EXPECT_EQ(open.open_sizes().at("batch").max(), 32);
  ASSERT_EQ(open.specialise_size(), 2);
  EXPECT_EQ(open.specialise(1).sizes().at("batch"), 8);
  const auto version = Value(world.log().ListModuleVersions({.limit = 1})).versions.at(0);
  EXPECT_EQ(Value(log::ParseSizesText(version.sizes)).Words(),
            "batch=1..32, specialised at batch=1; batch=8");

  // The same schedules at other sizes are another module.
  for (const bool same : {true, false}) {
    world.NextJob(same ? "job2" : "job3");
    world.steps_of_module.clear();
    world.CreateJob(12, [&](v1::Job* job) {
      AtBatchOneAndEight(job);
      if (!same) (*job->mutable_open_sizes())["batch"].set_max(16);
    });
    world.StartCore();
    world.RunToEnd(kManySteps);
    EXPECT_EQ(world.job().state, log::JobState::kSucceeded) << world.job().state_reason;
    EXPECT_EQ(world.steps_of_module.empty(), same);
  }
}

TEST(JobCore, AModelWithoutKernelsOfFixedSizesFailsTheJobWithTheReason) {
  for (const bool open : {false, true}) {
    JobWorld world(1, {});
    world.has_tasks = false;
    world.CreateJob(12, [&](v1::Job* job) {
      if (open) (*job->mutable_open_sizes())["batch"].set_max(32);
    });
    world.StartCore();
    world.RunToEnd(kManySteps);
    EXPECT_EQ(world.job().state, log::JobState::kFailed);
    EXPECT_TRUE(world.job().state_reason.starts_with(open ? "job.specialise.missing: "
                                                          : "job.model.no_tasks: "))
        << world.job().state_reason;
  }
}

TEST(JobCore, ARefusedWorkItemFailsTheJobWithTheReason) {
  JobWorld world(1, {});
  world.tracker_refusal = [](const v1::WorkItem&) { return "selector.parse.invalid: found ,,"; };
  world.CreateJob(20);
  world.StartCore();
  world.RunToEnd(kManySteps);
  world.CheckEnded();
  EXPECT_EQ(world.job().state, log::JobState::kFailed);
  EXPECT_THAT(world.job().state_reason, HasSubstr("selector.parse.invalid"));
}

// What the tracker says is decided by its kind, not by words for people.
TEST(JobCore, ATakenNameIsLeftToWhoeverHasIt) {
  JobWorld world(1, {});
  world.CreateJob(8);
  world.OccupyName("job1.0a1b/task2/1");
  world.StartCore();
  world.RunToEnd(kManySteps);
  ExpectSucceeded(&world, 8);
  EXPECT_EQ(Value(world.log().GetTrial("job1", 1)).work_item, "job1.0a1b/task2/1+1");
}

TEST(JobCore, AnExhaustedSpaceEndsTheJobEarly) {
  JobWorld world(1, {});
  world.space = 6;
  world.CreateJob(1000);
  world.StartCore();
  world.RunToEnd(kManySteps);
  ExpectSucceeded(&world, 3 * 7);
  EXPECT_THAT(world.job().state_reason, HasSubstr("exhausted"));
}

TEST(JobCore, TimeAndGainLimitsEndTheJob) {
  {
    JobWorld world(1, {});
    world.CreateJob(
        0, [](v1::Job* job) { job->mutable_budget()->mutable_max_wall()->set_seconds(5); });
    world.StartCore();
    world.RunToEnd(kManySteps);
    world.CheckEnded();
    EXPECT_EQ(world.job().state, log::JobState::kSucceeded) << world.job().state_reason;
    EXPECT_GE(world.job().elapsed_s, 4.7) << "the last twentieth is for winners";
    EXPECT_LT(world.job().elapsed_s, 25);
  }
  JobWorld world(1, {});
  world.CreateJob(0, [](v1::Job* job) {
    job->mutable_budget()->set_stop_if_no_gain(0.5);
    job->mutable_budget()->set_patience_trials(20);
  });
  world.StartCore();
  world.RunToEnd(kManySteps);
  world.CheckEnded();
  EXPECT_THAT(world.job().state_reason, HasSubstr("gained too little"));
  EXPECT_LT(Value(world.log().CountTrials("job1")).ended, 100);
}

TEST(JobCore, CancellingStopsWhatRunsHereAndAtTheTracker) {
  for (int64_t steps : {0, 5, 40, 150}) {
    SCOPED_TRACE(steps);
    JobWorld world(1, {});
    world.CreateJob(1000);
    world.StartCore();
    for (int64_t i = 0; i < steps; ++i) world.Step();
    world.Cancel();
    world.RunToEnd(kManySteps);
    world.CheckEnded();
    EXPECT_EQ(world.job().state, log::JobState::kCancelled);
    EXPECT_EQ(world.job().state_reason, "by request");
    EXPECT_EQ(world.job().published_module, "");
  }
}

TEST(JobCore, ACancelledJobEndsEvenWhenTheTrackerIsAway) {
  JobWorld world(1, {});
  world.tracker_measures = false;
  world.CreateJob(50);
  world.StartCore();
  for (int i = 0; i < 300; ++i) world.Step();
  world.tracker_away = true;
  world.Cancel();
  world.RunToEnd(kManySteps);
  world.CheckEnded();
  EXPECT_EQ(world.job().state, log::JobState::kCancelled);
}

TEST(JobCore, ARestartWhileCancellingOrFinishingEndsTheSameWay) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Faults faults;
    faults.core_restarts = 0.2;
    JobWorld world(seed, faults);
    world.CreateJob(1000);
    world.StartCore();
    for (int i = 0; i < 200; ++i) world.Step();
    world.Cancel();
    world.RunToEnd(kManySteps);
    world.CheckEnded();
    EXPECT_EQ(world.job().state, log::JobState::kCancelled);
  }
}

// Half of a small budget is for default schedules, the heaviest tasks' first. The others keep
// theirs unmeasured, and a second tuning still measures nothing.
TEST(JobCore, AJobWithFewTrialsSpendsThemOnTheHeaviestTasks) {
  JobWorld world(1, {});
  world.CreateJob(4, Recalled);
  world.StartCore();
  world.RunToEnd(kManySteps);
  world.CheckEnded();
  EXPECT_EQ(world.job().state, log::JobState::kSucceeded);
  auto tasks = Value(log::ComputeTaskStats(&world.log(), "job1"));
  EXPECT_EQ(tasks[0].ended, 0);
  EXPECT_GT(tasks[1].default_median, 0);
  EXPECT_GT(tasks[2].default_median, 0);
  EXPECT_EQ(tasks[1].ended + tasks[2].ended, 4);
  EXPECT_GE(tasks[2].ended, 2) << "more uses than the other one";

  world.NextJob("job2");
  world.CreateJob(4, Recalled);
  world.StartCore();
  world.RunToEnd(kManySteps);
  world.CheckEnded();
  EXPECT_EQ(Value(world.log().CountTrials("job2")).ended, 0);
}

}  // namespace
}  // namespace tilewright::jobs
