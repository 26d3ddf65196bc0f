#include "tuner_server/cli/module_fetch.h"

#include <nlohmann/json.hpp>

#include "deploy/security/module_signature.h"
#include "deploy/support/env.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

// The signature by the wanted key, checked. failed_precondition (signing.signature.*) without one.
absl::StatusOr<security::ModuleSignature> TrustedSignature(const std::string& key_path,
                                                           const std::string& sha256_hex,
                                                           const v1::ModuleVersion& version) {
  TW_ASSIGN(const auto verifier, security::ModuleVerifier::Load(key_path));
  for (const v1::ModuleSignature& one : version.signatures()) {
    if (one.key_id() != verifier->key_id()) continue;
    security::ModuleSignature signature{one.key_id(), one.signature()};
    TW_TRY(verifier->Verify(sha256_hex, signature));
    return signature;
  }
  return support::FailedPrecondition("signing.signature.missing",
                                     StrCat("expected a signature of ", version.name(), " by key ",
                                            verifier->key_id(), ", found none"));
}

absl::StatusOr<bool> HoldsAlready(const std::string& path, const std::string& sha256_hex) {
  if (!support::FileExists(path)) return false;
  TW_ASSIGN(const support::MappedFile have, support::MappedFile::Open(path));
  return support::Sha256Hex(have.view()) == sha256_hex;
}

struct Fetched {
  v1::ModuleVersion version;
  std::string sha256;
  bool changed = false;
  int64_t moved = 0;
};

absl::StatusOr<Fetched> Fetch(ServerClient& client, const ModuleFetch& fetch) {
  Fetched done;
  TW_ASSIGN(const v1::ResolveModuleResponse answer, ResolveModule(client, fetch.question));
  done.version = answer.version();
  if (done.version.files().empty()) {
    return support::DataLoss("module.files.missing", done.version.name() + " names no file");
  }
  TW_ASSIGN(done.sha256, daemon::DigestToHex(done.version.files(0).digest()));
  std::string key = fetch.key;
  if (key.empty()) key = support::GetEnv("TILEWRIGHT_MODULE_KEY").value_or("");
  security::ModuleSignature signature;
  if (!key.empty()) {
    TW_ASSIGN(signature, TrustedSignature(key, done.sha256, done.version));
  }
  bool same = false;
  if (fetch.if_newer) {
    TW_ASSIGN(same, HoldsAlready(fetch.output, done.sha256));
  }
  if (!same) {
    TW_ASSIGN(done.moved, FetchModule(client, done.version, fetch.output));
    done.changed = true;
  }
  if (!key.empty()) {
    TW_TRY(support::WriteFileAtomic(fetch.output + security::kSignatureSuffix,
                                    security::SignatureFileText(done.sha256, signature)));
  }
  return done;
}

void Print(const ModuleFetch& fetch, const Fetched& done) {
  if (fetch.format == OutputFormat::kJson) {
    nlohmann::json out = VersionJson(done.version);
    out["output"] = fetch.output;
    out["sha256"] = done.sha256;
    out["changed"] = done.changed;
    out["moved_bytes"] = done.moved;
    PrintJson(out);
  } else if (done.changed) {
    PrintOut(StrCat("wrote ", fetch.output, "  ", done.version.name(), "  sha256 ", done.sha256));
  } else {
    PrintOut(
        StrCat("unchanged ", fetch.output, "  ", done.version.name(), "  sha256 ", done.sha256));
  }
}

}  // namespace

absl::StatusOr<int64_t> FetchModule(ServerClient& client, const v1::ModuleVersion& version,
                                    const std::string& output) {
  if (version.files().empty()) {
    return support::DataLoss("module.files.missing", version.name() + " names no file");
  }
  return client.Download(version.files(0).digest(), output);
}

int ModulesFetch(const ServerPlace& server, const ModuleFetch& fetch) {
  const auto run = [&]() -> absl::StatusOr<Fetched> {
    TW_ASSIGN(ServerClient client, ServerClient::Connect(server));
    return Fetch(client, fetch);
  };
  const absl::StatusOr<Fetched> done = run();
  if (done.ok()) {
    Print(fetch, *done);
    if (fetch.exit_code && !done->changed) return kExitUnchanged;
  }
  return Finish("modules fetch", "cannot fetch module " + fetch.question.module, done.status());
}

}  // namespace tilewright::cli
