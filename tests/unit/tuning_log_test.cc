// The conformance suite of the tuning log: every test runs against memory and against SQLite.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "deploy/sql/database.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"
#include "tests/support/small_disk.h"
#include "tuner_server/log/import_export.h"
#include "tuner_server/log/log_stats.h"
#include "tuner_server/log/memory_log.h"
#include "tuner_server/log/migrations.h"
#include "tuner_server/log/sqlite_log.h"
#include "tuner_server/log/target_text.h"

namespace tilewright::log {
namespace {

using support::Slug;
using support::StatusText;
using support::StrCat;
using support::TempDir;
using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
T Value(absl::StatusOr<T> result) {
  TW_CHECK(result.ok()) << StatusText(result.status());
  return *std::move(result);
}

JobRow MakeJob(const std::string& id) {
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

TaskRow MakeTask(const std::string& job, int64_t index) {
  TaskRow task;
  task.job = job;
  task.index = index;
  task.name = StrCat("conv", index);
  task.hash = StrCat("hash", index);
  task.text = "conv2d(x: f32[1,4,84,84])\n";
  task.weight = index + 1;
  task.flops = 1e6;
  task.default_steps = "split %1 [?,4]";
  task.default_program_hash = "p0";
  return task;
}

TrialRow MakeTrial(const std::string& job, const std::string& task, const std::string& batch) {
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

RecordRow MakeRecord(const std::string& job, const std::string& task, int64_t trial,
                     int64_t attempt, double median) {
  RecordRow record;
  record.measurement_id = StrCat(job, "/", task, "/", trial, "/", attempt);
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

TrialNews Ended(int64_t number, const RecordRow& record) {
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
  TuningLogTest() : dir_(Value(TempDir::Create("tuning-log"))) { Open(); }

  void Open() {
    log_.reset();
    log_ = GetParam().on_disk ? Value(OpenSqliteLog(dir_.File("tuner.db"))) : MakeMemoryLog();
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
    for (int i = 0; i < 3; ++i) batch.trials.push_back(MakeTrial(id, "conv0", id + "/b1"));
    EXPECT_THAT(Value(log_->AddBatch(id, batch)), ElementsAre(1, 2, 3));
  }

  TempDir dir_;
  std::unique_ptr<TuningLog> log_;
};

INSTANTIATE_TEST_SUITE_P(All, TuningLogTest,
                         testing::Values(Implementation{"memory", false},
                                         Implementation{"sqlite", true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(TuningLogTest, JobRoundTripsWithEveryField) {
  JobRow job = MakeJob("j1");
  job.request_id = "r1";
  job.request_hash = "rh";
  job.model_sha256 = "ab";
  job.created_by = "ipv4:127.0.0.1:5";
  const CreatedJob created = Value(log_->CreateJob(job));
  EXPECT_FALSE(created.existed);
  job.number = 1;
  EXPECT_EQ(created.job, job);
  EXPECT_EQ(Value(log_->GetJob("j1")), job);
}

TEST_P(TuningLogTest, CreatingIsIdempotentByRequestId) {
  JobRow job = MakeJob("j1");
  job.request_id = "r1";
  job.request_hash = "content";
  Value(log_->CreateJob(job));
  JobRow again = MakeJob("j2");
  again.request_id = "r1";
  again.request_hash = "content";
  const CreatedJob second = Value(log_->CreateJob(again));
  EXPECT_TRUE(second.existed);
  EXPECT_EQ(second.job.id, "j1");
  again.request_hash = "other content";
  EXPECT_EQ(Slug(log_->CreateJob(again).status()), "log.job.request_id_reused");
  EXPECT_EQ(Slug(log_->CreateJob(MakeJob("j1")).status()), "log.job.exists");
  EXPECT_EQ(Value(log_->ListJobs({})).size(), 1U);
}

TEST_P(TuningLogTest, UnknownThingsAreNotFoundBySlug) {
  EXPECT_EQ(Slug(log_->GetJob("x").status()), "log.job.not_found");
  EXPECT_EQ(Slug(log_->GetTrial("x", 1).status()), "log.trial.not_found");
  EXPECT_EQ(Slug(log_->GetRecord("x").status()), "log.record.not_found");
  EXPECT_EQ(Slug(log_->BestRecord({}).status()), "log.record.not_found");
  EXPECT_EQ(Slug(log_->GetModel("", "x").status()), "log.model.not_found");
  EXPECT_EQ(Slug(log_->GetModuleVersion("x", 1).status()), "log.module_version.not_found");
  EXPECT_EQ(Slug(log_->MoveJob({.id = "x", .reason = ""}).status()), "log.job.not_found");
}

TEST_P(TuningLogTest, ListsJobsNewestFirstInPages) {
  for (int i = 0; i < 5; ++i) Value(log_->CreateJob(MakeJob(StrCat("j", i))));
  Value(log_->MoveJob({.id = "j3",
                       .from = JobState::kQueued,
                       .to = JobState::kFailed,
                       .reason = "no",
                       .now_us = 9}));
  std::vector<std::string> seen;
  JobQuery query{.before_number = 0, .limit = 2};
  for (;;) {
    const std::vector<JobRow> page = Value(log_->ListJobs(query));
    if (page.empty()) break;
    for (const JobRow& job : page) seen.push_back(job.id);
    query.before_number = page.back().number;
  }
  EXPECT_THAT(seen, ElementsAre("j4", "j3", "j2", "j1", "j0"));
  EXPECT_EQ(Value(log_->ListJobs({.open_only = true})).size(), 4U);
}

TEST_P(TuningLogTest, MovesJobsOnlyFromTheExpectedStateAndTellsIt) {
  Value(log_->CreateJob(MakeJob("j1")));
  const JobRow running = Value(log_->MoveJob({.id = "j1",
                                              .from = JobState::kQueued,
                                              .to = JobState::kRunning,
                                              .reason = "",
                                              .elapsed_s = 1.5,
                                              .now_us = 50}));
  EXPECT_EQ(running.started_us, 50);
  EXPECT_EQ(running.elapsed_s, 1.5);
  EXPECT_EQ(Slug(log_->MoveJob({.id = "j1",
                                .from = JobState::kQueued,
                                .to = JobState::kFailed,
                                .reason = "late"})
                     .status()),
            "log.job.state");
  const JobRow failed = Value(log_->MoveJob({.id = "j1",
                                             .from = JobState::kRunning,
                                             .to = JobState::kFailed,
                                             .reason = "why",
                                             .now_us = 60}));
  EXPECT_EQ(failed.state_reason, "why");
  EXPECT_EQ(failed.ended_us, 60);
  EXPECT_EQ(failed.elapsed_s, 1.5);
  ASSERT_TRUE(log_->AddText("j1", "a line", 70).ok());
  const std::vector<EventRow> events = Value(log_->ListEvents("j1", 0, 100));
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0].state, JobState::kQueued);
  EXPECT_EQ(events[1].state, JobState::kRunning);
  EXPECT_EQ(events[2].text, "why");
  EXPECT_EQ(events[3].text, "a line");
  EXPECT_EQ(events[3].kind, EventRow::Kind::kText);
  const std::vector<EventRow> rest = Value(log_->ListEvents("j1", events[1].seq, 1));
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest[0], events[2]);
}

TEST_P(TuningLogTest, TasksAreStoredOnceAndNeverReplaced) {
  Value(log_->CreateJob(MakeJob("j1")));
  const std::vector<TaskRow> tasks = {MakeTask("j1", 0), MakeTask("j1", 1)};
  ASSERT_TRUE(log_->PutTasks("j1", "tc1", "net", tasks).ok());
  ASSERT_TRUE(log_->PutTasks("j1", "tc2", "other", tasks).ok());
  EXPECT_EQ(Value(log_->ListTasks("j1")), tasks);
  EXPECT_EQ(Value(log_->GetJob("j1")).toolchain, "tc2");
  EXPECT_EQ(Value(log_->GetJob("j1")).model_name, "net");
  EXPECT_EQ(Slug(log_->PutTasks("j1", "tc2", "net", {MakeTask("j1", 1)})), "log.tasks.changed");
}

TEST_P(TuningLogTest, BatchesDraftsAndTrialsRoundTrip) {
  AddJobWithTrials("j1");
  TrialRow expected = MakeTrial("j1", "conv0", "j1/b1");
  expected.number = 2;
  EXPECT_EQ(Value(log_->GetTrial("j1", 2)), expected);
  const BatchPage page = Value(log_->ListBatches({.job = "j1"}));
  ASSERT_EQ(page.batches.size(), 1U);
  EXPECT_EQ(page.batches[0].features_s, 0.25);
  EXPECT_TRUE(Value(log_->ListBatches({.job = "j1", .after_seq = page.last_seq})).batches.empty());
  const std::vector<DraftRow> drafts = Value(log_->ListDrafts("j1/b1"));
  ASSERT_EQ(drafts.size(), 2U);
  EXPECT_THAT(drafts[0].features, ElementsAre(1.5F, 2.5F));
  EXPECT_TRUE(drafts[0].picked);
  EXPECT_EQ(Value(log_->CountBatches("j1")), 1);
  NewBatch again;
  again.batch = page.batches[0];
  again.trials = {MakeTrial("j1", "conv0", "j1/b1")};
  EXPECT_EQ(Slug(log_->AddBatch("j1", again).status()), "log.batch.exists");
  EXPECT_EQ(Value(log_->CountTrials("j1")).proposed, 3);
}

TEST_P(TuningLogTest, ListsTrialsByPageTaskAndOpenness) {
  AddJobWithTrials("j1");
  NewBatch more;
  more.trials = {MakeTrial("j1", "conv1", "")};
  EXPECT_THAT(Value(log_->AddBatch("j1", more)), ElementsAre(4));
  Value(log_->StoreNews("j1", {Ended(2, MakeRecord("j1", "conv0", 2, 1, 50))}, 1, 9));
  EXPECT_EQ(Value(log_->ListTrials({.job = "j1", .task = ""})).size(), 4U);
  const auto open = Value(log_->ListTrials({.job = "j1", .task = "conv0", .open_only = true}));
  ASSERT_EQ(open.size(), 2U);
  EXPECT_EQ(open[1].number, 3);
  const auto page =
      Value(log_->ListTrials({.job = "j1", .task = "", .after_number = 1, .limit = 2}));
  ASSERT_EQ(page.size(), 2U);
  EXPECT_EQ(page[0].number, 2);
}

TEST_P(TuningLogTest, BuiltTrialsKeepWhatWasSubmittedByteForByte) {
  AddJobWithTrials("j1");
  TrialBuilt built;
  built.number = 1;
  built.artifact_sha256 = std::string(64, 'a');
  built.artifact_size = 12345;
  built.work_item = "j1/conv0/1";
  built.work_spec = std::string("\0\x01\xff spec", 8);
  built.codegen_s = 0.5;
  ASSERT_TRUE(log_->SetBuilt("j1", {built}).ok());
  const TrialRow trial = Value(log_->GetTrial("j1", 1));
  EXPECT_EQ(trial.state, TrialState::kBuilt);
  EXPECT_EQ(trial.work_spec, built.work_spec);
  EXPECT_EQ(trial.artifact_size, 12345);
  EXPECT_EQ(Value(log_->CountTrials("j1")).built, 1);
}

TEST_P(TuningLogTest, EveryFieldOfARecordRoundTrips) {
  AddJobWithTrials("j1");
  RecordRow record = MakeRecord("j1", "conv0", 1, 3, 50);
  record.error_class = "CLASS";
  record.error_detail = "tail of \"stderr\"\n";
  record.signal = 11;
  record.exit_code = -1;
  record.phase = "TIMED";
  record.mad = 0.5;
  record.invalid_reasons = {"measure.baseline.drift", "measure.steal"};
  record.max_abs_error = 1e-7;
  record.voluntary_context_switches = 1;
  record.involuntary_context_switches = 2;
  record.steal_fraction = 0.01;
  record.load_average = 1.5;
  record.clock_mhz = 3700;
  record.temperature_celsius = 55;
  record.fetch_s = 0.1;
  record.load_s = 0.2;
  record.agent = "agents/a";
  record.agent_version = "0.1.0";
  record.boot_id = "b";
  record.lease = "leases/l";
  record.started_us = 77;
  Value(log_->StoreNews("j1", {Ended(1, record)}, 2.5, 99));
  record.accepted = true;
  record.seq = 1;
  EXPECT_EQ(Value(log_->GetRecord(record.measurement_id)), record);
  const TrialRow trial = Value(log_->GetTrial("j1", 1));
  EXPECT_EQ(trial.state, TrialState::kSucceeded);
  EXPECT_EQ(trial.measurement_id, record.measurement_id);
  EXPECT_EQ(trial.median, 50);
  EXPECT_EQ(trial.ended_us, 99);
  EXPECT_EQ(Value(log_->GetJob("j1")).elapsed_s, 2.5);
}

TEST_P(TuningLogTest, AMeasurementIsStoredOnceAndATrialEndsOnce) {
  AddJobWithTrials("j1");
  const RecordRow first = MakeRecord("j1", "conv0", 1, 1, 50);
  EXPECT_TRUE(Value(log_->StoreNews("j1", {Ended(1, first)}, 0, 1))[0].trial_ended);
  const StoredNews repeated = Value(log_->StoreNews("j1", {Ended(1, first)}, 0, 2))[0];
  EXPECT_FALSE(repeated.record_stored);
  EXPECT_FALSE(repeated.trial_ended);
  // Another attempt of the same trial is kept, and changes nothing.
  const RecordRow second = MakeRecord("j1", "conv0", 1, 2, 10);
  const StoredNews late = Value(log_->StoreNews("j1", {Ended(1, second)}, 0, 3))[0];
  EXPECT_TRUE(late.record_stored);
  EXPECT_FALSE(late.trial_ended);
  EXPECT_FALSE(Value(log_->GetRecord(second.measurement_id)).accepted);
  EXPECT_EQ(Value(log_->GetTrial("j1", 1)).median, 50);
  EXPECT_EQ(Value(log_->CountTrials("j1")).ended, 1);
  EXPECT_THAT(Value(log_->ListMeasurementIds("j1", 1)),
              ElementsAre(first.measurement_id, second.measurement_id));
}

TEST_P(TuningLogTest, ARecordThatCameFirstWithoutEndingItsTrialCanEndItLater) {
  AddJobWithTrials("j1");
  TrialNews attempt;
  attempt.number = 1;
  attempt.record = MakeRecord("j1", "conv0", 1, 1, 50);
  attempt.record->valid = false;
  EXPECT_FALSE(Value(log_->StoreNews("j1", {attempt}, 0, 1))[0].trial_ended);
  EXPECT_EQ(Value(log_->GetTrial("j1", 1)).state, TrialState::kProposed);
  const StoredNews end = Value(log_->StoreNews("j1", {Ended(1, *attempt.record)}, 0, 2))[0];
  EXPECT_FALSE(end.record_stored);
  EXPECT_TRUE(end.trial_ended);
  EXPECT_TRUE(Value(log_->GetRecord(attempt.record->measurement_id)).accepted);
  // It was not valid: it ends the trial and is never used.
  EXPECT_EQ(Value(log_->GetTrial("j1", 1)).median, 0);
  EXPECT_EQ(Slug(log_->BestRecord(attempt.record->key).status()), "log.record.not_found");
}

TEST_P(TuningLogTest, AnEndWithoutRecordIsPossibleAndIsOneTransaction) {
  AddJobWithTrials("j1");
  TrialNews lost;
  lost.number = 2;
  lost.final = true;
  lost.state = TrialState::kFailed;
  lost.outcome = Outcome::kDeviceLost;
  lost.reason = "queue timeout";
  TrialNews unknown = lost;
  unknown.number = 77;
  // The second entry names no trial: nothing of the call is stored.
  EXPECT_EQ(Slug(log_->StoreNews("j1", {lost, unknown}, 0, 1).status()), "log.trial.not_found");
  EXPECT_EQ(Value(log_->CountTrials("j1")).ended, 0);
  EXPECT_TRUE(Value(log_->StoreNews("j1", {lost}, 0, 1))[0].trial_ended);
  EXPECT_EQ(Value(log_->GetTrial("j1", 2)).reason, "queue timeout");
  EXPECT_EQ(Value(log_->CountTrials("j1")).by_outcome.at(Outcome::kDeviceLost), 1);
  const std::vector<EventRow> events = Value(log_->ListEvents("j1", 0, 10));
  EXPECT_EQ(events.back().kind, EventRow::Kind::kTrial);
  EXPECT_EQ(events.back().trial, 2);
}

TEST_P(TuningLogTest, TheBestRecordIsUsableAndOfExactlyThatKey) {
  AddJobWithTrials("j1");
  RecordRow slow = MakeRecord("j1", "conv0", 1, 1, 50);
  RecordRow wrong = MakeRecord("j1", "conv0", 2, 1, 5);
  wrong.outcome = Outcome::kWrongResult;
  RecordRow invalid = MakeRecord("j1", "conv0", 3, 1, 6);
  invalid.valid = false;
  Value(log_->StoreNews("j1", {Ended(1, slow), Ended(2, wrong), Ended(3, invalid)}, 0, 1));
  EXPECT_EQ(Value(log_->BestRecord(slow.key)).measurement_id, slow.measurement_id);
  AddJobWithTrials("j2");
  const RecordRow fast = MakeRecord("j2", "conv0", 1, 1, 40);
  Value(log_->StoreNews("j2", {Ended(1, fast)}, 0, 1));
  EXPECT_EQ(Value(log_->BestRecord(slow.key)).measurement_id, fast.measurement_id);
  for (int part = 0; part < 5; ++part) {
    RecordKey other = slow.key;
    if (part == 0) other.task_hash += "x";
    if (part == 1) other.target_key += "x";
    if (part == 2) other.threads += 1;
    if (part == 3) other.device_class += "x";
    if (part == 4) other.toolchain += "x";
    EXPECT_FALSE(log_->BestRecord(other).ok()) << part;
  }
}

TEST_P(TuningLogTest, KnownRecordsAreOfTheKeyAcceptedValidAndOlder) {
  AddJobWithTrials("j1");
  RecordRow ok = MakeRecord("j1", "conv0", 1, 1, 50);
  RecordRow wrong = MakeRecord("j1", "conv0", 2, 1, 5);
  wrong.outcome = Outcome::kWrongResult;
  RecordRow invalid = MakeRecord("j1", "conv0", 3, 1, 6);
  invalid.valid = false;
  Value(log_->StoreNews("j1", {Ended(1, ok), Ended(2, wrong), Ended(3, invalid)}, 0, 1));
  AddJobWithTrials("j2");
  RecordRow other = MakeRecord("j2", "conv0", 1, 1, 40);
  other.key.device_class += "-b";
  Value(log_->StoreNews("j2", {Ended(1, other)}, 0, 1));
  const int64_t after = ok.stored_us + 1;
  const auto ids = [&](const RecordKey& key, int64_t before_us, int64_t after_seq = 0) {
    std::vector<std::string> found;
    for (const RecordRow& record : Value(log_->KnownRecords(key, before_us, after_seq))) {
      found.push_back(record.measurement_id);
    }
    return found;
  };
  // What failed is known, too.
  EXPECT_EQ(ids(ok.key, after),
            (std::vector<std::string>{ok.measurement_id, wrong.measurement_id}));
  EXPECT_TRUE(ids(ok.key, ok.stored_us).empty());
  RecordKey any = ok.key;
  any.device_class.clear();
  EXPECT_EQ(ids(any, after).size(), 3U);
  const int64_t seq = Value(log_->GetRecord(ok.measurement_id)).seq;
  EXPECT_EQ(ids(ok.key, after, seq), std::vector<std::string>{wrong.measurement_id});
  any.toolchain += "x";
  EXPECT_TRUE(ids(any, after).empty());
}

TEST_P(TuningLogTest, ModelsRoundTripAndKeepTheirFirstBytes) {
  Value(log_->CreateJob(MakeJob("j1")));
  ModelRow model;
  model.id = "m1";
  model.job = "j1";
  model.bytes = std::string("{L\0bytes", 8);
  model.sha256 = "aa";
  model.features_schema = "fs";
  model.replaced = true;
  model.train_rows = 40;
  model.recall_at_8 = 0.75;
  model.created_us = 5;
  ASSERT_TRUE(log_->AddModel(model).ok());
  ModelRow other = model;
  other.bytes = "other";
  ASSERT_TRUE(log_->AddModel(other).ok());
  EXPECT_EQ(Value(log_->GetModel("j1", "m1")), model);
  EXPECT_EQ(Value(log_->GetModel("", "m1")), model);
  const std::vector<ModelRow> models = Value(log_->ListModels("j1"));
  ASSERT_EQ(models.size(), 1U);
  EXPECT_EQ(models[0].bytes, "");
  EXPECT_EQ(models[0].recall_at_8, 0.75);
}

TEST_P(TuningLogTest, ModuleVersionsCountPerModuleAndOncePerJob) {
  Value(log_->CreateJob(MakeJob("j1")));
  ModuleVersionRow version;
  version.module = "net";
  version.sha256 = "s1";
  version.job = "j1";
  version.model_sha256 = "m";
  version.task_hashes = {"h1", "h2"};
  version.created_us = 1;
  EXPECT_EQ(Value(log_->AddModuleVersion(version)).number, 1);
  EXPECT_EQ(Value(log_->GetJob("j1")).published_module, "projects/default/modules/net/versions/1");
  version.sha256 = "s1 again";
  EXPECT_EQ(Value(log_->AddModuleVersion(version)).sha256, "s1");
  version.job = "";
  EXPECT_EQ(Value(log_->AddModuleVersion(version)).number, 2);
  version.module = "other";
  version.task_hashes = {"h12"};
  EXPECT_EQ(Value(log_->AddModuleVersion(version)).number, 1);
  EXPECT_EQ(Value(log_->GetModuleVersion("net", 1)).task_hashes,
            (std::vector<std::string>{"h1", "h2"}));
  ModuleQuery query{.module = "", .model_sha256 = "", .task_hash = "", .limit = 1};
  std::vector<std::string> seen;
  for (;;) {
    const ModulePage page = Value(log_->ListModuleVersions(query));
    if (page.versions.empty()) break;
    seen.push_back(ModuleVersionName(page.versions[0].module, page.versions[0].number));
    query.before_position = page.last_position;
  }
  EXPECT_THAT(seen, ElementsAre("projects/default/modules/other/versions/1",
                                "projects/default/modules/net/versions/2",
                                "projects/default/modules/net/versions/1"));
  EXPECT_EQ(Value(log_->ListModuleVersions({.module = "", .model_sha256 = "", .task_hash = "h1"}))
                .versions.size(),
            2U);
}

TEST_P(TuningLogTest, AnAliasNamesAVersionThatIsThenNeverPruned) {
  ModuleVersionRow version;
  version.module = "net";
  version.device_class = "cpu-zen5";
  version.toolchain = "tw-1";
  version.created_by = "client/ana";
  for (int i = 0; i < 3; ++i) Value(log_->AddModuleVersion(version));
  ModuleAliasRow stable{"net", "stable", 1, 7, "ana"};
  ASSERT_TRUE(log_->SetModuleAlias(stable).ok());
  stable.number = 9;
  EXPECT_EQ(Slug(log_->SetModuleAlias(stable)), "log.module_version.not_found");
  EXPECT_EQ(Value(log_->ListModuleAliases("net")),
            (std::vector<ModuleAliasRow>{{"net", "stable", 1, 7, "ana"}}));
  EXPECT_TRUE(Value(log_->ListModuleAliases("other")).empty());

  const std::vector<ModuleVersionRow> all = Value(log_->ListModuleVersions({})).versions;
  const std::vector<ModuleVersionRow> pruned = Value(log_->PruneModuleVersions(all, 99));
  ASSERT_EQ(pruned.size(), 2U);
  EXPECT_EQ(pruned[0].number, 3);
  EXPECT_EQ(Value(log_->GetModuleVersion("net", 1)).pruned_us, 0);
  EXPECT_EQ(Value(log_->GetModuleVersion("net", 1)).device_class, "cpu-zen5");
  EXPECT_EQ(Value(log_->GetModuleVersion("net", 2)).pruned_us, 99);
  EXPECT_TRUE(Value(log_->PruneModuleVersions(all, 100)).empty()) << "once";
  EXPECT_EQ(Value(log_->ListModuleVersions({})).versions.size(), 3U) << "their rows stay";
  EXPECT_EQ(Value(log_->ListModuleVersions({.with_pruned = false})).versions.size(), 1U);
  stable.number = 2;
  EXPECT_EQ(Slug(log_->SetModuleAlias(stable)), "log.module_version.pruned");
  EXPECT_EQ(Value(log_->AddModuleVersion(version)).number, 4) << "numbers are never given again";

  stable.number = 4;  // moves
  ASSERT_TRUE(log_->SetModuleAlias(stable).ok());
  EXPECT_EQ(Value(log_->PruneModuleVersions(all, 101)).size(), 1U) << "version 1 is free now";
  stable.number = 0;
  ASSERT_TRUE(log_->SetModuleAlias(stable).ok());
  EXPECT_EQ(Slug(log_->SetModuleAlias(stable)), "log.module_alias.not_found");
}

TEST_P(TuningLogTest, AVersionHasOneSignaturePerKey) {
  ModuleVersionRow version;
  version.module = "net";
  Value(log_->AddModuleVersion(version));
  const ModuleSignatureRow one{"net", 1, "aa", "s1", 5, "ana"};
  ASSERT_TRUE(log_->AddModuleSignature(one).ok());
  ASSERT_TRUE(log_->AddModuleSignature({"net", 1, "aa", "forged", 6, "eve"}).ok());
  ASSERT_TRUE(log_->AddModuleSignature({"net", 1, "0b", "s2", 7, "bob"}).ok());
  EXPECT_EQ(Value(log_->ListModuleSignatures("net", 1)),
            (std::vector<ModuleSignatureRow>{{"net", 1, "0b", "s2", 7, "bob"}, one}));
  EXPECT_EQ(Slug(log_->AddModuleSignature({"net", 2, "aa", "s", 5, ""})),
            "log.module_version.not_found");
}

std::string ExportAll(TuningLog* log, const ExportOptions& options) {
  std::string text;
  const absl::Status status = ExportLog(log, options, [&text](std::string_view piece) {
    text += piece;
    return absl::OkStatus();
  });
  TW_CHECK(status.ok()) << StatusText(status);
  return text;
}

// A job with a lost attempt, a wrong result, an OK one and an open trial.
void AddMixedResults(TuningLog* log, const std::string& job) {
  TrialNews lost;
  lost.number = 1;
  lost.record = MakeRecord(job, "conv0", 1, 1, 0);
  lost.record->outcome = Outcome::kDeviceLost;
  lost.record->invalid_reasons = {"device.lost"};
  lost.record->valid = false;
  RecordRow wrong = MakeRecord(job, "conv0", 2, 1, 33);
  wrong.outcome = Outcome::kWrongResult;
  wrong.error_detail = "max |a-e| = 3 \xff not utf-8";
  wrong.error_detail.resize(14);
  Value(log->StoreNews(
      job, {lost, Ended(2, wrong), Ended(1, MakeRecord(job, "conv0", 1, 2, 0.1 + 0.2))}, 0, 1));
}

TEST_P(TuningLogTest, ExportRoundTripsThroughAnotherLog) {
  AddJobWithTrials("j1");
  AddMixedResults(log_.get(), "j1");
  AddJobWithTrials("j2");
  AddMixedResults(log_.get(), "j2");
  const std::string records = ExportAll(log_.get(), {.job = "", .features = true});
  const std::string drafts = ExportAll(log_.get(), {.job = "", .features = true, .drafts = true});
  EXPECT_EQ(std::count(records.begin(), records.end(), '\n'), 6);
  EXPECT_EQ(std::count(drafts.begin(), drafts.end(), '\n'), 4);
  EXPECT_EQ(ExportAll(log_.get(), {.job = "j2"}).find("j1/"), std::string::npos);

  const std::unique_ptr<TuningLog> copy = Value(OpenSqliteLog(dir_.File("copy.db")));
  EXPECT_EQ(Value(ImportLog(copy.get(), records)).new_records, 6);
  EXPECT_EQ(Value(ImportLog(copy.get(), records)).new_records, 0);
  ASSERT_TRUE(ImportLog(copy.get(), drafts).ok());
  EXPECT_EQ(ExportAll(copy.get(), {.job = "", .features = true}), records);
  EXPECT_EQ(ExportAll(copy.get(), {.job = "", .features = true, .drafts = true}), drafts);
  EXPECT_EQ(Value(copy->BestRecord(MakeRecord("j1", "conv0", 1, 2, 1).key)).median, 0.1 + 0.2);
}

TEST_P(TuningLogTest, AMergeCountsConflictsAndMixesNothing) {
  AddJobWithTrials("j1");
  AddMixedResults(log_.get(), "j1");
  const std::string mine = ExportAll(log_.get(), {.job = "", .features = true});
  EXPECT_EQ(Value(ImportLog(log_.get(), mine)).known, 3);
  EXPECT_EQ(Value(ImportLog(log_.get(), mine)).conflicts, 0);

  const auto changed = [&mine](const std::string& from, const std::string& to) {
    std::string text = mine;
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
      text.replace(at, from.size(), to);
    }
    EXPECT_NE(text, mine) << from;
    return text;
  };
  // The same names for another measurement, another trial, another job.
  const std::string value = changed("\"run_s\":", "\"run_s\":1");
  const std::string program = changed("\"program_hash\":\"", "\"program_hash\":\"other");
  const std::string job = changed("\"target\":\"", "\"target\":\"other");
  for (const std::string& text : {value, program, job}) {
    const ImportReport report = Value(ImportLog(log_.get(), text));
    EXPECT_EQ(report.new_records, 0);
    EXPECT_EQ(report.conflicts, 3);
    EXPECT_EQ(report.examples.size(), 3U);
    EXPECT_EQ(ExportAll(log_.get(), {.job = "", .features = true}), mine);
  }
  // Under names of its own the other log's work is all there; both logs' best stay apart by job.
  const std::string theirs = changed("\"measurement_id\":\"", "\"measurement_id\":\"lab/");
  EXPECT_EQ(Value(ImportLog(log_.get(), theirs, {.job_prefix = "lab-"})).new_records, 3);
  EXPECT_EQ(Value(ImportLog(log_.get(), theirs, {.job_prefix = "lab-"})).known, 3);
  EXPECT_EQ(Value(log_->GetTrial("lab-j1", 1)).program_hash,
            Value(log_->GetTrial("j1", 1)).program_hash);
  EXPECT_EQ(ExportAll(log_.get(), {.job = "j1", .features = true}), mine);
}

TEST_P(TuningLogTest, AnExportLineHasTheFieldsThatWerePromised) {
  AddJobWithTrials("j1");
  AddMixedResults(log_.get(), "j1");
  const std::string text = ExportAll(log_.get(), {.job = "j1"});
  const std::string line = text.substr(0, text.find('\n'));
  for (const char* field :
       {"schema",       "measurement_id", "job",         "task",          "steps",
        "program_hash", "generated_by",   "proposed_by", "batch_id",      "rank",
        "considered",   "predicted",      "model_id",    "features_hash", "outcome",
        "value_kind",   "samples",        "baseline",    "device",        "name",
        "fingerprint",  "address",        "target",      "threads",       "toolchain",
        "median",       "ci_rel",         "error_class", "task_text",     "point"}) {
    EXPECT_THAT(line, HasSubstr(StrCat("\"", field, "\":"))) << field;
  }
  EXPECT_EQ(line.find("\"features\":"), std::string::npos);
  EXPECT_EQ(Slug(ExportLog(log_.get(), {.job = "nope"},
                           [](std::string_view) { return absl::OkStatus(); })),
            "log.job.not_found");
}

TEST_P(TuningLogTest, ABadLineImportsNothing) {
  AddJobWithTrials("j1");
  AddMixedResults(log_.get(), "j1");
  const std::string good = ExportAll(log_.get(), {.job = ""});
  const auto copy = MakeMemoryLog();
  for (const std::string bad :
       {"nonsense", "[]", R"({"schema":2,"kind":"record"})", R"({"schema":1,"kind":"x"})",
        R"({"schema":1,"kind":"record","device":{}})",
        R"({"schema":1,"kind":"record","measurement_id":7,"device":{}})"}) {
    const absl::Status status = ImportLog(copy.get(), good + bad + "\n").status();
    EXPECT_EQ(Slug(status), "log.import.bad_line") << bad;
    EXPECT_THAT(StatusText(status), HasSubstr("line 4"));
    EXPECT_TRUE(Value(copy->ListJobs({})).empty());
  }
}

TEST_P(TuningLogTest, StatsAddUpWhatTheLogSays) {
  AddJobWithTrials("j1");
  NewBatch defaults;
  defaults.trials = {MakeTrial("j1", "conv0", ""), MakeTrial("j1", "conv1", "")};
  for (TrialRow& trial : defaults.trials) trial.is_default = true;
  EXPECT_THAT(Value(log_->AddBatch("j1", defaults)), ElementsAre(4, 5));
  Value(log_->StoreNews(
      "j1",
      {Ended(1, MakeRecord("j1", "conv0", 1, 1, 40)), Ended(2, MakeRecord("j1", "conv0", 2, 1, 30)),
       Ended(4, MakeRecord("j1", "conv0", 4, 1, 90))},
      0, 1));
  JobStats stats = Value(ComputeJobStats(log_.get(), "j1"));
  EXPECT_EQ(stats.tasks[0].best_trial, 2);
  EXPECT_EQ(stats.tasks[0].best_median, 30);
  EXPECT_EQ(stats.tasks[0].default_median, 90);
  EXPECT_EQ(stats.tasks[0].ended, 3);
  EXPECT_EQ(stats.tasks[0].proposed, 4);
  EXPECT_EQ(stats.tasks[1].best_trial, 0);
  EXPECT_EQ(stats.best_total(), 0);  // not every task has one
  EXPECT_EQ(stats.time.search_s, 0.5);
  EXPECT_EQ(stats.time.run_s, 0.75);
  EXPECT_EQ(stats.considered, 300);
  Value(log_->StoreNews("j1", {Ended(5, MakeRecord("j1", "conv1", 5, 1, 7))}, 0, 1));
  stats = Value(ComputeJobStats(log_.get(), "j1"));
  EXPECT_EQ(stats.best_total(), 1 * 30 + 2 * 7);
  EXPECT_EQ(stats.default_total(), 1 * 90 + 2 * 7);
}

// --- what only a file can show ---

class SqliteLogTest : public testing::Test {
 protected:
  TempDir dir_ = Value(TempDir::Create("sqlite-log"));
  std::string path_ = dir_.File("tuner.db");
};

TEST_F(SqliteLogTest, EverythingIsThereAfterReopening) {
  {
    const auto log = Value(OpenSqliteLog(path_));
    Value(log->CreateJob(MakeJob("j1")));
    ASSERT_TRUE(log->PutTasks("j1", "tc1", "net", {MakeTask("j1", 0)}).ok());
    NewBatch batch;
    batch.trials = {MakeTrial("j1", "conv0", "")};
    Value(log->AddBatch("j1", batch));
    Value(log->StoreNews("j1", {Ended(1, MakeRecord("j1", "conv0", 1, 1, 5))}, 0, 1));
  }
  const auto log = Value(OpenSqliteLog(path_, {.read_only = true, .quick_check = true}));
  EXPECT_EQ(Value(log->GetTrial("j1", 1)).state, TrialState::kSucceeded);
  EXPECT_EQ(Value(log->ListRecords({.job = ""})).size(), 1U);
  EXPECT_FALSE(log->CreateJob(MakeJob("j2")).ok());
}

TEST_F(SqliteLogTest, UniquenessOfMeasurementsIsTheDatabasesOwnRule) {
  {
    const auto log = Value(OpenSqliteLog(path_));
    Value(log->CreateJob(MakeJob("j1")));
    ASSERT_TRUE(log->PutTasks("j1", "tc1", "net", {MakeTask("j1", 0)}).ok());
    NewBatch batch;
    batch.trials = {MakeTrial("j1", "conv0", ""), MakeTrial("j1", "conv0", "")};
    Value(log->AddBatch("j1", batch));
    Value(log->StoreNews("j1", {Ended(1, MakeRecord("j1", "conv0", 1, 1, 5))}, 0, 1));
  }
  sql::Database db = Value(sql::Database::Open(path_));
  // The same measurement for another trial, past all our code.
  const absl::Status copied = db.Exec(
      "CREATE TEMP TABLE t AS SELECT * FROM records; UPDATE t SET seq = 9, trial = 2;"
      "INSERT INTO records SELECT * FROM t");
  EXPECT_EQ(Slug(copied), "sql.exec.constraint");
  // A second accepted record of one trial.
  const absl::Status twice = db.Exec(
      "DROP TABLE t; CREATE TEMP TABLE t AS SELECT * FROM records;"
      "UPDATE t SET seq = 9, measurement_id = 'other'; INSERT INTO records SELECT * FROM t");
  EXPECT_EQ(Slug(twice), "sql.exec.constraint");
  EXPECT_EQ(Value(db.QueryInt64("SELECT count(*) FROM records")), 1);
}

TEST_F(SqliteLogTest, MigrationsAreNumberedAndANewerFileIsRefused) {
  Value(OpenSqliteLog(path_));
  {
    sql::Database db = Value(sql::Database::Open(path_));
    EXPECT_EQ(Value(sql::SchemaVersion(&db)), TuningLogMigrations().back().version);
    EXPECT_EQ(Value(db.QueryInt64("SELECT count(*) FROM sqlite_master WHERE type = 'table' AND "
                                  "name NOT LIKE 'sqlite_%' AND sql NOT LIKE '%STRICT%'")),
              0);
    ASSERT_TRUE(db.Exec("PRAGMA user_version = 99").ok());
  }
  EXPECT_EQ(Slug(OpenSqliteLog(path_).status()), "sql.migrate.newer");
  EXPECT_EQ(Slug(OpenSqliteLog(path_, {.read_only = true}).status()), "log.open.version");
}

TEST_F(SqliteLogTest, AFullDiskIsAnErrorAndTheLogGoesOnAfterwards) {
  const auto disk = tests::SmallDisk::Mount(1 << 20);
  if (disk == nullptr) GTEST_SKIP() << tests::kNoMountSkip;
  const auto log = Value(OpenSqliteLog(disk->path() + "/tuner.db"));
  absl::Status status;
  int64_t stored = 0;
  for (int i = 0; status.ok() && i < 1000; ++i) {
    JobRow job = MakeJob(StrCat("j", i));
    job.spec_json = std::string(10'000, 'x');
    status = log->CreateJob(job).status();
    if (status.ok()) ++stored;
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << StatusText(status);
  EXPECT_EQ(static_cast<int64_t>(Value(log->ListJobs({.limit = 1000})).size()), stored);
}

TEST(TargetText, CanonicalFormAndRefusals) {
  const TargetText target = Value(ParseTargetText("cpu,threads=2,cpu=znver4,arch=x86_64"));
  EXPECT_EQ(target.ToString(), "cpu,arch=x86_64,cpu=znver4,threads=2");
  EXPECT_EQ(target.WithoutThreads(), "cpu,arch=x86_64,cpu=znver4");
  EXPECT_EQ(target.threads(), 2);
  EXPECT_EQ(Value(ParseTargetText("cpu")).threads(), 1);
  EXPECT_EQ(Slug(ParseTargetText("abacus").status()), "target.text.unknown_kind");
  EXPECT_EQ(Slug(ParseTargetText("native,threads=2").status()), "target.text.not_expanded");
  for (const char* bad : {"", "cpu,", "cpu,a", "cpu,a=", "cpu,a=1,a=2", "cpu,threads=0",
                          "cpu,threads=x", "cpu,a=b c", "c pu"}) {
    EXPECT_EQ(Slug(ParseTargetText(bad).status()), "target.text.bad") << bad;
  }
}

}  // namespace
}  // namespace tilewright::log
