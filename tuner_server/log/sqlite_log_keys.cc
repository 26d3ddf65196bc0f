// Keys that release modules, and revocations. Part of SqliteLog.
#include "tuner_server/log/log_rules.h"
#include "tuner_server/log/sqlite_log_impl.h"

namespace tilewright::log {

using sql::Statement;
using sql::Transaction;
using support::MutexLock;

absl::Status SqliteLog::AddReleaseKey(const ReleaseKeyRow& key) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
  TW_ASSIGN(const std::vector<ReleaseKeyRow> known, ReadReleaseKeys());
  TW_ASSIGN(const bool is_new, IsNewReleaseKey(known, key));
  if (!is_new) return absl::OkStatus();
  TW_TRY(InsertOne(key));
  return transaction.Commit();
}

absl::StatusOr<std::vector<ReleaseKeyRow>> SqliteLog::ListReleaseKeys() {
  MutexLock lock(mutex_);
  return ReadReleaseKeys();
}

absl::StatusOr<ReleaseKeyRow> SqliteLog::RevokeReleaseKey(const std::string& key_id,
                                                          const Revocation& revocation) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
  TW_ASSIGN(Statement find, Select<ReleaseKeyRow>("WHERE key_id = ?1"));
  find.BindText(1, key_id);
  TW_ASSIGN(ReleaseKeyRow row, ReadOne<ReleaseKeyRow>(&find, "release_key", key_id));
  Revoke(revocation, &row);
  TW_ASSIGN(
      Statement set,
      db_.Prepare(SealedUpdate<ReleaseKeyRow>(
          {{"revoked_us", "?2"}, {"revoked_by", "?3"}, {"revoke_reason", "?4"}}, "key_id = ?1")));
  TW_TRY(set.BindText(1, key_id)
             .BindInt64(2, row.revoked_us)
             .BindText(3, row.revoked_by)
             .BindText(4, row.revoke_reason)
             .Run());
  TW_TRY(transaction.Commit());
  return row;
}

absl::Status SqliteLog::RevokeModuleSignatures(const std::string& module, int64_t number,
                                               const std::string& key_id,
                                               const Revocation& revocation) {
  MutexLock lock(mutex_);
  TW_ASSIGN(Transaction transaction, Transaction::Begin(&db_));
  const std::string which = "module = ?1 AND number = ?2 AND key_id = ?3";
  TW_ASSIGN(Statement find, Select<ModuleSignatureRow>("WHERE " + which + " LIMIT 1"));
  find.BindText(1, module).BindInt64(2, number).BindText(3, key_id);
  TW_TRY(ReadOne<ModuleSignatureRow>(&find, "module_signature", key_id).status());
  TW_ASSIGN(Statement set,
            db_.Prepare(SealedUpdate<ModuleSignatureRow>(
                {{"revoked_us", "?4"}, {"revoked_by", "?5"}, {"revoke_reason", "?6"}},
                which + " AND revoked_us = 0")));
  TW_TRY(set.BindText(1, module)
             .BindInt64(2, number)
             .BindText(3, key_id)
             .BindInt64(4, revocation.now_us)
             .BindText(5, revocation.caller)
             .BindText(6, revocation.reason)
             .Run());
  return transaction.Commit();
}

absl::StatusOr<std::vector<ReleaseKeyRow>> SqliteLog::ReadReleaseKeys() {
  TW_ASSIGN(Statement find, Select<ReleaseKeyRow>("ORDER BY key_id"));
  return ReadRows<ReleaseKeyRow>(&find);
}

}  // namespace tilewright::log
