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
const std::string& ColumnList() {
  static const std::string* const list = [] {
    auto* columns = new std::string();
    Row row;
    ForEachField(row, [columns](std::string_view name, const auto&) {
      if (!columns->empty()) *columns += ", ";
      *columns += name;
    });
    return columns;
  }();
  return *list;
}

// A table of the log: its name, SQL that names a row of it and the row's job for people, and the
// column that the log itself gives after the insertion, 0 until then.
template <typename Row>
struct Table;

struct AnyTable {
  static constexpr std::string_view kGiven = "";
};
template <>
struct Table<JobRow> : AnyTable {
  static constexpr std::string_view kName = "jobs";
  static constexpr std::string_view kRow = "id";
  static constexpr std::string_view kJob = "id";
};
template <>
struct Table<TaskRow> : AnyTable {
  static constexpr std::string_view kName = "tasks";
  static constexpr std::string_view kRow = "job || '/' || name";
  static constexpr std::string_view kJob = "job";
};
template <>
struct Table<BatchRow> : AnyTable {
  static constexpr std::string_view kName = "batches";
  static constexpr std::string_view kRow = "id";
  static constexpr std::string_view kJob = "job";
};
template <>
struct Table<DraftRow> : AnyTable {
  static constexpr std::string_view kName = "drafts";
  static constexpr std::string_view kRow = "batch || ' rank ' || rank";
  static constexpr std::string_view kJob = "(SELECT job FROM batches WHERE id = batch)";
};
template <>
struct Table<TrialRow> : AnyTable {
  static constexpr std::string_view kName = "trials";
  static constexpr std::string_view kRow = "job || '/' || number";
  static constexpr std::string_view kJob = "job";
};
template <>
struct Table<RecordRow> : AnyTable {
  static constexpr std::string_view kName = "records";
  static constexpr std::string_view kRow = "measurement_id";
  static constexpr std::string_view kJob = "job";
  static constexpr std::string_view kGiven = "known_position";
};
template <>
struct Table<ModelRow> : AnyTable {
  static constexpr std::string_view kName = "models";
  static constexpr std::string_view kRow = "job || '/' || id";
  static constexpr std::string_view kJob = "job";
};
template <>
struct Table<ModuleVersionRow> : AnyTable {
  static constexpr std::string_view kName = "module_versions";
  static constexpr std::string_view kRow = "module || '/' || number";
  static constexpr std::string_view kJob = "job";
};
template <>
struct Table<ModuleAliasRow> : AnyTable {
  static constexpr std::string_view kName = "module_aliases";
  static constexpr std::string_view kRow = "module || '@' || alias";
  static constexpr std::string_view kJob = "''";
};
template <>
struct Table<ModuleSignatureRow> : AnyTable {
  static constexpr std::string_view kName = "module_signatures";
  static constexpr std::string_view kRow = "module || '/' || number || ' key ' || key_id";
  static constexpr std::string_view kJob = "''";
};

template <>
struct Table<ReleaseKeyRow> : AnyTable {
  static constexpr std::string_view kName = "release_keys";
  static constexpr std::string_view kRow = "key_id";
  static constexpr std::string_view kJob = "''";
};

// Calls f.operator()<Row>() for every table, and stops at the first error.
template <typename F>
absl::Status ForEachTable(F&& f) {
  TW_TRY(f.template operator()<JobRow>());
  TW_TRY(f.template operator()<TaskRow>());
  TW_TRY(f.template operator()<BatchRow>());
  TW_TRY(f.template operator()<DraftRow>());
  TW_TRY(f.template operator()<TrialRow>());
  TW_TRY(f.template operator()<RecordRow>());
  TW_TRY(f.template operator()<ModelRow>());
  TW_TRY(f.template operator()<ModuleVersionRow>());
  TW_TRY(f.template operator()<ModuleAliasRow>());
  TW_TRY(f.template operator()<ModuleSignatureRow>());
  return f.template operator()<ReleaseKeyRow>();
}

// What a row's checksum is about.
template <typename Row>
const std::string& SealedColumns() {
  static const std::string* const columns = new std::string(
      Table<Row>::kGiven.empty() ? ColumnList<Row>()
                                 : support::StrCat(ColumnList<Row>(), ", ", Table<Row>::kGiven));
  return *columns;
}

// True of a row that is as it was written.
template <typename Row>
const std::string& WholeTest() {
  static const std::string* const test =
      new std::string(support::StrCat("checksum = row_checksum(", SealedColumns<Row>(), ")"));
  return *test;
}

// In the place of the table: its whole rows.
template <typename Row>
std::string WholeRows() {
  return support::StrCat("(SELECT * FROM ", Table<Row>::kName, " WHERE ", WholeTest<Row>(), ") AS ",
                         Table<Row>::kName);
}

// A column and the SQL of its new value.
struct Assignment {
  std::string_view column;
  std::string_view value;
};

// UPDATE ... WHERE, with the checksum. A row that was damaged before stays so.
template <typename Row>
std::string SealedUpdate(const std::vector<Assignment>& set, std::string_view where) {
  std::string assigned, sealed;
  for (const Assignment& one : set) {
    assigned += support::StrCat(one.column, " = ", one.value, ", ");
  }
  for (const std::string& column : support::Split(SealedColumns<Row>(), ',')) {
    std::string_view value = support::Trim(column);
    for (const Assignment& one : set) {
      if (one.column == value) {
        value = one.value;
        break;
      }
    }
    sealed += support::StrCat(sealed.empty() ? "" : ", ", value);
  }
  return support::StrCat("UPDATE ", Table<Row>::kName, " SET ", assigned, "checksum = CASE WHEN ",
                         WholeTest<Row>(), " THEN row_checksum(", sealed,
                         ") ELSE checksum END WHERE ", where);
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

// Collects the beginning of a row, for messages.
class RowName {
 public:
  void operator()(std::string_view, const std::string& v) { Add(support::Quote(v, 80)); }
  void operator()(std::string_view, int64_t v) { Add(support::StrCat(v)); }
  template <typename T>
  void operator()(std::string_view, const T&) {}
  const std::string& text() const { return text_; }

 private:
  void Add(const std::string& word) {
    if (count_++ < 2) text_ += " " + word;
  }
  std::string text_;
  int count_ = 0;
};

// The row of a statement whose columns are ColumnList<Row>(), WholeTest<Row>(), and others.
// data_loss: log.row.damaged, log.row.bad_word.
template <typename Row>
absl::StatusOr<Row> ReadRow(const sql::Statement& statement) {
  Row row;
  FieldReader reader(statement, 0);
  ForEachField(row, reader);
  if (statement.ColumnInt64(reader.next()) == 0) {
    RowName name;
    ForEachField(row, name);
    return support::DataLoss(
        "log.row.damaged",
        support::StrCat("the row", name.text(), " of the table ", Table<Row>::kName,
                        " is not as it was written: its checksum does not fit"));
  }
  if (!reader.bad_word().empty()) {
    return support::DataLoss("log.row.bad_word", support::Quote(reader.bad_word()));
  }
  return row;
}

// All rows of such a statement.
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

// Binds all fields, from position 1.
template <typename Row>
void BindRow(const Row& row, sql::Statement* statement) {
  FieldBinder binder(statement);
  ForEachField(row, [&binder](std::string_view name, const auto& value) {
    if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
      if (IsBytesColumn(name)) {
        binder.BindBytes(value);
        return;
      }
    }
    binder(name, value);
  });
}

// "?1, ?2, ?3", one for each field.
template <typename Row>
const std::string& FieldMarks() {
  static const std::string* const list = [] {
    auto* marks = new std::string();
    int count = 0;
    Row row;
    ForEachField(row, [&](std::string_view, const auto&) {
      *marks += support::StrCat(count == 0 ? "?" : ", ?", count + 1);
      ++count;
    });
    return marks;
  }();
  return *list;
}

// INSERT <verb> INTO the table, with the checksum: one prepared statement for many rows.
template <typename Row>
class RowInserter {
 public:
  static absl::StatusOr<RowInserter> Prepare(sql::Database* db, std::string_view verb = "") {
    const std::string& marks = FieldMarks<Row>();
    TW_ASSIGN(sql::Statement statement,
              db->Prepare(support::StrCat("INSERT ", verb, " INTO ", Table<Row>::kName, " (",
                                          ColumnList<Row>(), ", checksum) VALUES (", marks,
                                          ", row_checksum(", marks,
                                          Table<Row>::kGiven.empty() ? "" : ", 0", "))")));
    return RowInserter(std::move(statement));
  }

  absl::Status Run(const Row& row) {
    BindRow(row, &statement_);
    return statement_.Run();
  }

 private:
  explicit RowInserter(sql::Statement statement) : statement_(std::move(statement)) {}
  sql::Statement statement_;
};

}  // namespace tilewright::log
