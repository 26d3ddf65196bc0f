#include "tests/support/uri_identity.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>

#include "deploy/security/identity.h"
#include "deploy/security/openssl_types.h"
#include "deploy/support/file.h"

namespace tilewright::tests {
namespace {

using security::BioPtr;
using security::CertsFailed;
using security::KeyPtr;
using security::X509Ptr;
using support::PathJoin;

constexpr int64_t kDaySeconds = 86'400;

// Through the values and not their text, in which no NUL can be written.
bool AddUris(X509* certificate, const std::vector<std::string>& uris) {
  if (uris.empty()) return true;
  GENERAL_NAMES* names = GENERAL_NAMES_new();
  for (const std::string& uri : uris) {
    ASN1_IA5STRING* text = ASN1_IA5STRING_new();
    ASN1_STRING_set(text, uri.data(), static_cast<int>(uri.size()));
    GENERAL_NAME* name = GENERAL_NAME_new();
    GENERAL_NAME_set0_value(name, GEN_URI, text);
    sk_GENERAL_NAME_push(names, name);
  }
  const bool added = X509_add1_ext_i2d(certificate, NID_subject_alt_name, names, 0, 0) == 1;
  GENERAL_NAMES_free(names);
  return added;
}

template <typename Write>
std::string TextOf(Write write) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  write(bio.get());
  char* data = nullptr;
  const auto size = BIO_get_mem_data(bio.get(), &data);
  return {data, static_cast<size_t>(size)};
}

}  // namespace

absl::Status IssueWithUris(const std::string& pki, const std::vector<std::string>& uris,
                           const std::string& folder, int64_t now_s) {
  security::IdentityFiles files;
  TW_ASSIGN(files.authorities,
            support::ReadFile(PathJoin(pki, security::kAuthorityFile), security::kMaxPemBytes));
  TW_ASSIGN(const std::string signer_pem,
            support::ReadFile(PathJoin(pki, "ca-key.pem"), security::kMaxPemBytes));
  TW_ASSIGN(const auto authorities, security::ParseCertificates(files.authorities, "ca.pem"));
  TW_ASSIGN(const KeyPtr signer, security::ParseKey(signer_pem, "ca-key.pem"));
  const KeyPtr key(EVP_EC_gen("P-256"));
  const X509Ptr leaf(X509_new());
  X509_set_version(leaf.get(), X509_VERSION_3);
  ASN1_INTEGER_set(X509_get_serialNumber(leaf.get()), 4711);
  ASN1_TIME_set(X509_getm_notBefore(leaf.get()), now_s - kDaySeconds);
  ASN1_TIME_set(X509_getm_notAfter(leaf.get()), now_s + kDaySeconds);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(leaf.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("someone"), -1, -1, 0);
  X509_set_issuer_name(leaf.get(), X509_get_subject_name(authorities.front().get()));
  X509_set_pubkey(leaf.get(), key.get());
  if (!AddUris(leaf.get(), uris) || X509_sign(leaf.get(), signer.get(), EVP_sha256()) == 0) {
    return CertsFailed("sign a certificate of a test");
  }
  files.certificate = TextOf([&](BIO* bio) { PEM_write_bio_X509(bio, leaf.get()); });
  files.key = TextOf([&](BIO* bio) {
    PEM_write_bio_PrivateKey(bio, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  return security::ReplaceIdentity(folder, files);
}

}  // namespace tilewright::tests
