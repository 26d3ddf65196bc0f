#include "tuner_server/log/sqlite_log.h"

#include <utility>

#include "deploy/support/failpoint.h"
#include "deploy/support/mutex.h"
#include "deploy/support/strings.h"
#include "tuner_server/log/log_rules.h"
#include "tuner_server/log/migrations.h"
#include "tuner_server/log/sqlite_rows.h"

namespace tilewright::log {
namespace {

using sql::Statement;
using sql::Transaction;
using support::Failpoint;
using support::MutexLock;
using support::StrCat;

// With places to die on either side.
absl::Status Commit(Transaction* transaction, Failpoint before, Failpoint after) {
  support::HitFailpoint(before);
  TW_TRY(transaction->Commit());
  support::HitFailpoint(after);
  return absl::OkStatus();
}

class SqliteLog final : public TuningLog {
 public:
  explicit SqliteLog(sql::Database db) : db_(std::move(db)) {}

  absl::StatusOr<CreatedJob> CreateJob(const JobRow& job) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
    if (!job.request_id.empty()) {
      TW_ASSIGN(Statement find, Select<JobRow>("jobs", "WHERE request_id = ?1"));
      find.BindText(1, job.request_id);
      TW_ASSIGN(const std::vector<JobRow> same, ReadRows<JobRow>(&find));
      if (!same.empty()) return AnswerRepeatedRequest(same.front(), job);
    }
    TW_ASSIGN(Statement find, Select<JobRow>("jobs", "WHERE id = ?1"));
    find.BindText(1, job.id);
    TW_ASSIGN(const std::vector<JobRow> same, ReadRows<JobRow>(&find));
    if (!same.empty()) return JobExists(job.id);
    CreatedJob created{job, false};
    TW_ASSIGN(created.job.number, db_.QueryInt64("SELECT ifnull(max(number), 0) + 1 FROM jobs"));
    TW_TRY(InsertOne("jobs", created.job));
    TW_TRY(AddEvent(job.id, {.kind = EventRow::Kind::kState,
                             .at_us = job.created_us,
                             .state = created.job.state,
                             .text = ""}));
    TW_TRY(Commit(&transaction, Failpoint::tuner_job_creating, Failpoint::tuner_job_created));
    return created;
  }

  absl::StatusOr<JobRow> GetJob(const std::string& id) override {
    MutexLock lock(mutex_);
    return ReadJob(id);
  }

  absl::StatusOr<std::vector<JobRow>> ListJobs(const JobQuery& query) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(
        Statement find,
        Select<JobRow>("jobs",
                       "WHERE (?1 = 0 OR number < ?1) AND (?2 = 0 OR state NOT IN "
                       "('SUCCEEDED', 'FAILED', 'CANCELLED')) ORDER BY number DESC LIMIT ?3"));
    find.BindInt64(1, query.before_number).BindInt64(2, query.open_only).BindInt64(3, query.limit);
    return ReadRows<JobRow>(&find);
  }

  absl::StatusOr<JobRow> MoveJob(const JobTransition& transition) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
    TW_ASSIGN(JobRow job, ReadJob(transition.id));
    TW_ASSIGN(job, ApplyTransition(std::move(job), transition));
    TW_TRY(WriteJob(job));
    TW_TRY(AddEvent(job.id, {.kind = EventRow::Kind::kState,
                             .at_us = transition.now_us,
                             .state = job.state,
                             .text = job.state_reason}));
    TW_TRY(Commit(&transaction, Failpoint::tuner_job_moving, Failpoint::tuner_job_moved));
    return job;
  }

  absl::Status SetElapsed(const std::string& id, double elapsed_s) override {
    MutexLock lock(mutex_);
    return WriteElapsed(id, elapsed_s);
  }

  absl::Status AddText(const std::string& job, const std::string& text, int64_t now_us) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
    TW_TRY(ReadJob(job).status());
    TW_TRY(AddEvent(job, {.kind = EventRow::Kind::kText, .at_us = now_us, .text = text}));
    return transaction.Commit();
  }

  absl::StatusOr<std::vector<EventRow>> ListEvents(const std::string& job, int64_t after_seq,
                                                   int64_t limit) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Statement find,
              db_.Prepare("SELECT seq, kind, at_us, state, trial, text FROM job_events "
                          "WHERE job = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3"));
    find.BindText(1, job).BindInt64(2, after_seq).BindInt64(3, limit);
    std::vector<EventRow> events;
    for (;;) {
      TW_ASSIGN(const bool more, find.Step());
      if (!more) return events;
      EventRow event;
      event.seq = find.ColumnInt64(0);
      event.kind = static_cast<EventRow::Kind>(find.ColumnInt64(1));
      event.at_us = find.ColumnInt64(2);
      event.state = ParseJobState(find.ColumnText(3)).value_or(JobState::kQueued);
      event.trial = find.ColumnInt64(4);
      event.text = find.ColumnText(5);
      events.push_back(std::move(event));
    }
  }

  absl::Status PutTasks(const std::string& job, const std::string& toolchain,
                        const std::string& model_name, const std::vector<TaskRow>& tasks) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
    TW_ASSIGN(JobRow row, ReadJob(job));
    TW_ASSIGN(const std::vector<TaskRow> stored, ReadTasks(job));
    if (stored.empty()) {
      TW_ASSIGN(auto insert, RowInserter<TaskRow>::Prepare(&db_, "tasks"));
      for (const TaskRow& task : tasks) TW_TRY(insert.Run(task));
    } else {
      TW_TRY(CheckSameTasks(stored, tasks));
    }
    row.toolchain = toolchain;
    if (row.model_name.empty()) row.model_name = model_name;
    TW_TRY(WriteJob(row));
    return Commit(&transaction, Failpoint::tuner_tasks_putting, Failpoint::tuner_tasks_put);
  }

  absl::StatusOr<std::vector<TaskRow>> ListTasks(const std::string& job) override {
    MutexLock lock(mutex_);
    return ReadTasks(job);
  }

  absl::StatusOr<std::vector<TaskRow>> DistinctTasks(int64_t before_us) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(
        Statement select,
        db_.Prepare("SELECT tasks.hash, tasks.text FROM tasks JOIN jobs ON jobs.id = tasks.job "
                    "WHERE jobs.created_us < ?1 GROUP BY tasks.hash ORDER BY tasks.hash"));
    select.BindInt64(1, before_us);
    std::vector<TaskRow> tasks;
    for (;;) {
      TW_ASSIGN(const bool more, select.Step());
      if (!more) return tasks;
      TaskRow& task = tasks.emplace_back();
      task.hash = select.ColumnText(0);
      task.text = select.ColumnText(1);
    }
  }

  absl::StatusOr<std::vector<int64_t>> AddBatch(const std::string& job,
                                                const NewBatch& batch) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
    TW_TRY(ReadJob(job).status());
    if (batch.batch) {
      const absl::Status inserted = InsertOne("batches", *batch.batch);
      if (absl::IsAlreadyExists(inserted)) {
        return support::AlreadyExists("log.batch.exists", support::Quote(batch.batch->id));
      }
      TW_TRY(inserted);
    }
    TW_ASSIGN(auto insert_draft, RowInserter<DraftRow>::Prepare(&db_, "drafts"));
    for (const DraftRow& draft : batch.drafts) TW_TRY(insert_draft.Run(draft));
    TW_ASSIGN(Statement last,
              db_.Prepare("SELECT ifnull(max(number), 0) FROM trials WHERE job = ?1"));
    last.BindText(1, job);
    TW_TRY(last.Step().status());
    int64_t number = last.ColumnInt64(0);
    last.Reset();
    std::vector<int64_t> numbers;
    TW_ASSIGN(auto insert_trial, RowInserter<TrialRow>::Prepare(&db_, "trials"));
    for (TrialRow trial : batch.trials) {
      trial.number = ++number;
      numbers.push_back(number);
      TW_TRY(insert_trial.Run(trial));
    }
    TW_TRY(Commit(&transaction, Failpoint::tuner_batch_adding, Failpoint::tuner_batch_added));
    return numbers;
  }

  absl::Status SetBuilt(const std::string& job, const std::vector<TrialBuilt>& built) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
    for (const TrialBuilt& one : built) {
      TW_ASSIGN(TrialRow trial, ReadTrial(job, one.number));
      if (IsFinal(trial.state)) continue;
      TW_TRY(WriteTrial(ApplyBuilt(std::move(trial), one)));
    }
    return Commit(&transaction, Failpoint::tuner_built_setting, Failpoint::tuner_built_set);
  }

  absl::StatusOr<std::vector<StoredNews>> StoreNews(const std::string& job,
                                                    const std::vector<TrialNews>& news,
                                                    double elapsed_s, int64_t now_us) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
    std::vector<StoredNews> stored;
    for (const TrialNews& one : news) {
      TW_ASSIGN(StoredNews result, StoreOne(job, one, now_us));
      stored.push_back(result);
    }
    TW_TRY(WriteElapsed(job, elapsed_s));
    TW_TRY(Commit(&transaction, Failpoint::tuner_news_storing, Failpoint::tuner_news_stored));
    return stored;
  }

  absl::StatusOr<TrialRow> GetTrial(const std::string& job, int64_t number) override {
    MutexLock lock(mutex_);
    return ReadTrial(job, number);
  }

  absl::StatusOr<std::vector<TrialRow>> ListTrials(const TrialQuery& query) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Statement find,
              Select<TrialRow>("trials",
                               "WHERE job = ?1 AND number > ?2 AND (?3 = '' OR task = ?3) AND "
                               "(?4 = 0 OR state IN ('PROPOSED', 'BUILT', 'QUEUED')) "
                               "ORDER BY number LIMIT ?5"));
    find.BindText(1, query.job)
        .BindInt64(2, query.after_number)
        .BindText(3, query.task)
        .BindInt64(4, query.open_only)
        .BindInt64(5, query.limit);
    return ReadRows<TrialRow>(&find);
  }

  absl::StatusOr<TrialCounts> CountTrials(const std::string& job) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Statement find,
              db_.Prepare("SELECT state, outcome, count(*), sum(artifact_sha256 <> '') "
                          "FROM trials WHERE job = ?1 GROUP BY state, outcome"));
    find.BindText(1, job);
    TrialCounts counts;
    for (;;) {
      TW_ASSIGN(const bool more, find.Step());
      if (!more) break;
      const auto state = ParseTrialState(find.ColumnText(0));
      const int64_t count = find.ColumnInt64(2);
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

  absl::StatusOr<int64_t> CountBatches(const std::string& job) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Statement find, db_.Prepare("SELECT count(*) FROM batches WHERE job = ?1"));
    find.BindText(1, job);
    TW_TRY(find.Step().status());
    return find.ColumnInt64(0);
  }

  absl::StatusOr<BatchPage> ListBatches(const BatchQuery& query) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Statement find, Select<BatchRow>("batches",
                                               "WHERE (?1 = '' OR job = ?1) AND seq > ?2 "
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

  absl::StatusOr<std::vector<DraftRow>> ListDrafts(const std::string& batch) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Statement find, Select<DraftRow>("drafts", "WHERE batch = ?1 ORDER BY rank"));
    find.BindText(1, batch);
    return ReadRows<DraftRow>(&find);
  }

  absl::StatusOr<std::vector<RecordRow>> ListRecords(const RecordQuery& query) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Statement find, Select<RecordRow>("records",
                                                "WHERE (?1 = '' OR job = ?1) AND seq > ?2 "
                                                "ORDER BY seq LIMIT ?3",
                                                ", seq"));
    find.BindText(1, query.job).BindInt64(2, query.after_seq).BindInt64(3, query.limit);
    return ReadRecords(&find);
  }

  absl::StatusOr<std::vector<std::string>> ListMeasurementIds(const std::string& job,
                                                              int64_t trial) override {
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

  absl::StatusOr<RecordRow> GetRecord(const std::string& measurement_id) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Statement find, Select<RecordRow>("records", "WHERE measurement_id = ?1", ", seq"));
    find.BindText(1, measurement_id);
    return OneRecord(&find, measurement_id);
  }

  absl::StatusOr<RecordRow> BestRecord(const RecordKey& key) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(
        Statement find,
        Select<RecordRow>("records",
                          "WHERE accepted = 1 AND valid = 1 AND outcome = 'OK' AND median > 0 "
                          "AND task_hash = ?1 AND target_key = ?2 AND threads = ?3 "
                          "AND toolchain = ?4 AND device_class = ?5 "
                          "ORDER BY median, seq LIMIT 1",
                          ", seq"));
    BindKey(key, &find);
    return OneRecord(&find, key.task_hash);
  }

  absl::StatusOr<std::vector<RecordRow>> KnownRecords(const RecordKey& key, int64_t before_us,
                                                      int64_t after_seq) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Statement find,
              Select<RecordRow>("records",
                                "WHERE accepted = 1 AND valid = 1 AND stored_us < ?6 AND seq > ?7 "
                                "AND task_hash = ?1 AND target_key = ?2 AND threads = ?3 "
                                "AND toolchain = ?4 AND (?5 = '' OR device_class = ?5) "
                                "ORDER BY seq",
                                ", seq"));
    BindKey(key, &find).BindInt64(6, before_us).BindInt64(7, after_seq);
    return ReadRecords(&find);
  }

  absl::Status AddModel(const ModelRow& model) override {
    MutexLock lock(mutex_);
    TW_TRY(InsertOne("models", model, "OR IGNORE"));
    support::HitFailpoint(Failpoint::tuner_model_added);
    return absl::OkStatus();
  }

  absl::StatusOr<ModelRow> GetModel(const std::string& job, const std::string& id) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Statement find,
              Select<ModelRow>(
                  "models", "WHERE id = ?1 AND (?2 = '' OR job = ?2) ORDER BY seq DESC LIMIT 1"));
    find.BindText(1, id).BindText(2, job);
    return ReadOne<ModelRow>(&find, "model", id);
  }

  absl::StatusOr<std::vector<ModelRow>> ListModels(const std::string& job) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Statement find, Select<ModelRow>("models", "WHERE job = ?1 ORDER BY seq"));
    find.BindText(1, job);
    TW_ASSIGN(std::vector<ModelRow> models, ReadRows<ModelRow>(&find));
    for (ModelRow& model : models) model.bytes.clear();
    return models;
  }

  absl::StatusOr<ModuleVersionRow> AddModuleVersion(const ModuleVersionRow& version) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
    if (!version.job.empty()) {
      TW_ASSIGN(Statement find, Select<ModuleVersionRow>("module_versions", "WHERE job = ?1"));
      find.BindText(1, version.job);
      TW_ASSIGN(std::vector<ModuleVersionRow> same, ReadRows<ModuleVersionRow>(&find));
      if (!same.empty()) return std::move(same.front());
    }
    ModuleVersionRow row = version;
    TW_ASSIGN(Statement last, db_.Prepare("SELECT ifnull(max(number), 0) + 1 FROM module_versions "
                                          "WHERE module = ?1"));
    last.BindText(1, row.module);
    TW_TRY(last.Step().status());
    row.number = last.ColumnInt64(0);
    last.Reset();
    TW_TRY(InsertOne("module_versions", row));
    TW_TRY(WritePublished(row.job, row));
    TW_TRY(Commit(&transaction, Failpoint::tuner_version_adding, Failpoint::tuner_version_added));
    return row;
  }

  absl::StatusOr<ModuleVersionRow> UseModuleVersion(const std::string& job,
                                                    const std::string& module,
                                                    const std::string& recipe) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
    TW_ASSIGN(Statement find,
              Select<ModuleVersionRow>("module_versions",
                                       "WHERE recipe = ?1 AND recipe <> '' AND module = ?2 AND "
                                       "pruned_us = 0 ORDER BY number DESC LIMIT 1"));
    find.BindText(1, recipe).BindText(2, module);
    TW_ASSIGN(ModuleVersionRow row,
              ReadOne<ModuleVersionRow>(&find, "module_version", module + " of recipe " + recipe));
    TW_TRY(WritePublished(job, row));
    TW_TRY(Commit(&transaction, Failpoint::tuner_version_adding, Failpoint::tuner_version_added));
    return row;
  }

  absl::StatusOr<ModuleVersionRow> GetModuleVersion(const std::string& module,
                                                    int64_t number) override {
    MutexLock lock(mutex_);
    return ReadVersion(module, number);
  }

  absl::StatusOr<ModulePage> ListModuleVersions(const ModuleQuery& query) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(
        Statement find,
        Select<ModuleVersionRow>("module_versions",
                                 "WHERE (?1 = '' OR module = ?1) AND (?2 = '' OR model_sha256 = ?2)"
                                 " AND (?3 = '' OR instr(' ' || task_hashes || ' ', "
                                 "' ' || ?3 || ' ') > 0) AND (?4 = 0 OR seq < ?4) "
                                 "AND (?6 OR pruned_us = 0) "
                                 "ORDER BY seq DESC LIMIT ?5",
                                 ", seq"));
    find.BindText(1, query.module)
        .BindText(2, query.model_sha256)
        .BindText(3, query.task_hash)
        .BindInt64(4, query.before_position)
        .BindInt64(5, query.limit)
        .BindInt64(6, query.with_pruned ? 1 : 0);
    ModulePage page;
    for (;;) {
      TW_ASSIGN(const bool more, find.Step());
      if (!more) return page;
      TW_ASSIGN(ModuleVersionRow row, ReadRow<ModuleVersionRow>(find));
      page.versions.push_back(std::move(row));
      page.last_position = find.ColumnInt64(find.column_count() - 1);
    }
  }

  absl::Status SetModuleAlias(const ModuleAliasRow& alias) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
    if (alias.number == 0) {
      TW_ASSIGN(Statement drop,
                db_.Prepare("DELETE FROM module_aliases WHERE module = ?1 AND alias = ?2"));
      TW_TRY(drop.BindText(1, alias.module).BindText(2, alias.alias).Run());
      if (db_.changes() == 0) {
        return support::NotFound("log.module_alias.not_found", support::Quote(alias.alias));
      }
      return transaction.Commit();
    }
    TW_ASSIGN(const ModuleVersionRow version, ReadVersion(alias.module, alias.number));
    if (version.pruned_us != 0) return VersionPruned(version);
    TW_TRY(InsertOne("module_aliases", alias, "OR REPLACE"));
    return transaction.Commit();
  }

  absl::StatusOr<std::vector<ModuleAliasRow>> ListModuleAliases(
      const std::string& module) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Statement find,
              Select<ModuleAliasRow>("module_aliases",
                                     "WHERE ?1 = '' OR module = ?1 ORDER BY module, alias"));
    find.BindText(1, module);
    return ReadRows<ModuleAliasRow>(&find);
  }

  absl::Status AddModuleSignature(const ModuleSignatureRow& signature) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
    TW_TRY(ReadVersion(signature.module, signature.number).status());
    TW_TRY(InsertOne("module_signatures", signature, "OR IGNORE"));
    return transaction.Commit();
  }

  absl::StatusOr<std::vector<ModuleSignatureRow>> ListModuleSignatures(const std::string& module,
                                                                       int64_t number) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Statement find,
              Select<ModuleSignatureRow>("module_signatures",
                                         "WHERE module = ?1 AND number = ?2 ORDER BY key_id"));
    find.BindText(1, module).BindInt64(2, number);
    return ReadRows<ModuleSignatureRow>(&find);
  }

  absl::StatusOr<std::vector<ModuleVersionRow>> PruneModuleVersions(
      const std::vector<ModuleVersionRow>& versions, int64_t now_us) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
    TW_ASSIGN(
        Statement mark,
        db_.Prepare("UPDATE module_versions SET pruned_us = ?3 WHERE module = ?1 AND number "
                    "= ?2 AND pruned_us = 0 AND NOT EXISTS (SELECT 1 FROM module_aliases AS a "
                    "WHERE a.module = ?1 AND a.number = ?2)"));
    std::vector<ModuleVersionRow> marked;
    for (const ModuleVersionRow& wanted : versions) {
      TW_ASSIGN(ModuleVersionRow version, ReadVersion(wanted.module, wanted.number));
      TW_TRY(
          mark.BindText(1, wanted.module).BindInt64(2, wanted.number).BindInt64(3, now_us).Run());
      if (db_.changes() == 0) continue;
      version.pruned_us = now_us;
      marked.push_back(std::move(version));
    }
    TW_TRY(transaction.Commit());
    return marked;
  }

  absl::StatusOr<int64_t> AddImported(const Import& rows) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
    TW_ASSIGN(int64_t number, db_.QueryInt64("SELECT ifnull(max(number), 0) FROM jobs"));
    for (JobRow job : rows.jobs) {
      if (ReadJob(job.id).ok()) continue;
      job.number = ++number;
      TW_TRY(InsertOne("jobs", job));
    }
    TW_TRY(InsertAll("tasks", rows.tasks));
    TW_TRY(InsertAll("batches", rows.batches));
    TW_TRY(InsertAll("drafts", rows.drafts));
    TW_TRY(InsertAll("trials", rows.trials));
    int64_t added = 0;
    TW_ASSIGN(auto insert, RowInserter<RecordRow>::Prepare(&db_, "records", "OR IGNORE"));
    for (const RecordRow& record : rows.records) {
      TW_TRY(insert.Run(record));
      added += db_.changes();
    }
    TW_TRY(transaction.Commit());
    return added;
  }

 private:
  template <typename Row>
  absl::StatusOr<Statement> Select(std::string_view table, std::string_view rest,
                                   std::string_view more_columns = "") TW_REQUIRES(mutex_) {
    return db_.Prepare(
        StrCat("SELECT ", ColumnList<Row>(), more_columns, " FROM ", table, " ", rest));
  }

  template <typename Row>
  absl::Status InsertOne(std::string_view table, const Row& row, std::string_view verb = "")
      TW_REQUIRES(mutex_) {
    TW_ASSIGN(auto insert, RowInserter<Row>::Prepare(&db_, table, verb));
    return insert.Run(row);
  }

  template <typename Row>
  absl::Status InsertAll(std::string_view table, const std::vector<Row>& rows) TW_REQUIRES(mutex_) {
    TW_ASSIGN(auto insert, RowInserter<Row>::Prepare(&db_, table, "OR IGNORE"));
    for (const Row& row : rows) TW_TRY(insert.Run(row));
    return absl::OkStatus();
  }

  absl::StatusOr<JobRow> ReadJob(const std::string& id) TW_REQUIRES(mutex_) {
    TW_ASSIGN(Statement find, Select<JobRow>("jobs", "WHERE id = ?1"));
    find.BindText(1, id);
    return ReadOne<JobRow>(&find, "job", id);
  }

  absl::StatusOr<ModuleVersionRow> ReadVersion(const std::string& module, int64_t number)
      TW_REQUIRES(mutex_) {
    TW_ASSIGN(Statement find,
              Select<ModuleVersionRow>("module_versions", "WHERE module = ?1 AND number = ?2"));
    find.BindText(1, module).BindInt64(2, number);
    return ReadOne<ModuleVersionRow>(&find, "module_version", ModuleVersionName(module, number));
  }

  absl::Status WritePublished(const std::string& job, const ModuleVersionRow& version)
      TW_REQUIRES(mutex_) {
    TW_ASSIGN(Statement set, db_.Prepare("UPDATE jobs SET published_module = ?2 WHERE id = ?1"));
    return set.BindText(1, job)
        .BindText(2, ModuleVersionName(version.module, version.number))
        .Run();
  }

  absl::Status WriteJob(const JobRow& job) TW_REQUIRES(mutex_) {
    TW_ASSIGN(Statement set,
              db_.Prepare("UPDATE jobs SET state = ?2, state_reason = ?3, updated_us = ?4, "
                          "started_us = ?5, ended_us = ?6, elapsed_s = ?7, toolchain = ?8, "
                          "model_name = ?9 WHERE id = ?1"));
    return set.BindText(1, job.id)
        .BindText(2, JobStateName(job.state))
        .BindText(3, job.state_reason)
        .BindInt64(4, job.updated_us)
        .BindInt64(5, job.started_us)
        .BindInt64(6, job.ended_us)
        .BindDouble(7, job.elapsed_s)
        .BindText(8, job.toolchain)
        .BindText(9, job.model_name)
        .Run();
  }

  absl::Status WriteElapsed(const std::string& job, double elapsed_s) TW_REQUIRES(mutex_) {
    TW_ASSIGN(Statement set, db_.Prepare("UPDATE jobs SET elapsed_s = ?2 WHERE id = ?1"));
    return set.BindText(1, job).BindDouble(2, elapsed_s).Run();
  }

  absl::Status AddEvent(const std::string& job, const EventRow& event) TW_REQUIRES(mutex_) {
    TW_ASSIGN(Statement insert,
              db_.Prepare("INSERT INTO job_events (job, seq, kind, at_us, state, trial, text) "
                          "VALUES (?1, (SELECT ifnull(max(seq), 0) + 1 FROM job_events "
                          "WHERE job = ?1), ?2, ?3, ?4, ?5, ?6)"));
    return insert.BindText(1, job)
        .BindInt64(2, static_cast<int64_t>(event.kind))
        .BindInt64(3, event.at_us)
        .BindText(4, JobStateName(event.state))
        .BindInt64(5, event.trial)
        .BindText(6, event.text)
        .Run();
  }

  absl::StatusOr<std::vector<TaskRow>> ReadTasks(const std::string& job) TW_REQUIRES(mutex_) {
    TW_ASSIGN(Statement find, Select<TaskRow>("tasks", "WHERE job = ?1 ORDER BY task_index"));
    find.BindText(1, job);
    return ReadRows<TaskRow>(&find);
  }

  absl::StatusOr<TrialRow> ReadTrial(const std::string& job, int64_t number) TW_REQUIRES(mutex_) {
    TW_ASSIGN(Statement find, Select<TrialRow>("trials", "WHERE job = ?1 AND number = ?2"));
    find.BindText(1, job).BindInt64(2, number);
    return ReadOne<TrialRow>(&find, "trial", StrCat(job, "/", number));
  }

  absl::Status WriteTrial(const TrialRow& trial) TW_REQUIRES(mutex_) {
    TW_ASSIGN(Statement set,
              db_.Prepare("UPDATE trials SET state = ?3, outcome = ?4, reason = ?5, "
                          "artifact_sha256 = ?6, artifact_size = ?7, work_item = ?8, "
                          "work_spec = ?9, lower_s = ?10, codegen_s = ?11, link_s = ?12, "
                          "measurement_id = ?13, median = ?14, ended_us = ?15 "
                          "WHERE job = ?1 AND number = ?2"));
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
        .Run();
  }

  absl::StatusOr<StoredNews> StoreOne(const std::string& job, const TrialNews& news, int64_t now_us)
      TW_REQUIRES(mutex_) {
    TW_ASSIGN(TrialRow trial, ReadTrial(job, news.number));
    StoredNews result;
    const bool ends = news.final && !IsFinal(trial.state);
    if (news.record) {
      RecordRow record = *news.record;
      record.accepted = ends;
      TW_TRY(InsertOne("records", record, "OR IGNORE"));
      result.record_stored = db_.changes() == 1;
    }
    if (!ends) return result;
    // The record may have come before, as an attempt that did not end the trial.
    if (news.record && !result.record_stored) TW_TRY(Accept(news.record->measurement_id));
    TW_TRY(WriteTrial(ApplyEnd(std::move(trial), news, now_us)));
    TW_TRY(AddEvent(
        job, {.kind = EventRow::Kind::kTrial, .at_us = now_us, .trial = news.number, .text = ""}));
    result.trial_ended = true;
    return result;
  }

  absl::Status Accept(const std::string& measurement_id) TW_REQUIRES(mutex_) {
    TW_ASSIGN(Statement set,
              db_.Prepare("UPDATE records SET accepted = 1 WHERE measurement_id = ?1"));
    return set.BindText(1, measurement_id).Run();
  }

  // To ?1 .. ?5 of a query about records.
  static Statement& BindKey(const RecordKey& key, Statement* find) {
    return find->BindText(1, key.task_hash)
        .BindText(2, key.target_key)
        .BindInt64(3, key.threads)
        .BindText(4, key.toolchain)
        .BindText(5, key.device_class);
  }

  absl::StatusOr<std::vector<RecordRow>> ReadRecords(Statement* find) {
    std::vector<RecordRow> records;
    for (;;) {
      TW_ASSIGN(const bool more, find->Step());
      if (!more) return records;
      TW_ASSIGN(RecordRow row, ReadRow<RecordRow>(*find));
      row.seq = find->ColumnInt64(find->column_count() - 1);
      records.push_back(std::move(row));
    }
  }

  absl::StatusOr<RecordRow> OneRecord(Statement* find, const std::string& name) {
    TW_ASSIGN(std::vector<RecordRow> rows, ReadRecords(find));
    if (rows.empty()) return support::NotFound("log.record.not_found", support::Quote(name));
    return std::move(rows.front());
  }

  support::Mutex mutex_;
  sql::Database db_ TW_GUARDED_BY(mutex_);
};

}  // namespace

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
    support::HitFailpoint(Failpoint::tuner_log_opened);
  } else {
    TW_ASSIGN(const int version, sql::SchemaVersion(&db));
    if (version != newest) {
      return support::FailedPrecondition(
          "log.open.version", StrCat("expected schema version ", newest, ", found ", version));
    }
  }
  return std::unique_ptr<TuningLog>(std::make_unique<SqliteLog>(std::move(db)));
}

}  // namespace tilewright::log
