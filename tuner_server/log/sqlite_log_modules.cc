// Cost models, and giving them up; module versions with their aliases and signatures. Part of
// SqliteLog.
#include <algorithm>

#include "tuner_server/log/log_rules.h"
#include "tuner_server/log/sqlite_log_impl.h"

namespace tilewright::log {

using sql::Statement;
using sql::Transaction;
using support::Failpoint;
using support::MutexLock;

absl::Status SqliteLog::AddModel(const ModelRow& model) {
  MutexLock lock(mutex_);
  TW_TRY(InsertOne(model, "OR IGNORE"));
  support::HitFailpoint(Failpoint::tuner_model_added);
  return absl::OkStatus();
}

absl::StatusOr<ModelRow> SqliteLog::GetModel(const std::string& job, const std::string& id) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find,
            Select<ModelRow>("WHERE id = ?1 AND (?2 = '' OR job = ?2) ORDER BY seq DESC LIMIT 1"));
  find.BindText(1, id).BindText(2, job);
  TW_ASSIGN(ModelRow model, ReadOne<ModelRow>(&find, "model", id));
  return WithBytes(std::move(model));
}

absl::StatusOr<std::vector<ModelRow>> SqliteLog::ListModels(const std::string& job) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find, Select<ModelRow>("WHERE job = ?1 ORDER BY seq"));
  find.BindText(1, job);
  TW_ASSIGN(std::vector<ModelRow> models, ReadRows<ModelRow>(&find));
  for (ModelRow& model : models) model.bytes.clear();
  return models;
}

absl::StatusOr<std::vector<std::string>> SqliteLog::EndedJobs(int64_t skip, int64_t limit) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find, db_.Prepare("SELECT id FROM jobs WHERE ended_us > 0 "
                                        "ORDER BY ended_us DESC, id DESC LIMIT ?2 OFFSET ?1"));
  find.BindInt64(1, skip).BindInt64(2, limit);
  std::vector<std::string> jobs;
  for (;;) {
    TW_ASSIGN(const bool more, find.Step());
    if (!more) return jobs;
    jobs.emplace_back(find.ColumnText(0));
  }
}

absl::StatusOr<bool> SqliteLog::PruneSearch(const std::string& job) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
  TW_ASSIGN(Statement drafts, db_.Prepare("DELETE FROM drafts WHERE batch IN "
                                          "(SELECT id FROM batches WHERE job = ?1)"));
  TW_TRY(drafts.BindText(1, job).Run());
  bool pruned = db_.changes() > 0;
  TW_ASSIGN(Statement models,
            db_.Prepare(SealedUpdate<ModelRow>(
                {{"bytes", "x''"}},
                "job = ?1 AND bytes <> x'' AND seq < (SELECT max(seq) FROM models WHERE job = "
                "?1)")));
  TW_TRY(models.BindText(1, job).Run());
  pruned = pruned || db_.changes() > 0;
  TW_TRY(transaction.Commit());
  return pruned;
}

// One transaction for each job: others wait no longer than that.
absl::StatusOr<int64_t> SqliteLog::PruneSearches(int64_t keep, int64_t window) {
  TW_ASSIGN(const std::vector<std::string> jobs, EndedJobs(keep, window));
  int64_t pruned = 0;
  for (const std::string& job : jobs) {
    TW_ASSIGN(const bool any, PruneSearch(job));
    pruned += any ? 1 : 0;
  }
  return pruned;
}

absl::StatusOr<ModuleVersionRow> SqliteLog::AddModuleVersion(const ModuleVersionRow& version) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
  if (!version.job.empty()) {
    TW_ASSIGN(Statement find, Select<ModuleVersionRow>("WHERE job = ?1"));
    find.BindText(1, version.job);
    TW_ASSIGN(std::vector<ModuleVersionRow> same, ReadRows<ModuleVersionRow>(&find));
    if (!same.empty()) return std::move(same.front());
  }
  ModuleVersionRow row = version;
  TW_ASSIGN(Statement last, db_.Prepare("SELECT ifnull(max(number), 0) + 1 FROM module_versions "
                                        "WHERE module = ?1"));
  last.BindText(1, row.module);
  TW_TRY(last.Step().status());
  row.number = std::max(row.number, last.ColumnInt64(0));
  last.Reset();
  TW_TRY(InsertOne(row));
  TW_TRY(WritePublished(row.job, row));
  TW_TRY(
      CommitBetween(Failpoint::tuner_version_adding, &transaction, Failpoint::tuner_version_added));
  return row;
}

absl::StatusOr<ModuleVersionRow> SqliteLog::UseModuleVersion(const std::string& job,
                                                             const std::string& module,
                                                             const std::string& recipe) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
  TW_ASSIGN(Statement find,
            Select<ModuleVersionRow>("WHERE recipe = ?1 AND recipe <> '' AND module = ?2 AND "
                                     "pruned_us = 0 ORDER BY number DESC LIMIT 1"));
  find.BindText(1, recipe).BindText(2, module);
  TW_ASSIGN(ModuleVersionRow row,
            ReadOne<ModuleVersionRow>(&find, "module_version", module + " of recipe " + recipe));
  TW_TRY(WritePublished(job, row));
  TW_TRY(
      CommitBetween(Failpoint::tuner_version_adding, &transaction, Failpoint::tuner_version_added));
  return row;
}

absl::StatusOr<ModuleVersionRow> SqliteLog::GetModuleVersion(const std::string& module,
                                                             int64_t number) {
  MutexLock lock(mutex_);
  return ReadVersion(module, number);
}

absl::StatusOr<ModulePage> SqliteLog::ListModuleVersions(const ModuleQuery& query) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find, Select<ModuleVersionRow>(
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

absl::Status SqliteLog::SetModuleAlias(const ModuleAliasRow& alias) {
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
  TW_TRY(InsertOne(alias, "OR REPLACE"));
  return transaction.Commit();
}

absl::StatusOr<std::vector<ModuleAliasRow>> SqliteLog::ListModuleAliases(
    const std::string& module) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find,
            Select<ModuleAliasRow>("WHERE ?1 = '' OR module = ?1 ORDER BY module, alias"));
  find.BindText(1, module);
  return ReadRows<ModuleAliasRow>(&find);
}

absl::Status SqliteLog::AddModuleSignature(const ModuleSignatureRow& signature) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
  TW_TRY(ReadVersion(signature.module, signature.number).status());
  TW_TRY(InsertOne(signature, "OR IGNORE"));
  return transaction.Commit();
}

absl::StatusOr<std::vector<ModuleSignatureRow>> SqliteLog::ListModuleSignatures(
    const std::string& module, int64_t number) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement find, Select<ModuleSignatureRow>("WHERE module = ?1 AND number = ?2 "
                                                       "ORDER BY key_id, format, signature"));
  find.BindText(1, module).BindInt64(2, number);
  return ReadRows<ModuleSignatureRow>(&find);
}

absl::StatusOr<std::vector<ModuleVersionRow>> SqliteLog::PruneModuleVersions(
    const std::vector<ModuleVersionRow>& versions, int64_t now_us) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
  TW_ASSIGN(Statement mark,
            db_.Prepare(SealedUpdate<ModuleVersionRow>(
                {{"pruned_us", "?3"}},
                "module = ?1 AND number = ?2 AND pruned_us = 0 AND NOT EXISTS (SELECT 1 FROM "
                "module_aliases AS a WHERE a.module = ?1 AND a.number = ?2)")));
  std::vector<ModuleVersionRow> marked;
  for (const ModuleVersionRow& wanted : versions) {
    TW_ASSIGN(ModuleVersionRow version, ReadVersion(wanted.module, wanted.number));
    TW_TRY(mark.BindText(1, wanted.module).BindInt64(2, wanted.number).BindInt64(3, now_us).Run());
    if (db_.changes() == 0) continue;
    version.pruned_us = now_us;
    marked.push_back(std::move(version));
  }
  TW_TRY(transaction.Commit());
  return marked;
}

absl::StatusOr<bool> SqliteLog::ModuleNumbersKept() {
  MutexLock lock(mutex_);
  TW_ASSIGN(const int64_t rows, db_.QueryInt64("SELECT count(*) FROM module_numbering"));
  return rows > 0;
}

absl::Status SqliteLog::KeepModuleNumbers(int64_t now_us) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Statement insert, db_.Prepare("INSERT INTO module_numbering (since_us) SELECT ?1 WHERE "
                                          "NOT EXISTS (SELECT 1 FROM module_numbering)"));
  return insert.BindInt64(1, now_us).Run();
}

absl::StatusOr<ModuleVersionRow> SqliteLog::ReadVersion(const std::string& module, int64_t number) {
  TW_ASSIGN(Statement find, Select<ModuleVersionRow>("WHERE module = ?1 AND number = ?2"));
  find.BindText(1, module).BindInt64(2, number);
  return ReadOne<ModuleVersionRow>(&find, "module_version", ModuleVersionName(module, number));
}

absl::Status SqliteLog::WritePublished(const std::string& job, const ModuleVersionRow& version) {
  TW_ASSIGN(Statement set,
            db_.Prepare(SealedUpdate<JobRow>({{"published_module", "?2"}}, "id = ?1")));
  return set.BindText(1, job).BindText(2, ModuleVersionName(version.module, version.number)).Run();
}

}  // namespace tilewright::log
