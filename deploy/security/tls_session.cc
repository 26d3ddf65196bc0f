#include "deploy/security/tls_session.h"

#include <openssl/ssl.h>

#include <utility>
#include <vector>

#include "deploy/security/openssl_types.h"

namespace tilewright::security {
namespace {

constexpr size_t kPieceBytes = 16 << 10;  // a TLS record

absl::Status Failed() { return support::Unavailable("tls.session.failed", OpensslError()); }

}  // namespace

absl::StatusOr<std::shared_ptr<const TlsServerContext>> TlsServerContext::Create(
    std::string_view certificate_pem, std::string_view key_pem) {
  TW_ASSIGN(const std::vector<X509Ptr> chain,
            ParseCertificates(certificate_pem, "the certificate"));
  TW_ASSIGN(const KeyPtr key, ParseKey(key_pem, "the key"));
  SSL_CTX* raw = SSL_CTX_new(TLS_server_method());
  if (raw == nullptr) return support::Internal("tls.context.failed", OpensslError());
  const std::shared_ptr<const TlsServerContext> context(new TlsServerContext(raw));
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_options(raw, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
  bool good = SSL_CTX_use_certificate(raw, chain.front().get()) == 1;
  for (size_t i = 1; good && i < chain.size(); ++i) {
    good = SSL_CTX_add1_chain_cert(raw, chain[i].get()) == 1;
  }
  if (!good) return support::InvalidArgument("certs.file.invalid", OpensslError());
  if (SSL_CTX_use_PrivateKey(raw, key.get()) != 1 || SSL_CTX_check_private_key(raw) != 1) {
    return support::FailedPrecondition("identity.key.mismatch", OpensslError());
  }
  return context;
}

TlsServerContext::~TlsServerContext() { SSL_CTX_free(context_); }

TlsSession::TlsSession(std::shared_ptr<const TlsServerContext> context)
    : context_(std::move(context)), session_(SSL_new(context_->context_)) {
  TW_CHECK(session_ != nullptr) << OpensslError();
  SSL_set_bio(session_, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  SSL_set_accept_state(session_);
}

TlsSession::~TlsSession() { SSL_free(session_); }

absl::Status TlsSession::Receive(std::string_view bytes, std::string* plain) {
  if (!bytes.empty() &&
      BIO_write(SSL_get_rbio(session_), bytes.data(), static_cast<int>(bytes.size())) <= 0) {
    return Failed();
  }
  char piece[kPieceBytes];
  for (;;) {
    ERR_clear_error();
    const int got = SSL_read(session_, piece, sizeof(piece));  // shakes hands first
    if (got > 0) {
      plain->append(piece, static_cast<size_t>(got));
      continue;
    }
    const int error = SSL_get_error(session_, got);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_ZERO_RETURN) return absl::OkStatus();
    return Failed();
  }
}

absl::Status TlsSession::Send(std::string_view plain) {
  ERR_clear_error();
  size_t written = 0;  // memory takes all of it
  if (SSL_write_ex(session_, plain.data(), plain.size(), &written) == 1 &&
      written == plain.size()) {
    return absl::OkStatus();
  }
  return Failed();
}

void TlsSession::Close() {
  ERR_clear_error();
  SSL_shutdown(session_);
}

std::string TlsSession::TakeOutput() {
  std::string output;
  char piece[kPieceBytes];
  for (int got; (got = BIO_read(SSL_get_wbio(session_), piece, sizeof(piece))) > 0;) {
    output.append(piece, static_cast<size_t>(got));
  }
  return output;
}

}  // namespace tilewright::security
