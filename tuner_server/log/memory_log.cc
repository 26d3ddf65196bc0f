#include "tuner_server/log/memory_log.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "deploy/support/mutex.h"
#include "deploy/support/strings.h"
#include "tuner_server/log/log_rules.h"
#include "tuner_server/log/schedule_rule.h"

namespace tilewright::log {
namespace {

using support::MutexLock;

absl::Status Missing(std::string_view what, std::string_view name) {
  return support::NotFound(support::StrCat("log.", what, ".not_found"), support::Quote(name));
}

// The first `limit` of the rows that `keep` accepts.
template <typename Rows, typename Keep>
auto Take(const Rows& rows, int64_t limit, Keep keep) {
  std::vector<typename Rows::value_type> taken;
  for (const auto& row : rows) {
    if (static_cast<int64_t>(taken.size()) >= limit) break;
    if (keep(row)) taken.push_back(row);
  }
  return taken;
}

// All that belongs to one job.
struct JobData {
  JobRow row;
  std::vector<EventRow> events;
  std::vector<TaskRow> tasks;
  std::vector<TrialRow> trials;  // by number
};

class MemoryLog final : public TuningLog {
 public:
  absl::StatusOr<CreatedJob> CreateJob(const JobRow& job) override {
    MutexLock lock(mutex_);
    for (const auto& [id, data] : jobs_) {
      if (!job.request_id.empty() && data.row.request_id == job.request_id) {
        return AnswerRepeatedRequest(data.row, job);
      }
    }
    if (jobs_.count(job.id) != 0) return JobExists(job.id);
    JobData& data = jobs_[job.id];
    data.row = job;
    data.row.number = ++last_job_;
    AddEvent(
        &data,
        {.kind = EventRow::Kind::kState, .at_us = job.created_us, .state = job.state, .text = ""});
    return CreatedJob{data.row, false};
  }

  absl::StatusOr<JobRow> GetJob(const std::string& id) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(const JobData* data, Find(id));
    return data->row;
  }

  absl::StatusOr<std::vector<JobRow>> ListJobs(const JobQuery& query) override {
    MutexLock lock(mutex_);
    std::vector<JobRow> rows;
    for (const auto& [id, data] : jobs_) rows.push_back(data.row);
    std::sort(rows.begin(), rows.end(),
              [](const JobRow& a, const JobRow& b) { return a.number > b.number; });
    return Take(rows, query.limit, [&query](const JobRow& row) {
      return (query.before_number == 0 || row.number < query.before_number) &&
             !(query.open_only && IsFinal(row.state));
    });
  }

  absl::StatusOr<JobRow> MoveJob(const JobTransition& transition) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(JobData * data, Find(transition.id));
    TW_ASSIGN(data->row, ApplyTransition(data->row, transition));
    AddEvent(data, {.kind = EventRow::Kind::kState,
                    .at_us = transition.now_us,
                    .state = transition.to,
                    .text = transition.reason});
    return data->row;
  }

  absl::Status SetElapsed(const std::string& id, double elapsed_s) override {
    MutexLock lock(mutex_);
    const auto found = Find(id);
    if (found.ok()) (*found)->row.elapsed_s = elapsed_s;
    return absl::OkStatus();
  }

  absl::Status AddText(const std::string& job, const std::string& text, int64_t now_us) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(JobData * data, Find(job));
    AddEvent(data, {.kind = EventRow::Kind::kText, .at_us = now_us, .text = text});
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<EventRow>> ListEvents(const std::string& job, int64_t after_seq,
                                                   int64_t limit) override {
    MutexLock lock(mutex_);
    const auto found = Find(job);
    if (!found.ok()) return std::vector<EventRow>{};
    return Take((*found)->events, limit,
                [after_seq](const EventRow& event) { return event.seq > after_seq; });
  }

  absl::Status PutTasks(const std::string& job, const std::string& toolchain,
                        const std::string& model_name, const std::vector<TaskRow>& tasks) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(JobData * data, Find(job));
    if (data->tasks.empty()) {
      data->tasks = tasks;
    } else {
      TW_TRY(CheckSameTasks(data->tasks, tasks));
    }
    data->row.toolchain = toolchain;
    if (data->row.model_name.empty()) data->row.model_name = model_name;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<TaskRow>> ListTasks(const std::string& job) override {
    MutexLock lock(mutex_);
    const auto found = Find(job);
    return found.ok() ? (*found)->tasks : std::vector<TaskRow>{};
  }

  absl::StatusOr<std::vector<TaskRow>> DistinctTasks(int64_t before_us) override {
    MutexLock lock(mutex_);
    std::map<std::string, TaskRow> by_hash;
    for (const auto& [id, data] : jobs_) {
      if (data.row.created_us >= before_us) continue;
      for (const TaskRow& task : data.tasks) {
        TaskRow& row = by_hash[task.hash];
        row.hash = task.hash;
        row.text = task.text;
      }
    }
    std::vector<TaskRow> tasks;
    for (auto& [hash, row] : by_hash) tasks.push_back(std::move(row));
    return tasks;
  }

  absl::StatusOr<std::vector<int64_t>> AddBatch(const std::string& job,
                                                const NewBatch& batch) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(JobData * data, Find(job));
    if (batch.batch) {
      for (const BatchRow& known : batches_) {
        if (known.id == batch.batch->id) {
          return support::AlreadyExists("log.batch.exists", support::Quote(known.id));
        }
      }
      batches_.push_back(*batch.batch);
    }
    drafts_.insert(drafts_.end(), batch.drafts.begin(), batch.drafts.end());
    std::vector<int64_t> numbers;
    for (TrialRow trial : batch.trials) {
      trial.number = data->trials.empty() ? 1 : data->trials.back().number + 1;
      numbers.push_back(trial.number);
      data->trials.push_back(std::move(trial));
    }
    return numbers;
  }

  absl::Status SetBuilt(const std::string& job, const std::vector<TrialBuilt>& built) override {
    MutexLock lock(mutex_);
    for (const TrialBuilt& one : built) TW_TRY(FindTrial(job, one.number).status());
    for (const TrialBuilt& one : built) {
      TrialRow* trial = *FindTrial(job, one.number);
      if (!IsFinal(trial->state)) *trial = ApplyBuilt(*trial, one);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<StoredNews>> StoreNews(const std::string& job,
                                                    const std::vector<TrialNews>& news,
                                                    double elapsed_s, int64_t now_us) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(JobData * data, Find(job));
    for (const TrialNews& one : news) TW_TRY(FindTrial(job, one.number).status());
    std::vector<StoredNews> stored;
    for (const TrialNews& one : news) stored.push_back(StoreOne(data, one, now_us));
    data->row.elapsed_s = elapsed_s;
    return stored;
  }

  absl::StatusOr<TrialRow> GetTrial(const std::string& job, int64_t number) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(const TrialRow* trial, FindTrial(job, number));
    return *trial;
  }

  absl::StatusOr<std::vector<TrialRow>> ListTrials(const TrialQuery& query) override {
    MutexLock lock(mutex_);
    const auto found = Find(query.job);
    if (!found.ok()) return std::vector<TrialRow>{};
    return Take((*found)->trials, query.limit, [&query](const TrialRow& trial) {
      return trial.number > query.after_number &&
             (query.task.empty() || trial.task == query.task) &&
             !(query.open_only && IsFinal(trial.state));
    });
  }

  absl::StatusOr<TrialCounts> CountTrials(const std::string& job) override {
    MutexLock lock(mutex_);
    TrialCounts counts;
    const auto found = Find(job);
    if (!found.ok()) return counts;
    for (const TrialRow& trial : (*found)->trials) {
      if (trial.generated_by == kFinal) {
        ++counts.finals;
        continue;
      }
      ++counts.proposed;
      if (!trial.artifact_sha256.empty()) ++counts.built;
      if (!IsFinal(trial.state)) continue;
      ++counts.ended;
      ++counts.by_outcome[trial.outcome];
    }
    for (const RecordRow& record : records_) {
      if (record.job == job) counts.device_s += record.run_s;
    }
    return counts;
  }

  absl::StatusOr<int64_t> CountBatches(const std::string& job) override {
    MutexLock lock(mutex_);
    return std::count_if(batches_.begin(), batches_.end(),
                         [&job](const BatchRow& batch) { return batch.job == job; });
  }

  absl::StatusOr<BatchPage> ListBatches(const BatchQuery& query) override {
    MutexLock lock(mutex_);
    BatchPage page{{}, query.after_seq};
    for (size_t i = static_cast<size_t>(query.after_seq); i < batches_.size(); ++i) {
      if (static_cast<int64_t>(page.batches.size()) >= query.limit) break;
      if (!query.job.empty() && batches_[i].job != query.job) continue;
      page.batches.push_back(batches_[i]);
      page.last_seq = static_cast<int64_t>(i) + 1;
    }
    return page;
  }

  absl::StatusOr<std::vector<DraftRow>> ListDrafts(const std::string& batch) override {
    MutexLock lock(mutex_);
    std::vector<DraftRow> rows = Take(drafts_, static_cast<int64_t>(drafts_.size()),
                                      [&](const DraftRow& row) { return row.batch == batch; });
    std::sort(rows.begin(), rows.end(),
              [](const DraftRow& a, const DraftRow& b) { return a.rank < b.rank; });
    return rows;
  }

  absl::StatusOr<std::vector<RecordRow>> ListRecords(const RecordQuery& query) override {
    MutexLock lock(mutex_);
    return Take(records_, query.limit, [&query](const RecordRow& record) {
      return record.seq > query.after_seq && (query.job.empty() || record.job == query.job);
    });
  }

  absl::StatusOr<std::vector<std::string>> ListMeasurementIds(const std::string& job,
                                                              int64_t trial) override {
    MutexLock lock(mutex_);
    std::vector<std::string> ids;
    for (const RecordRow& record : records_) {
      if (record.job == job && record.trial == trial) ids.push_back(record.measurement_id);
    }
    return ids;
  }

  absl::StatusOr<RecordRow> GetRecord(const std::string& measurement_id) override {
    MutexLock lock(mutex_);
    const RecordRow* record = FindRecord(measurement_id);
    if (record == nullptr) return Missing("record", measurement_id);
    return *record;
  }

  absl::StatusOr<RecordRow> BestRecord(const RecordKey& key) override {
    MutexLock lock(mutex_);
    const RecordRow* best = nullptr;
    for (const RecordRow& record : records_) {
      if (!record.accepted || !record.usable() || !(record.key == key)) continue;
      if (best == nullptr || record.median < best->median) best = &record;
    }
    if (best == nullptr) return Missing("record", key.task_hash);
    return *best;
  }

  absl::StatusOr<std::vector<RecordRow>> KnownRecords(const RecordKey& key, int64_t before_us,
                                                      int64_t after_position) override {
    MutexLock lock(mutex_);
    const auto all = static_cast<int64_t>(records_.size());
    std::vector<RecordRow> rows = Take(records_, all, [&](const RecordRow& record) {
      RecordKey wanted = key;
      if (key.device_class.empty()) wanted.device_class = record.key.device_class;
      return record.valid && record.stored_us < before_us &&
             record.known_position > after_position && record.key == wanted;
    });
    std::sort(rows.begin(), rows.end(), [](const RecordRow& a, const RecordRow& b) {
      return a.known_position < b.known_position;
    });
    return rows;
  }

  absl::Status AddModel(const ModelRow& model) override {
    MutexLock lock(mutex_);
    TW_TRY(Find(model.job).status());
    for (const ModelRow& known : models_) {
      if (known.job == model.job && known.id == model.id) return absl::OkStatus();
    }
    models_.push_back(model);
    return absl::OkStatus();
  }

  absl::StatusOr<ModelRow> GetModel(const std::string& job, const std::string& id) override {
    MutexLock lock(mutex_);
    for (auto model = models_.rbegin(); model != models_.rend(); ++model) {
      if (model->id == id && (job.empty() || model->job == job)) return WithBytes(*model);
    }
    return Missing("model", id);
  }

  absl::StatusOr<std::vector<ModelRow>> ListModels(const std::string& job) override {
    MutexLock lock(mutex_);
    std::vector<ModelRow> rows = Take(models_, static_cast<int64_t>(models_.size()),
                                      [&job](const ModelRow& row) { return row.job == job; });
    for (ModelRow& row : rows) row.bytes.clear();
    return rows;
  }

  absl::StatusOr<int64_t> PruneSearches(int64_t keep, int64_t window) override {
    MutexLock lock(mutex_);
    std::vector<JobRow> ended;
    for (const auto& [id, data] : jobs_) {
      if (data.row.ended_us > 0) ended.push_back(data.row);
    }
    std::sort(ended.begin(), ended.end(), [](const JobRow& a, const JobRow& b) {
      return std::tie(a.ended_us, a.id) > std::tie(b.ended_us, b.id);
    });
    int64_t pruned = 0;
    for (int64_t i = keep; i < static_cast<int64_t>(ended.size()) && i < keep + window; ++i) {
      pruned += PruneSearch(ended[static_cast<size_t>(i)].id) ? 1 : 0;
    }
    return pruned;
  }

  absl::StatusOr<ModuleVersionRow> AddModuleVersion(const ModuleVersionRow& version) override {
    MutexLock lock(mutex_);
    ModuleVersionRow row = version;
    row.number = std::max<int64_t>(row.number, 1);
    for (const ModuleVersionRow& known : versions_) {
      if (!version.job.empty() && known.job == version.job) return known;
      if (known.module == row.module) row.number = std::max(row.number, known.number + 1);
    }
    versions_.push_back(row);
    const auto found = Find(row.job);
    if (found.ok()) (*found)->row.published_module = ModuleVersionName(row.module, row.number);
    return row;
  }

  absl::StatusOr<ModuleVersionRow> UseModuleVersion(const std::string& job,
                                                    const std::string& module,
                                                    const std::string& recipe) override {
    MutexLock lock(mutex_);
    for (auto row = versions_.rbegin(); row != versions_.rend(); ++row) {
      if (recipe.empty() || row->recipe != recipe || row->module != module || row->pruned_us != 0) {
        continue;
      }
      const auto found = Find(job);
      if (found.ok()) (*found)->row.published_module = ModuleVersionName(module, row->number);
      return *row;
    }
    return Missing("module_version", module + " of recipe " + recipe);
  }

  absl::StatusOr<ModuleVersionRow> GetModuleVersion(const std::string& module,
                                                    int64_t number) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(const ModuleVersionRow* row, FindVersion(module, number));
    return *row;
  }

  absl::StatusOr<ModulePage> ListModuleVersions(const ModuleQuery& query) override {
    MutexLock lock(mutex_);
    ModulePage page;
    int64_t position = query.before_position == 0 ? static_cast<int64_t>(versions_.size()) + 1
                                                  : query.before_position;
    while (--position > 0 && static_cast<int64_t>(page.versions.size()) < query.limit) {
      const ModuleVersionRow& row = versions_[static_cast<size_t>(position) - 1];
      if (!query.module.empty() && row.module != query.module) continue;
      if (!query.model_sha256.empty() && row.model_sha256 != query.model_sha256) continue;
      if (!query.with_pruned && row.pruned_us != 0) continue;
      const auto& hashes = row.task_hashes;
      if (!query.task_hash.empty() &&
          std::find(hashes.begin(), hashes.end(), query.task_hash) == hashes.end()) {
        continue;
      }
      page.versions.push_back(row);
      page.last_position = position;
    }
    return page;
  }

  absl::Status SetModuleAlias(const ModuleAliasRow& alias) override {
    MutexLock lock(mutex_);
    const std::pair key(alias.module, alias.alias);
    if (alias.number == 0) {
      return aliases_.erase(key) == 1 ? absl::OkStatus() : Missing("module_alias", alias.alias);
    }
    TW_ASSIGN(const ModuleVersionRow* version, FindVersion(alias.module, alias.number));
    if (version->pruned_us != 0) return VersionPruned(*version);
    aliases_[key] = alias;
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<ModuleAliasRow>> ListModuleAliases(
      const std::string& module) override {
    MutexLock lock(mutex_);
    std::vector<ModuleAliasRow> rows;
    for (const auto& [key, row] : aliases_) {
      if (module.empty() || row.module == module) rows.push_back(row);
    }
    return rows;
  }

  absl::Status AddModuleSignature(const ModuleSignatureRow& signature) override {
    MutexLock lock(mutex_);
    TW_TRY(FindVersion(signature.module, signature.number).status());
    signatures_.emplace(std::tuple(signature.module, signature.number, signature.key_id,
                                   signature.format, signature.signature),
                        signature);
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<ModuleSignatureRow>> ListModuleSignatures(const std::string& module,
                                                                       int64_t number) override {
    MutexLock lock(mutex_);
    std::vector<ModuleSignatureRow> rows;
    for (const auto& [key, row] : signatures_) {
      if (row.module == module && row.number == number) rows.push_back(row);
    }
    return rows;
  }

  absl::Status RevokeModuleSignatures(const std::string& module, int64_t number,
                                      const std::string& key_id,
                                      const Revocation& revocation) override {
    MutexLock lock(mutex_);
    bool found = false;
    for (auto& [key, row] : signatures_) {
      if (row.module != module || row.number != number || row.key_id != key_id) continue;
      found = true;
      Revoke(revocation, &row);
    }
    return found ? absl::OkStatus()
                 : support::NotFound("log.module_signature.not_found", support::Quote(key_id));
  }

  absl::Status AddReleaseKey(const ReleaseKeyRow& key) override {
    MutexLock lock(mutex_);
    TW_ASSIGN(const bool is_new, IsNewReleaseKey(release_keys_, key));
    if (!is_new) return absl::OkStatus();
    release_keys_.push_back(key);
    std::sort(release_keys_.begin(), release_keys_.end(),
              [](const auto& a, const auto& b) { return a.key_id < b.key_id; });
    return absl::OkStatus();
  }

  absl::StatusOr<std::vector<ReleaseKeyRow>> ListReleaseKeys() override {
    MutexLock lock(mutex_);
    return release_keys_;
  }

  absl::StatusOr<ReleaseKeyRow> RevokeReleaseKey(const std::string& key_id,
                                                 const Revocation& revocation) override {
    MutexLock lock(mutex_);
    for (ReleaseKeyRow& row : release_keys_) {
      if (row.key_id != key_id) continue;
      Revoke(revocation, &row);
      return row;
    }
    return support::NotFound("log.release_key.not_found", support::Quote(key_id));
  }

  absl::StatusOr<std::vector<ModuleVersionRow>> PruneModuleVersions(
      const std::vector<ModuleVersionRow>& versions, int64_t now_us) override {
    MutexLock lock(mutex_);
    std::vector<ModuleVersionRow> marked;
    for (const ModuleVersionRow& wanted : versions) {
      TW_ASSIGN(ModuleVersionRow * version, FindVersion(wanted.module, wanted.number));
      const bool aliased = std::any_of(aliases_.begin(), aliases_.end(), [&](const auto& entry) {
        return entry.second.module == wanted.module && entry.second.number == wanted.number;
      });
      if (aliased || version->pruned_us != 0) continue;
      version->pruned_us = now_us;
      marked.push_back(*version);
    }
    return marked;
  }

  absl::StatusOr<bool> ModuleNumbersKept() override {
    MutexLock lock(mutex_);
    return numbers_kept_;
  }

  absl::Status KeepModuleNumbers(int64_t) override {
    MutexLock lock(mutex_);
    numbers_kept_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> AddImported(const Import& rows) override {
    MutexLock lock(mutex_);
    for (const JobRow& job : rows.jobs) {
      if (jobs_.count(job.id) != 0) continue;
      jobs_[job.id].row = job;
      jobs_[job.id].row.number = ++last_job_;
    }
    for (const TaskRow& task : rows.tasks) {
      TW_ASSIGN(JobData * data, Find(task.job));
      auto& tasks = data->tasks;
      if (std::none_of(tasks.begin(), tasks.end(),
                       [&task](const TaskRow& known) { return known.name == task.name; })) {
        tasks.push_back(task);
      }
    }
    for (const BatchRow& batch : rows.batches) {
      if (std::none_of(batches_.begin(), batches_.end(),
                       [&batch](const BatchRow& known) { return known.id == batch.id; })) {
        batches_.push_back(batch);
      }
    }
    for (const DraftRow& draft : rows.drafts) {
      if (std::none_of(drafts_.begin(), drafts_.end(), [&draft](const DraftRow& known) {
            return known.batch == draft.batch && known.rank == draft.rank;
          })) {
        drafts_.push_back(draft);
      }
    }
    for (const TrialRow& trial : rows.trials) {
      TW_ASSIGN(JobData * data, Find(trial.job));
      if (FindTrial(trial.job, trial.number).ok()) continue;
      auto& trials = data->trials;
      trials.insert(std::find_if(trials.begin(), trials.end(),
                                 [&](const TrialRow& t) { return t.number > trial.number; }),
                    trial);
    }
    int64_t added = 0;
    for (const RecordRow& record : rows.records) {
      if (FindRecord(record.measurement_id) != nullptr) continue;
      AddRecord(record);
      ++added;
    }
    return added;
  }

 private:
  absl::StatusOr<JobData*> Find(const std::string& id) TW_REQUIRES(mutex_) {
    const auto it = jobs_.find(id);
    if (it == jobs_.end()) return Missing("job", id);
    return &it->second;
  }

  absl::StatusOr<TrialRow*> FindTrial(const std::string& job, int64_t number) TW_REQUIRES(mutex_) {
    const auto found = Find(job);
    if (found.ok()) {
      for (TrialRow& trial : (*found)->trials) {
        if (trial.number == number) return &trial;
      }
    }
    return Missing("trial", support::StrCat(job, "/", number));
  }

  absl::StatusOr<ModuleVersionRow*> FindVersion(const std::string& module, int64_t number)
      TW_REQUIRES(mutex_) {
    for (ModuleVersionRow& row : versions_) {
      if (row.module == module && row.number == number) return &row;
    }
    return Missing("module_version", ModuleVersionName(module, number));
  }

  RecordRow* FindRecord(const std::string& measurement_id) TW_REQUIRES(mutex_) {
    const auto it = record_index_.find(measurement_id);
    return it == record_index_.end() ? nullptr : &records_[it->second];
  }

  void AddRecord(RecordRow record) TW_REQUIRES(mutex_) {
    record.seq = static_cast<int64_t>(records_.size()) + 1;
    record.known_position = 0;
    const bool accepted = std::exchange(record.accepted, false);
    record_index_[record.measurement_id] = records_.size();
    records_.push_back(std::move(record));
    if (accepted) Accept(&records_.back());
  }

  void Accept(RecordRow* record) TW_REQUIRES(mutex_) {
    if (record->accepted) return;
    record->accepted = true;
    record->known_position = ++last_known_;
  }

  StoredNews StoreOne(JobData* data, const TrialNews& news, int64_t now_us) TW_REQUIRES(mutex_) {
    TrialRow* trial = *FindTrial(data->row.id, news.number);
    StoredNews result;
    const bool ends = news.final && !IsFinal(trial->state);
    if (news.record) {
      RecordRow* known = FindRecord(news.record->measurement_id);
      if (known == nullptr) {
        RecordRow record = *news.record;
        record.accepted = ends;
        AddRecord(std::move(record));
        result.record_stored = true;
      } else if (ends) {
        Accept(known);
      }
    }
    if (!ends) return result;
    *trial = ApplyEnd(*trial, news, now_us);
    AddEvent(data,
             {.kind = EventRow::Kind::kTrial, .at_us = now_us, .trial = news.number, .text = ""});
    result.trial_ended = true;
    return result;
  }

  bool PruneSearch(const std::string& job) TW_REQUIRES(mutex_) {
    std::set<std::string> batches;
    for (const BatchRow& batch : batches_) {
      if (batch.job == job) batches.insert(batch.id);
    }
    bool pruned = std::erase_if(drafts_, [&batches](const DraftRow& draft) {
                    return batches.count(draft.batch) > 0;
                  }) > 0;
    bool is_last = true;
    for (auto model = models_.rbegin(); model != models_.rend(); ++model) {
      if (model->job != job) continue;
      if (!std::exchange(is_last, false) && !model->bytes.empty()) {
        model->bytes.clear();
        pruned = true;
      }
    }
    return pruned;
  }

  void AddEvent(JobData* data, EventRow event) {
    event.seq = static_cast<int64_t>(data->events.size()) + 1;
    data->events.push_back(std::move(event));
  }

  support::Mutex mutex_;
  std::map<std::string, JobData> jobs_ TW_GUARDED_BY(mutex_);
  int64_t last_job_ TW_GUARDED_BY(mutex_) = 0;
  std::vector<BatchRow> batches_ TW_GUARDED_BY(mutex_);
  std::vector<DraftRow> drafts_ TW_GUARDED_BY(mutex_);
  std::vector<RecordRow> records_ TW_GUARDED_BY(mutex_);  // seq - 1 is the index
  int64_t last_known_ TW_GUARDED_BY(mutex_) = 0;
  std::map<std::string, size_t> record_index_ TW_GUARDED_BY(mutex_);
  std::vector<ModelRow> models_ TW_GUARDED_BY(mutex_);
  std::vector<ModuleVersionRow> versions_ TW_GUARDED_BY(mutex_);
  std::map<std::pair<std::string, std::string>, ModuleAliasRow> aliases_ TW_GUARDED_BY(mutex_);
  std::map<std::tuple<std::string, int64_t, std::string, int64_t, std::string>, ModuleSignatureRow>
      signatures_ TW_GUARDED_BY(mutex_);
  std::vector<ReleaseKeyRow> release_keys_ TW_GUARDED_BY(mutex_);  // by id
  bool numbers_kept_ TW_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::unique_ptr<TuningLog> MakeMemoryLog() { return std::make_unique<MemoryLog>(); }

}  // namespace tilewright::log
