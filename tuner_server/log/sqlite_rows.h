// Rows of the tuning log to and from SQLite, driven by the field lists of row_fields.h. Internal to
// tuner_server/log. A value type per statement; same thread rules as sql::Statement.
#pragma once

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/sql/database.h"
#include "deploy/support/strings.h"
#include "tuner_server/log/row_fields.h"

namespace tilewright::log {

// "id, number, uid"
template <typename Row>
std::string ColumnList() {
  std::string columns;
  Row row;
  ForEachField(row, [&columns](std::string_view name, const auto&) {
    if (!columns.empty()) columns += ", ";
    columns += name;
  });
  return columns;
}

// Binds the next position on each call.
class FieldBinder {
 public:
  explicit FieldBinder(sql::Statement* statement) : statement_(statement) {}

  void operator()(std::string_view, const std::string& v) { statement_->BindText(++at_, v); }
  void operator()(std::string_view, int64_t v) { statement_->BindInt64(++at_, v); }
  void operator()(std::string_view, uint64_t v) {
    statement_->BindInt64(++at_, static_cast<int64_t>(v));
  }
  void operator()(std::string_view, bool v) { statement_->BindInt64(++at_, v ? 1 : 0); }
  void operator()(std::string_view, double v) { statement_->BindDouble(++at_, v); }
  void operator()(std::string_view, JobState v) { statement_->BindText(++at_, JobStateName(v)); }
  void operator()(std::string_view, TrialState v) {
    statement_->BindText(++at_, TrialStateName(v));
  }
  void operator()(std::string_view, Outcome v) { statement_->BindText(++at_, OutcomeName(v)); }
  void operator()(std::string_view, const std::vector<float>& v) { BindRaw(v); }
  void operator()(std::string_view, const std::vector<double>& v) { BindRaw(v); }
  void operator()(std::string_view, const std::vector<std::string>& v) {
    statement_->BindText(++at_, support::Join(v, " "));
  }
  // Opaque bytes that happen to be kept in a std::string.
  void BindBytes(const std::string& v) { statement_->BindBlob(++at_, v); }

 private:
  template <typename T>
  void BindRaw(const std::vector<T>& v) {
    statement_->BindBlob(
        ++at_, std::string_view(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)));
  }

  sql::Statement* statement_;
  int at_ = 0;
};

// The columns that hold bytes rather than text although their field is a std::string.
inline bool IsBytesColumn(std::string_view name) { return name == "bytes" || name == "work_spec"; }

// Reads the next column on each call; remembers whether a stored word was unknown.
class FieldReader {
 public:
  FieldReader(const sql::Statement& statement, int first) : statement_(statement), at_(first) {}

  void operator()(std::string_view name, std::string& v) {
    v = IsBytesColumn(name) ? statement_.ColumnBlob(at_) : statement_.ColumnText(at_);
    ++at_;
  }
  void operator()(std::string_view, int64_t& v) { v = statement_.ColumnInt64(at_++); }
  void operator()(std::string_view, uint64_t& v) {
    v = static_cast<uint64_t>(statement_.ColumnInt64(at_++));
  }
  void operator()(std::string_view, bool& v) { v = statement_.ColumnInt64(at_++) != 0; }
  void operator()(std::string_view, double& v) { v = statement_.ColumnDouble(at_++); }
  void operator()(std::string_view, JobState& v) { ReadWord(v, ParseJobState); }
  void operator()(std::string_view, TrialState& v) { ReadWord(v, ParseTrialState); }
  void operator()(std::string_view, Outcome& v) { ReadWord(v, ParseOutcome); }
  void operator()(std::string_view, std::vector<float>& v) { ReadRaw(v); }
  void operator()(std::string_view, std::vector<double>& v) { ReadRaw(v); }
  void operator()(std::string_view, std::vector<std::string>& v) {
    const std::string text = statement_.ColumnText(at_++);
    v = text.empty() ? std::vector<std::string>{} : support::Split(text, ' ');
  }
  const std::string& bad_word() const { return bad_word_; }
  int next() const { return at_; }

 private:
  template <typename Enum, typename ParseFn>
  void ReadWord(Enum& v, ParseFn parse) {
    const std::string text = statement_.ColumnText(at_++);
    const auto parsed = parse(text);
    if (parsed) {
      v = *parsed;
    } else {
      bad_word_ = text;
    }
  }
  template <typename T>
  void ReadRaw(std::vector<T>& v) {
    const std::string bytes = statement_.ColumnBlob(at_++);
    v.resize(bytes.size() / sizeof(T));
    if (!v.empty()) std::memcpy(v.data(), bytes.data(), v.size() * sizeof(T));
  }

  const sql::Statement& statement_;
  int at_;
  std::string bad_word_;
};

// The row that starts at column `first`.
template <typename Row>
absl::StatusOr<Row> ReadRow(const sql::Statement& statement, int first = 0) {
  Row row;
  FieldReader reader(statement, first);
  ForEachField(row, reader);
  if (!reader.bad_word().empty()) {
    return support::DataLoss("log.row.bad_word", support::Quote(reader.bad_word()));
  }
  return row;
}

// All rows of a statement whose columns are ColumnList<Row>().
template <typename Row>
absl::StatusOr<std::vector<Row>> ReadRows(sql::Statement* statement) {
  std::vector<Row> rows;
  for (;;) {
    TW_ASSIGN(const bool more, statement->Step());
    if (!more) return rows;
    TW_ASSIGN(Row row, ReadRow<Row>(*statement));
    rows.push_back(std::move(row));
  }
}

// The only row; not_found log.<what>.not_found without one.
template <typename Row>
absl::StatusOr<Row> ReadOne(sql::Statement* statement, std::string_view what,
                            std::string_view name) {
  TW_ASSIGN(std::vector<Row> rows, ReadRows<Row>(statement));
  if (rows.empty()) {
    return support::NotFound(support::StrCat("log.", what, ".not_found"), support::Quote(name));
  }
  return std::move(rows.front());
}

// INSERT <verb> INTO table: one prepared statement for many rows.
template <typename Row>
class RowInserter {
 public:
  static absl::StatusOr<RowInserter> Prepare(sql::Database* db, std::string_view table,
                                             std::string_view verb = "") {
    std::string marks;
    int count = 0;
    Row row;
    ForEachField(row, [&](std::string_view, const auto&) { marks += count++ == 0 ? "?" : ", ?"; });
    TW_ASSIGN(sql::Statement statement,
              db->Prepare(support::StrCat("INSERT ", verb, " INTO ", table, " (", ColumnList<Row>(),
                                          ") VALUES (", marks, ")")));
    return RowInserter(std::move(statement));
  }

  absl::Status Run(const Row& row) {
    FieldBinder binder(&statement_);
    ForEachField(row, [&binder](std::string_view name, const auto& value) {
      if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
        if (IsBytesColumn(name)) {
          binder.BindBytes(value);
          return;
        }
      }
      binder(name, value);
    });
    return statement_.Run();
  }

 private:
  explicit RowInserter(sql::Statement statement) : statement_(std::move(statement)) {}
  sql::Statement statement_;
};

}  // namespace tilewright::log
