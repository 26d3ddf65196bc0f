#include "tuner_server/log/sqlite_log.h"

#include <optional>
#include <utility>

#include "deploy/sql/row_checksum.h"
#include "tuner_server/log/migrations.h"
#include "tuner_server/log/row_seals.h"
#include "tuner_server/log/sqlite_log_impl.h"
#include "tuner_server/log/task_renames.h"

namespace tilewright::log {

absl::Status CommitBetween(support::Failpoint before, sql::Transaction* transaction,
                           support::Failpoint after) {
  support::HitFailpoint(before);
  TW_TRY(transaction->Commit());
  support::HitFailpoint(after);
  return absl::OkStatus();
}

namespace {

absl::StatusOr<support::FileLock> LockLog(const std::string& path) {
  constexpr int64_t kPatienceMs = 3'000;
  auto lock = support::FileLock::LockContent(path, kPatienceMs);
  if (!absl::IsUnavailable(lock.status())) return lock;
  return support::Unavailable("log.open.in_use", "another process writes to " + path);
}

}  // namespace

absl::Status CheckLogIsFree(const std::string& path) {
  return support::FileExists(path) ? LockLog(path).status() : absl::OkStatus();
}

absl::StatusOr<sql::Database> OpenForReading(const std::string& path, bool quick_check) {
  sql::OpenOptions open;
  open.read_only = true;
  open.quick_check = quick_check;
  TW_ASSIGN(sql::Database db, sql::Database::Open(path, open));
  const int newest = TuningLogMigrations().back().version;
  TW_ASSIGN(const int version, sql::SchemaVersion(&db));
  if (version != newest) {
    return support::FailedPrecondition(
        "log.open.version",
        support::StrCat("expected schema version ", newest, ", found ", version));
  }
  TW_TRY(sql::AddRowChecksum(&db));
  TW_ASSIGN(const bool sealed, AllSealed(&db));
  if (sealed) return db;
  return support::FailedPrecondition("log.open.version",
                                     "expected checksums of this version, found older ones");
}

namespace {

absl::StatusOr<sql::Database> OpenForWriting(const std::string& path, bool quick_check) {
  sql::OpenOptions open;
  open.quick_check = quick_check;
  TW_ASSIGN(sql::Database db, sql::Database::Open(path, open));
  TW_TRY(sql::AddRowChecksum(&db));
  TW_TRY(sql::Migrate(&db, TuningLogMigrations()));
  TW_TRY(SealRows(&db));
  TW_TRY(RenameTasks(&db));
  support::HitFailpoint(support::Failpoint::tuner_log_opened);
  return db;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TuningLog>> OpenSqliteLog(const std::string& path,
                                                         const SqliteLogOptions& options) {
  if (options.read_only) {
    TW_ASSIGN(sql::Database db, OpenForReading(path, options.quick_check));
    return std::unique_ptr<TuningLog>(
        std::make_unique<SqliteLog>(std::nullopt, std::move(db), options.whole_rows_only));
  }
  TW_ASSIGN(support::FileLock lock, LockLog(path));
  TW_ASSIGN(sql::Database db, OpenForWriting(path, options.quick_check));
  return std::unique_ptr<TuningLog>(
      std::make_unique<SqliteLog>(std::move(lock), std::move(db), /*whole_rows_only=*/false));
}

}  // namespace tilewright::log
