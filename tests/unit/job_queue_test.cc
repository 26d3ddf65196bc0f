// The pure parts of tuner_server/jobs: states, admission, task choice, names and messages.
#include "tuner_server/jobs/job_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "deploy/support/duration.h"
#include "deploy/support/status.h"
#include "device_agent/measure.h"
#include "tuner_server/jobs/task_scheduler.h"
#include "tuner_server/jobs/work_items.h"

namespace tilewright::jobs {
namespace {

using log::JobState;
using support::Slug;
using testing::ElementsAre;

constexpr JobState kAllStates[] = {JobState::kQueued,     JobState::kRunning,   JobState::kPaused,
                                   JobState::kFinishing,  JobState::kSucceeded, JobState::kFailed,
                                   JobState::kCancelling, JobState::kCancelled};

TEST(JobStates, EveryOpenStateReachesAnEndByCancellation) {
  for (const JobState state : kAllStates) {
    const auto next = NextState(state, JobAction::kCancel);
    ASSERT_TRUE(next.ok()) << log::JobStateName(state);
    if (log::IsFinal(state)) {
      EXPECT_EQ(*next, state) << "a final state is final";
    } else if (*next == JobState::kCancelling) {
      EXPECT_EQ(*NextState(*next, JobAction::kCancelled), JobState::kCancelled);
    } else {
      EXPECT_EQ(*next, JobState::kCancelled);
    }
  }
}

TEST(JobStates, FinalStatesTakeNoOtherAction) {
  for (const JobState state : kAllStates) {
    if (!log::IsFinal(state)) continue;
    for (const JobAction action :
         {JobAction::kStart, JobAction::kPause, JobAction::kResume, JobAction::kMeasured,
          JobAction::kSucceed, JobAction::kFail, JobAction::kCancelled}) {
      EXPECT_FALSE(NextState(state, action).ok());
    }
  }
  EXPECT_EQ(Slug(NextState(JobState::kQueued, JobAction::kSucceed).status()), "job.state.succeed");
}

TEST(JobStates, TheOrdinaryWay) {
  EXPECT_EQ(*NextState(JobState::kQueued, JobAction::kStart), JobState::kRunning);
  EXPECT_EQ(*NextState(JobState::kRunning, JobAction::kPause), JobState::kPaused);
  EXPECT_EQ(*NextState(JobState::kPaused, JobAction::kResume), JobState::kRunning);
  EXPECT_EQ(*NextState(JobState::kRunning, JobAction::kMeasured), JobState::kFinishing);
  EXPECT_EQ(*NextState(JobState::kFinishing, JobAction::kSucceed), JobState::kSucceeded);
}

TEST(Admission, UrgentFirstThenByAgeAndNobodyWaitsForEver) {
  std::vector<WaitingJob> waiting = {{"a", 1, 3}, {"b", 2, 1}, {"c", 3, 3}};
  EXPECT_THAT(JobsToStart(waiting, 0, 2), ElementsAre("b", "a"));
  EXPECT_THAT(JobsToStart(waiting, 2, 2), ElementsAre());
  EXPECT_THAT(JobsToStart(waiting, 1, 3), ElementsAre("b", "a"));
  waiting[2].waiting_ns = 3 * kAgeingNs;  // class 3 has become class 0
  EXPECT_THAT(JobsToStart(waiting, 0, 1), ElementsAre("c"));
  waiting[0].must_resume = true;
  EXPECT_THAT(JobsToStart(waiting, 0, 3), ElementsAre("a", "c", "b"));
}

TaskView View(double weight, double best, int64_t proposed) {
  TaskView view;
  view.weight = weight;
  view.estimate = best;
  view.default_time = best;
  view.best = best;
  view.proposed = proposed;
  view.best_by_trial.assign(static_cast<size_t>(proposed), best);
  return view;
}

// A task that nothing was measured of: its default schedule is under way.
TaskView Unmeasured(double weight, double estimate) {
  TaskView view;
  view.weight = weight;
  view.estimate = estimate;
  view.proposed = 1;
  return view;
}

// A pretended job: trials of task i halve what is above the floor of its time, again and again.
std::vector<int64_t> TrialsOfAJob(std::vector<TaskView> tasks, int64_t max_trials) {
  std::vector<double> floors;
  for (const TaskView& task : tasks) floors.push_back(0.7 * task.estimate);
  int64_t left = max_trials - static_cast<int64_t>(tasks.size());
  for (int64_t batch = 0; left > 0; ++batch) {
    const int index = PickTask(tasks, batch);
    if (index < 0) break;
    TaskView& task = tasks[static_cast<size_t>(index)];
    const int64_t count = BatchSize(task, left);
    left -= count;
    task.proposed += count;
    task.default_time = task.best = task.best > 0 ? task.best : task.estimate;
    for (int64_t i = 0; i < count; ++i) {
      task.best -= (task.best - floors[static_cast<size_t>(index)]) / 2;
      task.best_by_trial.push_back(task.best);
    }
  }
  std::vector<int64_t> trials;
  for (const TaskView& task : tasks) trials.push_back(task.proposed);
  return trials;
}

// As in bert_small: two kernels at the end of the graph take 66 % of the time.
TEST(TaskScheduler, HeavyTasksLateInTheGraphGetMostOfSixtyTrials) {
  std::vector<TaskView> tasks;
  for (int i = 0; i < 12; ++i) tasks.push_back(Unmeasured(1, 34.0 / 12));
  tasks.push_back(Unmeasured(4, 33.0 / 4));
  tasks.push_back(Unmeasured(4, 33.0 / 4));
  const std::vector<int64_t> trials = TrialsOfAJob(tasks, 60);
  EXPECT_GE(trials[12] + trials[13] - 2, 23) << "half of the 46 after the default schedules";
  EXPECT_LT(*std::max_element(trials.begin(), trials.begin() + 12), trials[12]);
  EXPECT_EQ(PickTask(tasks, 0), 12) << "nothing is measured, and the first batch knows";
}

TEST(TaskScheduler, TheFirstBatchGoesWhereTheModelSeesAGain) {
  std::vector<TaskView> tasks = {Unmeasured(1, 100), Unmeasured(1, 90), Unmeasured(1, 1)};
  tasks[0].headroom = 0.1;
  tasks[1].headroom = 0.8;
  tasks[2].headroom = 3;
  EXPECT_EQ(PickTask(tasks, 0), 1);
}

TEST(TaskScheduler, EstimatesFollowTheScaleOfWhatIsMeasured) {
  // Measured tasks take three times their estimates.
  std::vector<TaskView> tasks = {View(1, 300, 1), View(1, 30, 1), Unmeasured(1, 50), {}};
  tasks[0].estimate = 100;
  tasks[1].estimate = 10;
  EXPECT_THAT(ExpectedTimes(tasks), ElementsAre(300, 30, 150, 160)) << "the last: their mean";
  EXPECT_THAT(ExpectedTimes({{}, {}}), ElementsAre(1, 1));
}

TEST(TaskScheduler, TasksLearnFromEachOther) {
  // The model promised the first two tasks as much as the third, and they gained nothing.
  std::vector<TaskView> tasks = {View(1, 1, 30), View(1, 1, 30), Unmeasured(1, 100),
                                 View(1, 60, 5)};
  for (TaskView& task : tasks) task.headroom = 1;
  tasks[3].default_time = 80;
  const std::vector<double> humbled = ExpectedGains(tasks);
  tasks[0].default_time = tasks[1].default_time = 2;
  const std::vector<double> kept = ExpectedGains(tasks);
  EXPECT_LT(humbled[2], kept[2] / 1.5);
}

TEST(TaskScheduler, DefaultsComeFirstAndTakeAtMostHalfOfTheBudget) {
  const std::vector<TaskView> tasks = {Unmeasured(1, 10), Unmeasured(5, 10), Unmeasured(1, 30)};
  EXPECT_THAT(DefaultsFirst(tasks, 60), ElementsAre(1, 2, 0));
  EXPECT_THAT(DefaultsFirst(tasks, 0), ElementsAre(1, 2, 0));
  EXPECT_THAT(DefaultsFirst(tasks, 4), ElementsAre(1, 2));
  EXPECT_THAT(DefaultsFirst(tasks, 1), ElementsAre(1));
}

TEST(TaskScheduler, BatchesGrowWithATaskAndShrinkTowardsTheEnd) {
  EXPECT_EQ(BatchSize(Unmeasured(1, 1), 300), 4);
  EXPECT_EQ(BatchSize(View(1, 1, 5), 300), 8);
  EXPECT_EQ(BatchSize(View(1, 1, 5), 40), 5);
  EXPECT_EQ(BatchSize(View(1, 1, 5), 10), 2);
  EXPECT_EQ(BatchSize(View(1, 1, 5), 1), 1);
}

TEST(TaskScheduler, AnEndedSearchGetsNoBatch) {
  std::vector<TaskView> tasks = {View(1, 100, 5), View(1, 1, 1)};
  EXPECT_EQ(PickTask(tasks, 0), 0);
  tasks[0].exhausted = true;
  EXPECT_EQ(PickTask(tasks, 0), 1) << "light, and all that is left";
  tasks[1].exhausted = true;
  EXPECT_EQ(PickTask(tasks, 0), -1);
  EXPECT_EQ(PickTask({}, 0), -1);
}

TEST(TaskScheduler, PrefersWhereTheTimeIsAndWhereItStillFalls) {
  // The same times, one is used four times as often.
  EXPECT_EQ(PickTask({View(1, 100, 20), View(4, 100, 20)}, 0), 1);
  // Less tried is more promising.
  EXPECT_EQ(PickTask({View(1, 100, 200), View(1, 100, 20)}, 0), 1);
  // A task that just got much faster goes on.
  TaskView falling = View(1, 100, 60);
  falling.default_time = 400;
  for (int i = 0; i < 25; ++i) {
    falling.best_by_trial[falling.best_by_trial.size() - 25 + static_cast<size_t>(i)] =
        400.0 - 300.0 * i / 24.0;
  }
  EXPECT_EQ(PickTask({View(1, 100, 50), falling}, 0), 1);
}

TEST(TaskScheduler, SmallTasksAreFrozenAndOthersGetTheirShare) {
  const std::vector<TaskView> tasks = {View(1, 10000, 500), View(1, 1, 5), View(1, 9000, 5)};
  int counts[3] = {0, 0, 0};
  for (int64_t batch = 0; batch < 100; ++batch) ++counts[PickTask(tasks, batch)];
  EXPECT_EQ(counts[1], 0) << "0.005 % of the time";
  EXPECT_GT(counts[2], 50);
  // Round robin reaches what the gain alone would not.
  std::vector<TaskView> uneven = {View(1, 10000, 10), View(1, 100, 9)};
  EXPECT_EQ(PickTask(uneven, 0), 0);
  EXPECT_EQ(PickTask(uneven, 19), 1);
}

TEST(TaskScheduler, ATaskWithoutAnyGoodTrialIsTriedButNotForEver) {
  EXPECT_EQ(PickTask({View(1, 100, 10), View(1, 0, 10)}, 0), 1);
  EXPECT_EQ(PickTask({View(1, 100, 10), View(1, 0, 100)}, 0), 0);
  EXPECT_EQ(PickTask({View(1, 0, 100)}, 0), 0) << "nothing else is left";
}

TEST(WorkItems, NamesRoundTrip) {
  EXPECT_EQ(WorkItemName("j.1", "conv", 7), "j.1/conv/7");
  const auto id = ParseWorkItemName("j.1", WorkItemName("j.1", "conv", 7, 2));
  ASSERT_TRUE(id.has_value());
  EXPECT_EQ(id->task, "conv");
  EXPECT_EQ(id->trial, 7);
  EXPECT_EQ(id->generation, 2);
  for (const char* other : {"j.2/conv/7", "j.11/conv/7", "j.1/conv", "j.1/conv/x", "j.1/conv/7/1",
                            "j.1/conv/7+x", "", "j.1"}) {
    EXPECT_FALSE(ParseWorkItemName("j.1", other).has_value()) << other;
  }
}

TEST(WorkItems, SpecsRoundTripAsText) {
  v1::Job job;
  job.set_target("cpu");
  job.mutable_budget()->set_max_trials(64);
  (*job.mutable_input_shapes())["x"].add_dims(3);
  (*job.mutable_open_sizes())["batch"].set_max(32);
  (*job.add_specialise()->mutable_sizes())["batch"] = 8;
  (*job.mutable_states())["past"] = "present";
  job.set_known_states(true);
  job.mutable_plan()->mutable_warmup()->set_nanos(5000);
  EXPECT_EQ(SpecFromJson(*SpecToJson(job))->SerializeAsString(), job.SerializeAsString());
  EXPECT_EQ(Slug(SpecFromJson("{").status()), "job.spec.bad");
  job.mutable_budget()->mutable_max_wall()->set_seconds(int64_t{1} << 60);
  EXPECT_EQ(Slug(SpecToJson(job).status()), "job.spec.bad") << "no crash of the tuner";
}

TEST(WorkItems, ReportsOfKernelsRoundTripAsText) {
  v1::ResourceReport report;
  EXPECT_EQ(ResourcesToJson(report), "");
  v1::KernelResources* kernel = report.add_kernels();
  kernel->set_name("dense_0");
  kernel->set_registers(40);
  kernel->set_shared_bytes(4096);
  report.add_kernels()->set_spill_bytes(8);
  EXPECT_EQ(ResourcesFromJson(ResourcesToJson(report)).SerializeAsString(),
            report.SerializeAsString());
  for (const char* text : {"", "{", "[]", "{\"kernels\": 7}"}) {
    EXPECT_EQ(ResourcesFromJson(text).kernels_size(), 0) << text;
  }
}

TEST(WorkItems, TheJobsOwnPlanWins) {
  v1::MeasurementPlan wanted;
  wanted.set_min_repeats(50);
  wanted.mutable_warmup()->set_seconds(1);
  v1::MeasurementPlan plan = TrialPlan(wanted, 1000);
  EXPECT_EQ(plan.min_repeats(), 50);
  EXPECT_GE(plan.max_repeats(), 50);
  EXPECT_EQ(plan.warmup().seconds(), 1);
  EXPECT_EQ(plan.abort_if_slower_than_ns(), 5000);
  EXPECT_EQ(plan.compare_to_ns(), 1000);
  EXPECT_EQ(TrialPlan({}, 0).abort_if_slower_than_ns(), 0);
  EXPECT_EQ(TrialPlan({}, 0).compare_to_ns(), 0);
  EXPECT_GT(TrialPlan({}, 0).budget_per_candidate().nanos(), 0);
}

TEST(WorkItems, AnEmptyPlanMeansTheSameToTunerAndAgent) {
  v1::MeasurementPlan tuner = TrialPlan({}, 0);
  tuner.clear_max_baseline_drift();  // the agent checks none by itself
  EXPECT_EQ(tuner.DebugString(), device_agent::CompletePlan({}).DebugString());
}

log::TrialNews NewsFor(v1::WorkState state, v1::Outcome outcome, double median, bool valid) {
  v1::WorkUpdate update;
  update.set_work_item("j.1/conv/7");
  update.set_state(state);
  v1::MeasurementResult* result = update.mutable_result();
  result->set_measurement_id("j.1/conv/7/1");
  result->set_outcome(outcome);
  result->set_median(median);
  result->set_valid(valid);
  result->set_value_kind(v1::VALUE_KIND_WALL_NS);
  log::TrialRow trial;
  trial.job = "j";
  trial.number = 7;
  trial.task = "conv";
  return NewsOf(update, trial,
                {.task_hash = "h", .target_key = "t", .device_class = "", .toolchain = "tc"}, 5);
}

TEST(WorkItems, EveryEndOfAWorkItemIsAnEndOfItsTrial) {
  log::TrialNews news = NewsFor(v1::WORK_STATE_DONE, v1::OK, 10, true);
  EXPECT_TRUE(news.final);
  EXPECT_EQ(news.state, log::TrialState::kSucceeded);
  EXPECT_TRUE(news.record->usable());
  EXPECT_EQ(news.record->value_kind, "wall_ns");
  EXPECT_EQ(news.record->key.task_hash, "h");
  news = NewsFor(v1::WORK_STATE_DONE, v1::WRONG_RESULT, 10, true);
  EXPECT_EQ(news.state, log::TrialState::kInfeasible);
  EXPECT_FALSE(news.record->usable());
  news = NewsFor(v1::WORK_STATE_DONE, v1::EARLY_STOPPED, 10, true);
  EXPECT_EQ(news.state, log::TrialState::kSucceeded);
  EXPECT_FALSE(news.record->usable());
  news = NewsFor(v1::WORK_STATE_QUEUED, v1::DEVICE_LOST, 0, false);
  EXPECT_FALSE(news.final);
  EXPECT_TRUE(news.record.has_value());
  news = NewsFor(v1::WORK_STATE_QUARANTINED, v1::DEVICE_LOST, 0, false);
  EXPECT_TRUE(news.final);
  EXPECT_EQ(news.state, log::TrialState::kQuarantined);
  EXPECT_EQ(NewsFor(v1::WORK_STATE_FAILED, v1::DEVICE_LOST, 0, false).state,
            log::TrialState::kFailed);
  EXPECT_EQ(NewsFor(v1::WORK_STATE_CANCELLED, v1::CANCELLED, 0, false).outcome,
            log::Outcome::kCancelled);
}

// Records are compared within their class, so that a class has one unit.
TEST(WorkItems, ARecordOfAnotherUnitThanItsClassIsNotUsable) {
  v1::WorkUpdate update;
  update.set_state(v1::WORK_STATE_DONE);
  v1::MeasurementResult* result = update.mutable_result();
  result->set_outcome(v1::OK);
  result->set_median(10);
  result->set_valid(true);
  result->set_value_kind(v1::VALUE_KIND_VIRTUAL_CYCLES);
  const auto reasons = [&](const char* device_class) {
    result->set_device_class(device_class);
    return NewsOf(update, {}, {}, 5).record->invalid_reasons;
  };
  EXPECT_THAT(reasons("board"), ElementsAre("tuner.unit.class"));
  EXPECT_THAT(reasons("board@device_ns"), ElementsAre("tuner.unit.class"));
  EXPECT_THAT(reasons("board@virtual_cycles"), ElementsAre());
}

TEST(WorkItems, TheToolchainOfARecordIsThatOfItsDevice) {
  v1::WorkUpdate update;
  update.set_state(v1::WORK_STATE_DONE);
  update.mutable_result()->set_outcome(v1::OK);
  update.mutable_result()->set_median(10);
  update.mutable_result()->set_valid(true);
  update.mutable_result()->set_value_kind(v1::VALUE_KIND_WALL_NS);
  const auto record = [&](const char* wanted, const char* compiler) {
    update.mutable_result()->set_driver_compiler(compiler);
    log::RecordKey key;
    key.toolchain = wanted;
    return *NewsOf(update, {}, key, 5).record;
  };
  EXPECT_EQ(record("llvm-19", "").key.toolchain, "llvm-19");
  EXPECT_TRUE(record("llvm-19", "").valid);
  // Of a tracker that names no compilers.
  EXPECT_EQ(record("cl", "maker 1").key.toolchain, "cl+maker-1");
  EXPECT_TRUE(record("cl", "maker 1").valid);
  EXPECT_TRUE(record("cl+maker-1", "maker 1").valid);
  EXPECT_EQ(record("cl+maker-1", "maker 2").key.toolchain, "cl+maker-2");
  for (const char* other : {"maker 2", ""}) {
    EXPECT_THAT(record("cl+maker-1", other).invalid_reasons, ElementsAre("tuner.compiler.differs"));
  }
}

// What cycles mean on the wall, only a measurement says.
TEST(WorkItems, CandidatesThatCountHaveManyTimesTheWallTimeOfTheBest) {
  const log::JobRow job;
  const v1::Job spec;
  const v1::BuilderTask task;
  WorkItemSource source;
  source.job = &job;
  source.spec = &spec;
  source.task = &task;
  const auto limit = [&] { return support::DurationNs(MakeWorkItem(source).work().wall_limit()); };
  const int64_t unknown = limit();
  source.best_ns = 1e9;
  EXPECT_NE(limit(), unknown);
  source.counts_cycles = true;
  const int64_t first = limit();
  EXPECT_GE(first, 10 * unknown);
  source.best_ns = 0;
  EXPECT_EQ(limit(), first);
  source.best_ns = 1e9;
  source.best_wall_s = 0.25;
  EXPECT_EQ(limit(), 45'000'000'000);
  source.best_wall_s = 1.5;
  EXPECT_EQ(limit(), 170'000'000'000);
  for (const double slow : {100.0, 1e30}) {
    source.best_wall_s = slow;
    EXPECT_EQ(limit(), first);
  }
}

TEST(WorkItems, ADriverHasTimeToCompile) {
  log::JobRow job;
  const v1::Job spec;
  const v1::BuilderTask task;
  WorkItemSource source;
  source.job = &job;
  source.spec = &spec;
  source.task = &task;
  for (const double best_ns : {0.0, 1e6}) {
    source.best_ns = best_ns;
    const auto limit_s = [&](const char* target) {
      job.target = target;
      return support::DurationNs(MakeWorkItem(source).work().wall_limit()) / 1'000'000'000;
    };
    EXPECT_GE(limit_s("opencl"), limit_s("cpu,arch=x86_64") + 15);
  }
}

TEST(WorkItems, AnOkWithoutATimeIsNotUsable) {
  for (const double median : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(),
                              std::numeric_limits<double>::infinity()}) {
    const log::TrialNews news = NewsFor(v1::WORK_STATE_DONE, v1::OK, median, true);
    EXPECT_FALSE(news.record->usable()) << median;
    EXPECT_THAT(news.record->invalid_reasons, ElementsAre("tuner.median.missing"));
  }
}

}  // namespace
}  // namespace tilewright::jobs
