#include "deploy/security/module_signature.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "deploy/security/identity.h"
#include "deploy/security/openssl_types.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::security {
namespace {

using support::StrCat;

constexpr size_t kSignatureBytes = 64;
constexpr size_t kPublicKeyBytes = 32;
constexpr size_t kKeyIdDigits = 16;
constexpr char kAlgorithm[] = "ed25519";

using DigestContext = std::unique_ptr<EVP_MD_CTX, OpensslFree<EVP_MD_CTX_free>>;

absl::Status OpensslFailed(std::string_view what) {
  return support::Internal("signing.openssl.failed", StrCat(what, ": ", OpensslError()));
}

// The text that is signed. Its first line keeps signatures made for another purpose from fitting.
std::string Statement(const ModuleClaim& claim, int format) {
  if (format == kBytesFormat) {
    return StrCat("tilewright module signature v1\nsha256 ", claim.sha256, "\n");
  }
  return StrCat("tilewright module signature v2\nmodule ", claim.module, "\nversion ",
                claim.version, "\ntarget ", claim.target, "\nsha256 ", claim.sha256, "\n");
}

bool IsOneLine(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return static_cast<unsigned char>(c) > ' ' && c != 0x7f;
  });
}

// Two different claims must never give one text.
absl::Status CheckClaim(const ModuleClaim& claim) {
  const bool bytes = IsOneLine(claim.sha256);
  const bool release = IsOneLine(claim.module) && claim.version > 0 && IsOneLine(claim.target);
  if (bytes && (claim.format() == kBytesFormat || release)) return absl::OkStatus();
  return support::InvalidArgument(
      "signing.claim.bad",
      StrCat("expected a digest, a module, a version and a target without blanks, found ",
             support::Quote(Statement(claim, claim.format()), 200)));
}

std::string ClaimText(const ModuleClaim& claim, int format) {
  if (format == kBytesFormat) return "the bytes " + claim.sha256;
  return StrCat(claim.module, "/", claim.version, " for ", claim.target, " with the bytes ",
                claim.sha256);
}

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

absl::StatusOr<std::string> RawPublicKey(EVP_PKEY* key) {
  std::string raw(kPublicKeyBytes, '\0');
  size_t size = raw.size();
  if (EVP_PKEY_get_raw_public_key(key, reinterpret_cast<unsigned char*>(raw.data()), &size) != 1 ||
      size != raw.size()) {
    return OpensslFailed("public key");
  }
  return raw;
}

absl::StatusOr<std::string> KeyIdOf(EVP_PKEY* key, std::string_view what) {
  if (EVP_PKEY_id(key) != EVP_PKEY_ED25519) {
    return support::InvalidArgument("signing.key.kind",
                                    StrCat(what, ": expected an Ed25519 key, found another kind"));
  }
  TW_ASSIGN(const std::string raw, RawPublicKey(key));
  return support::Sha256Hex(raw).substr(0, kKeyIdDigits);
}

template <typename Write>
absl::StatusOr<std::string> PemBy(const Write& write) {
  const BioPtr bio(BIO_new(BIO_s_secmem()));
  if (write(bio.get()) != 1) return OpensslFailed("write key");
  char* data = nullptr;
  const auto size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

}  // namespace

struct ModuleSigner::Impl {
  KeyPtr key;
  std::string id;
};
struct ModuleVerifier::Impl {
  KeyPtr key;
  std::string id;
};

absl::StatusOr<std::string> CreateSigningKey(const std::string& path) {
  for (const std::string& file : {path, path + kPublicSuffix}) {
    if (support::FileExists(file)) {
      return support::AlreadyExists("signing.key.exists", "expected no file, found " + file);
    }
  }
  const KeyPtr key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  if (key == nullptr) return OpensslFailed("new key");
  TW_ASSIGN(const std::string id, KeyIdOf(key.get(), path));
  TW_ASSIGN(const std::string secret, PemBy([&key](BIO* bio) {
              return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr,
                                              nullptr);
            }));
  TW_ASSIGN(const std::string open,
            PemBy([&key](BIO* bio) { return PEM_write_bio_PUBKEY(bio, key.get()); }));
  TW_TRY(support::WriteFileAtomic(path + kPublicSuffix, open));
  TW_TRY(support::WriteFileAtomic(path, secret, 0600));
  return id;
}

ModuleSigner::ModuleSigner(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModuleSigner::~ModuleSigner() = default;
const std::string& ModuleSigner::key_id() const { return impl_->id; }
absl::StatusOr<std::string> ModuleSigner::public_key() const {
  return RawPublicKey(impl_->key.get());
}

absl::StatusOr<std::unique_ptr<ModuleSigner>> ModuleSigner::Load(const std::string& path) {
  TW_ASSIGN(const std::string pem, support::ReadFile(path, kMaxPemBytes));
  TW_TRY(CheckPrivateFile(path));
  auto impl = std::make_unique<Impl>();
  TW_ASSIGN(impl->key, ParseKey(pem, path));
  TW_ASSIGN(impl->id, KeyIdOf(impl->key.get(), path));
  return std::unique_ptr<ModuleSigner>(new ModuleSigner(std::move(impl)));
}

absl::StatusOr<ModuleSignature> ModuleSigner::Sign(const ModuleClaim& claim) const {
  TW_TRY(CheckClaim(claim));
  const std::string statement = Statement(claim, claim.format());
  ModuleSignature made{impl_->id, std::string(kSignatureBytes, '\0'), claim.format()};
  size_t size = made.signature.size();
  const DigestContext context(EVP_MD_CTX_new());
  if (EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, impl_->key.get()) != 1 ||
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(made.signature.data()), &size,
                     Bytes(statement), statement.size()) != 1) {
    return OpensslFailed("sign");
  }
  return made;
}

ModuleVerifier::ModuleVerifier(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ModuleVerifier::~ModuleVerifier() = default;
const std::string& ModuleVerifier::key_id() const { return impl_->id; }
absl::StatusOr<std::string> ModuleVerifier::public_key() const {
  return RawPublicKey(impl_->key.get());
}

absl::StatusOr<std::unique_ptr<ModuleVerifier>> ModuleVerifier::FromRaw(std::string_view raw) {
  auto impl = std::make_unique<Impl>();
  if (raw.size() == kPublicKeyBytes) {
    impl->key.reset(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, Bytes(raw), raw.size()));
  }
  if (impl->key == nullptr) {
    ERR_clear_error();
    return support::InvalidArgument("signing.key.kind",
                                    "expected the 32 bytes of an Ed25519 public key");
  }
  TW_ASSIGN(impl->id, KeyIdOf(impl->key.get(), "public key"));
  return std::unique_ptr<ModuleVerifier>(new ModuleVerifier(std::move(impl)));
}

absl::StatusOr<std::unique_ptr<ModuleVerifier>> ModuleVerifier::Load(const std::string& path) {
  TW_ASSIGN(const std::string pem, support::ReadFile(path, kMaxPemBytes));
  auto impl = std::make_unique<Impl>();
  impl->key.reset(PEM_read_bio_PUBKEY(BioOf(pem).get(), nullptr, nullptr, nullptr));
  if (impl->key == nullptr) {
    ERR_clear_error();
    TW_ASSIGN(impl->key, ParseKey(pem, path));
  }
  TW_ASSIGN(impl->id, KeyIdOf(impl->key.get(), path));
  return std::unique_ptr<ModuleVerifier>(new ModuleVerifier(std::move(impl)));
}

absl::Status ModuleVerifier::Verify(const ModuleClaim& claim,
                                    const ModuleSignature& signature) const {
  if (signature.key_id != impl_->id) {
    return support::FailedPrecondition(
        "signing.signature.other_key",
        StrCat("expected a signature by key ", impl_->id, ", found one by ", signature.key_id));
  }
  if (signature.format != kBytesFormat && signature.format != kReleaseFormat) {
    return support::FailedPrecondition(
        "signing.signature.format",
        StrCat("expected a signature of format 1 or 2, found format ", signature.format));
  }
  if (signature.format == kReleaseFormat) TW_TRY(CheckClaim(claim));
  const std::string statement = Statement(claim, signature.format);
  const DigestContext context(EVP_MD_CTX_new());
  if (EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, impl_->key.get()) != 1) {
    return OpensslFailed("verify");
  }
  const bool right =
      EVP_DigestVerify(context.get(), Bytes(signature.signature), signature.signature.size(),
                       Bytes(statement), statement.size()) == 1;
  ERR_clear_error();
  if (right) return absl::OkStatus();
  return support::FailedPrecondition("signing.signature.wrong",
                                     StrCat("the signature by key ", impl_->id, " does not fit ",
                                            ClaimText(claim, signature.format)));
}

std::string SignatureFileText(const DetachedSignature& detached) {
  nlohmann::json file = {{"schema", detached.signature.format},
                         {"algorithm", kAlgorithm},
                         {"key_id", detached.signature.key_id},
                         {"sha256", detached.claim.sha256},
                         {"signature", support::HexEncode(detached.signature.signature)}};
  if (detached.signature.format == kReleaseFormat) {
    file["module"] = detached.claim.module;
    file["version"] = detached.claim.version;
    file["target"] = detached.claim.target;
  }
  return file.dump() + "\n";
}

absl::StatusOr<DetachedSignature> ParseSignatureFile(std::string_view text,
                                                     std::string_view sha256_hex) {
  const nlohmann::json file = nlohmann::json::parse(text, nullptr, false);
  const auto word = [&file](const char* key) {
    const auto it = file.find(key);
    return it != file.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  const auto number = [&file](const char* key) {
    const auto it = file.find(key);
    return it != file.end() && it->is_number_integer() ? it->get<int64_t>() : int64_t{0};
  };
  const int64_t format = file.is_object() ? number("schema") : 0;
  if ((format != kBytesFormat && format != kReleaseFormat) || word("algorithm") != kAlgorithm) {
    return support::DataLoss("signing.file.malformed",
                             "expected a JSON object with schema 1 or 2 and algorithm ed25519");
  }
  const auto signature = support::HexDecode(word("signature"));
  if (!signature || signature->size() != kSignatureBytes) {
    return support::DataLoss("signing.file.malformed", "expected a signature of 64 bytes");
  }
  if (word("sha256") != sha256_hex) {
    return support::FailedPrecondition(
        "signing.file.other_module", StrCat("the signature is about the bytes ",
                                            support::Quote(word("sha256")), ", not ", sha256_hex));
  }
  DetachedSignature read{{word("sha256")}, {word("key_id"), *signature, static_cast<int>(format)}};
  if (format == kBytesFormat) return read;
  read.claim.module = word("module");
  read.claim.version = number("version");
  read.claim.target = word("target");
  if (read.claim.format() != kReleaseFormat || !CheckClaim(read.claim).ok()) {
    return support::DataLoss("signing.file.malformed", "expected a module, version and target");
  }
  return read;
}

}  // namespace tilewright::security
