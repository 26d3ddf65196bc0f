// The security of a listening daemon: TLS and tokens (or plain text on loopback), the guard that
// checks every call, the audit log, and the caller's name for handlers. One per daemon; it outlives
// the ServerHost that uses it. Thread-safe after Open.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/daemon/metrics.h"
#include "deploy/security/audit_log.h"
#include "deploy/security/call_guard.h"
#include "deploy/security/revocation.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"

namespace tilewright::daemon {

struct SecurityOptions {
  std::string identity;    // folder; empty = plain text
  std::string tokens;      // token file; empty = no tokens
  std::string audit_path;  // empty = no audit log
  security::Listener listener = security::Listener::kTracker;
  Metrics* metrics = nullptr;  // not owned
};

class ServerSecurity {
 public:
  // identity and tokens come together: failed_precondition (daemon.security.incomplete) with one
  // alone. Otherwise what is wrong with the files. The clock is not owned.
  static absl::StatusOr<std::unique_ptr<ServerSecurity>> Open(const SecurityOptions& options,
                                                              support::Clock* clock);

  // Whether every call shows certificate and token.
  bool secure() const { return guard_ != nullptr; }

  // For one listener.
  absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> Credentials();

  // Returns the caller of a call that is being handled: "engineer/ana", or its address if callers
  // show no tokens (plain text). Never empty.
  std::string CallerText(const grpc::ServerContextBase& context) const;

  // Names the certificate that came with the call, of two different ones differently; empty in
  // plain text.
  std::string CredentialOf(const grpc::ServerContextBase& context) const;
  // Whether that certificate was revoked since the call was admitted.
  bool IsRevoked(const grpc::ServerContextBase& context) const;

  // Gets each call that is refused because certificate or token was revoked, on a thread of gRPC's:
  // the URI of the certificate, its credential, and why. Set it before the server starts.
  using RevokedCallback = std::function<void(std::string_view uri, const std::string& credential,
                                             const absl::Status& why)>;
  void set_on_revoked(RevokedCallback on_revoked) { on_revoked_ = std::move(on_revoked); }

  // permission_denied (auth.agent.mismatch) unless `agent` ("agents/bench-3") is the one whose
  // token came with the call; ok in plain text.
  absl::Status CheckAgent(const grpc::ServerContextBase& context, const std::string& agent) const;

  // permission_denied (auth.admin.required) unless an administrator calls; ok in plain text. `what`
  // says what only administrators may.
  absl::Status CheckAdmin(const grpc::ServerContextBase& context, std::string_view what) const;

  // A line in the audit log for what no guard has seen: `status` is what came of it. Nothing
  // without an audit log.
  void Record(const security::AuditEntry& entry, const absl::Status& status);

  // Writes audited calls to the log when they end. Null without an audit log.
  std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> AuditInterceptor();

 private:
  class TokenProcessor;
  class Auditor;
  class AuditorFactory;

  ServerSecurity(SecurityOptions options, support::Clock* clock)
      : options_(std::move(options)), clock_(clock) {}
  absl::StatusOr<security::Caller> Identify(const grpc::ServerContextBase& context) const;
  // Logs when the token file stops or starts being readable.
  void TellOfTokenFile();
  // Likewise of the list of revoked certificates.
  void TellOfRevocations();
  void Refused(const security::CallFacts& facts, const absl::Status& status);
  void TellRevoked(std::string_view uri, const std::string& credential, const absl::Status& why);
  void Audited(const grpc::ServerContextBase& context, const std::string& method,
               const std::string& what, const grpc::Status& status);

  const SecurityOptions options_;
  RevokedCallback on_revoked_;
  support::Clock* const clock_;
  std::unique_ptr<security::CallGuard> guard_;
  std::unique_ptr<security::RevocationList> revocations_;
  std::atomic<bool> token_file_bad_{false};
  std::atomic<bool> revocations_bad_{false};
  std::unique_ptr<security::AuditLog> audit_;
};

// The metadata key by which the tuner says for whom it forwards a call.
inline constexpr char kOnBehalfKey[] = "tilewright-on-behalf-of";

// "ipv4:10.0.0.2:5123" -> "10.0.0.2", "ipv6:%5B::1%5D:80" -> "::1": who called, without the port
// that changes with every connection.
std::string PeerHost(const std::string& peer);

}  // namespace tilewright::daemon
