#include "tuner_server/cli/module_fetch.h"

#include <nlohmann/json.hpp>

#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/module_trust.h"
#include "tuner_server/cli/native_target.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

// What a signature must say: what the command line says.
absl::StatusOr<ModuleExpectation> ExpectationOf(const ModuleFetch& fetch,
                                                const security::ModuleClaim& claim) {
  ModuleExpectation expected;
  // The server's answer was compared with the question's name and number before.
  expected.module = StrCat(claim.module, "/", claim.version);
  expected.exact = fetch.question.exact;
  expected.bytes_only = fetch.bytes_only;
  if (!fetch.question.target.empty()) {
    TW_ASSIGN(expected.target, ExpandTarget(fetch.question.target));
  }
  return expected;
}

absl::StatusOr<bool> HoldsAlready(const std::string& path, const std::string& sha256_hex) {
  if (!support::FileExists(path)) return false;
  TW_ASSIGN(const support::MappedFile have, support::MappedFile::Open(path));
  return support::Sha256Hex(have.view()) == sha256_hex;
}

struct Fetched {
  v1::ModuleVersion version;
  std::string explanation;
  std::string sha256;
  bool changed = false;
  int64_t moved = 0;
};

absl::StatusOr<Fetched> Fetch(ServerClient& client, const ModuleFetch& fetch) {
  Fetched done;
  TW_ASSIGN(const v1::ResolveModuleResponse answer, ResolveModule(client, fetch.question));
  done.version = answer.version();
  done.explanation = answer.explanation();
  TW_ASSIGN(const security::ModuleClaim claim, ClaimOf(done.version));
  done.sha256 = claim.sha256;
  TW_TRY(CheckPinned(done.version, fetch.digest));
  const std::string key = TrustedKey(fetch.key);
  security::DetachedSignature signature;
  if (!key.empty()) {
    TW_ASSIGN(const ModuleExpectation expected, ExpectationOf(fetch, claim));
    TW_ASSIGN(signature, TrustedSignature(key, done.version, expected));
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
                                    security::SignatureFileText(signature)));
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
    out["explanation"] = done.explanation;
    PrintJson(out);
    return;
  }
  PrintOut(StrCat(done.changed ? "wrote " : "unchanged ", fetch.output, "  ", done.version.name(),
                  "  sha256 ", done.sha256, "\n", done.explanation));
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
