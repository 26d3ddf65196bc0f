#include "tuner_server/cli/module_signing.h"

#include <nlohmann/json.hpp>

#include "deploy/module/module_file.h"
#include "deploy/security/module_signature.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/module_release.h"
#include "tuner_server/cli/module_trust.h"
#include "tuner_server/cli/native_target.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

// A file of a published version is released; one that no server has gets a signature of its bytes.
absl::Status Sign(const ModuleSigning& signing) {
  security::DetachedSignature made;
  if (!signing.attach_to.empty()) {
    ModuleRelease release;
    release.name = signing.attach_to;
    release.key = signing.key;
    release.file = signing.path;
    release.server = signing.server;
    TW_ASSIGN(made, Release(release));
  } else {
    TW_ASSIGN(const module::ModuleFile file, module::ModuleFile::Open(signing.path));
    TW_ASSIGN(const auto signer, security::ModuleSigner::Load(signing.key));
    made.claim.sha256 = support::Sha256Hex(file.bytes());
    TW_ASSIGN(made.signature, signer->Sign(made.claim));
  }
  const std::string path = SignaturePath(signing.signature, signing.path);
  TW_TRY(support::WriteFileAtomic(path, security::SignatureFileText(made)));
  PrintOut(StrCat("wrote ", path, "  key ", made.signature.key_id, "  sha256 ", made.claim.sha256));
  return absl::OkStatus();
}

void PrintVerified(const ModuleSigning& signing, const module::Manifest& manifest,
                   const security::DetachedSignature& trusted) {
  const security::ModuleClaim& claim = trusted.claim;
  const bool release = trusted.signature.format == security::kReleaseFormat;
  if (signing.format == OutputFormat::kJson) {
    nlohmann::json out = {{"path", signing.path},
                          {"sha256", claim.sha256},
                          {"key_id", trusted.signature.key_id},
                          {"format", trusted.signature.format},
                          {"name", manifest.name},
                          {"target", manifest.target},
                          {"provenance", manifest.provenance},
                          {"producer", manifest.producer}};
    if (release) {
      out["module"] = claim.module;
      out["number"] = claim.version;
    }
    PrintJson(out);
    return;
  }
  PrintOut(StrCat(signing.path, " is ", SignedText(trusted), "\nmodel     ", manifest.name,
                  "\ntarget    ", manifest.target, "\nsha256    ", claim.sha256));
}

absl::Status Verify(const ModuleSigning& signing) {
  const std::string key = TrustedKey(signing.key);
  if (key.empty()) {
    return support::InvalidArgument("cli.usage.key",
                                    "expected --key FILE or TILEWRIGHT_MODULE_KEY, found neither");
  }
  ModuleExpectation expected;
  expected.module = signing.module;
  if (!signing.target.empty()) {
    TW_ASSIGN(expected.target, ExpandTarget(signing.target));
  }
  TW_ASSIGN(const module::ModuleFile file, module::ModuleFile::Open(signing.path));
  TW_ASSIGN(const security::DetachedSignature trusted,
            VerifyDetached(key, signing.signature, signing.path, file.bytes(), expected));
  PrintVerified(signing, file.manifest(), trusted);
  return absl::OkStatus();
}

}  // namespace

int ModulesKeygen(const std::string& path, OutputFormat format) {
  const auto id = security::CreateSigningKey(path);
  if (id.ok() && format == OutputFormat::kJson) {
    PrintJson({{"key_id", *id}, {"private", path}, {"public", path + security::kPublicSuffix}});
  } else if (id.ok()) {
    PrintOut(StrCat("wrote ", path, " (keep it secret) and ", path, security::kPublicSuffix,
                    "  key ", *id));
  }
  return Finish("modules keygen", "cannot make a key", id.status());
}

int ModulesSign(const ModuleSigning& signing) {
  return Finish("modules sign", "cannot sign " + signing.path, Sign(signing));
}

int ModulesVerify(const ModuleSigning& signing) {
  return Finish("modules verify", "cannot trust " + signing.path, Verify(signing));
}

}  // namespace tilewright::cli
