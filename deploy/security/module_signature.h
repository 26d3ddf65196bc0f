// Signatures of modules (Ed25519). A signature lets a client find out who released a module without
// trusting the server that it came from.
//
// Format 2 says: the key's owner released these bytes as this version of this module for this
// target. Format 1 covers the bytes alone, under any name; it is for files that no server has, and
// for signatures made before format 2. No format covers aliases, because people move them.
//
// What is signed is a text, one fact a line, each line with its "\n":
//   tilewright module signature v2        tilewright module signature v1
//   module dqn                            sha256 HEX
//   version 3
//   target cpu,arch=x86_64,cpu=znver4,threads=2
//   sha256 HEX
//
// A key is a PEM file that only its owner can read, and PATH.pub for everybody. A detached
// signature is a JSON object {"algorithm":"ed25519","key_id","schema","sha256","signature"}; schema
// is the format, and schema 2 also has "module", "version" (a number) and "target". Functions are
// stateless and thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "deploy/support/status.h"

namespace tilewright::security {

inline constexpr char kSignatureSuffix[] = ".sig";
inline constexpr char kPublicSuffix[] = ".pub";

inline constexpr int kBytesFormat = 1;
inline constexpr int kReleaseFormat = 2;

// What a signature is about.
struct ModuleClaim {
  std::string sha256;  // of model.tw, hexadecimal
  // Empty in a claim about the bytes alone (format 1).
  std::string module = {};
  int64_t version = 0;
  std::string target = {};

  int format() const { return module.empty() ? kBytesFormat : kReleaseFormat; }
  bool operator==(const ModuleClaim&) const = default;
};

struct ModuleSignature {
  std::string key_id;     // first 16 hexadecimal digits of the SHA-256 of the raw public key
  std::string signature;  // 64 raw bytes
  int format = kBytesFormat;
};

// Writes PATH (mode 0600) and PATH.pub; returns the key's id. already_exists (signing.key.exists).
absl::StatusOr<std::string> CreateSigningKey(const std::string& path);

// Signs with one private key, which stays in memory.
class ModuleSigner {
 public:
  // Reads a private key. failed_precondition (identity.key.permissions) if others may read the
  // file, invalid_argument (signing.key.kind) if the key is not Ed25519, and errors of reading.
  static absl::StatusOr<std::unique_ptr<ModuleSigner>> Load(const std::string& path);
  ~ModuleSigner();
  const std::string& key_id() const;
  // The 32 raw bytes of the public key.
  absl::StatusOr<std::string> public_key() const;
  // Signs the claim in the claim's format. invalid_argument (signing.claim.bad) for a claim that
  // is incomplete or does not fit into lines.
  absl::StatusOr<ModuleSignature> Sign(const ModuleClaim& claim) const;

 private:
  struct Impl;
  explicit ModuleSigner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Checks with one public key.
class ModuleVerifier {
 public:
  // Reads a public key, or the public half of a private key.
  static absl::StatusOr<std::unique_ptr<ModuleVerifier>> Load(const std::string& path);
  // From the 32 raw bytes of a public key. invalid_argument (signing.key.kind).
  static absl::StatusOr<std::unique_ptr<ModuleVerifier>> FromRaw(std::string_view raw);
  ~ModuleVerifier();
  const std::string& key_id() const;
  // The 32 raw bytes of the public key.
  absl::StatusOr<std::string> public_key() const;
  // Checks a signature in its own format: of a signature of format 1 only the claim's bytes count,
  // so callers that need the rest look at signature.format. failed_precondition:
  // signing.signature.other_key, signing.signature.wrong, signing.signature.format (a newer one).
  absl::Status Verify(const ModuleClaim& claim, const ModuleSignature& signature) const;

 private:
  struct Impl;
  explicit ModuleVerifier(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct DetachedSignature {
  ModuleClaim claim;
  ModuleSignature signature;
};
// Returns the text of a detached signature.
std::string SignatureFileText(const DetachedSignature& detached);
// Reads a detached signature. data_loss (signing.file.malformed); failed_precondition
// (signing.file.other_module) if it is about other bytes than `sha256_hex`.
absl::StatusOr<DetachedSignature> ParseSignatureFile(std::string_view text,
                                                     std::string_view sha256_hex);

}  // namespace tilewright::security
