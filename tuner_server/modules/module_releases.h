// Who may release modules, and what they released: registered public keys, signatures of versions,
// revocations. A signature is checked with its registered key before it is kept, so no caller can
// fill a version with bytes that only look like one. Owns nothing; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/security/module_signature.h"
#include "deploy/support/mutex.h"
#include "tuner_server/log/tuning_log.h"

namespace tilewright::modules {

// Of one version: a few keys in two formats.
inline constexpr size_t kMaxSignatures = 32;

// The signatures of a version, as clients get them.
struct VersionSignatures {
  std::vector<log::ModuleSignatureRow> valid;    // not revoked; by keys that are not revoked
  std::vector<log::ModuleSignatureRow> revoked;  // with the reason of signature or key
};

class ModuleReleases {
 public:
  // `signer` is the server's own key for Sign; null: it has none.
  ModuleReleases(log::TuningLog* log, const security::ModuleSigner* signer)
      : log_(log), signer_(signer) {}

  // Registers the server's own key, if it has one. A revoked one stays revoked.
  absl::Status RegisterOwnKey(int64_t now_us);
  // Registers the 32 raw bytes of a public key. invalid_argument (signing.key.kind,
  // module.key.name) and the log's errors.
  absl::StatusOr<log::ReleaseKeyRow> AddKey(std::string_view public_key, const std::string& name,
                                            int64_t now_us, const std::string& caller);
  absl::StatusOr<log::ReleaseKeyRow> RevokeKey(const std::string& key_id,
                                               const log::Revocation& revocation);

  // Keeps a signature of the version that a registered key made. failed_precondition:
  // module.key.unregistered, module.key.revoked, module.signature.revoked,
  // signing.signature.wrong, log.module_version.pruned; resource_exhausted:
  // module.signature.too_many.
  absl::Status Add(const log::ModuleVersionRow& version, const security::ModuleSignature& signature,
                   int64_t now_us, const std::string& caller);
  // Signs the version with the server's own key. failed_precondition: module.release.no_key, and
  // those of Add.
  absl::Status Sign(const log::ModuleVersionRow& version, int64_t now_us,
                    const std::string& caller);
  // Takes back what one key said of the version.
  absl::Status Revoke(const log::ModuleVersionRow& version, const std::string& key_id,
                      const log::Revocation& revocation);

  absl::StatusOr<VersionSignatures> List(const log::ModuleVersionRow& version);

 private:
  absl::StatusOr<log::ReleaseKeyRow> UsableKey(const std::string& key_id);
  // Signatures of the version that registered keys made, revoked ones, too.
  absl::StatusOr<std::vector<log::ModuleSignatureRow>> Checked(
      const log::ModuleVersionRow& version);

  log::TuningLog* log_;
  const security::ModuleSigner* signer_;
  support::Mutex adding_;  // between the look at a version's signatures and one more
};

}  // namespace tilewright::modules
