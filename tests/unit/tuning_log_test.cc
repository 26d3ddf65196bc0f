// The conformance suite of the tuning log: jobs, trials, records, models, modules.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/unit/tuning_log_fixture.h"

namespace tilewright::log {
namespace {

using support::Slug;
using support::StrCat;
using testing::ElementsAre;

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

TEST_P(TuningLogTest, DistinctTasksAreThoseOfJobsCreatedBefore) {
  for (const char* id : {"j1", "j2"}) {
    JobRow job = MakeJob(id);
    job.created_us = id == std::string("j1") ? 100 : 200;
    Value(log_->CreateJob(job));
  }
  ASSERT_TRUE(log_->PutTasks("j1", "tc1", "net", {MakeTask("j1", 0)}).ok());
  ASSERT_TRUE(log_->PutTasks("j2", "tc1", "net", {MakeTask("j2", 0), MakeTask("j2", 1)}).ok());
  EXPECT_TRUE(Value(log_->DistinctTasks(100)).empty());
  const auto texts = [&](int64_t before_us) {
    std::map<std::string, std::string> by_hash;
    for (const TaskRow& task : Value(log_->DistinctTasks(before_us))) {
      EXPECT_TRUE(by_hash.emplace(task.hash, task.text).second) << "once";
    }
    return by_hash;
  };
  const TaskRow one = MakeTask("j1", 0), two = MakeTask("j2", 1);
  EXPECT_EQ(texts(101), (std::map<std::string, std::string>{{one.hash, one.text}}));
  EXPECT_EQ(texts(201),
            (std::map<std::string, std::string>{{one.hash, one.text}, {two.hash, two.text}}));
}

TEST_P(TuningLogTest, BatchesDraftsAndTrialsRoundTrip) {
  AddJobWithTrials("j1");
  TrialRow expected = MakeTrial("j1", "conv0", "j1/b1");
  expected.number = 2;
  expected.program_hash = "p2";
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
  built.resources = R"({"kernels":[{"name":"k","registers":"40"}]})";
  ASSERT_TRUE(log_->SetBuilt("j1", {built}).ok());
  const TrialRow trial = Value(log_->GetTrial("j1", 1));
  EXPECT_EQ(trial.state, TrialState::kBuilt);
  EXPECT_EQ(trial.work_spec, built.work_spec);
  EXPECT_EQ(trial.artifact_size, 12345);
  EXPECT_EQ(trial.resources, built.resources);
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
  record.known_position = 1;
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

TEST_P(TuningLogTest, KnownRecordsComeInTheOrderOfTheirAcceptance) {
  AddJobWithTrials("j1");
  TrialNews first = Ended(1, MakeRecord("j1", "conv0", 1, 1, 50));
  first.final = false;
  const RecordRow second = MakeRecord("j1", "conv0", 2, 1, 40);
  const RecordKey key = second.key;
  const auto known_after = [&](int64_t position) {
    std::vector<std::string> found;
    for (const RecordRow& record : Value(log_->KnownRecords(key, INT64_MAX, position))) {
      found.push_back(record.measurement_id);
    }
    return found;
  };
  Value(log_->StoreNews("j1", {first, Ended(2, second)}, 0, 1));
  const RecordRow read = Value(log_->GetRecord(second.measurement_id));
  EXPECT_THAT(known_after(0), ElementsAre(second.measurement_id));
  EXPECT_EQ(Value(log_->GetRecord(first.record->measurement_id)).known_position, 0);
  first.final = true;
  Value(log_->StoreNews("j1", {first}, 0, 2));
  EXPECT_THAT(known_after(read.known_position), ElementsAre(first.record->measurement_id));
  EXPECT_THAT(known_after(0), ElementsAre(second.measurement_id, first.record->measurement_id));
  // Told again, it keeps its place.
  Value(log_->StoreNews("j1", {Ended(2, second)}, 0, 3));
  EXPECT_EQ(Value(log_->GetRecord(second.measurement_id)), read);
  // What comes from another log is accepted as it arrives.
  TuningLog::Import rows;
  rows.records = {MakeRecord("j1", "conv0", 3, 1, 30), MakeRecord("j1", "conv0", 3, 2, 31)};
  rows.records[1].accepted = true;
  EXPECT_EQ(Value(log_->AddImported(rows)), 2);
  EXPECT_THAT(known_after(Value(log_->GetRecord(first.record->measurement_id)).known_position),
              ElementsAre(rows.records[1].measurement_id));
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

TEST_P(TuningLogTest, SearchesOfOldJobsAreGivenUpAndWhatWasMeasuredStays) {
  int64_t ended_us = 1000;
  for (const std::string job : {"j1", "j2", "j3", "j4"}) {
    AddJobWithTrials(job);
    Value(log_->StoreNews(job, {Ended(1, MakeRecord(job, "conv0", 1, 1, 50))}, 1, 9));
    for (const char* id : {"m1", "m2"}) {
      ModelRow model;
      model.id = job + id;
      model.job = job;
      model.bytes = "bytes";
      ASSERT_TRUE(log_->AddModel(model).ok());
    }
    if (job == "j4") continue;  // runs
    Value(log_->MoveJob(
        {.id = job, .to = JobState::kCancelled, .reason = "enough", .now_us = ++ended_us}));
  }
  EXPECT_EQ(Value(log_->PruneSearches(/*keep=*/3, /*window=*/100)), 0);
  EXPECT_EQ(Value(log_->PruneSearches(/*keep=*/0, /*window=*/0)), 0);
  EXPECT_EQ(Value(log_->PruneSearches(/*keep=*/1, /*window=*/1)), 1);  // j2 of j3, j2, j1
  EXPECT_FALSE(Value(log_->ListDrafts("j1/b1")).empty());
  EXPECT_EQ(Value(log_->PruneSearches(/*keep=*/1, /*window=*/100)), 1);
  EXPECT_EQ(Value(log_->PruneSearches(/*keep=*/1, /*window=*/100)), 0);
  for (const std::string job : {"j1", "j2", "j3", "j4"}) {
    const bool kept = job == "j3" || job == "j4";
    EXPECT_EQ(Value(log_->ListDrafts(job + "/b1")).size(), kept ? 2U : 0U) << job;
    EXPECT_EQ(Slug(log_->GetModel(job, job + "m1").status()), kept ? "" : "log.model.pruned");
    EXPECT_EQ(Value(log_->GetModel(job, job + "m2")).bytes, "bytes");
    EXPECT_EQ(Value(log_->ListModels(job)).size(), 2U);
    EXPECT_EQ(Value(log_->CountBatches(job)), 1);
    EXPECT_EQ(Value(log_->CountTrials(job)).proposed, 3);
    EXPECT_EQ(Value(log_->ListRecords({.job = job})).size(), 1U);
  }
}

TEST_P(TuningLogTest, AJobMayPublishAVersionThatIsThere) {
  for (const char* job : {"j1", "j2"}) Value(log_->CreateJob(MakeJob(job)));
  ModuleVersionRow version;
  version.module = "net";
  version.sha256 = "s1";
  version.recipe = "r";
  version.sizes = R"({"open":{"batch":[1,8]}})";
  version.created_us = 1;
  version = Value(log_->AddModuleVersion(version));
  EXPECT_EQ(Value(log_->GetModuleVersion("net", 1)).recipe, "r");
  EXPECT_EQ(Value(log_->GetModuleVersion("net", 1)).sizes, version.sizes);
  EXPECT_EQ(Value(log_->UseModuleVersion("j2", "net", "r")), version);
  EXPECT_EQ(Value(log_->GetJob("j2")).published_module, "projects/default/modules/net/versions/1");
  EXPECT_EQ(Value(log_->GetJob("j1")).published_module, "");
  EXPECT_EQ(Slug(log_->UseModuleVersion("j1", "net", "").status()), "log.module_version.not_found");
  EXPECT_EQ(Slug(log_->UseModuleVersion("j1", "web", "r").status()),
            "log.module_version.not_found");
  EXPECT_EQ(Value(log_->GetJob("j1")).published_module, "");
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
  ModuleVersionRow later = version;
  later.module = "later";
  later.number = 7;
  EXPECT_EQ(Value(log_->AddModuleVersion(later)).number, 7) << "at least what is asked for";
  later.number = 3;
  EXPECT_EQ(Value(log_->AddModuleVersion(later)).number, 8);
  EXPECT_FALSE(Value(log_->ModuleNumbersKept()));
  ASSERT_TRUE(log_->KeepModuleNumbers(5).ok());
  ASSERT_TRUE(log_->KeepModuleNumbers(6).ok());
  EXPECT_TRUE(Value(log_->ModuleNumbersKept()));

  stable.number = 4;  // moves
  ASSERT_TRUE(log_->SetModuleAlias(stable).ok());
  EXPECT_EQ(Value(log_->PruneModuleVersions(all, 101)).size(), 1U) << "version 1 is free now";
  stable.number = 0;
  ASSERT_TRUE(log_->SetModuleAlias(stable).ok());
  EXPECT_EQ(Slug(log_->SetModuleAlias(stable)), "log.module_alias.not_found");
}

TEST_P(TuningLogTest, ABadSignatureNeverTakesThePlaceOfAGoodOne) {
  ModuleVersionRow version;
  version.module = "net";
  Value(log_->AddModuleVersion(version));
  const ModuleSignatureRow one{"net", 1, "aa", "s1", 5, "ana"};
  ASSERT_TRUE(log_->AddModuleSignature(one).ok());
  ASSERT_TRUE(log_->AddModuleSignature({"net", 1, "aa", "s1", 6, "eve"}).ok()) << "the same again";
  const ModuleSignatureRow forged{"net", 1, "aa", "forged", 6, "eve", 2};
  ASSERT_TRUE(log_->AddModuleSignature(forged).ok());
  ASSERT_TRUE(log_->AddModuleSignature({"net", 1, "0b", "s2", 7, "bob"}).ok());
  EXPECT_EQ(Value(log_->ListModuleSignatures("net", 1)),
            (std::vector<ModuleSignatureRow>{{"net", 1, "0b", "s2", 7, "bob"}, one, forged}));
  EXPECT_EQ(Slug(log_->AddModuleSignature({"net", 2, "aa", "s", 5, ""})),
            "log.module_version.not_found");
}

TEST_P(TuningLogTest, RevokedSignaturesStayAndSayWhy) {
  ModuleVersionRow version;
  version.module = "net";
  Value(log_->AddModuleVersion(version));
  ASSERT_TRUE(log_->AddModuleSignature({"net", 1, "aa", "s1", 5, "ana", 1}).ok());
  ASSERT_TRUE(log_->AddModuleSignature({"net", 1, "aa", "s2", 5, "ana", 2}).ok());
  ASSERT_TRUE(log_->AddModuleSignature({"net", 1, "bb", "s3", 5, "bob", 2}).ok());
  ASSERT_TRUE(log_->RevokeModuleSignatures("net", 1, "aa", {7, "root", "wrong"}).ok());
  ASSERT_TRUE(log_->RevokeModuleSignatures("net", 1, "aa", {8, "eve", "other"}).ok());
  EXPECT_EQ(
      Value(log_->ListModuleSignatures("net", 1)),
      (std::vector<ModuleSignatureRow>{{"net", 1, "aa", "s1", 5, "ana", 1, 7, "root", "wrong"},
                                       {"net", 1, "aa", "s2", 5, "ana", 2, 7, "root", "wrong"},
                                       {"net", 1, "bb", "s3", 5, "bob", 2}}));
  EXPECT_EQ(Slug(log_->RevokeModuleSignatures("net", 1, "cc", {7, "", ""})),
            "log.module_signature.not_found");
}

TEST_P(TuningLogTest, AReleaseKeyIsKnownForEverAndRevokedOnce) {
  const ReleaseKeyRow key{"aa", "0011", "team", 5, "root"};
  ASSERT_TRUE(log_->AddReleaseKey(key).ok());
  ASSERT_TRUE(log_->AddReleaseKey({"aa", "0011", "other name", 6, "eve"}).ok()) << "the same again";
  EXPECT_EQ(Value(log_->ListReleaseKeys()), (std::vector<ReleaseKeyRow>{key}));
  EXPECT_EQ(Slug(log_->AddReleaseKey({"aa", "ff", "", 6, "eve"})), "log.release_key.other");
  const ReleaseKeyRow revoked = Value(log_->RevokeReleaseKey("aa", {7, "root", "stolen"}));
  EXPECT_EQ(revoked.revoke_reason, "stolen");
  EXPECT_EQ(Value(log_->RevokeReleaseKey("aa", {8, "eve", "other"})), revoked);
  EXPECT_EQ(Slug(log_->AddReleaseKey(key)), "log.release_key.revoked");
  EXPECT_EQ(Slug(log_->RevokeReleaseKey("bb", {8, "", ""}).status()), "log.release_key.not_found");
  for (size_t i = 1; i < kMaxReleaseKeys; ++i) {
    ASSERT_TRUE(log_->AddReleaseKey({support::StrCat("k", i), "00", "", 1, ""}).ok());
  }
  EXPECT_EQ(Slug(log_->AddReleaseKey({"last", "00", "", 1, ""})), "log.release_key.too_many");
}

}  // namespace
}  // namespace tilewright::log
