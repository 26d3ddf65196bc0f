// Serves one page, /metrics, over HTTP or HTTPS to those who show its token: a loop on one thread
// for all connections. Each has a time limit, and when there are too many the oldest one goes, so
// slow or silent clients never keep others from the page. One request per connection.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>

#include "deploy/security/tls_session.h"
#include "deploy/support/clock.h"
#include "deploy/support/status.h"

namespace tilewright::daemon {

struct MetricsEndpointOptions {
  std::string listen{};      // HOST:PORT, port 0 = any
  std::string identity{};    // folder whose certificate it shows; empty = plain text
  std::string token_file{};  // what callers show as "Authorization: Bearer ..."; empty = nothing
  size_t max_connections = 64;
  int64_t time_limit_ms = 10'000;  // of a connection
};

// The token in a file, without the line's end. failed_precondition (identity.key.permissions) when
// others can read the file, invalid_argument (daemon.metrics.token) when it is too short.
absl::StatusOr<std::string> ReadMetricsToken(const std::string& path);

// Whether the folder has a certificate and its key (cert.pem, key.pem) to show. not_found
// (file.read.*), failed_precondition (identity.key.permissions, identity.key.mismatch).
absl::Status CheckMetricsIdentity(const std::string& identity);

class MetricsEndpoint {
 public:
  // `page` makes the text, on the endpoint's thread. unavailable (daemon.metrics.failed) when the
  // address cannot be bound; invalid_argument (daemon.metrics.invalid); what is wrong with the
  // identity or the token file.
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(
      const MetricsEndpointOptions& options, std::function<std::string()> page);
  ~MetricsEndpoint();

  // HOST:PORT that clients can dial.
  const std::string& address() const { return address_; }

 private:
  struct Connection;

  MetricsEndpoint(MetricsEndpointOptions options, std::function<std::string()> page);
  absl::Status Listen();
  absl::Status LoadCertificate();
  void Loop();
  void Accept(int64_t now_ns);
  void Read(Connection* connection);
  void Take(Connection* connection, std::string_view bytes);
  void Write(Connection* connection);
  // The answer to a request whose head is complete.
  std::string Answer(const std::string& head);
  bool Admits(const std::string& head);

  const MetricsEndpointOptions options_;
  const std::function<std::string()> page_;
  support::SystemClock clock_;
  std::string address_;
  int listen_fd_ = -1;
  int stop_fd_ = -1;
  int64_t accept_from_ns_ = 0;  // no descriptor was free until then
  std::shared_ptr<const security::TlsServerContext> tls_;
  std::string certificate_;  // the text that tls_ is of
  std::string token_;
  std::list<Connection> connections_;  // in the order of their arrival
  std::thread thread_;
};

}  // namespace tilewright::daemon
