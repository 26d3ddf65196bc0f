// Owners for OpenSSL's objects, and its errors as text. For the sources of this folder only.
#pragma once

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::security {

template <auto Free>
struct OpensslFree {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};
using BioPtr = std::unique_ptr<BIO, OpensslFree<BIO_free_all>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, OpensslFree<EVP_PKEY_free>>;
using X509Ptr = std::unique_ptr<X509, OpensslFree<X509_free>>;
using RequestPtr = std::unique_ptr<X509_REQ, OpensslFree<X509_REQ_free>>;
using CrlPtr = std::unique_ptr<X509_CRL, OpensslFree<X509_CRL_free>>;
using ExtensionPtr = std::unique_ptr<X509_EXTENSION, OpensslFree<X509_EXTENSION_free>>;
using StorePtr = std::unique_ptr<X509_STORE, OpensslFree<X509_STORE_free>>;
using StoreContextPtr = std::unique_ptr<X509_STORE_CTX, OpensslFree<X509_STORE_CTX_free>>;

// Returns the oldest error of this thread's queue, and empties the queue.
inline std::string OpensslError() {
  const unsigned long code = ERR_get_error();  // NOLINT(google-runtime-int): OpenSSL's type
  ERR_clear_error();
  if (code == 0) return "no reason given";
  const char* reason = ERR_reason_error_string(code);
  return reason == nullptr ? "unknown reason" : reason;
}

inline absl::Status CertsFailed(std::string_view what) {
  return support::Internal("certs.openssl.failed", std::string(what) + ": " + OpensslError());
}

inline BioPtr BioOf(std::string_view text) {
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// Returns all certificates of a PEM text. invalid_argument (certs.file.invalid) if there is none.
absl::StatusOr<std::vector<X509Ptr>> ParseCertificates(std::string_view pem, std::string_view what);
// Reads an unencrypted private key. invalid_argument (certs.file.invalid).
absl::StatusOr<KeyPtr> ParseKey(std::string_view pem, std::string_view what);
// Returns the key of a request, after checking that the sender owns it. Errors of
// RequestFingerprint.
absl::StatusOr<KeyPtr> KeyOfRequest(std::string_view pem);

}  // namespace tilewright::security
