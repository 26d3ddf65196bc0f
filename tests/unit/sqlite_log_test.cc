// What of the tuning log only a file can show, and the text of targets in its keys.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "compiler/target/machine.h"
#include "deploy/sql/database.h"
#include "deploy/support/hash.h"
#include "tests/support/small_disk.h"
#include "tests/unit/tuning_log_fixture.h"
#include "tuner_server/log/migrations.h"
#include "tuner_server/log/sqlite_rows.h"
#include "tuner_server/log/target_text.h"
#include "tuner_server/log/task_renames.h"
#include "tuner_server/log/toolchain_text.h"

namespace tilewright::log {
namespace {

using support::Slug;
using support::StatusText;
using support::StrCat;
using support::TempDir;

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

TEST_F(SqliteLogTest, AFileHasOneWriterUnderAllItsNamesAndAnyNumberOfReaders) {
  const auto log = Value(OpenSqliteLog(path_));
  const std::string soft = dir_.File("soft.db");
  const std::string hard = dir_.File("hard.db");
  ASSERT_EQ(symlink(path_.c_str(), soft.c_str()), 0);
  ASSERT_TRUE(support::LinkFile(path_, hard).ok());
  for (const std::string& name : {path_, soft, hard}) {
    EXPECT_EQ(Slug(CheckLogIsFree(name)), "log.open.in_use") << name;
  }
  EXPECT_EQ(Slug(OpenSqliteLog(soft).status()), "log.open.in_use");
  Value(OpenSqliteLog(soft, {.read_only = true}));
  EXPECT_TRUE(CheckLogIsFree(dir_.File("none.db")).ok());
  EXPECT_FALSE(support::FileExists(dir_.File("none.db")));
}

TEST_F(SqliteLogTest, AFileIsFreeAgainWhenItsWriterIsGone) {
  Value(OpenSqliteLog(path_));
  EXPECT_TRUE(CheckLogIsFree(path_).ok());
  Value(OpenSqliteLog(path_));
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

TEST_F(SqliteLogTest, RecordsOfAnOlderFileKeepTheirOrderAndNewOnesFollow) {
  {
    sql::Database db = Value(sql::Database::Open(path_));
    ASSERT_TRUE(sql::Migrate(&db, TuningLogMigrations().first(5)).ok());
    ASSERT_TRUE(db.Exec("PRAGMA foreign_keys = OFF").ok());  // records alone will do
    sql::Statement insert =
        Value(db.Prepare(StrCat("INSERT INTO records (", ColumnList<RecordRow>(), ") VALUES (",
                                FieldMarks<RecordRow>(), ")")));
    for (int64_t trial = 1; trial <= 3; ++trial) {
      RecordRow record = MakeRecord("j0", "conv0", trial, 1, 50);
      record.accepted = trial != 2;
      BindRow(record, &insert);
      ASSERT_TRUE(insert.Run().ok());
    }
  }
  const auto log = Value(OpenSqliteLog(path_));
  Value(log->CreateJob(MakeJob("j1")));
  ASSERT_TRUE(log->PutTasks("j1", "tc1", "net", {MakeTask("j1", 0)}).ok());
  NewBatch batch;
  batch.trials = {MakeTrial("j1", "conv0", "")};
  Value(log->AddBatch("j1", batch));
  const RecordRow added = MakeRecord("j1", "conv0", 1, 1, 5);
  Value(log->StoreNews("j1", {Ended(1, added)}, 0, 1));
  std::vector<std::string> known;
  for (const RecordRow& record : Value(log->KnownRecords(added.key, INT64_MAX, 0))) {
    known.push_back(record.measurement_id);
  }
  EXPECT_THAT(known, testing::ElementsAre("j0/conv0/1/1", "j0/conv0/3/1", "j1/conv0/1/1"));
  EXPECT_EQ(Value(CheckLogFile(path_, CheckDepth::kRows)).damaged(), 0);
}

TEST_F(SqliteLogTest, VersionsOfAnOlderFileAreOfNoKnownSizes) {
  {
    sql::Database db = Value(sql::Database::Open(path_));
    ASSERT_TRUE(sql::Migrate(&db, TuningLogMigrations().first(10)).ok());
    ASSERT_TRUE(db.Exec("INSERT INTO module_versions (module, number, sha256, size, "
                        "manifest_sha256, manifest_size, target, job, model_sha256, model_size, "
                        "task_hashes, median_us, ci_rel, speedup, devices, device_fingerprint, "
                        "created_us) VALUES ('net', 3, 's', 1, 'm', 1, 'cpu', '', 'o', 1, '[]', "
                        "5.0, 0.0, 1.0, 1, 'f', 7)")
                    .ok());
  }
  const auto log = Value(OpenSqliteLog(path_));
  const ModuleVersionRow old = Value(log->GetModuleVersion("net", 3));
  EXPECT_EQ(old.sizes, "");
  EXPECT_EQ(old.created_us, 7);
  ModuleVersionRow next = old;
  next.sizes = R"({"shapes":{"batch":[8]}})";
  EXPECT_EQ(Value(log->AddModuleVersion(next)).number, 4);
  EXPECT_EQ(Value(log->GetModuleVersion("net", 4)).sizes, next.sizes);
  EXPECT_EQ(Value(CheckLogFile(path_, CheckDepth::kRows)).damaged(), 0);
}

// What was measured under an old name of an operator is found under the new one.
TEST_F(SqliteLogTest, TasksOfAnOlderFileGetTheNamesOfToday) {
  const std::string old_text =
      "graph {\n  input %0: f32[1,2,8,8,4]\n  weight %1: f32[3,2,3,3,4,4]\n  weight %2: "
      "f32[3,3,3,4]\n"
      "  %3: f32[1,3,8,8,4] = conv2d_blocked(%0, %1) {dilations=[1,1], pads=[1,1,1,1]}\n"
      "  %4: f32[1,3,6,6,4] = conv2d_blocked(%3, %2)\n  output %4\n}\n";
  const std::string text =
      "graph {\n  input %0: f32[1,2,8,8,4]\n  weight %1: f32[3,2,3,3,4,4]\n  weight %2: "
      "f32[3,3,3,4]\n"
      "  %3: f32[1,3,8,8,4] = conv2d(%0, %1) {data_layout=\"NCHW4c\", dilations=[1,1], "
      "pads=[1,1,1,1], weight_layout=\"OIHW4i4o\"}\n"
      "  %4: f32[1,3,6,6,4] = conv2d(%3, %2) {data_layout=\"NCHW4c\", groups=12, "
      "weight_layout=\"OHW4o\"}\n  output %4\n}\n";
  EXPECT_EQ(UpgradedTaskText(old_text), text);
  EXPECT_EQ(UpgradedTaskText(text), text);
  const std::string old_hash = support::Sha256Hex(old_text), hash = support::Sha256Hex(text);
  RecordRow record = MakeRecord("j1", "conv0", 1, 1, 50);
  record.accepted = true;
  record.key.task_hash = old_hash;
  {
    const auto log = Value(OpenSqliteLog(path_));
    Value(log->CreateJob(MakeJob("j1")));
    TaskRow task = MakeTask("j1", 0);
    task.text = old_text, task.hash = old_hash;
    ASSERT_TRUE(log->PutTasks("j1", "tc1", "net", {task, MakeTask("j1", 1)}).ok());
    NewBatch batch;
    batch.trials = {MakeTrial("j1", "conv0", "")};
    Value(log->AddBatch("j1", batch));
    Value(log->StoreNews("j1", {Ended(1, record)}, 0, 1));
    ModuleVersionRow version;
    version.module = "net", version.task_hashes = {"0a", old_hash};
    Value(log->AddModuleVersion(version));
  }
  const auto log = Value(OpenSqliteLog(path_));
  const std::vector<TaskRow> tasks = Value(log->ListTasks("j1"));
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[0].text, text);
  EXPECT_EQ(tasks[0].hash, hash);
  EXPECT_EQ(tasks[1].hash, "hash1");
  EXPECT_EQ(Value(log->KnownRecords(record.key, INT64_MAX, 0)).size(), 0u);
  record.key.task_hash = hash;
  EXPECT_EQ(Value(log->KnownRecords(record.key, INT64_MAX, 0)).size(), 1u);
  EXPECT_EQ(Value(log->GetModuleVersion("net", 1)).task_hashes,
            (std::vector<std::string>{"0a", hash}));
  EXPECT_EQ(Value(CheckLogFile(path_, CheckDepth::kRows)).damaged(), 0);
}

TEST(TaskRenames, OfWeightsInBytes) {
  const auto renamed = [](const std::string& weight, const std::string& rest) {
    const std::string text = UpgradedTaskText(
        StrCat("graph {\n  input %0: i8[1,2,8,8,16]\n  weight %1: ", weight, "\n  %2: ", rest));
    return text.substr(text.find("%2: ") + 4);
  };
  EXPECT_EQ(renamed("i8[3,2,3,3,4,16,4]", "i32[1] = conv2d_blocked(%0, %1) {pad_value=3}\n"),
            "i32[1] = conv2d(%0, %1) {data_layout=\"NCHW16c\", pad_value=3, "
            "weight_layout=\"OIHW4i16o4i\"}\n");
  EXPECT_EQ(renamed("i8[3,2,3,3,8,16]", "i32[1] = conv2d_blocked(%0, %1)\n"),
            "i32[1] = conv2d(%0, %1) {data_layout=\"NCHW16c\", weight_layout=\"OIHW8o16i\"}\n");
  EXPECT_EQ(renamed("i8[3,2,16,16]", "i32[1] = dense(%0, %1) {weight_layout=\"NKnk\"}\n"),
            "i32[1] = dense(%0, %1) {weight_layout=\"NK16n16k\"}\n");
  EXPECT_EQ(
      UpgradedTaskText("graph {\n  input %0: f32[4]\n  far_weight %1 \"far_weight %1\": f32[4]\n"),
      "graph {\n  input %0: f32[4]\n  cold_weight %1 \"far_weight %1\": f32[4]\n");
  // Nothing is guessed.
  EXPECT_EQ(renamed("i8[3,2]", "i32[1] = conv2d_blocked(%0, %9)\n"),
            "i32[1] = conv2d_blocked(%0, %9)\n");
  EXPECT_EQ(
      renamed("f32[1,8,4,16]",
              "f32[1,4,8,16] = attention(%0, %1, %1) {k_layout=\"bhsd\", "
              "q_layout=\"bshd\", rows=8}\n"),
      "f32[1,4,8,16] = attention(%0, %1, %1) {k_layout=\"BHSD\", q_layout=\"BSHD\", rows=8}\n");
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

TEST(ToolchainText, ACompilerIsAWordAfterThePlus) {
  EXPECT_EQ(WithCompiler("cl", ""), "cl");
  EXPECT_EQ(WithCompiler("cl", "maker 1.2+deb\n"), "cl+maker-1.2+deb-");
  EXPECT_EQ(WithCompiler("cl+maker-1", "maker 2"), "cl+maker-2");
  EXPECT_EQ(WithCompiler("cl+maker-1", ""), "cl");
  EXPECT_EQ(WithCompiler("cl", std::string(200, 'x')), "cl+" + std::string(80, 'x'));
  EXPECT_EQ(CompilerOf("cl+maker-1.2+deb"), "maker-1.2+deb");
  EXPECT_EQ(CompilerOf("llvm-19.1.7"), "");
  EXPECT_TRUE(ToolchainFits("cl", "cl+maker-1"));
  EXPECT_TRUE(ToolchainFits("cl", "cl"));
  EXPECT_TRUE(ToolchainFits("cl+maker-1", "cl+maker-1"));
  EXPECT_FALSE(ToolchainFits("cl+maker-1", "cl+maker-2"));
  EXPECT_FALSE(ToolchainFits("cl+maker-1", "cl"));
  EXPECT_FALSE(ToolchainFits("cl", "cl2+maker-1"));
}

TEST(TargetText, CanonicalFormAndRefusals) {
  const TargetText target = Value(ParseTargetText("cpu,threads=2,cpu=znver4,arch=x86_64"));
  EXPECT_EQ(target.ToString(), "cpu,arch=x86_64,cpu=znver4,threads=2");
  EXPECT_EQ(target.WithoutThreads(), "cpu,arch=x86_64,cpu=znver4");
  EXPECT_EQ(target.threads(), 2);
  EXPECT_EQ(Value(ParseTargetText("cpu")).threads(), 1);
  EXPECT_FALSE(Value(ParseTargetText("cpu")).driver_compiles());
  EXPECT_TRUE(Value(ParseTargetText("opencl")).driver_compiles());
  EXPECT_EQ(Slug(ParseTargetText("abacus").status()), "target.text.unknown_kind");
  for (const target::Kind& kind : target::Kinds()) {
    EXPECT_EQ(Value(ParseTargetText(kind.name)).kind, kind.name);
  }
  EXPECT_EQ(Slug(ParseTargetText("native,threads=2").status()), "target.text.not_expanded");
  for (const char* bad : {"", "cpu,", "cpu,a", "cpu,a=", "cpu,a=1,a=2", "cpu,threads=0",
                          "cpu,threads=x", "cpu,a=b c", "c pu"}) {
    EXPECT_EQ(Slug(ParseTargetText(bad).status()), "target.text.bad") << bad;
  }
}

}  // namespace
}  // namespace tilewright::log
