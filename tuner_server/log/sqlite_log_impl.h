// The class behind sqlite_log.h, for the files that share its methods by subject: sqlite_log_jobs,
// _trials, _records, _modules. Internal to tuner_server/log. Thread-safe, see sqlite_log.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deploy/sql/database.h"
#include "deploy/support/failpoint.h"
#include "deploy/support/file.h"
#include "deploy/support/mutex.h"
#include "deploy/support/strings.h"
#include "tuner_server/log/sqlite_rows.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::log {

// With a failpoint before and after it.
absl::Status CommitBetween(support::Failpoint before, sql::Transaction* transaction,
                           support::Failpoint after);

// Opens a log file of this version for reading.
absl::StatusOr<sql::Database> OpenForReading(const std::string& path, bool quick_check);

class SqliteLog final : public TuningLog {
 public:
  // `lock` keeps other writers away; a reader needs none. With `whole_rows_only` damaged rows are
  // not there; otherwise they are errors.
  SqliteLog(std::optional<support::FileLock> lock, sql::Database db, bool whole_rows_only)
      : lock_(std::move(lock)), whole_rows_only_(whole_rows_only), db_(std::move(db)) {}

  absl::StatusOr<CreatedJob> CreateJob(const JobRow& job) override;
  absl::StatusOr<JobRow> GetJob(const std::string& id) override;
  absl::StatusOr<std::vector<JobRow>> ListJobs(const JobQuery& query) override;
  absl::StatusOr<JobRow> MoveJob(const JobTransition& transition) override;
  absl::Status SetElapsed(const std::string& id, double elapsed_s) override;
  absl::Status AddText(const std::string& job, const std::string& text, int64_t now_us) override;
  absl::StatusOr<std::vector<EventRow>> ListEvents(const std::string& job, int64_t after_seq,
                                                   int64_t limit) override;
  absl::Status PutTasks(const std::string& job, const std::string& toolchain,
                        const std::string& model_name, const std::vector<TaskRow>& tasks) override;
  absl::StatusOr<std::vector<TaskRow>> ListTasks(const std::string& job) override;
  absl::StatusOr<std::vector<TaskRow>> DistinctTasks(int64_t before_us) override;
  absl::StatusOr<std::vector<int64_t>> AddBatch(const std::string& job,
                                                const NewBatch& batch) override;
  absl::Status SetBuilt(const std::string& job, const std::vector<TrialBuilt>& built) override;
  absl::StatusOr<std::vector<StoredNews>> StoreNews(const std::string& job,
                                                    const std::vector<TrialNews>& news,
                                                    double elapsed_s, int64_t now_us) override;
  absl::StatusOr<TrialRow> GetTrial(const std::string& job, int64_t number) override;
  absl::StatusOr<std::vector<TrialRow>> ListTrials(const TrialQuery& query) override;
  absl::StatusOr<TrialCounts> CountTrials(const std::string& job) override;
  absl::StatusOr<int64_t> CountBatches(const std::string& job) override;
  absl::StatusOr<BatchPage> ListBatches(const BatchQuery& query) override;
  absl::StatusOr<std::vector<DraftRow>> ListDrafts(const std::string& batch) override;
  absl::StatusOr<std::vector<RecordRow>> ListRecords(const RecordQuery& query) override;
  absl::StatusOr<std::vector<std::string>> ListMeasurementIds(const std::string& job,
                                                              int64_t trial) override;
  absl::StatusOr<RecordRow> GetRecord(const std::string& measurement_id) override;
  absl::StatusOr<RecordRow> BestRecord(const RecordKey& key) override;
  absl::StatusOr<std::vector<RecordRow>> KnownRecords(const RecordKey& key, int64_t before_us,
                                                      int64_t after_position) override;
  absl::Status AddModel(const ModelRow& model) override;
  absl::StatusOr<ModelRow> GetModel(const std::string& job, const std::string& id) override;
  absl::StatusOr<std::vector<ModelRow>> ListModels(const std::string& job) override;
  absl::StatusOr<int64_t> PruneSearches(int64_t keep, int64_t window) override;
  absl::StatusOr<ModuleVersionRow> AddModuleVersion(const ModuleVersionRow& version) override;
  absl::StatusOr<ModuleVersionRow> UseModuleVersion(const std::string& job,
                                                    const std::string& module,
                                                    const std::string& recipe) override;
  absl::StatusOr<ModuleVersionRow> GetModuleVersion(const std::string& module,
                                                    int64_t number) override;
  absl::StatusOr<ModulePage> ListModuleVersions(const ModuleQuery& query) override;
  absl::Status SetModuleAlias(const ModuleAliasRow& alias) override;
  absl::StatusOr<std::vector<ModuleAliasRow>> ListModuleAliases(const std::string& module) override;
  absl::Status AddModuleSignature(const ModuleSignatureRow& signature) override;
  absl::StatusOr<std::vector<ModuleSignatureRow>> ListModuleSignatures(const std::string& module,
                                                                       int64_t number) override;
  absl::Status RevokeModuleSignatures(const std::string& module, int64_t number,
                                      const std::string& key_id,
                                      const Revocation& revocation) override;
  absl::Status AddReleaseKey(const ReleaseKeyRow& key) override;
  absl::StatusOr<std::vector<ReleaseKeyRow>> ListReleaseKeys() override;
  absl::StatusOr<ReleaseKeyRow> RevokeReleaseKey(const std::string& key_id,
                                                 const Revocation& revocation) override;
  absl::StatusOr<std::vector<ModuleVersionRow>> PruneModuleVersions(
      const std::vector<ModuleVersionRow>& versions, int64_t now_us) override;
  absl::StatusOr<bool> ModuleNumbersKept() override;
  absl::Status KeepModuleNumbers(int64_t now_us) override;
  absl::StatusOr<int64_t> AddImported(const Import& rows) override;

 private:
  // Rows "WHERE ...", for ReadRow.
  template <typename Row>
  absl::StatusOr<sql::Statement> Select(std::string_view rest, std::string_view more_columns = "")
      TW_REQUIRES(mutex_) {
    return db_.Prepare(support::StrCat(
        "SELECT ", ColumnList<Row>(), ", ", WholeTest<Row>(), more_columns, " FROM ",
        whole_rows_only_ ? WholeRows<Row>() : Table<Row>::kName, " ", rest));
  }

  template <typename Row>
  absl::Status InsertOne(const Row& row, std::string_view verb = "") TW_REQUIRES(mutex_) {
    TW_ASSIGN(auto insert, RowInserter<Row>::Prepare(&db_, verb));
    return insert.Run(row);
  }

  template <typename Row>
  absl::Status InsertAll(const std::vector<Row>& rows) TW_REQUIRES(mutex_) {
    TW_ASSIGN(auto insert, RowInserter<Row>::Prepare(&db_, "OR IGNORE"));
    for (const Row& row : rows) TW_TRY(insert.Run(row));
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<std::string>> EndedJobs(int64_t skip, int64_t limit);
  // Returns whether it dropped something.
  absl::StatusOr<bool> PruneSearch(const std::string& job);
  absl::StatusOr<std::vector<ReleaseKeyRow>> ReadReleaseKeys() TW_REQUIRES(mutex_);
  absl::StatusOr<JobRow> ReadJob(const std::string& id) TW_REQUIRES(mutex_);
  absl::StatusOr<ModuleVersionRow> ReadVersion(const std::string& module, int64_t number)
      TW_REQUIRES(mutex_);
  absl::Status WritePublished(const std::string& job, const ModuleVersionRow& version)
      TW_REQUIRES(mutex_);
  absl::Status WriteJob(const JobRow& job) TW_REQUIRES(mutex_);
  absl::Status WriteElapsed(const std::string& job, double elapsed_s) TW_REQUIRES(mutex_);
  absl::Status AddEvent(const std::string& job, const EventRow& event) TW_REQUIRES(mutex_);
  absl::StatusOr<std::vector<TaskRow>> ReadTasks(const std::string& job) TW_REQUIRES(mutex_);
  absl::StatusOr<TrialRow> ReadTrial(const std::string& job, int64_t number) TW_REQUIRES(mutex_);
  absl::Status WriteTrial(const TrialRow& trial) TW_REQUIRES(mutex_);
  absl::StatusOr<StoredNews> StoreOne(const std::string& job, const TrialNews& news, int64_t now_us)
      TW_REQUIRES(mutex_);
  // Marks the record as the one that ended its trial, visible to other jobs from now on. An
  // accepted record keeps its position.
  absl::Status Accept(const std::string& measurement_id) TW_REQUIRES(mutex_);

  // Records "WHERE ...", with their positions.
  absl::StatusOr<sql::Statement> SelectRecords(std::string_view rest) TW_REQUIRES(mutex_);
  // The same for usable records of a key, ?1 .. ?5 (an empty device class means any). `rest`
  // continues the condition with "AND ..." and may bind from ?6.
  absl::StatusOr<sql::Statement> SelectAccepted(const RecordKey& key, std::string_view rest)
      TW_REQUIRES(mutex_);

  std::optional<support::FileLock> lock_;  // dropped after the database is closed
  const bool whole_rows_only_;
  support::Mutex mutex_;
  sql::Database db_ TW_GUARDED_BY(mutex_);
};

}  // namespace tilewright::log
