// What the suites of the tuning log share: rows with every field set, and the fixture that runs
// each test against memory and against SQLite.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tuner_server/log/log_check.h"
#include "tuner_server/log/memory_log.h"
#include "tuner_server/log/sqlite_log.h"

namespace tilewright::log {

template <typename T>
T Value(absl::StatusOr<T> result) {
  TW_CHECK(result.ok()) << support::StatusText(result.status());
  return *std::move(result);
}

inline JobRow MakeJob(const std::string& id) {
  JobRow job;
  job.id = id;
  job.uid = "uid-" + id;
  job.spec_json = R"({"target":"cpu"})";
  job.target = "cpu,arch=x86_64,cpu=znver4,threads=2";
  job.cost_model = "xgboost";
  job.seed = 0xfedcba9876543210ULL;
  job.created_us = 1000;
  job.updated_us = 1000;
  return job;
}

inline TaskRow MakeTask(const std::string& job, int64_t index) {
  TaskRow task;
  task.job = job;
  task.index = index;
  task.name = support::StrCat("conv", index);
  task.hash = support::StrCat("hash", index);
  task.text = "conv2d(x: f32[1,4,84,84])\n";
  task.weight = index + 1;
  task.flops = 1e6;
  task.default_steps = "split %1 [?,4]";
  task.default_program_hash = "p0";
  task.data_type = "float32";
  task.launch_names = "t0-conv2d\trelu_4\tConv_0\tRelu_1";
  return task;
}

inline TrialRow MakeTrial(const std::string& job, const std::string& task,
                          const std::string& batch) {
  TrialRow trial;
  trial.job = job;
  trial.task = task;
  trial.batch = batch;
  trial.steps = "split %1 [?,8]; vectorize %3";
  trial.program_hash = "p1";
  trial.generated_by = "mutation";
  trial.proposed_by = "model";
  trial.rank = 1;
  trial.considered = 300;
  trial.predicted = -0.1;
  trial.model_id = "m1";
  trial.features = {0.5F, -1.25F, 3e-8F};
  trial.features_hash = "f1";
  trial.point = "1:0,3";
  trial.created_us = 2000;
  return trial;
}

inline RecordRow MakeRecord(const std::string& job, const std::string& task, int64_t trial,
                            int64_t attempt, double median) {
  RecordRow record;
  record.measurement_id = support::StrCat(job, "/", task, "/", trial, "/", attempt);
  record.job = job;
  record.task = task;
  record.trial = trial;
  record.attempt = attempt;
  record.key = {"hash" + task.substr(4), "cpu,arch=x86_64,cpu=znver4", 2, "cpu-znver4", "tc1"};
  record.outcome = Outcome::kOk;
  record.value_kind = "wall_ns";
  record.samples = {median, median * 1.01, median / 3};
  record.inner_loops = 10;
  record.median = median;
  record.ci_rel = 0.01;
  record.baseline_before = 100;
  record.baseline_after = 102;
  record.valid = true;
  record.run_s = 0.25;
  record.device = "devices/d1";
  record.device_fingerprint = "fp";
  record.agent_address = "10.0.0.7:4711";
  record.fencing_token = 7;
  record.stored_us = 3000;
  return record;
}

inline TrialNews Ended(int64_t number, const RecordRow& record) {
  TrialNews news;
  news.number = number;
  news.record = record;
  news.final = true;
  news.outcome = record.outcome;
  news.state = record.outcome == Outcome::kOk ? TrialState::kSucceeded : TrialState::kInfeasible;
  return news;
}

struct Implementation {
  const char* name;
  bool on_disk;
};

class TuningLogTest : public testing::TestWithParam<Implementation> {
 protected:
  TuningLogTest() : dir_(Value(support::TempDir::Create("tuning-log"))) { Open(); }

  void Open() {
    log_.reset();
    log_ = GetParam().on_disk ? Value(OpenSqliteLog(dir_.File("tuner.db"))) : MakeMemoryLog();
  }

  // Whatever a test did, the file is whole: no way of writing forgets the checksum.
  void TearDown() override {
    if (!GetParam().on_disk) return;
    log_.reset();
    const LogHealth health = Value(CheckLogFile(dir_.File("tuner.db"), CheckDepth::kFully));
    EXPECT_TRUE(health.whole()) << support::Join(health.examples, "\n")
                                << support::Join(health.structure, "\n");
  }

  // A job with two tasks and one batch of three trials of the first task, one of them drafted.
  void AddJobWithTrials(const std::string& id) {
    Value(log_->CreateJob(MakeJob(id)));
    ASSERT_TRUE(log_->PutTasks(id, "tc1", "net", {MakeTask(id, 0), MakeTask(id, 1)}).ok());
    NewBatch batch;
    batch.batch = BatchRow{.id = id + "/b1",
                           .job = id,
                           .task = "conv0",
                           .model_id = "m1",
                           .asked = 3,
                           .considered = 300,
                           .exploration_share = 0.1,
                           .invalid = 0,
                           .search_s = 0.5,
                           .features_s = 0.25,
                           .model_s = 0.125,
                           .created_us = 5};
    batch.drafts = {DraftRow{id + "/b1", 1, "p1", "s1", 0.75, true, {1.5F, 2.5F}, "f1"},
                    DraftRow{id + "/b1", 2, "p2", "s2", 0.5, false, {0.1F}, "f2"}};
    for (const char* program : {"p1", "p2", "p3"}) {
      batch.trials.push_back(MakeTrial(id, "conv0", id + "/b1"));
      batch.trials.back().program_hash = program;
    }
    EXPECT_THAT(Value(log_->AddBatch(id, batch)), testing::ElementsAre(1, 2, 3));
  }

  support::TempDir dir_;
  std::unique_ptr<TuningLog> log_;
};

}  // namespace tilewright::log
