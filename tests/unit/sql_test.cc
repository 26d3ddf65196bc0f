#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "deploy/sql/backup.h"
#include "deploy/sql/database.h"
#include "deploy/support/file.h"
#include "deploy/support/shortage.h"
#include "deploy/support/strings.h"
#include "tests/support/small_disk.h"

namespace tilewright::sql {
namespace {

using support::Slug;
using support::StatusText;
using support::TempDir;

constexpr std::array<Migration, 2> kMigrations = {
    Migration{1, "CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)"},
    Migration{2, "ALTER TABLE item ADD COLUMN size INTEGER; CREATE INDEX by_size ON item (size)"}};

class SqlTest : public testing::Test {
 protected:
  Database OpenMigrated(const std::string& path) {
    absl::StatusOr<Database> db = Database::Open(path);
    TW_CHECK(db.ok()) << StatusText(db.status());
    const absl::Status migrated = Migrate(&*db, kMigrations);
    TW_CHECK(migrated.ok()) << StatusText(migrated);
    return *std::move(db);
  }

  TempDir dir_ = *TempDir::Create("sql-test");
  std::string path_ = dir_.File("test.db");
};

TEST_F(SqlTest, EveryTypeRoundTrips) {
  Database db = OpenMigrated(path_);
  ASSERT_TRUE(db.Exec("CREATE TABLE t (a, b, c, d, e)").ok());
  const std::string blob("\0\xff\x01", 3);
  Statement insert = *db.Prepare("INSERT INTO t VALUES (?1, ?2, ?3, ?4, ?5)");
  insert.BindInt64(1, INT64_MIN).BindDouble(2, 0.1).BindText(3, "tëxt").BindBlob(4, blob);
  insert.BindNull(5);
  ASSERT_TRUE(insert.Run().ok());
  insert.BindNull(1).BindText(3, "").BindBlob(4, {}).BindText(5, "x");
  ASSERT_TRUE(insert.Run().ok());
  EXPECT_EQ(db.changes(), 1);

  Statement select = *db.Prepare("SELECT a, b, c, d, e FROM t ORDER BY rowid");
  ASSERT_TRUE(*select.Step());
  EXPECT_EQ(select.column_count(), 5);
  EXPECT_EQ(select.ColumnInt64(0), INT64_MIN);
  EXPECT_EQ(select.ColumnDouble(1), 0.1);
  EXPECT_EQ(select.ColumnText(2), "tëxt");
  EXPECT_EQ(select.ColumnBlob(3), blob);
  EXPECT_TRUE(select.ColumnIsNull(4));
  ASSERT_TRUE(*select.Step());
  EXPECT_TRUE(select.ColumnIsNull(0));
  EXPECT_TRUE(select.ColumnIsNull(1));  // Run cleared the binding of the first round
  EXPECT_FALSE(select.ColumnIsNull(2));
  EXPECT_FALSE(select.ColumnIsNull(3));
  EXPECT_EQ(select.ColumnText(4), "x");
  EXPECT_FALSE(*select.Step());
  EXPECT_TRUE(*select.Step());  // starts again
}

TEST_F(SqlTest, MigratesStepByStepAndRefusesTheFuture) {
  {
    Database db = *Database::Open(path_);
    ASSERT_TRUE(Migrate(&db, std::span(kMigrations).first(1)).ok());
    EXPECT_EQ(*SchemaVersion(&db), 1);
    ASSERT_TRUE(db.Exec("INSERT INTO item (name) VALUES ('kept')").ok());
  }
  Database db = OpenMigrated(path_);
  EXPECT_EQ(*SchemaVersion(&db), 2);
  EXPECT_EQ(*db.QueryInt64("SELECT count(*) FROM item WHERE size IS NULL"), 1);
  ASSERT_TRUE(Migrate(&db, kMigrations).ok());
  const absl::Status newer = Migrate(&db, std::span(kMigrations).first(1));
  EXPECT_EQ(Slug(newer), "sql.migrate.newer");
  EXPECT_EQ(newer.code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SqlTest, FailedMigrationChangesNothing) {
  Database db = *Database::Open(path_);
  const std::array<Migration, 2> broken = {
      kMigrations[0], Migration{2, "CREATE TABLE half (x); CREATE TABLE half (x)"}};
  EXPECT_FALSE(Migrate(&db, broken).ok());
  EXPECT_EQ(*SchemaVersion(&db), 1);
  EXPECT_EQ(*db.QueryInt64("SELECT count(*) FROM sqlite_master WHERE name = 'half'"), 0);
}

TEST_F(SqlTest, TransactionRollsBackUnlessCommitted) {
  Database db = OpenMigrated(path_);
  {
    Transaction transaction = *Transaction::Begin(&db);
    ASSERT_TRUE(db.Exec("INSERT INTO item (name) VALUES ('lost')").ok());
  }
  EXPECT_EQ(*db.QueryInt64("SELECT count(*) FROM item"), 0);
  {
    Transaction transaction = *Transaction::Begin(&db);
    ASSERT_TRUE(db.Exec("INSERT INTO item (name) VALUES ('kept')").ok());
    ASSERT_TRUE(transaction.Commit().ok());
  }
  Database other = OpenMigrated(path_);
  EXPECT_EQ(*other.QueryInt64("SELECT count(*) FROM item"), 1);
}

TEST_F(SqlTest, ErrorsHaveTheirCodes) {
  Database db = OpenMigrated(path_);
  ASSERT_TRUE(db.Exec("INSERT INTO item (name) VALUES ('a')").ok());
  const absl::Status twice = db.Exec("INSERT INTO item (name) VALUES ('a')");
  EXPECT_EQ(twice.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Slug(twice), "sql.exec.constraint");
  EXPECT_THAT(StatusText(twice), testing::HasSubstr("item.name"));
  EXPECT_EQ(Slug(db.Prepare("SELEC 1").status()), "sql.prepare.failed");
  EXPECT_EQ(Slug(db.QueryInt64("SELECT 1 WHERE 0").status()), "sql.step.no_row");
  Statement insert = *db.Prepare("INSERT INTO item (name) VALUES (?1)");
  EXPECT_EQ(Slug(insert.BindText(1, "a").Run()), "sql.step.constraint");
  EXPECT_TRUE(insert.BindText(1, "b").Run().ok());
}

TEST_F(SqlTest, OpenErrors) {
  EXPECT_EQ(Slug(Database::Open(path_, {.read_only = true}).status()), "sql.open.missing");
  EXPECT_FALSE(support::FileExists(path_));
  EXPECT_EQ(Database::Open(dir_.File("none/a.db")).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(support::WriteFileAtomic(path_, std::string(5000, 'x')).ok());
  const absl::Status garbage = Database::Open(path_).status();
  EXPECT_EQ(garbage.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Slug(garbage), "sql.open.corrupt");
}

TEST_F(SqlTest, ReadOnlyRefusesWrites) {
  {
    OpenMigrated(path_);
  }
  Database db = *Database::Open(path_, {.read_only = true});
  EXPECT_EQ(*SchemaVersion(&db), 2);
  const absl::Status refused = db.Exec("INSERT INTO item (name) VALUES ('a')");
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(Slug(refused), "sql.exec.read_only");
}

TEST_F(SqlTest, QuickCheckFindsDamage) {
  {
    Database db = OpenMigrated(path_);
    Statement insert = *db.Prepare("INSERT INTO item (name, size) VALUES (?1, ?2)");
    for (int i = 0; i < 2000; ++i) {
      const std::string name = support::StrCat("item number ", i, std::string(50, 'x'));
      ASSERT_TRUE(insert.BindText(1, name).BindInt64(2, i).Run().ok());
    }
    ASSERT_TRUE(db.Exec("PRAGMA wal_checkpoint(TRUNCATE)").ok());
  }
  EXPECT_TRUE(Database::Open(path_, {.quick_check = true}).ok());
  std::string bytes = *support::ReadFile(path_, 10 << 20);
  for (size_t i = bytes.size() / 2; i < bytes.size() / 2 + 20'000; ++i) bytes[i] ^= 0x5a;
  ASSERT_TRUE(support::WriteFileAtomic(path_, bytes).ok());
  EXPECT_EQ(Slug(Database::Open(path_, {.quick_check = true}).status()), "sql.open.corrupt");
}

TEST_F(SqlTest, SecondWriterWaitsOrIsTold) {
  Database first = OpenMigrated(path_);
  Database second = *Database::Open(path_, {.busy_timeout_ms = 1});
  Transaction transaction = *Transaction::Begin(&first);
  const absl::Status busy = Transaction::Begin(&second).status();
  EXPECT_EQ(Slug(busy), "sql.begin.busy");
  EXPECT_EQ(busy.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(*second.QueryInt64("SELECT count(*) FROM item"), 0);  // readers are not held up
  ASSERT_TRUE(transaction.Commit().ok());
  EXPECT_TRUE(Transaction::Begin(&second).ok());
}

TEST_F(SqlTest, ManyWritersLoseNothing) {
  {
    OpenMigrated(path_);
  }
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&, w] {
      Database db = *Database::Open(path_, {.synchronous_full = false});
      for (int i = 0; i < 50; ++i) {
        Transaction transaction = *Transaction::Begin(&db);
        Statement insert = *db.Prepare("INSERT INTO item (name) VALUES (?1)");
        EXPECT_TRUE(insert.BindText(1, support::StrCat(w, "/", i)).Run().ok());
        EXPECT_TRUE(transaction.Commit().ok());
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(*OpenMigrated(path_).QueryInt64("SELECT count(*) FROM item"), 200);
}

TEST_F(SqlTest, FullDiskIsResourceExhausted) {
  const std::unique_ptr<tests::SmallDisk> disk = tests::SmallDisk::Mount(256 << 10);
  if (disk == nullptr) GTEST_SKIP() << tests::kNoMountSkip;
  Database db = OpenMigrated(support::PathJoin(disk->path(), "a.db"));
  absl::Status status;
  int stored = 0;
  for (; stored < 1000 && status.ok(); ++stored) {
    Statement insert = *db.Prepare("INSERT INTO item (name) VALUES (?1)");
    status = insert.BindText(1, support::StrCat(stored, std::string(4000, 'x'))).Run();
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << StatusText(status);
  EXPECT_EQ(Slug(status), "sql.step.full");
  EXPECT_EQ(support::ShortageOf(status), support::Shortage::kDiskFull);
  EXPECT_EQ(*db.QueryInt64("SELECT count(*) FROM item"), stored - 1);
}

TEST_F(SqlTest, ABackupIsOneMomentOfADatabaseThatIsWrittenTo) {
  Database db = OpenMigrated(path_);
  std::atomic<bool> stop{false};
  std::atomic<int64_t> committed{0};
  // Two rows per transaction: a copy with an odd number has half of one.
  std::thread writer([&] {
    for (int64_t i = 0; !stop.load(); ++i) {
      absl::StatusOr<Transaction> transaction = Transaction::Begin(&db);
      TW_CHECK(transaction.ok());
      for (const char* half : {"a", "b"}) {
        TW_CHECK(db.Exec(support::StrCat("INSERT INTO item (name) VALUES ('", half, i, "')")).ok());
      }
      TW_CHECK(transaction->Commit().ok());
      committed.fetch_add(2);
    }
  });
  for (int i = 0; i < 20; ++i) {
    const std::string copy = dir_.File(support::StrCat("copy", i));
    const int64_t before = committed.load();
    const absl::Status status = BackupDatabase(path_, copy);
    ASSERT_TRUE(status.ok()) << status;
    OpenOptions options;
    options.read_only = true;
    absl::StatusOr<Database> opened = Database::Open(copy, options);
    ASSERT_TRUE(opened.ok()) << opened.status();
    const int64_t rows = *opened->QueryInt64("SELECT count(*) FROM item");
    EXPECT_EQ(rows % 2, 0);
    EXPECT_GE(rows, before) << "what was committed before";
    EXPECT_FALSE(support::FileExists(copy + "-wal")) << "one file";
  }
  stop = true;
  writer.join();
  EXPECT_EQ(Slug(BackupDatabase(path_, dir_.File("copy0"))), "sql.backup.exists");
  EXPECT_EQ(Slug(BackupDatabase(dir_.File("nothing"), dir_.File("x"))), "sql.open.missing");
  EXPECT_FALSE(support::FileExists(dir_.File("x")));
  ASSERT_TRUE(support::WriteFileAtomic(dir_.File("noise"), std::string(8192, 'x')).ok());
  EXPECT_EQ(Slug(BackupDatabase(dir_.File("noise"), dir_.File("x"))), "sql.backup.corrupt");
  EXPECT_FALSE(support::FileExists(dir_.File("x")));
}

}  // namespace
}  // namespace tilewright::sql
