// The tuner's memory: jobs, tasks, trials, measurements, models, module versions. A narrow store
// interface: every method is one use case and one transaction, durable when it returns. Two
// implementations (memory_log.h, sqlite_log.h) pass one conformance suite.
//
// Thread-safe: any thread may call any method. A log has one owner process.
//
// Errors: not_found log.<what>.not_found, failed_precondition log.<what>.<why>, already_exists
// log.<what>.exists, and the errors of the storage (disk full, damage).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deploy/support/status.h"
#include "tuner_server/log/log_types.h"

namespace tilewright::log {

// Rows of a page for readers of a whole log: a page stays within a few megabytes.
inline constexpr int64_t kPageRows = 500;

// Of one log, revoked ones included. A fleet has a few.
inline constexpr size_t kMaxReleaseKeys = 256;

struct CreatedJob {
  JobRow job;
  bool existed = false;  // the request_id was seen before
};

struct JobQuery {
  int64_t before_number = 0;  // 0: from the newest
  int64_t limit = 50;
  bool open_only = false;  // not in a final state
};

// Moves a job from one state to another. The end time is set with a final state, the start time
// with the first RUNNING.
struct JobTransition {
  std::string id = {};
  JobState from = JobState::kQueued;
  JobState to = JobState::kQueued;
  std::string reason = {};
  double elapsed_s = -1;  // negative: unchanged
  int64_t now_us = 0;
};

struct NewBatch {
  std::optional<BatchRow> batch;  // none: default schedules
  std::vector<DraftRow> drafts;
  std::vector<TrialRow> trials;  // numbers are given by the log
};

// What a trial's build made. The trial becomes `state`.
struct TrialBuilt {
  int64_t number = 0;
  TrialState state = TrialState::kBuilt;
  std::string artifact_sha256;
  int64_t artifact_size = 0;
  std::string work_item;
  std::string work_spec;
  double lower_s = 0;
  double codegen_s = 0;
  double link_s = 0;
  std::string resources;
};

// An event of a trial: a record, an end, or both.
struct TrialNews {
  int64_t number = 0;
  std::optional<RecordRow> record;  // stored once by measurement_id; seq and accepted are set here
  bool final = false;               // the trial ends with this, unless it ended before
  TrialState state = TrialState::kSucceeded;
  Outcome outcome = Outcome::kUnspecified;
  std::string reason;
};

struct StoredNews {
  bool record_stored = false;  // false: no record, or its measurement_id was there already
  bool trial_ended = false;    // false: not final, or the trial had ended before
};

struct TrialQuery {
  std::string job = {};
  std::string task = {};  // empty: all
  int64_t after_number = 0;
  int64_t limit = 50;
  bool open_only = false;
};

struct TrialCounts {
  int64_t finals = 0;  // winners that were measured again; the next four are without them
  int64_t proposed = 0;
  int64_t built = 0;
  int64_t ended = 0;
  std::map<Outcome, int64_t> by_outcome;  // of the ended ones
  double device_s = 0;                    // sum of run_s over all records

  bool operator==(const TrialCounts&) const = default;
};

struct RecordQuery {
  std::string job = {};  // empty: all
  int64_t after_seq = 0;
  int64_t limit = 100;
};

struct BatchQuery {
  std::string job = {};  // empty: all
  int64_t after_seq = 0;
  int64_t limit = 100;
};
struct BatchPage {
  std::vector<BatchRow> batches;
  int64_t last_seq = 0;  // after_seq of the next page
};

struct ModuleQuery {
  std::string module = {};        // empty: all
  std::string model_sha256 = {};  // empty: any
  std::string task_hash = {};     // empty: any
  bool with_pruned = true;        // those whose bytes are gone, too
  int64_t before_position = 0;    // 0: from the newest; else the last_position of a page
  int64_t limit = 50;
};
struct ModulePage {
  std::vector<ModuleVersionRow> versions;  // newest first
  int64_t last_position = 0;               // before_position of the next page
};

class TuningLog {
 public:
  virtual ~TuningLog() = default;

  // --- jobs ---
  // The same request_id with the same request_hash returns the job made first; with another hash it
  // is invalid_argument log.job.request_id_reused. A taken id is already_exists log.job.exists.
  virtual absl::StatusOr<CreatedJob> CreateJob(const JobRow& job) = 0;
  virtual absl::StatusOr<JobRow> GetJob(const std::string& id) = 0;
  // Newest first.
  virtual absl::StatusOr<std::vector<JobRow>> ListJobs(const JobQuery& query) = 0;
  // failed_precondition log.job.state when the job is not in `from`. Adds an event.
  virtual absl::StatusOr<JobRow> MoveJob(const JobTransition& transition) = 0;
  virtual absl::Status SetElapsed(const std::string& id, double elapsed_s) = 0;
  // Adds a line to the job's events.
  virtual absl::Status AddText(const std::string& job, const std::string& text, int64_t now_us) = 0;
  virtual absl::StatusOr<std::vector<EventRow>> ListEvents(const std::string& job,
                                                           int64_t after_seq, int64_t limit) = 0;

  // --- tasks ---
  // The first call stores them; later calls must name the same hashes in the same order
  // (failed_precondition log.tasks.changed). Sets the job's toolchain, and its model name when it
  // has none.
  virtual absl::Status PutTasks(const std::string& job, const std::string& toolchain,
                                const std::string& model_name,
                                const std::vector<TaskRow>& tasks) = 0;
  virtual absl::StatusOr<std::vector<TaskRow>> ListTasks(const std::string& job) = 0;
  // Every task of jobs created before `before_us`, once per hash and in that order: only hash and
  // text.
  virtual absl::StatusOr<std::vector<TaskRow>> DistinctTasks(int64_t before_us) = 0;

  // --- trials ---
  // Returns the numbers of the new trials. already_exists log.batch.exists for a known batch id.
  virtual absl::StatusOr<std::vector<int64_t>> AddBatch(const std::string& job,
                                                        const NewBatch& batch) = 0;
  // Trials that have ended are left as they are.
  virtual absl::Status SetBuilt(const std::string& job, const std::vector<TrialBuilt>& built) = 0;
  // One result per entry, in order.
  virtual absl::StatusOr<std::vector<StoredNews>> StoreNews(const std::string& job,
                                                            const std::vector<TrialNews>& news,
                                                            double elapsed_s, int64_t now_us) = 0;
  virtual absl::StatusOr<TrialRow> GetTrial(const std::string& job, int64_t number) = 0;
  // By number.
  virtual absl::StatusOr<std::vector<TrialRow>> ListTrials(const TrialQuery& query) = 0;
  virtual absl::StatusOr<TrialCounts> CountTrials(const std::string& job) = 0;

  // --- batches and records ---
  virtual absl::StatusOr<int64_t> CountBatches(const std::string& job) = 0;
  virtual absl::StatusOr<BatchPage> ListBatches(const BatchQuery& query) = 0;
  // By rank.
  virtual absl::StatusOr<std::vector<DraftRow>> ListDrafts(const std::string& batch) = 0;
  // In order of arrival.
  virtual absl::StatusOr<std::vector<RecordRow>> ListRecords(const RecordQuery& query) = 0;
  // Measurement ids of one trial, oldest first.
  virtual absl::StatusOr<std::vector<std::string>> ListMeasurementIds(const std::string& job,
                                                                      int64_t trial) = 0;
  virtual absl::StatusOr<RecordRow> GetRecord(const std::string& measurement_id) = 0;
  // The usable accepted record with the smallest median; not_found without one.
  virtual absl::StatusOr<RecordRow> BestRecord(const RecordKey& key) = 0;
  // Accepted valid records that were stored before `before_us` and accepted after the one of
  // `after_position` (its known_position; 0: all), in the order of acceptance. So a caller that
  // continues from the last position misses none. An empty device class means any.
  virtual absl::StatusOr<std::vector<RecordRow>> KnownRecords(const RecordKey& key,
                                                              int64_t before_us,
                                                              int64_t after_position) = 0;

  // --- models ---
  // A known (job, id) is left as it is.
  virtual absl::Status AddModel(const ModelRow& model) = 0;
  // By id, with its bytes; the newest if several jobs have one of that id. An empty job means any.
  // failed_precondition log.model.pruned.
  virtual absl::StatusOr<ModelRow> GetModel(const std::string& job, const std::string& id) = 0;
  // Oldest first, without bytes.
  virtual absl::StatusOr<std::vector<ModelRow>> ListModels(const std::string& job) = 0;
  // Drops what only explains past searches: the drafts of ended jobs, and the bytes of all their
  // models but each job's last. These take twenty times the space of measurements. The `keep` jobs
  // that ended last keep theirs; at most the next `window` jobs are examined. Returns how many jobs
  // were pruned.
  virtual absl::StatusOr<int64_t> PruneSearches(int64_t keep, int64_t window) = 0;

  // --- modules ---
  // Adds a version. Its number is one more than the module's highest, or version.number if that is
  // more. A job publishes once: a second call for it returns the first version. Sets the job's
  // published_module.
  virtual absl::StatusOr<ModuleVersionRow> AddModuleVersion(const ModuleVersionRow& version) = 0;
  // Makes an existing version the job's published_module: the newest of that name and recipe (not
  // empty) that was not pruned. not_found if there is none.
  virtual absl::StatusOr<ModuleVersionRow> UseModuleVersion(const std::string& job,
                                                            const std::string& module,
                                                            const std::string& recipe) = 0;
  virtual absl::StatusOr<ModuleVersionRow> GetModuleVersion(const std::string& module,
                                                            int64_t number) = 0;
  virtual absl::StatusOr<ModulePage> ListModuleVersions(const ModuleQuery& query) = 0;
  // The alias names that version from now on; number 0 removes it. not_found for an unknown version
  // (or, to be removed, alias); failed_precondition log.module_version.pruned.
  virtual absl::Status SetModuleAlias(const ModuleAliasRow& alias) = 0;
  // By module and alias. Empty module: all.
  virtual absl::StatusOr<std::vector<ModuleAliasRow>> ListModuleAliases(
      const std::string& module) = 0;
  // The same signature again changes nothing. not_found for an unknown version.
  virtual absl::Status AddModuleSignature(const ModuleSignatureRow& signature) = 0;
  // By key, then by format.
  virtual absl::StatusOr<std::vector<ModuleSignatureRow>> ListModuleSignatures(
      const std::string& module, int64_t number) = 0;
  // Revokes all signatures of one key on a version, unless they are revoked already. not_found
  // (log.module_signature.not_found) if there is none.
  virtual absl::Status RevokeModuleSignatures(const std::string& module, int64_t number,
                                              const std::string& key_id,
                                              const Revocation& revocation) = 0;
  // Adds a key whose owner may release modules. The same key again changes nothing.
  // failed_precondition log.release_key.revoked, already_exists log.release_key.other (another key
  // has that id), resource_exhausted log.release_key.too_many (kMaxReleaseKeys).
  virtual absl::Status AddReleaseKey(const ReleaseKeyRow& key) = 0;
  // By id, revoked ones, too.
  virtual absl::StatusOr<std::vector<ReleaseKeyRow>> ListReleaseKeys() = 0;
  // Of a key that was revoked before nothing changes. not_found log.release_key.not_found.
  virtual absl::StatusOr<ReleaseKeyRow> RevokeReleaseKey(const std::string& key_id,
                                                         const Revocation& revocation) = 0;
  // Marks versions as pruned, except those that an alias names or that were pruned before. Returns
  // the versions that it marked.
  virtual absl::StatusOr<std::vector<ModuleVersionRow>> PruneModuleVersions(
      const std::vector<ModuleVersionRow>& versions, int64_t now_us) = 0;

  // Returns whether KeepModuleNumbers was ever called: whether numbers of versions of this log were
  // also kept outside of it.
  virtual absl::StatusOr<bool> ModuleNumbersKept() = 0;
  virtual absl::Status KeepModuleNumbers(int64_t now_us) = 0;

  // --- import ---
  // Adds rows that another log exported, unchanged (numbers included). Skips rows that exist
  // already. Returns how many records were new.
  struct Import {
    std::vector<JobRow> jobs;
    std::vector<TaskRow> tasks;
    std::vector<BatchRow> batches;
    std::vector<DraftRow> drafts;
    std::vector<TrialRow> trials;
    std::vector<RecordRow> records;
  };
  virtual absl::StatusOr<int64_t> AddImported(const Import& rows) = 0;
};

// "projects/default/modules/m/versions/3"
std::string ModuleVersionName(const std::string& module, int64_t number);

}  // namespace tilewright::log
