#include "tuner_server/log/log_check.h"

#include "deploy/support/strings.h"
#include "tuner_server/log/sqlite_log_impl.h"
#include "tuner_server/log/sqlite_rows.h"

namespace tilewright::log {
namespace {

using sql::Statement;
using support::StrCat;

constexpr size_t kExamplesOfATable = 5;
constexpr size_t kFindings = 20;

// Rows of one text each; an error is one of them.
void Collect(sql::Database* db, std::string_view query, std::vector<std::string>* found) {
  const auto run = [&]() -> absl::Status {
    TW_ASSIGN(Statement statement, db->Prepare(query));
    for (size_t i = 0; i < kFindings; ++i) {
      TW_ASSIGN(const bool more, statement.Step());
      if (!more) break;
      const std::string text = statement.ColumnText(0);
      if (text != "ok") found->push_back(text);
    }
    return absl::OkStatus();
  };
  const absl::Status status = run();
  if (!status.ok()) found->push_back(support::StatusText(status));
}

// Reads every row in the order of the table itself, not of an index that may be damaged.
template <typename Row>
absl::Status ReadTable(sql::Database* db, LogHealth* health) {
  LogHealth::Table& table = health->tables.emplace_back();
  table.name = Table<Row>::kName;
  TW_ASSIGN(Statement count,
            db->Prepare(StrCat("SELECT count(*), ifnull(sum(NOT ", WholeTest<Row>(), "), 0) FROM ",
                               table.name, " NOT INDEXED")));
  TW_TRY(count.Step().status());
  table.rows = count.ColumnInt64(0);
  table.damaged = count.ColumnInt64(1);
  if (table.damaged == 0) return absl::OkStatus();
  TW_ASSIGN(Statement rows,
            db->Prepare(StrCat("SELECT ", Table<Row>::kRow, ", ", Table<Row>::kJob, " FROM ",
                               table.name, " NOT INDEXED WHERE NOT ", WholeTest<Row>())));
  for (size_t i = 0;; ++i) {
    TW_ASSIGN(const bool more, rows.Step());
    if (!more) return absl::OkStatus();
    const std::string job = rows.ColumnText(1);
    if (!job.empty()) ++health->jobs[job];
    if (i >= kExamplesOfATable) continue;
    health->examples.push_back(StrCat(table.name, " ", support::Quote(rows.ColumnText(0), 120)));
  }
}

absl::Status ReadJobs(sql::Database* db, LogHealth* health) {
  TW_ASSIGN(Statement rows, db->Prepare("SELECT id FROM jobs NOT INDEXED"));
  for (;;) {
    TW_ASSIGN(const bool more, rows.Step());
    if (!more) return absl::OkStatus();
    health->jobs.try_emplace(rows.ColumnText(0), 0);
  }
}

}  // namespace

int64_t LogHealth::damaged() const {
  int64_t sum = 0;
  for (const Table& table : tables) sum += table.damaged;
  return sum;
}

absl::StatusOr<LogHealth> CheckLogFile(const std::string& path, CheckDepth depth) {
  TW_ASSIGN(sql::Database db, OpenForReading(path, /*quick_check=*/false));
  LogHealth health;
  const bool fully = depth == CheckDepth::kFully;
  Collect(&db, fully ? "PRAGMA integrity_check(20)" : "PRAGMA quick_check(20)", &health.structure);
  const auto note = [&health](const absl::Status& read) {
    if (!read.ok()) health.structure.push_back(support::StatusText(read));
    return absl::OkStatus();  // what else can be read is read
  };
  TW_TRY(ForEachTable([&]<typename Row>() { return note(ReadTable<Row>(&db, &health)); }));
  TW_TRY(note(ReadJobs(&db, &health)));
  if (fully) {
    Collect(&db,
            "SELECT \"table\" || ' rows whose ' || parent || ' row is missing: ' || count(*) FROM "
            "pragma_foreign_key_check GROUP BY \"table\", parent",
            &health.structure);
  }
  return health;
}

absl::Status RequireWhole(const std::string& path) {
  TW_ASSIGN(const LogHealth health, CheckLogFile(path, CheckDepth::kRows));
  return RequireWhole(health, path);
}

absl::Status RequireWhole(const LogHealth& health, const std::string& path) {
  if (health.whole()) return absl::OkStatus();
  if (!health.structure.empty()) {
    return support::DataLoss("log.check.damaged", StrCat(path, ": ", health.structure.front()));
  }
  return support::DataLoss(
      "log.check.damaged",
      StrCat(path, ": ", health.damaged(), " rows are not as they were written, for instance ",
             support::Join(health.examples, ", ")));
}

}  // namespace tilewright::log
