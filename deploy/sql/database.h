// RAII over SQLite: connections, statements, transactions, numbered migrations. One connection and
// its statements belong to one thread at a time (SQLite is opened without its own connection
// mutex). Several connections and processes may use one file at the same time (write-ahead log,
// busy timeout).
//
// Errors are sql.<what>.<reason>; <what> is open, prepare, step, exec, begin, commit or migrate:
//   resource_exhausted   .full        the disk is full
//   failed_precondition  .read_only   the file or its folder is read-only
//   data_loss            .corrupt     the file is damaged
//   unavailable          .busy        no lock within the busy timeout
//   already_exists       .constraint  a violated uniqueness or other constraint
//   internal             .failed      anything else
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "deploy/support/status.h"

struct sqlite3;
struct sqlite3_stmt;

namespace tilewright::sql {

struct OpenOptions {
  bool read_only = false;  // the file must exist; not_found (sql.open.missing) when it does not
  bool create = true;      // create the file if missing
  // FULL: a commit survives power loss; wherever an acknowledgement follows a commit. Off: NORMAL,
  // for caches that can be rebuilt.
  bool synchronous_full = true;
  int busy_timeout_ms = 30'000;
  bool quick_check = false;  // PRAGMA quick_check at open: data_loss when it finds damage
};

class Statement;
class IdleStatements;

// Keeps statements that were used, so that the same text is compiled once.
class Database {
 public:
  // ":memory:" opens a private database in memory.
  static absl::StatusOr<Database> Open(const std::string& path, const OpenOptions& options = {});

  Database(Database&&) noexcept;
  Database& operator=(Database&&) noexcept;
  ~Database();

  // Runs one or more statements that return no rows.
  absl::Status Exec(std::string_view sql);
  absl::StatusOr<Statement> Prepare(std::string_view sql);
  // The first column of the first row as an integer; not_found (sql.step.no_row) without a row.
  absl::StatusOr<int64_t> QueryInt64(std::string_view sql);

  // Rows changed by the most recent INSERT, UPDATE or DELETE.
  int64_t changes() const;
  const std::string& path() const { return path_; }
  // For what this wrapper lacks (backup, limits). The Database keeps ownership.
  sqlite3* handle() const { return db_; }

 private:
  friend class Statement;
  friend class Transaction;
  Database(sqlite3* db, std::string path);

  sqlite3* db_ = nullptr;
  std::string path_;
  std::shared_ptr<IdleStatements> idle_;
};

// A prepared statement, usable many times. REQUIRES: the Database outlives it.
//
// Bind positions are ?1, ?2, ... from 1, columns from 0. A bind error (position out of range) is a
// bug and aborts; text and blobs are copied.
class Statement {
 public:
  Statement(Statement&&) noexcept;
  Statement& operator=(Statement&&) noexcept;
  ~Statement();

  Statement& BindInt64(int position, int64_t value);
  Statement& BindDouble(int position, double value);
  Statement& BindText(int position, std::string_view value);
  Statement& BindBlob(int position, std::string_view value);
  Statement& BindNull(int position);

  // True: a row is ready in the columns. False: the statement is finished (and reset, bindings
  // kept).
  absl::StatusOr<bool> Step();
  // Runs a statement that returns no rows, then resets it and clears the bindings.
  absl::Status Run();
  // Back to before the first row, bindings cleared. Step calls on its own at the end of rows.
  void Reset();

  int column_count() const;
  bool ColumnIsNull(int column) const;
  int64_t ColumnInt64(int column) const;
  double ColumnDouble(int column) const;
  std::string ColumnText(int column) const;
  std::string ColumnBlob(int column) const;
  // The same bytes as ColumnText without a copy, until the next Step or Reset.
  std::string_view ColumnView(int column) const;

 private:
  friend class Database;
  Statement(sqlite3_stmt* statement, std::shared_ptr<IdleStatements> idle);

  sqlite3_stmt* statement_ = nullptr;
  std::shared_ptr<IdleStatements> idle_;  // where it goes after its use
};

// BEGIN IMMEDIATE ... COMMIT; rolls back on destruction unless committed. Does not nest.
// REQUIRES: the Database is not moved meanwhile.
class Transaction {
 public:
  static absl::StatusOr<Transaction> Begin(Database* db);
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();

  // After an error the transaction is rolled back.
  absl::Status Commit();

 private:
  explicit Transaction(Database* db) : db_(db) {}
  Database* db_ = nullptr;  // null: committed, rolled back or moved from
};

struct Migration {
  int version;  // 1, 2, 3, ... without gaps
  std::string_view sql;
};

// Brings the schema to the last migration's version, each step in a transaction of its own together
// with PRAGMA user_version. failed_precondition (sql.migrate.newer) when the file has a newer
// version than the program knows. REQUIRES: versions are 1, 2, 3, ...
absl::Status Migrate(Database* db, std::span<const Migration> migrations);

absl::StatusOr<int> SchemaVersion(Database* db);

}  // namespace tilewright::sql
