#include "deploy/security/certificate_request.h"

#include <utility>

#include "deploy/security/identity.h"
#include "deploy/security/openssl_types.h"
#include "deploy/support/file.h"
#include "deploy/support/hash.h"
#include "deploy/support/strings.h"

namespace tilewright::security {
namespace {

using support::PathJoin;

constexpr int kMinSecurityBits = 112;  // as of P-224 or RSA with 2048 bits

absl::Status BadRequest(const std::string& found) {
  return support::InvalidArgument(
      "certs.request.invalid", "expected a request of 'tilewright certs request', found " + found);
}

// What `write` puts into a memory BIO.
template <typename Write>
absl::StatusOr<std::string> TextOf(Write write) {
  const BioPtr bio(BIO_new(BIO_s_secmem()));
  if (!write(bio.get())) return CertsFailed("write");
  char* data = nullptr;
  const auto size = BIO_get_mem_data(bio.get(), &data);
  return std::string(data, static_cast<size_t>(size));
}

absl::StatusOr<KeyPtr> KeyIn(const std::string& folder) {
  const std::string path = PathJoin(folder, kKeyFile);
  if (support::FileExists(path)) {
    TW_TRY(CheckPrivateFile(path));
    TW_ASSIGN(const std::string pem, support::ReadFile(path, kMaxPemBytes));
    return ParseKey(pem, path);
  }
  KeyPtr key(EVP_EC_gen("P-256"));
  if (key == nullptr) return CertsFailed("new key");
  TW_ASSIGN(const std::string pem, TextOf([&](BIO* bio) {
              return PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr,
                                              nullptr) == 1;
            }));
  TW_TRY(support::WriteFileAtomic(path, pem, 0600));
  return key;
}

// SHA-256 of the public key, hexadecimal.
absl::StatusOr<std::string> KeyFingerprint(EVP_PKEY* key) {
  unsigned char* der = nullptr;
  const int size = i2d_PUBKEY(key, &der);
  if (size <= 0) return CertsFailed("public key");
  const std::string bytes(reinterpret_cast<const char*>(der), static_cast<size_t>(size));
  OPENSSL_free(der);
  return support::Sha256Hex(bytes);
}

}  // namespace

absl::StatusOr<std::string> RequestIdentity(const std::string& folder) {
  TW_TRY(MakePrivateFolder(folder));
  TW_ASSIGN(const KeyPtr key, KeyIn(folder));
  const RequestPtr request(X509_REQ_new());
  if (X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) != 1 ||
      X509_REQ_set_pubkey(request.get(), key.get()) != 1 ||
      X509_REQ_sign(request.get(), key.get(), EVP_sha256()) == 0) {
    return CertsFailed("new request");
  }
  TW_ASSIGN(const std::string pem,
            TextOf([&](BIO* bio) { return PEM_write_bio_X509_REQ(bio, request.get()) == 1; }));
  TW_TRY(support::WriteFileAtomic(PathJoin(folder, kRequestFile), pem, 0644));
  return KeyFingerprint(key.get());
}

absl::StatusOr<KeyPtr> KeyOfRequest(std::string_view pem) {
  const BioPtr bio = BioOf(pem);
  const RequestPtr request(PEM_read_bio_X509_REQ(bio.get(), nullptr, nullptr, nullptr));
  if (request == nullptr) return BadRequest("none: " + OpensslError());
  KeyPtr key(X509_REQ_get_pubkey(request.get()));
  if (key == nullptr) return BadRequest("one without a key: " + OpensslError());
  if (EVP_PKEY_get_security_bits(key.get()) < kMinSecurityBits) {
    return BadRequest("a key that is too weak");
  }
  if (X509_REQ_verify(request.get(), key.get()) != 1) {
    ERR_clear_error();
    return BadRequest("one that the key's owner has not signed");
  }
  return key;
}

absl::StatusOr<std::string> RequestFingerprint(std::string_view pem) {
  TW_ASSIGN(const KeyPtr key, KeyOfRequest(pem));
  return KeyFingerprint(key.get());
}

}  // namespace tilewright::security
