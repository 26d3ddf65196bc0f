#include "tuner_server/log/row_seals.h"

#include "tuner_server/log/sqlite_rows.h"

namespace tilewright::log {
namespace {

using sql::Statement;
using support::StrCat;

// The columns that checksums of the table are about; empty: it has none.
absl::StatusOr<std::string> ColumnsOf(sql::Database* db, std::string_view table) {
  TW_ASSIGN(Statement find, db->Prepare("SELECT columns FROM sealed_tables WHERE name = ?1"));
  find.BindText(1, table);
  TW_ASSIGN(const bool found, find.Step());
  return found ? find.ColumnText(0) : std::string();
}

template <typename Row>
absl::Status SealTable(sql::Database* db) {
  const std::string_view table = Table<Row>::kName;
  TW_ASSIGN(const std::string before, ColumnsOf(db, table));
  const std::string now = SealedColumns<Row>();
  if (before == now) return absl::OkStatus();
  TW_TRY(db->Exec(StrCat("UPDATE ", table, " SET checksum = row_checksum(", now, ")",
                         before.empty() ? "" : " WHERE checksum = row_checksum(" + before + ")")));
  TW_ASSIGN(Statement set,
            db->Prepare("INSERT OR REPLACE INTO sealed_tables (name, columns) VALUES (?1, ?2)"));
  return set.BindText(1, table).BindText(2, now).Run();
}

}  // namespace

absl::StatusOr<bool> AllSealed(sql::Database* db) {
  bool all = true;
  TW_TRY(ForEachTable([&]<typename Row>() -> absl::Status {
    TW_ASSIGN(const std::string columns, ColumnsOf(db, Table<Row>::kName));
    all = all && columns == SealedColumns<Row>();
    return absl::OkStatus();
  }));
  return all;
}

absl::Status SealRows(sql::Database* db) {
  TW_ASSIGN(const bool all, AllSealed(db));
  if (all) return absl::OkStatus();
  TW_ASSIGN(sql::Transaction transaction, sql::Transaction::Begin(db));
  TW_TRY(ForEachTable([&]<typename Row>() { return SealTable<Row>(db); }));
  return transaction.Commit();
}

}  // namespace tilewright::log
