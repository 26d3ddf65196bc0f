#include "tuner_server/modules/module_releases.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "deploy/support/strings.h"
#include "tuner_server/modules/version_choice.h"

namespace tilewright::modules {
namespace {

using support::StrCat;

constexpr size_t kMaxKeyName = 80;

absl::Status CheckKeyName(const std::string& name) {
  const bool printable =
      std::all_of(name.begin(), name.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (printable && name.size() <= kMaxKeyName) return absl::OkStatus();
  return support::InvalidArgument(
      "module.key.name", StrCat("expected at most ", kMaxKeyName,
                                " printable ASCII characters, found ", support::Quote(name, 100)));
}

security::ModuleClaim ClaimOf(const log::ModuleVersionRow& version) {
  return {version.sha256, version.module, version.number, version.target};
}

absl::StatusOr<std::unique_ptr<security::ModuleVerifier>> VerifierOf(
    const log::ReleaseKeyRow& key) {
  return security::ModuleVerifier::FromRaw(support::HexDecode(key.public_key).value_or(""));
}

}  // namespace

absl::Status ModuleReleases::RegisterOwnKey(int64_t now_us) {
  if (signer_ == nullptr) return absl::OkStatus();
  TW_ASSIGN(const std::string public_key, signer_->public_key());
  const absl::Status added =
      AddKey(public_key, "this server (--module-key)", now_us, "tilewright-tuner").status();
  return support::Slug(added) == "log.release_key.revoked" ? absl::OkStatus() : added;
}

absl::StatusOr<log::ReleaseKeyRow> ModuleReleases::AddKey(std::string_view public_key,
                                                          const std::string& name, int64_t now_us,
                                                          const std::string& caller) {
  TW_TRY(CheckKeyName(name));
  TW_ASSIGN(const auto verifier, security::ModuleVerifier::FromRaw(public_key));
  TW_TRY(log_->AddReleaseKey(
      {verifier->key_id(), support::HexEncode(public_key), name, now_us, caller}));
  return UsableKey(verifier->key_id());
}

absl::StatusOr<log::ReleaseKeyRow> ModuleReleases::RevokeKey(const std::string& key_id,
                                                             const log::Revocation& revocation) {
  return log_->RevokeReleaseKey(key_id, revocation);
}

absl::StatusOr<log::ReleaseKeyRow> ModuleReleases::UsableKey(const std::string& key_id) {
  TW_ASSIGN(const std::vector<log::ReleaseKeyRow> keys, log_->ListReleaseKeys());
  for (const log::ReleaseKeyRow& key : keys) {
    if (key.key_id != key_id) continue;
    if (key.revoked_us == 0) return key;
    return support::FailedPrecondition(
        "module.key.revoked", StrCat("key ", key_id, " was revoked by ", key.revoked_by, ": ",
                                     support::Quote(key.revoke_reason, 200)));
  }
  return support::FailedPrecondition(
      "module.key.unregistered",
      StrCat("expected one of the ", keys.size(),
             " keys that are registered on this server, found ", support::Quote(key_id)));
}

// Rows of older versions were not checked when they came: they must keep no good one away.
absl::StatusOr<std::vector<log::ModuleSignatureRow>> ModuleReleases::Checked(
    const log::ModuleVersionRow& version) {
  TW_ASSIGN(std::vector<log::ModuleSignatureRow> rows,
            log_->ListModuleSignatures(version.module, version.number));
  TW_ASSIGN(const std::vector<log::ReleaseKeyRow> keys, log_->ListReleaseKeys());
  std::map<std::string, std::unique_ptr<security::ModuleVerifier>> verifiers;
  for (const log::ReleaseKeyRow& key : keys) {
    TW_ASSIGN(verifiers[key.key_id], VerifierOf(key));
  }
  std::erase_if(rows, [&](const log::ModuleSignatureRow& row) {
    const auto verifier = verifiers.find(row.key_id);
    const security::ModuleSignature made{row.key_id, support::HexDecode(row.signature).value_or(""),
                                         static_cast<int>(row.format)};
    return verifier == verifiers.end() || !verifier->second->Verify(ClaimOf(version), made).ok();
  });
  return rows;
}

absl::Status ModuleReleases::Add(const log::ModuleVersionRow& version,
                                 const security::ModuleSignature& signature, int64_t now_us,
                                 const std::string& caller) {
  if (version.pruned_us != 0) {
    return support::FailedPrecondition("log.module_version.pruned",
                                       ShortName(version) + " was pruned: its bytes are gone");
  }
  const support::MutexLock lock(adding_);
  TW_ASSIGN(const log::ReleaseKeyRow key, UsableKey(signature.key_id));
  TW_ASSIGN(const auto verifier, VerifierOf(key));
  TW_TRY(verifier->Verify(ClaimOf(version), signature));
  TW_ASSIGN(const std::vector<log::ModuleSignatureRow> rows, Checked(version));
  for (const log::ModuleSignatureRow& row : rows) {
    if (row.key_id != key.key_id) continue;
    if (row.revoked_us != 0) {
      return support::FailedPrecondition(
          "module.signature.revoked",
          StrCat("the release of ", ShortName(version), " by key ", key.key_id, " was revoked by ",
                 row.revoked_by, ": ", support::Quote(row.revoke_reason, 200)));
    }
    if (row.format == signature.format) return absl::OkStatus();
  }
  if (rows.size() >= kMaxSignatures) {
    return support::ResourceExhausted(
        "module.signature.too_many",
        StrCat("expected at most ", kMaxSignatures, " signatures of a version, found as many"));
  }
  return log_->AddModuleSignature({version.module, version.number, key.key_id,
                                   support::HexEncode(signature.signature), now_us, caller,
                                   signature.format});
}

absl::Status ModuleReleases::Sign(const log::ModuleVersionRow& version, int64_t now_us,
                                  const std::string& caller) {
  if (signer_ == nullptr) {
    return support::FailedPrecondition("module.release.no_key",
                                       "expected a server with --module-key, found one without");
  }
  TW_ASSIGN(const security::ModuleSignature made, signer_->Sign(ClaimOf(version)));
  return Add(version, made, now_us, caller);
}

absl::Status ModuleReleases::Revoke(const log::ModuleVersionRow& version, const std::string& key_id,
                                    const log::Revocation& revocation) {
  return log_->RevokeModuleSignatures(version.module, version.number, key_id, revocation);
}

absl::StatusOr<VersionSignatures> ModuleReleases::List(const log::ModuleVersionRow& version) {
  TW_ASSIGN(std::vector<log::ModuleSignatureRow> rows,
            log_->ListModuleSignatures(version.module, version.number));
  VersionSignatures signatures;
  if (rows.empty()) return signatures;
  TW_ASSIGN(const std::vector<log::ReleaseKeyRow> keys, log_->ListReleaseKeys());
  for (log::ModuleSignatureRow& row : rows) {
    for (const log::ReleaseKeyRow& key : keys) {
      if (key.key_id != row.key_id || key.revoked_us == 0 || row.revoked_us != 0) continue;
      row.revoked_us = key.revoked_us;
      row.revoked_by = key.revoked_by;
      row.revoke_reason = key.revoke_reason;
    }
    (row.revoked_us == 0 ? signatures.valid : signatures.revoked).push_back(std::move(row));
  }
  return signatures;
}

}  // namespace tilewright::modules
