// Measurement records, and rows of other logs. Part of SqliteLog.
#include "tuner_server/log/sqlite_log_impl.h"

namespace tilewright::log {

using sql::Statement;
using sql::Transaction;
using support::MutexLock;
using support::StrCat;

namespace {

absl::StatusOr<std::vector<RecordRow>> ReadRecords(Statement* find) {
  std::vector<RecordRow> records;
  for (;;) {
    TW_ASSIGN(const bool more, find->Step());
    if (!more) return records;
    TW_ASSIGN(RecordRow row, ReadRow<RecordRow>(*find));
    row.seq = find->ColumnInt64(find->column_count() - 2);
    row.known_position = find->ColumnInt64(find->column_count() - 1);
    records.push_back(std::move(row));
  }
}

absl::StatusOr<RecordRow> OneRecord(Statement* find, const std::string& name) {
  TW_ASSIGN(std::vector<RecordRow> rows, ReadRecords(find));
  if (rows.empty()) return support::NotFound("log.record.not_found", support::Quote(name));
  return std::move(rows.front());
}

}  // namespace

absl::StatusOr<std::vector<RecordRow>> SqliteLog::ListRecords(const RecordQuery& query) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find, SelectRecords("WHERE (?1 = '' OR job = ?1) AND seq > ?2 "
                                          "ORDER BY seq LIMIT ?3"));
  find.BindText(1, query.job).BindInt64(2, query.after_seq).BindInt64(3, query.limit);
  return ReadRecords(&find);
}

absl::StatusOr<std::vector<std::string>> SqliteLog::ListMeasurementIds(const std::string& job,
                                                                       int64_t trial) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find, db_.Prepare("SELECT measurement_id FROM records WHERE job = ?1 AND "
                                        "trial = ?2 ORDER BY seq"));
  find.BindText(1, job).BindInt64(2, trial);
  std::vector<std::string> ids;
  for (;;) {
    TW_ASSIGN(const bool more, find.Step());
    if (!more) return ids;
    ids.push_back(find.ColumnText(0));
  }
}

absl::StatusOr<RecordRow> SqliteLog::GetRecord(const std::string& measurement_id) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find, SelectRecords("WHERE measurement_id = ?1"));
  find.BindText(1, measurement_id);
  return OneRecord(&find, measurement_id);
}

absl::StatusOr<RecordRow> SqliteLog::BestRecord(const RecordKey& key) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find,
            SelectAccepted(key,
                           "AND device_class = ?5 AND outcome = 'OK' AND median > 0 "
                           "ORDER BY median, seq LIMIT 1"));
  return OneRecord(&find, key.task_hash);
}

absl::StatusOr<std::vector<RecordRow>> SqliteLog::KnownRecords(const RecordKey& key,
                                                               int64_t before_us,
                                                               int64_t after_position) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find, SelectAccepted(key,
                                           "AND (?5 = '' OR device_class = ?5) AND stored_us < ?6 "
                                           "AND known_position > ?7 ORDER BY known_position"));
  find.BindInt64(6, before_us).BindInt64(7, after_position);
  return ReadRecords(&find);
}

absl::StatusOr<int64_t> SqliteLog::AddImported(const Import& rows) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
  TW_ASSIGN(int64_t number, db_.QueryInt64("SELECT ifnull(max(number), 0) FROM jobs"));
  for (JobRow job : rows.jobs) {
    if (ReadJob(job.id).ok()) continue;
    job.number = ++number;
    TW_TRY(InsertOne(job));
  }
  TW_TRY(InsertAll(rows.tasks));
  TW_TRY(InsertAll(rows.batches));
  TW_TRY(InsertAll(rows.drafts));
  TW_TRY(InsertAll(rows.trials));
  int64_t added = 0;
  TW_ASSIGN(auto insert, RowInserter<RecordRow>::Prepare(&db_, "OR IGNORE"));
  for (const RecordRow& record : rows.records) {
    TW_TRY(insert.Run(record));
    if (db_.changes() == 0) continue;
    ++added;
    if (record.accepted) TW_TRY(Accept(record.measurement_id));
  }
  TW_TRY(transaction.Commit());
  return added;
}

absl::Status SqliteLog::Accept(const std::string& measurement_id) {
  TW_ASSIGN(const int64_t last,
            db_.QueryInt64("SELECT ifnull(max(known_position), 0) FROM records"));
  static const std::string* const update = new std::string(SealedUpdate<RecordRow>(
      {{"accepted", "1"}, {"known_position", "?2"}}, "measurement_id = ?1 AND known_position = 0"));
  TW_ASSIGN(Statement set, db_.Prepare(*update));
  return set.BindText(1, measurement_id).BindInt64(2, last + 1).Run();
}

absl::StatusOr<Statement> SqliteLog::SelectRecords(std::string_view rest) {
  return Select<RecordRow>(rest, ", seq, known_position");
}

absl::StatusOr<Statement> SqliteLog::SelectAccepted(const RecordKey& key, std::string_view rest) {
  TW_ASSIGN(Statement find,
            SelectRecords(StrCat("WHERE accepted = 1 AND valid = 1 AND task_hash = ?1 AND "
                                 "target_key = ?2 AND threads = ?3 AND toolchain = ?4 ",
                                 rest)));
  find.BindText(1, key.task_hash)
      .BindText(2, key.target_key)
      .BindInt64(3, key.threads)
      .BindText(4, key.toolchain)
      .BindText(5, key.device_class);
  return find;
}

}  // namespace tilewright::log
