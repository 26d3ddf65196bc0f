#include "tuner_server/cli/module_trust.h"

#include <optional>
#include <set>

#include "deploy/daemon/wire.h"
#include "deploy/support/env.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/module_commands.h"
#include "tuner_server/log/target_text.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

constexpr std::string_view kDigestPrefix = "sha256:";
constexpr size_t kDigestBytes = 32;
constexpr uint64_t kMaxSignatureBytes = 64 << 10;

bool TargetFits(const std::string& tuned, const std::string& wanted, bool exact) {
  if (wanted.empty() || tuned == wanted) return true;
  const auto a = log::ParseTargetText(tuned);
  const auto b = log::ParseTargetText(wanted);
  if (!a.ok() || !b.ok()) return false;
  if (a->ToString() == b->ToString()) return true;
  return !exact && a->WithoutThreads() == b->WithoutThreads();
}

// Why no signature by the key counts.
absl::Status NoSignature(const std::string& key_path, const std::string& key_id,
                         const v1::ModuleVersion& version) {
  for (const v1::ModuleSignature& one : version.revoked_signatures()) {
    if (one.key_id() != key_id) continue;
    return support::FailedPrecondition(
        "signing.signature.revoked",
        StrCat("the release of ", version.name(), " by key ", key_id, " was revoked by ",
               support::Quote(one.revoked_by(), 100), ": ",
               support::Quote(one.revoke_reason(), 200)));
  }
  std::set<std::string> others;
  for (const v1::ModuleSignature& one : version.signatures()) others.insert(one.key_id());
  if (others.empty()) {
    return support::FailedPrecondition(
        "signing.signature.missing",
        version.name() + " is published, but not released: it has no signature");
  }
  return support::FailedPrecondition(
      "signing.signature.other_key",
      StrCat(version.name(), " is signed by key ", support::Join(others, ", "), ", not by key ",
             key_id, " of ", key_path));
}

}  // namespace

std::string TrustedKey(const std::string& flag) {
  return flag.empty() ? support::GetEnv("TILEWRIGHT_MODULE_KEY").value_or("") : flag;
}

absl::StatusOr<std::string> ParseDigestFlag(const std::string& text) {
  const std::string hex =
      support::ToLower(text.starts_with(kDigestPrefix) ? text.substr(kDigestPrefix.size()) : text);
  const auto bytes = support::HexDecode(hex);
  if (bytes && bytes->size() == kDigestBytes) return hex;
  return support::InvalidArgument(
      "cli.usage.digest",
      "expected sha256: and 64 hexadecimal digits, found " + support::Quote(text));
}

absl::Status CheckPinned(const v1::ModuleVersion& version, const std::string& pinned) {
  if (pinned.empty()) return absl::OkStatus();
  TW_ASSIGN(const std::string wanted, ParseDigestFlag(pinned));
  TW_ASSIGN(const security::ModuleClaim claim, ClaimOf(version));
  if (claim.sha256 == wanted) return absl::OkStatus();
  return support::FailedPrecondition(
      "module.digest.other", StrCat("expected the bytes sha256:", wanted, ", ", version.name(),
                                    " has sha256:", claim.sha256));
}

absl::StatusOr<security::ModuleClaim> ClaimOf(const v1::ModuleVersion& version) {
  if (version.files().empty()) {
    return support::DataLoss("module.files.missing", version.name() + " names no file");
  }
  security::ModuleClaim claim;
  TW_ASSIGN(claim.sha256, daemon::DigestToHex(version.files(0).digest()));
  TW_ASSIGN(const ModuleRef ref, ParseModule(version.name()));
  claim.module = LastPart(ref.module);
  claim.version = ref.number;
  claim.target = TargetText(version);
  return claim;
}

absl::Status CheckExpectation(const security::DetachedSignature& trusted,
                              const ModuleExpectation& expected) {
  const security::ModuleClaim& claim = trusted.claim;
  if (trusted.signature.format == security::kBytesFormat) {
    const bool asked = !expected.module.empty() || !expected.target.empty();
    if (expected.bytes_only || !asked) return absl::OkStatus();
    return support::FailedPrecondition(
        "signing.signature.bytes_only",
        StrCat("the signature by key ", trusted.signature.key_id, " has format 1: it covers the ",
               "bytes ", claim.sha256, ", but no name, version or target"));
  }
  const std::string full = StrCat(claim.module, "/", claim.version);
  const bool named =
      expected.module.empty() || expected.module == claim.module || expected.module == full;
  if (named && TargetFits(claim.target, expected.target, expected.exact)) return absl::OkStatus();
  return support::FailedPrecondition(
      "signing.signature.other_version",
      StrCat("expected a release of ", expected.module.empty() ? "any module" : expected.module,
             expected.target.empty() ? "" : " for " + expected.target, ", the signature is about ",
             full, " for ", claim.target));
}

absl::StatusOr<security::DetachedSignature> TrustedSignature(const std::string& key_path,
                                                             const v1::ModuleVersion& version,
                                                             const ModuleExpectation& expected) {
  TW_ASSIGN(const auto verifier, security::ModuleVerifier::Load(key_path));
  TW_ASSIGN(const security::ModuleClaim claim, ClaimOf(version));
  absl::Status refused = NoSignature(key_path, verifier->key_id(), version);
  std::optional<security::DetachedSignature> best;
  for (const v1::ModuleSignature& one : version.signatures()) {
    if (one.key_id() != verifier->key_id()) continue;
    const int format = one.format() == 0 ? security::kBytesFormat : one.format();
    const security::DetachedSignature found{claim, {one.key_id(), one.signature(), format}};
    const absl::Status verified = verifier->Verify(claim, found.signature);
    if (!verified.ok()) {
      refused = verified;
    } else if (!best || format > best->signature.format) {
      best = found;
    }
  }
  if (!best) return refused;
  TW_TRY(CheckExpectation(*best, expected));
  return *best;
}

std::string SignaturePath(const std::string& given, const std::string& module_path) {
  return given.empty() ? module_path + security::kSignatureSuffix : given;
}

absl::StatusOr<security::DetachedSignature> VerifyDetached(const std::string& key_path,
                                                           const std::string& signature,
                                                           const std::string& module_path,
                                                           std::string_view bytes,
                                                           const ModuleExpectation& expected) {
  TW_ASSIGN(const auto verifier, security::ModuleVerifier::Load(key_path));
  const std::string path = SignaturePath(signature, module_path);
  if (!support::FileExists(path)) {
    return support::FailedPrecondition("signing.signature.missing",
                                       "expected a signature in " + path + ", found no file");
  }
  TW_ASSIGN(const std::string text, support::ReadFile(path, kMaxSignatureBytes));
  TW_ASSIGN(security::DetachedSignature trusted,
            security::ParseSignatureFile(text, support::Sha256Hex(bytes)));
  TW_TRY(verifier->Verify(trusted.claim, trusted.signature));
  TW_TRY(CheckExpectation(trusted, expected));
  return trusted;
}

std::string SignedText(const security::DetachedSignature& trusted) {
  const security::ModuleClaim& claim = trusted.claim;
  const bool release = trusted.signature.format == security::kReleaseFormat;
  return StrCat(
      release ? StrCat("released as ", claim.module, "/", claim.version, " for ", claim.target)
              : std::string("signed (the bytes alone: no name, version or target)"),
      " by key ", trusted.signature.key_id);
}

}  // namespace tilewright::cli
