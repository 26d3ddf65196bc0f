// Damaged log files: what was changed on the disk is noticed, and what is whole can be kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "deploy/sql/database.h"
#include "deploy/sql/row_checksum.h"
#include "deploy/support/rng.h"
#include "tests/unit/tuning_log_fixture.h"
#include "tuner_server/log/import_export.h"
#include "tuner_server/log/sqlite_rows.h"

namespace tilewright::log {
namespace {

using support::Slug;
using support::StatusText;
using support::StrCat;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

constexpr int64_t kTrials = 40;
constexpr uint64_t kMaxFile = uint64_t{16} << 20;

absl::StatusOr<std::string> ExportFile(const std::string& path, bool drafts,
                                       bool skip_damaged = false) {
  if (!skip_damaged) TW_TRY(RequireWhole(path));
  TW_ASSIGN(const auto log,
            OpenSqliteLog(path, {.read_only = true, .whole_rows_only = skip_damaged}));
  std::string text;
  TW_TRY(ExportLog(log.get(), {.features = true, .drafts = drafts, .skip_incomplete = skip_damaged},
                   [&text](std::string_view piece) {
                     text += piece;
                     return absl::OkStatus();
                   }));
  return text;
}

// A file with two jobs, each with a task, a batch of drafts, trials and a record of each trial.
class LogCheckTest : public testing::Test {
 protected:
  LogCheckTest() {
    const auto log = Value(OpenSqliteLog(path_));
    for (const std::string& job : {std::string("j1"), std::string("j2")}) AddJob(log.get(), job);
  }

  static void AddJob(TuningLog* log, const std::string& job) {
    Value(log->CreateJob(MakeJob(job)));
    TW_CHECK(log->PutTasks(job, "tc1", "net", {MakeTask(job, 0)}).ok());
    NewBatch batch;
    batch.batch.emplace();
    batch.batch->id = job + "/b1";
    batch.batch->job = job;
    batch.batch->task = "conv0";
    std::vector<TrialNews> news;
    for (int64_t i = 1; i <= kTrials; ++i) {
      TrialRow trial = MakeTrial(job, "conv0", job + "/b1");
      trial.steps = StrCat("split %1 [?,", i, "]");
      trial.features.assign(200, static_cast<float>(i) / 3);
      batch.trials.push_back(trial);
      batch.drafts.push_back(DraftRow{job + "/b1", i, StrCat("p", i), trial.steps, 1.0 / i, i == 1,
                                      trial.features, "f1"});
      news.push_back(Ended(i, MakeRecord(job, "conv0", i, 1, 10.0 + i)));
    }
    Value(log->AddBatch(job, batch));
    Value(log->StoreNews(job, news, 1.5, 1));
    ModelRow model;
    model.id = "m1";
    model.job = job;
    model.bytes.assign(20'000, 'm');
    TW_CHECK(log->AddModel(model).ok());
  }

  // Changes the file behind the log's back.
  void Change(const std::string& sql) {
    sql::Database db = Value(sql::Database::Open(path_));
    ASSERT_TRUE(db.Exec(sql).ok()) << sql;
  }

  support::TempDir dir_ = Value(support::TempDir::Create("log-check"));
  std::string path_ = dir_.File("tuner.db");
};

TEST_F(LogCheckTest, NoFlippedBitMakesAnExportThatIsWrong) {
  const std::string bytes = Value(support::ReadFile(path_, kMaxFile));
  const std::string records = Value(ExportFile(path_, false));
  const std::string drafts = Value(ExportFile(path_, true));
  const std::string damaged = dir_.File("damaged.db");
  support::Rng rng(16);
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::string flipped = bytes;
    const size_t at = rng.Uniform(flipped.size());
    flipped[at] = static_cast<char>(flipped[at] ^ (1 << rng.Uniform(8)));
    std::ofstream(damaged, std::ios::binary) << flipped;
    for (const bool of_drafts : {false, true}) {
      const auto text = ExportFile(damaged, of_drafts);
      refused += text.ok() ? 0 : 1;
      // What is not used, as a page without rows, may change.
      EXPECT_TRUE(!text.ok() || *text == (of_drafts ? drafts : records)) << "byte " << at;
    }
    (void)support::RemoveFile(damaged + "-wal");
    (void)support::RemoveFile(damaged + "-shm");
  }
  EXPECT_GT(refused, 400) << "most of the file is rows: half of the flips must be noticed";
}

TEST_F(LogCheckTest, SaysWhichRowsOfWhichJobsAreDamaged) {
  EXPECT_TRUE(RequireWhole(path_).ok());
  Change("UPDATE trials SET steps = 'other' WHERE job = 'j2' AND number IN (3, 4)");
  Change("UPDATE records SET median = median * 2 WHERE measurement_id = 'j2/conv0/7/1'");
  const LogHealth health = Value(CheckLogFile(path_, CheckDepth::kFully));
  EXPECT_EQ(health.damaged(), 3);
  EXPECT_THAT(health.jobs, ElementsAre(Pair("j1", 0), Pair("j2", 3)));
  EXPECT_THAT(health.examples,
              ElementsAre("trials \"j2/3\"", "trials \"j2/4\"", "records \"j2/conv0/7/1\""));
  EXPECT_THAT(health.structure, IsEmpty());
  const absl::Status status = RequireWhole(path_);
  EXPECT_EQ(Slug(status), "log.check.damaged");
  EXPECT_THAT(StatusText(status), HasSubstr("j2/conv0/7/1"));
}

TEST_F(LogCheckTest, ARowThatIsMissingIsFound) {
  Change("PRAGMA foreign_keys = OFF; DELETE FROM trials WHERE job = 'j1' AND number = 5");
  const LogHealth health = Value(CheckLogFile(path_, CheckDepth::kFully));
  EXPECT_EQ(health.damaged(), 0);
  EXPECT_THAT(health.structure, ElementsAre("records rows whose trials row is missing: 1"));
}

TEST_F(LogCheckTest, ADamagedRowIsNeverReadAndStaysDamagedWhenItChanges) {
  Change("UPDATE jobs SET target = 'cpu,arch=other' WHERE id = 'j1'");
  {
    const auto log = Value(OpenSqliteLog(path_));
    EXPECT_EQ(Slug(log->GetJob("j1").status()), "log.row.damaged");
    EXPECT_THAT(StatusText(log->GetJob("j1").status()), HasSubstr("\"j1\""));
    ASSERT_TRUE(log->SetElapsed("j1", 99).ok());
    EXPECT_EQ(Slug(log->GetJob("j1").status()), "log.row.damaged");
    Value(log->GetJob("j2"));
  }
  EXPECT_EQ(Value(CheckLogFile(path_, CheckDepth::kRows)).damaged(), 1);
}

TEST_F(LogCheckTest, WhatIsWholeCanBeExported) {
  const std::string all = Value(ExportFile(path_, false));
  Change("UPDATE trials SET steps = 'other' WHERE job = 'j2' AND number = 3");
  Change("UPDATE tasks SET text = 'other' WHERE job = 'j1'");
  EXPECT_EQ(Slug(ExportFile(path_, false).status()), "log.check.damaged");
  const std::string whole = Value(ExportFile(path_, false, /*skip_damaged=*/true));
  EXPECT_EQ(std::count(whole.begin(), whole.end(), '\n'), kTrials - 1);
  EXPECT_THAT(all, HasSubstr(whole.substr(0, whole.find('\n'))));
  const auto copy = Value(OpenSqliteLog(dir_.File("copy.db")));
  EXPECT_EQ(Value(ImportLog(copy.get(), whole)).new_records, kTrials - 1);
}

TEST_F(LogCheckTest, RowsOfOlderVersionsGetTheirChecksumsAndColumnsThatCameLaterAreCovered) {
  Change("DELETE FROM sealed_tables; UPDATE trials SET checksum = 0");
  EXPECT_EQ(Slug(CheckLogFile(path_, CheckDepth::kRows).status()), "log.open.version");
  Value(OpenSqliteLog(path_));
  EXPECT_TRUE(RequireWhole(path_).ok());
  // As a version left them that did not know the last column, with one row damaged then.
  {
    sql::Database db = Value(sql::Database::Open(path_));
    ASSERT_TRUE(sql::AddRowChecksum(&db).ok());
    std::string older = SealedColumns<TrialRow>();
    older = older.substr(0, older.rfind(','));
    ASSERT_TRUE(db.Exec(StrCat("UPDATE trials SET checksum = row_checksum(", older,
                               ") + (number = 1); UPDATE sealed_tables SET columns = '", older,
                               "' WHERE name = 'trials'"))
                    .ok());
  }
  Value(OpenSqliteLog(path_));
  const LogHealth health = Value(CheckLogFile(path_, CheckDepth::kRows));
  EXPECT_THAT(health.examples, ElementsAre("trials \"j1/1\"", "trials \"j2/1\""));
}

}  // namespace
}  // namespace tilewright::log
