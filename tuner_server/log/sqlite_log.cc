#include "tuner_server/log/sqlite_log.h"

#include <utility>

#include "tuner_server/log/migrations.h"
#include "tuner_server/log/sqlite_log_impl.h"

namespace tilewright::log {

absl::Status CommitBetween(support::Failpoint before, sql::Transaction* transaction,
                           support::Failpoint after) {
  support::HitFailpoint(before);
  TW_TRY(transaction->Commit());
  support::HitFailpoint(after);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TuningLog>> OpenSqliteLog(const std::string& path,
                                                         const SqliteLogOptions& options) {
  sql::OpenOptions open;
  open.read_only = options.read_only;
  open.create = !options.read_only;
  open.quick_check = options.quick_check;
  TW_ASSIGN(sql::Database db, sql::Database::Open(path, open));
  const int newest = TuningLogMigrations().back().version;
  if (!options.read_only) {
    TW_TRY(sql::Migrate(&db, TuningLogMigrations()));
    support::HitFailpoint(support::Failpoint::tuner_log_opened);
  } else {
    TW_ASSIGN(const int version, sql::SchemaVersion(&db));
    if (version != newest) {
      return support::FailedPrecondition(
          "log.open.version",
          support::StrCat("expected schema version ", newest, ", found ", version));
    }
  }
  return std::unique_ptr<TuningLog>(std::make_unique<SqliteLog>(std::move(db)));
}

}  // namespace tilewright::log
