#include "tuner_server/cli/module_signing.h"

#include <nlohmann/json.hpp>

#include "deploy/module/module_file.h"
#include "deploy/security/module_signature.h"
#include "deploy/support/env.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"
#include "tuner_server/cli/module_commands.h"

namespace tilewright::cli {
namespace {

using support::StrCat;

constexpr uint64_t kMaxSignatureBytes = 64 << 10;

std::string SignaturePath(const ModuleSigning& signing) {
  return signing.signature.empty() ? signing.path + security::kSignatureSuffix : signing.signature;
}

// The server's version must have these very bytes.
absl::Status Attach(const ModuleSigning& signing, const std::string& sha256,
                    const security::ModuleSignature& signature) {
  TW_ASSIGN(ServerClient client, ServerClient::Connect(signing.server));
  TW_ASSIGN(const v1::ModuleVersion version, FindModule(client, signing.attach_to));
  const std::string theirs =
      version.files().empty() ? "" : support::HexEncode(version.files(0).digest().hash());
  if (theirs != sha256) {
    return support::FailedPrecondition(
        "signing.file.other_module",
        StrCat(version.name(), " has the bytes ", theirs, ", ", signing.path, " has ", sha256));
  }
  v1::AddModuleSignatureRequest request;
  request.set_name(version.name());
  request.mutable_signature()->set_key_id(signature.key_id);
  request.mutable_signature()->set_signature(signature.signature);
  return client.Call(client.modules(), &v1::ModuleService::Stub::AddModuleSignature, request)
      .status();
}

absl::Status Sign(const ModuleSigning& signing) {
  TW_ASSIGN(const module::ModuleFile file, module::ModuleFile::Open(signing.path));
  TW_ASSIGN(const auto signer, security::ModuleSigner::Load(signing.key));
  const std::string sha256 = support::Sha256Hex(file.bytes());
  TW_ASSIGN(const security::ModuleSignature made, signer->Sign(sha256));
  if (!signing.attach_to.empty()) TW_TRY(Attach(signing, sha256, made));
  const std::string path = SignaturePath(signing);
  TW_TRY(support::WriteFileAtomic(path, security::SignatureFileText(sha256, made)));
  PrintOut(StrCat("wrote ", path, "  key ", made.key_id, "  sha256 ", sha256));
  return absl::OkStatus();
}

absl::Status Verify(const ModuleSigning& signing) {
  std::string key = signing.key;
  if (key.empty()) key = support::GetEnv("TILEWRIGHT_MODULE_KEY").value_or("");
  if (key.empty()) {
    return support::InvalidArgument("cli.usage.key",
                                    "expected --key FILE or TILEWRIGHT_MODULE_KEY, found neither");
  }
  TW_ASSIGN(const auto verifier, security::ModuleVerifier::Load(key));
  TW_ASSIGN(const module::ModuleFile file, module::ModuleFile::Open(signing.path));
  const std::string sha256 = support::Sha256Hex(file.bytes());
  const std::string path = SignaturePath(signing);
  if (!support::FileExists(path)) {
    return support::FailedPrecondition("signing.signature.missing",
                                       "expected a signature in " + path + ", found no file");
  }
  TW_ASSIGN(const std::string text, support::ReadFile(path, kMaxSignatureBytes));
  TW_ASSIGN(const auto signature, security::ParseSignatureFile(text, sha256));
  TW_TRY(verifier->Verify(sha256, signature));
  const module::Manifest& manifest = file.manifest();
  if (signing.format == OutputFormat::kJson) {
    PrintJson({{"path", signing.path},
               {"sha256", sha256},
               {"key_id", signature.key_id},
               {"name", manifest.name},
               {"target", manifest.target},
               {"provenance", manifest.provenance},
               {"producer", manifest.producer}});
    return absl::OkStatus();
  }
  PrintOut(StrCat(signing.path, " is signed by key ", signature.key_id, "\nmodule    ",
                  manifest.name, "\ntarget    ", manifest.target, "\nsha256    ", sha256));
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
