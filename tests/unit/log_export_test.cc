// Export, import and sums of the tuning log, over both implementations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/tuning_log_fixture.h"
#include "tuner_server/log/import_export.h"
#include "tuner_server/log/log_stats.h"

namespace tilewright::log {
namespace {

using support::Slug;
using support::StatusText;
using support::StrCat;
using testing::ElementsAre;
using testing::HasSubstr;

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
  TrialBuilt built;
  built.number = 1;
  built.resources = R"({"kernels":[{"name":"k","registers":"40"}]})";
  ASSERT_TRUE(log_->SetBuilt("j1", {built}).ok());
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
  EXPECT_EQ(Value(copy->GetTrial("j1", 1)).resources, built.resources);
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

// Records of one class are compared, so one in another unit would be the best of them for ever.
TEST_P(TuningLogTest, ARecordInAnotherUnitThanThatOfItsClassIsRefused) {
  AddJobWithTrials("j1");
  AddMixedResults(log_.get(), "j1");
  const std::string good = ExportAll(log_.get(), {});
  const std::string unit = R"("value_kind":"wall_ns")";
  const size_t last = good.rfind(unit);  // of the one record that is valid
  const auto with_unit = [&](const std::string& text) {
    return std::string(good).replace(last, unit.size(), R"("value_kind":")" + text + "\"");
  };
  const std::unique_ptr<TuningLog> copy = Value(OpenSqliteLog(dir_.File("copy.db")));
  for (const char* other : {"virtual_cycles", "device_ns", "parsecs"}) {
    const absl::Status status = ImportLog(copy.get(), with_unit(other)).status();
    EXPECT_EQ(Slug(status), "log.import.bad_line") << other;
    EXPECT_THAT(StatusText(status), HasSubstr("line 3: field value_kind: expected wall_ns, the "
                                              "unit of device class"));
    EXPECT_THAT(StatusText(status), HasSubstr(other));
    EXPECT_TRUE(Value(copy->ListJobs({})).empty());
  }
  // A record that does not count may say what it likes: a log keeps those, too.
  std::string invalid = good;
  invalid.replace(invalid.find(unit), unit.size(), R"("value_kind":"virtual_cycles")");
  EXPECT_EQ(Value(ImportLog(copy.get(), invalid)).new_records, 3);
  // Devices of old versions said no unit.
  const std::unique_ptr<TuningLog> old = Value(OpenSqliteLog(dir_.File("old.db")));
  EXPECT_EQ(Value(ImportLog(old.get(), with_unit("unspecified"))).new_records, 3);
}

TEST_P(TuningLogTest, StatsAddUpWhatTheLogSays) {
  AddJobWithTrials("j1");
  NewBatch defaults;
  defaults.trials = {MakeTrial("j1", "conv0", ""), MakeTrial("j1", "conv1", "")};
  for (TrialRow& trial : defaults.trials) {
    trial.is_default = true;
    trial.program_hash = "default";
  }
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

}  // namespace
}  // namespace tilewright::log
