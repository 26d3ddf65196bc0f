#include "tuner_server/cli/module_release.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "deploy/module/module_file.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/module_fetch.h"
#include "tuner_server/cli/module_trust.h"
#include "tuner_server/log/target_text.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

std::string Canonical(const std::string& target) {
  const auto parsed = log::ParseTargetText(target);
  return parsed.ok() ? parsed->ToString() : target;
}

// What the signature will say must be true of the bytes.
absl::Status CheckModule(const std::string& path, const security::ModuleClaim& claim) {
  TW_ASSIGN(const module::ModuleFile file, module::ModuleFile::Open(path));
  const std::string sha256 = support::Sha256Hex(file.bytes());
  const std::string name = StrCat(claim.module, "/", claim.version);
  if (sha256 != claim.sha256) {
    return support::FailedPrecondition(
        "signing.file.other_module",
        StrCat(name, " has the bytes ", claim.sha256, ", ", path, " has ", sha256));
  }
  if (Canonical(file.manifest().target) == Canonical(claim.target)) return absl::OkStatus();
  return support::FailedPrecondition("signing.release.target",
                                     StrCat(name, " is listed for ", claim.target,
                                            ", its manifest says ", file.manifest().target));
}

absl::Status CheckBytes(ServerClient& client, const v1::ModuleVersion& version,
                        const ModuleRelease& release, const security::ModuleClaim& claim) {
  TW_TRY(CheckPinned(version, release.digest));
  if (!release.file.empty()) return CheckModule(release.file, claim);
  TW_ASSIGN(const support::TempDir dir, support::TempDir::Create("release"));
  const std::string path = dir.File("model.tw");
  TW_TRY(FetchModule(client, version, path).status());
  return CheckModule(path, claim);
}

absl::StatusOr<security::ModuleSignature> SignHere(ServerClient& client, const std::string& version,
                                                   const security::ModuleClaim& claim,
                                                   const std::string& key) {
  TW_ASSIGN(const auto signer, security::ModuleSigner::Load(key));
  TW_ASSIGN(security::ModuleSignature made, signer->Sign(claim));
  v1::AddModuleSignatureRequest request;
  request.set_name(version);
  request.mutable_signature()->set_key_id(made.key_id);
  request.mutable_signature()->set_signature(made.signature);
  request.mutable_signature()->set_format(made.format);
  TW_TRY(client.Call(client.modules(), &v1::ModuleService::Stub::AddModuleSignature, request)
             .status());
  return made;
}

// The server's newest signature is the one that it made now.
absl::StatusOr<security::ModuleSignature> SignThere(ServerClient& client,
                                                    const std::string& version) {
  v1::ReleaseModuleRequest request;
  request.set_name(version);
  TW_ASSIGN(const v1::ModuleVersion signed_version,
            client.Call(client.modules(), &v1::ModuleService::Stub::ReleaseModule, request));
  security::ModuleSignature newest;
  int64_t newest_ns = -1;
  for (const v1::ModuleSignature& one : signed_version.signatures()) {
    const int64_t ns = one.create_time().seconds() * 1'000'000'000 + one.create_time().nanos();
    if (ns <= newest_ns) continue;
    newest_ns = ns;
    newest = {one.key_id(), one.signature(), one.format()};
  }
  return newest;
}

}  // namespace

absl::StatusOr<security::DetachedSignature> Release(const ModuleRelease& release) {
  TW_ASSIGN(const ModuleRef ref, ParseModule(release.name));
  if (ref.number == 0 && ref.alias.empty()) {
    return support::InvalidArgument(
        "cli.usage.module",
        "expected one version, NAME/NUMBER or NAME@ALIAS, found " + support::Quote(release.name));
  }
  TW_ASSIGN(ServerClient client, ServerClient::Connect(release.server));
  TW_ASSIGN(const v1::ModuleVersion version, FindModule(client, release.name));
  TW_ASSIGN(security::ModuleClaim claim, ClaimOf(version));
  TW_TRY(CheckBytes(client, version, release, claim));
  security::ModuleSignature made;
  if (release.key.empty()) {
    TW_ASSIGN(made, SignThere(client, version.name()));
  } else {
    TW_ASSIGN(made, SignHere(client, version.name(), claim, release.key));
  }
  security::DetachedSignature detached{std::move(claim), std::move(made)};
  if (!release.signature.empty()) {
    TW_TRY(support::WriteFileAtomic(release.signature, security::SignatureFileText(detached)));
  }
  return detached;
}

int ModulesRelease(const ModuleRelease& release) {
  const auto done = Release(release);
  if (done.ok() && release.format == OutputFormat::kJson) {
    PrintJson({{"module", done->claim.module},
               {"number", done->claim.version},
               {"target", done->claim.target},
               {"sha256", done->claim.sha256},
               {"key_id", done->signature.key_id}});
  } else if (done.ok()) {
    PrintOut(StrCat("released ", done->claim.module, "/", done->claim.version, " for ",
                    done->claim.target, "  key ", done->signature.key_id, "  sha256 ",
                    done->claim.sha256));
  }
  return Finish("modules release", "cannot release " + release.name, done.status());
}

}  // namespace tilewright::cli
