#include "deploy/sql/database.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>

#include <map>
#include <utility>
#include <vector>

#include "deploy/support/file.h"
#include "deploy/support/shortage.h"
#include "deploy/support/strings.h"

namespace tilewright::sql {
namespace {

using support::MakeError;
using support::Shortage;
using support::StrCat;

// The error of an SQLite result code; `what` is the second part of the slug.
absl::Status SqliteError(int code, std::string_view what, std::string_view detail,
                         int system_error = 0) {
  const auto error = [&](absl::StatusCode status_code, std::string_view reason,
                         Shortage shortage = Shortage::kNone) {
    return support::MarkShortage(MakeError(status_code, StrCat("sql.", what, ".", reason),
                                           StrCat(detail, ": ", sqlite3_errstr(code))),
                                 shortage);
  };
  const Shortage of_system = support::ShortageOfErrno(system_error);
  switch (code & 0xff) {
    case SQLITE_FULL:
      return error(absl::StatusCode::kResourceExhausted, "full", Shortage::kDiskFull);
    case SQLITE_NOMEM:
      return error(absl::StatusCode::kResourceExhausted, "memory", Shortage::kMemory);
    case SQLITE_READONLY:
      return error(absl::StatusCode::kFailedPrecondition, "read_only", Shortage::kDiskReadOnly);
    case SQLITE_PERM:
      return error(absl::StatusCode::kFailedPrecondition, "read_only");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return error(absl::StatusCode::kDataLoss, "corrupt");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return error(absl::StatusCode::kUnavailable, "busy", Shortage::kBusy);
    case SQLITE_CONSTRAINT:
      return error(absl::StatusCode::kAlreadyExists, "constraint");
    case SQLITE_IOERR:  // a disk in trouble: it may be mended when the caller tries again
      if (system_error == EROFS || system_error == ENOSPC || system_error == EDQUOT) {
        return error(absl::StatusCode::kResourceExhausted, "full", of_system);
      }
      return error(absl::StatusCode::kUnavailable, "io",
                   of_system == Shortage::kNone ? Shortage::kDiskFailing : of_system);
    case SQLITE_CANTOPEN:
      // Of an open database it is a file of SQLite's own: the disk is read-only, say. SQLite does
      // not always keep the system's error.
      return error(
          absl::StatusCode::kFailedPrecondition, "cannot_open",
          of_system == Shortage::kNone && what != "open" ? Shortage::kDiskFailing : of_system);
    default:
      return error(absl::StatusCode::kInternal, "failed");
  }
}

absl::Status DatabaseError(sqlite3* db, int code, std::string_view what) {
  const char* file = sqlite3_db_filename(db, "main");
  const char* message = sqlite3_errmsg(db);
  const int system_error = sqlite3_system_errno(db);
  const bool from_system = (code & 0xff) == SQLITE_IOERR && system_error != 0;
  return SqliteError(
      sqlite3_extended_errcode(db) == SQLITE_OK ? code : sqlite3_extended_errcode(db), what,
      StrCat(file == nullptr ? "" : file, ": ", message,
             from_system ? StrCat(" (", strerror(system_error), ")") : ""),
      system_error);
}

absl::Status QuickCheck(Database* db) {
  TW_ASSIGN(Statement check, db->Prepare("PRAGMA quick_check(1)"));
  TW_ASSIGN(const bool row, check.Step());
  const std::string answer = row ? check.ColumnText(0) : "no answer";
  if (answer == "ok") return absl::OkStatus();
  return support::DataLoss("sql.open.corrupt", StrCat(db->path(), ": ", answer));
}

absl::Status Configure(Database* db, const OpenOptions& options) {
  TW_TRY(db->Exec("PRAGMA foreign_keys = ON"));
  if (!options.read_only && db->path() != ":memory:") {
    TW_TRY(db->Exec("PRAGMA journal_mode = WAL"));
    TW_TRY(db->Exec(options.synchronous_full ? "PRAGMA synchronous = FULL"
                                             : "PRAGMA synchronous = NORMAL"));
  }
  return options.quick_check ? QuickCheck(db) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<Database> Database::Open(const std::string& path, const OpenOptions& options) {
  if (options.read_only && path != ":memory:" && !support::FileExists(path)) {
    return support::NotFound("sql.open.missing", StrCat("expected a database file ", path));
  }
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  flags |= options.read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE;
  if (options.create && !options.read_only) flags |= SQLITE_OPEN_CREATE;
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &handle, flags, nullptr);
  if (code != SQLITE_OK) {
    const int system_error = handle == nullptr ? 0 : sqlite3_system_errno(handle);
    sqlite3_close_v2(handle);
    return SqliteError(code, "open", path, system_error);
  }
  Database db(handle, path);
  sqlite3_busy_timeout(handle, options.busy_timeout_ms);
  absl::Status configured = Configure(&db, options);
  if (!configured.ok()) {
    // Whatever statement noticed it: to the caller the file could not be opened.
    const std::vector<std::string> parts = support::Split(support::Slug(configured), '.');
    return support::CopyShortage(configured,
                                 MakeError(configured.code(), StrCat("sql.open.", parts.back()),
                                           support::Detail(configured)));
  }
  return db;
}

// Compiled statements that nobody uses at the moment, by their text.
class IdleStatements {
 public:
  ~IdleStatements() { Close(); }

  // The statement as after its compilation; null if there is none.
  sqlite3_stmt* Take(std::string_view sql) {
    const auto it = by_text_.find(sql);
    if (it == by_text_.end()) return nullptr;
    sqlite3_stmt* statement = it->second;
    by_text_.erase(it);
    return statement;
  }

  void Give(sqlite3_stmt* statement) {
    // Compiling a pragma may be what it does.
    const std::string_view sql = sqlite3_sql(statement);
    if (closed_ || by_text_.size() >= kMost || sql.starts_with("PRAGMA")) {
      sqlite3_finalize(statement);
      return;
    }
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    by_text_.emplace(sql, statement);
  }

  void Close() {
    closed_ = true;
    for (const auto& [text, statement] : by_text_) sqlite3_finalize(statement);
    by_text_.clear();
  }

 private:
  static constexpr size_t kMost = 64;
  std::multimap<std::string, sqlite3_stmt*, std::less<>> by_text_;
  bool closed_ = false;
};

Database::Database(sqlite3* db, std::string path)
    : db_(db), path_(std::move(path)), idle_(std::make_shared<IdleStatements>()) {}

Database::Database(Database&& other) noexcept
    : db_(std::exchange(other.db_, nullptr)),
      path_(std::move(other.path_)),
      idle_(std::move(other.idle_)) {}

Database& Database::operator=(Database&& other) noexcept {
  std::swap(db_, other.db_);
  std::swap(path_, other.path_);
  std::swap(idle_, other.idle_);
  return *this;
}

Database::~Database() {
  if (idle_ != nullptr) idle_->Close();
  // The v2 form waits for statements that still live instead of failing.
  if (db_ != nullptr) sqlite3_close_v2(db_);
}

absl::Status Database::Exec(std::string_view sql) {
  const std::string text(sql);
  const int code = sqlite3_exec(db_, text.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return DatabaseError(db_, code, "exec");
  return absl::OkStatus();
}

absl::StatusOr<Statement> Database::Prepare(std::string_view sql) {
  if (sqlite3_stmt* known = idle_->Take(sql)) return Statement(known, idle_);
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(db_, sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) return DatabaseError(db_, code, "prepare");
  TW_CHECK(statement != nullptr) << "an empty statement: " << sql;
  return Statement(statement, idle_);
}

absl::StatusOr<int64_t> Database::QueryInt64(std::string_view sql) {
  TW_ASSIGN(Statement statement, Prepare(sql));
  TW_ASSIGN(const bool row, statement.Step());
  if (!row) return support::NotFound("sql.step.no_row", StrCat("expected a row: ", sql));
  return statement.ColumnInt64(0);
}

int64_t Database::changes() const { return sqlite3_changes64(db_); }

Statement::Statement(sqlite3_stmt* statement, std::shared_ptr<IdleStatements> idle)
    : statement_(statement), idle_(std::move(idle)) {}

Statement::Statement(Statement&& other) noexcept
    : statement_(std::exchange(other.statement_, nullptr)), idle_(std::move(other.idle_)) {}

Statement& Statement::operator=(Statement&& other) noexcept {
  std::swap(statement_, other.statement_);
  std::swap(idle_, other.idle_);
  return *this;
}

Statement::~Statement() {
  if (statement_ != nullptr) idle_->Give(statement_);
}

namespace {

void CheckBind(int code, sqlite3_stmt* statement, int position) {
  TW_CHECK(code == SQLITE_OK) << "bind ?" << position << " of " << sqlite3_sql(statement) << ": "
                              << sqlite3_errstr(code);
}

}  // namespace

Statement& Statement::BindInt64(int position, int64_t value) {
  CheckBind(sqlite3_bind_int64(statement_, position, value), statement_, position);
  return *this;
}

Statement& Statement::BindDouble(int position, double value) {
  CheckBind(sqlite3_bind_double(statement_, position, value), statement_, position);
  return *this;
}

Statement& Statement::BindText(int position, std::string_view value) {
  // A null pointer would bind NULL instead of the empty text.
  const char* data = value.data() == nullptr ? "" : value.data();
  CheckBind(
      sqlite3_bind_text64(statement_, position, data, value.size(), SQLITE_TRANSIENT, SQLITE_UTF8),
      statement_, position);
  return *this;
}

Statement& Statement::BindBlob(int position, std::string_view value) {
  const char* data = value.data() == nullptr ? "" : value.data();
  CheckBind(sqlite3_bind_blob64(statement_, position, data, value.size(), SQLITE_TRANSIENT),
            statement_, position);
  return *this;
}

Statement& Statement::BindNull(int position) {
  CheckBind(sqlite3_bind_null(statement_, position), statement_, position);
  return *this;
}

absl::StatusOr<bool> Statement::Step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) {
    sqlite3_reset(statement_);
    return false;
  }
  absl::Status error = DatabaseError(sqlite3_db_handle(statement_), code, "step");
  sqlite3_reset(statement_);
  return error;
}

absl::Status Statement::Run() {
  absl::StatusOr<bool> row = Step();
  const char* sql = sqlite3_sql(statement_);
  Reset();
  if (!row.ok()) return row.status();
  TW_CHECK(!*row) << "a statement for Run returned a row: " << sql;
  return absl::OkStatus();
}

void Statement::Reset() {
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

int Statement::column_count() const { return sqlite3_column_count(statement_); }

bool Statement::ColumnIsNull(int column) const {
  return sqlite3_column_type(statement_, column) == SQLITE_NULL;
}

int64_t Statement::ColumnInt64(int column) const {
  return sqlite3_column_int64(statement_, column);
}

double Statement::ColumnDouble(int column) const {
  return sqlite3_column_double(statement_, column);
}

std::string_view Statement::ColumnView(int column) const {
  // The text first: asking for the length may convert the value.
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  const int bytes = sqlite3_column_bytes(statement_, column);
  return text == nullptr ? std::string_view() : std::string_view(text, static_cast<size_t>(bytes));
}

std::string Statement::ColumnText(int column) const { return std::string(ColumnView(column)); }

std::string Statement::ColumnBlob(int column) const {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(statement_, column));
  const int bytes = sqlite3_column_bytes(statement_, column);
  return data == nullptr ? std::string() : std::string(data, static_cast<size_t>(bytes));
}

absl::StatusOr<Transaction> Transaction::Begin(Database* db) {
  const int code = sqlite3_exec(db->handle(), "BEGIN IMMEDIATE", nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return DatabaseError(db->handle(), code, "begin");
  return Transaction(db);
}

Transaction::Transaction(Transaction&& other) noexcept : db_(std::exchange(other.db_, nullptr)) {}

Transaction::~Transaction() {
  // After some errors SQLite has rolled back already; then this fails, and that is fine.
  if (db_ != nullptr) sqlite3_exec(db_->handle(), "ROLLBACK", nullptr, nullptr, nullptr);
}

absl::Status Transaction::Commit() {
  TW_CHECK(db_ != nullptr) << "committed twice";
  Database* db = std::exchange(db_, nullptr);
  const int code = sqlite3_exec(db->handle(), "COMMIT", nullptr, nullptr, nullptr);
  if (code == SQLITE_OK) return absl::OkStatus();
  absl::Status error = DatabaseError(db->handle(), code, "commit");
  sqlite3_exec(db->handle(), "ROLLBACK", nullptr, nullptr, nullptr);
  return error;
}

absl::StatusOr<int> SchemaVersion(Database* db) {
  TW_ASSIGN(const int64_t version, db->QueryInt64("PRAGMA user_version"));
  return static_cast<int>(version);
}

namespace {

// The version is read again inside the transaction: another process may have migrated meanwhile.
absl::Status ApplyMigration(Database* db, const Migration& migration) {
  TW_ASSIGN(Transaction transaction, Transaction::Begin(db));
  TW_ASSIGN(const int version, SchemaVersion(db));
  if (version >= migration.version) return absl::OkStatus();
  TW_TRY(db->Exec(migration.sql));
  TW_TRY(db->Exec(StrCat("PRAGMA user_version = ", migration.version)));
  return transaction.Commit();
}

}  // namespace

absl::Status Migrate(Database* db, std::span<const Migration> migrations) {
  for (size_t i = 0; i < migrations.size(); ++i) {
    TW_CHECK(migrations[i].version == static_cast<int>(i) + 1)
        << "migration " << i << " has version " << migrations[i].version;
  }
  TW_ASSIGN(const int found, SchemaVersion(db));
  const int known = static_cast<int>(migrations.size());
  if (found > known) {
    return support::FailedPrecondition(
        "sql.migrate.newer", StrCat(db->path(), ": expected schema version at most ", known,
                                    ", found ", found, ", written by a newer program"));
  }
  for (int version = found; version < known; ++version) {
    absl::Status applied = ApplyMigration(db, migrations[static_cast<size_t>(version)]);
    if (!applied.ok()) {
      return support::WithContext(applied, StrCat("migration ", version + 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace tilewright::sql
