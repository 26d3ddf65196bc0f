// The server's end of TLS over bytes that the caller moves: no sockets, no waiting, so that one
// loop serves many connections. For listeners that are not gRPC's. A context is immutable and may
// be shared; a session belongs to one owner.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "deploy/support/status.h"

struct ssl_ctx_st;
struct ssl_st;

namespace tilewright::security {

// A certificate and its key, ready to be shown. TLS 1.2 and later; clients show no certificate.
class TlsServerContext {
 public:
  // Of PEM texts. invalid_argument (certs.file.invalid), failed_precondition
  // (identity.key.mismatch).
  static absl::StatusOr<std::shared_ptr<const TlsServerContext>> Create(
      std::string_view certificate_pem, std::string_view key_pem);
  ~TlsServerContext();
  TlsServerContext(const TlsServerContext&) = delete;
  TlsServerContext& operator=(const TlsServerContext&) = delete;

 private:
  friend class TlsSession;
  explicit TlsServerContext(ssl_ctx_st* context) : context_(context) {}
  ssl_ctx_st* const context_;
};

class TlsSession {
 public:
  explicit TlsSession(std::shared_ptr<const TlsServerContext> context);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  // Takes bytes of the peer and appends what they decrypt to. An error (tls.session.failed): the
  // handshake or the stream is broken; send TakeOutput (an alert) and close.
  absl::Status Receive(std::string_view bytes, std::string* plain);
  // Encrypts. REQUIRES: Receive gave something before, so the handshake is over.
  absl::Status Send(std::string_view plain);
  // Says that nothing more comes.
  void Close();
  // Bytes for the peer since the last call.
  std::string TakeOutput();

 private:
  const std::shared_ptr<const TlsServerContext> context_;
  ssl_st* const session_;
};

}  // namespace tilewright::security
