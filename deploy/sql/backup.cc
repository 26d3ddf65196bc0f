#include "deploy/sql/backup.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <unistd.h>

#include <cerrno>

#include "deploy/sql/database.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::sql {
namespace {

absl::Status CopyAll(Database* source, Database* copy) {
  sqlite3_backup* backup = sqlite3_backup_init(copy->handle(), "main", source->handle(), "main");
  if (backup == nullptr) {
    return support::Internal("sql.backup.failed", sqlite3_errmsg(copy->handle()));
  }
  // All pages in one step: one read transaction, which no writer of a write-ahead log waits for.
  int code = sqlite3_backup_step(backup, -1);
  const int finished = sqlite3_backup_finish(backup);
  if (code == SQLITE_DONE) code = finished;
  if (code == SQLITE_OK) return absl::OkStatus();
  const std::string detail = support::StrCat(source->path(), ": ", sqlite3_errstr(code));
  if ((code & 0xff) == SQLITE_FULL) return support::ResourceExhausted("sql.backup.full", detail);
  if ((code & 0xff) == SQLITE_BUSY) return support::Unavailable("sql.backup.busy", detail);
  if ((code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB) {
    return support::DataLoss("sql.backup.corrupt", detail);
  }
  return support::Internal("sql.backup.failed", detail);
}

absl::Status SyncFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return support::ErrnoError(errno, "sql.backup.failed", path);
  const int result = fsync(fd);
  const int error = errno;
  close(fd);
  return result == 0 ? absl::OkStatus() : support::ErrnoError(error, "sql.backup.failed", path);
}

absl::Status BackupInto(const std::string& path, const std::string& copy) {
  OpenOptions source_options;
  source_options.read_only = true;
  TW_ASSIGN(Database source, Database::Open(path, source_options));
  {
    TW_ASSIGN(Database target, Database::Open(copy));
    TW_TRY(CopyAll(&source, &target));
    TW_TRY(target.Exec("PRAGMA journal_mode = DELETE"));  // one file, until a daemon opens it
  }
  OpenOptions check_options;
  check_options.read_only = true;
  check_options.quick_check = true;
  TW_TRY(Database::Open(copy, check_options).status());
  return SyncFile(copy);
}

}  // namespace

absl::Status BackupDatabase(const std::string& path, const std::string& copy) {
  if (support::FileExists(copy)) {
    return support::AlreadyExists("sql.backup.exists", copy + " is there already");
  }
  const absl::Status status = BackupInto(path, copy);
  if (status.ok()) return status;
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    support::RemoveFile(copy + suffix).IgnoreError();
  }
  return status;
}

}  // namespace tilewright::sql
