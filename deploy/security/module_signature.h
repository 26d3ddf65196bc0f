// Signatures over modules: Ed25519 over the SHA-256 of a model.tw, so that whoever runs it can tell
// who released it, without trusting the server it came from. A signature says nothing about names,
// aliases or versions: what the module is stands in its own manifest, which is part of the bytes.
//
// A key is a PEM file for its owner alone and, beside it, PATH.pub for everybody. A detached
// signature is a JSON file: {"algorithm","key_id","schema","sha256","signature"}.
// Functions are stateless and thread-safe.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "deploy/support/status.h"

namespace tilewright::security {

inline constexpr char kSignatureSuffix[] = ".sig";
inline constexpr char kPublicSuffix[] = ".pub";

struct ModuleSignature {
  std::string key_id;     // first 16 hexadecimal digits of the SHA-256 of the raw public key
  std::string signature;  // 64 raw bytes
};

// Writes PATH (0600) and PATH.pub; returns the key's id. already_exists (signing.key.exists).
absl::StatusOr<std::string> CreateSigningKey(const std::string& path);

// Signs with one private key, which it keeps in memory.
class ModuleSigner {
 public:
  // failed_precondition (identity.key.permissions), invalid_argument (signing.key.kind) for a key
  // that is not Ed25519, and what reading says.
  static absl::StatusOr<std::unique_ptr<ModuleSigner>> Load(const std::string& path);
  ~ModuleSigner();
  const std::string& key_id() const;
  // `sha256_hex` names the module's bytes.
  absl::StatusOr<ModuleSignature> Sign(std::string_view sha256_hex) const;

 private:
  struct Impl;
  explicit ModuleSigner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Checks with one public key.
class ModuleVerifier {
 public:
  // `path` is a public key, or a private one, whose public half is used.
  static absl::StatusOr<std::unique_ptr<ModuleVerifier>> Load(const std::string& path);
  ~ModuleVerifier();
  const std::string& key_id() const;
  // failed_precondition: signing.signature.other_key, signing.signature.wrong.
  absl::Status Verify(std::string_view sha256_hex, const ModuleSignature& signature) const;

 private:
  struct Impl;
  explicit ModuleVerifier(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The text of a detached signature, and back. data_loss (signing.file.malformed);
// failed_precondition (signing.file.other_module) when it is about other bytes.
std::string SignatureFileText(std::string_view sha256_hex, const ModuleSignature& signature);
absl::StatusOr<ModuleSignature> ParseSignatureFile(std::string_view text,
                                                   std::string_view sha256_hex);

}  // namespace tilewright::security
