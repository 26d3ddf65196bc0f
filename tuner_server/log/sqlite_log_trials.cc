// Batches, drafts and trials: what was proposed, and what became of it. Part of SqliteLog.
#include "tuner_server/log/log_rules.h"
#include "tuner_server/log/schedule_rule.h"
#include "tuner_server/log/sqlite_log_impl.h"

namespace tilewright::log {

using sql::Statement;
using sql::Transaction;
using support::Failpoint;
using support::MutexLock;
using support::StrCat;

absl::StatusOr<std::vector<int64_t>> SqliteLog::AddBatch(const std::string& job,
                                                         const NewBatch& batch) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
  TW_TRY(ReadJob(job).status());
  if (batch.batch) {
    const absl::Status inserted = InsertOne(*batch.batch);
    if (absl::IsAlreadyExists(inserted)) {
      return support::AlreadyExists("log.batch.exists", support::Quote(batch.batch->id));
    }
    TW_TRY(inserted);
  }
  TW_ASSIGN(auto insert_draft, RowInserter<DraftRow>::Prepare(&db_));
  for (const DraftRow& draft : batch.drafts) TW_TRY(insert_draft.Run(draft));
  TW_ASSIGN(Statement last,
            db_.Prepare("SELECT ifnull(max(number), 0) FROM trials WHERE job = ?1"));
  last.BindText(1, job);
  TW_TRY(last.Step().status());
  int64_t number = last.ColumnInt64(0);
  last.Reset();
  std::vector<int64_t> numbers;
  TW_ASSIGN(auto insert_trial, RowInserter<TrialRow>::Prepare(&db_));
  for (TrialRow trial : batch.trials) {
    trial.number = ++number;
    numbers.push_back(number);
    TW_TRY(insert_trial.Run(trial));
  }
  TW_TRY(CommitBetween(Failpoint::tuner_batch_adding, &transaction, Failpoint::tuner_batch_added));
  return numbers;
}

absl::Status SqliteLog::SetBuilt(const std::string& job, const std::vector<TrialBuilt>& built) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
  for (const TrialBuilt& one : built) {
    TW_ASSIGN(TrialRow trial, ReadTrial(job, one.number));
    if (IsFinal(trial.state)) continue;
    TW_TRY(WriteTrial(ApplyBuilt(std::move(trial), one)));
  }
  return CommitBetween(Failpoint::tuner_built_setting, &transaction, Failpoint::tuner_built_set);
}

absl::StatusOr<std::vector<StoredNews>> SqliteLog::StoreNews(const std::string& job,
                                                             const std::vector<TrialNews>& news,
                                                             double elapsed_s, int64_t now_us) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
  std::vector<StoredNews> stored;
  for (const TrialNews& one : news) {
    TW_ASSIGN(StoredNews result, StoreOne(job, one, now_us));
    stored.push_back(result);
  }
  TW_TRY(WriteElapsed(job, elapsed_s));
  TW_TRY(CommitBetween(Failpoint::tuner_news_storing, &transaction, Failpoint::tuner_news_stored));
  return stored;
}

absl::StatusOr<TrialRow> SqliteLog::GetTrial(const std::string& job, int64_t number) {
  MutexLock lock(mutex_);
  return ReadTrial(job, number);
}

absl::StatusOr<std::vector<TrialRow>> SqliteLog::ListTrials(const TrialQuery& query) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find,
            Select<TrialRow>("WHERE job = ?1 AND number > ?2 AND (?3 = '' OR task = ?3) AND "
                             "(?4 = 0 OR state IN ('PROPOSED', 'BUILT', 'QUEUED')) "
                             "ORDER BY number LIMIT ?5"));
  find.BindText(1, query.job)
      .BindInt64(2, query.after_number)
      .BindText(3, query.task)
      .BindInt64(4, query.open_only)
      .BindInt64(5, query.limit);
  return ReadRows<TrialRow>(&find);
}

absl::StatusOr<TrialCounts> SqliteLog::CountTrials(const std::string& job) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find,
            db_.Prepare("SELECT state, outcome, count(*), sum(artifact_sha256 <> ''), "
                        "generated_by = ?2 FROM trials WHERE job = ?1 "
                        "GROUP BY state, outcome, generated_by = ?2"));
  find.BindText(1, job).BindText(2, kFinal);
  TrialCounts counts;
  for (;;) {
    TW_ASSIGN(const bool more, find.Step());
    if (!more) break;
    const auto state = ParseTrialState(find.ColumnText(0));
    const int64_t count = find.ColumnInt64(2);
    if (find.ColumnInt64(4) != 0) {
      counts.finals += count;
      continue;
    }
    counts.proposed += count;
    counts.built += find.ColumnInt64(3);
    if (!state || !IsFinal(*state)) continue;
    counts.ended += count;
    counts.by_outcome[ParseOutcome(find.ColumnText(1)).value_or(Outcome::kUnspecified)] += count;
  }
  TW_ASSIGN(Statement sum, db_.Prepare("SELECT ifnull(sum(run_s), 0) FROM records "
                                       "WHERE job = ?1"));
  sum.BindText(1, job);
  TW_TRY(sum.Step().status());
  counts.device_s = sum.ColumnDouble(0);
  return counts;
}

absl::StatusOr<int64_t> SqliteLog::CountBatches(const std::string& job) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find, db_.Prepare("SELECT count(*) FROM batches WHERE job = ?1"));
  find.BindText(1, job);
  TW_TRY(find.Step().status());
  return find.ColumnInt64(0);
}

absl::StatusOr<BatchPage> SqliteLog::ListBatches(const BatchQuery& query) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find, Select<BatchRow>("WHERE (?1 = '' OR job = ?1) AND seq > ?2 "
                                             "ORDER BY seq LIMIT ?3",
                                             ", seq"));
  find.BindText(1, query.job).BindInt64(2, query.after_seq).BindInt64(3, query.limit);
  BatchPage page{{}, query.after_seq};
  for (;;) {
    TW_ASSIGN(const bool more, find.Step());
    if (!more) return page;
    TW_ASSIGN(BatchRow row, ReadRow<BatchRow>(find));
    page.batches.push_back(std::move(row));
    page.last_seq = find.ColumnInt64(find.column_count() - 1);
  }
}

absl::StatusOr<std::vector<DraftRow>> SqliteLog::ListDrafts(const std::string& batch) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find, Select<DraftRow>("WHERE batch = ?1 ORDER BY rank"));
  find.BindText(1, batch);
  return ReadRows<DraftRow>(&find);
}

absl::StatusOr<TrialRow> SqliteLog::ReadTrial(const std::string& job, int64_t number) {
  TW_ASSIGN(Statement find, Select<TrialRow>("WHERE job = ?1 AND number = ?2"));
  find.BindText(1, job).BindInt64(2, number);
  return ReadOne<TrialRow>(&find, "trial", StrCat(job, "/", number));
}

absl::Status SqliteLog::WriteTrial(const TrialRow& trial) {
  static const std::string* const update =
      new std::string(SealedUpdate<TrialRow>({{"state", "?3"},
                                              {"outcome", "?4"},
                                              {"reason", "?5"},
                                              {"artifact_sha256", "?6"},
                                              {"artifact_size", "?7"},
                                              {"work_item", "?8"},
                                              {"work_spec", "?9"},
                                              {"lower_s", "?10"},
                                              {"codegen_s", "?11"},
                                              {"link_s", "?12"},
                                              {"measurement_id", "?13"},
                                              {"median", "?14"},
                                              {"ended_us", "?15"},
                                              {"resources", "?16"}},
                                             "job = ?1 AND number = ?2"));
  TW_ASSIGN(Statement set, db_.Prepare(*update));
  return set.BindText(1, trial.job)
      .BindInt64(2, trial.number)
      .BindText(3, TrialStateName(trial.state))
      .BindText(4, OutcomeName(trial.outcome))
      .BindText(5, trial.reason)
      .BindText(6, trial.artifact_sha256)
      .BindInt64(7, trial.artifact_size)
      .BindText(8, trial.work_item)
      .BindBlob(9, trial.work_spec)
      .BindDouble(10, trial.lower_s)
      .BindDouble(11, trial.codegen_s)
      .BindDouble(12, trial.link_s)
      .BindText(13, trial.measurement_id)
      .BindDouble(14, trial.median)
      .BindInt64(15, trial.ended_us)
      .BindText(16, trial.resources)
      .Run();
}

absl::StatusOr<StoredNews> SqliteLog::StoreOne(const std::string& job, const TrialNews& news,
                                               int64_t now_us) {
  TW_ASSIGN(TrialRow trial, ReadTrial(job, news.number));
  StoredNews result;
  const bool ends = news.final && !IsFinal(trial.state);
  if (news.record) {
    RecordRow record = *news.record;
    record.accepted = false;
    TW_TRY(InsertOne(record, "OR IGNORE"));
    result.record_stored = db_.changes() == 1;
  }
  if (!ends) return result;
  // It may have come before, as an attempt that did not end the trial.
  if (news.record) TW_TRY(Accept(news.record->measurement_id));
  TW_TRY(WriteTrial(ApplyEnd(std::move(trial), news, now_us)));
  TW_TRY(AddEvent(
      job, {.kind = EventRow::Kind::kTrial, .at_us = now_us, .trial = news.number, .text = ""}));
  result.trial_ended = true;
  return result;
}

}  // namespace tilewright::log
