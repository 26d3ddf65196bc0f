// Whether a module may be used: signatures of a version, and what they must say. Pure but for
// reading keys and detached signatures.
#pragma once

#include <string>
#include <string_view>

#include "deploy/security/module_signature.h"
#include "deploy/support/status.h"
#include "tilewright/v1/module.pb.h"

namespace tilewright::cli {

// --key, else TILEWRIGHT_MODULE_KEY, else empty.
std::string TrustedKey(const std::string& flag);

// "sha256:HEX" or "HEX" -> lower-case HEX of 64 digits. invalid_argument (cli.usage.digest).
absl::StatusOr<std::string> ParseDigestFlag(const std::string& text);
// failed_precondition (module.digest.other) unless the version has the bytes of `pinned`, as
// ParseDigestFlag reads it. An empty pin fits any version.
absl::Status CheckPinned(const v1::ModuleVersion& version, const std::string& pinned);

// What a version claims to be: module, number, target and digest. data_loss (module.files.missing).
absl::StatusOr<security::ModuleClaim> ClaimOf(const v1::ModuleVersion& version);

// What the caller asked for, as far as it was said.
struct ModuleExpectation {
  std::string module;       // "dqn" or "dqn/3"; empty: any
  std::string target;       // canonical text; empty: any
  bool exact = false;       // no other number of threads
  bool bytes_only = false;  // a signature of format 1, which says nothing of the above, will do
};
// Compares what was signed with what was asked for. failed_precondition:
// signing.signature.bytes_only, signing.signature.other_version.
absl::Status CheckExpectation(const security::DetachedSignature& trusted,
                              const ModuleExpectation& expected);

// Returns the signature of a version by the owner of the public key in `key_path`, checked.
// failed_precondition: signing.signature.missing (it is not released), .other_key (others did),
// .revoked (with the reason), .wrong, and those of CheckExpectation.
absl::StatusOr<security::DetachedSignature> TrustedSignature(const std::string& key_path,
                                                             const v1::ModuleVersion& version,
                                                             const ModuleExpectation& expected);

// The file of a module's detached signature: `given`, or the module's path with ".sig".
std::string SignaturePath(const std::string& given, const std::string& module_path);
// Checks that the owner of the public key in `key_path` signed these bytes, by the detached
// signature in SignaturePath. failed_precondition: signing.signature.missing (no such file),
// .wrong, and those of CheckExpectation.
absl::StatusOr<security::DetachedSignature> VerifyDetached(const std::string& key_path,
                                                           const std::string& signature,
                                                           const std::string& module_path,
                                                           std::string_view bytes,
                                                           const ModuleExpectation& expected);
// "released as dqn/3 for TARGET by key ID", or that the bytes alone are signed.
std::string SignedText(const security::DetachedSignature& trusted);

}  // namespace tilewright::cli
