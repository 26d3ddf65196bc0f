// Hosts the gRPC services of a daemon. It listens on HOST:PORT (0 = any port) and refuses an
// address off loopback without TLS and tokens (or --insecure). It answers health checks (one name
// per service and "" for the process) and reflection, and counts calls. No connection makes it hold
// more than about 200 MB (inbound_gate.h, and a quota). It writes the port file when it is ready
// and drains on Stop. Services are not owned and must outlive the host. Used from one thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "deploy/daemon/inbound_gate.h"
#include "deploy/daemon/metrics.h"
#include "deploy/daemon/server_security.h"
#include "deploy/support/status.h"

namespace tilewright::daemon {

class ReflectionService;

struct HostOptions {
  std::string listen = "127.0.0.1:0";
  bool insecure = false;       // allow plain text on an address that other machines can reach
  std::string port_file;       // empty = none
  int64_t drain_ms = 3000;     // how long Stop waits for calls in flight before it cancels them
  Metrics* metrics = nullptr;  // counts calls when set; not owned
  ServerSecurity* security = nullptr;  // null: plain text, no audit log; not owned
  // Instead of those of `security`: TLS for callers that no guard looks at.
  std::shared_ptr<grpc::ServerCredentials> credentials = nullptr;
  int max_message_bytes = 0;          // that it receives; 0 = as everywhere
  int handshake_timeout_ms = 20'000;  // a connection that never finishes it is closed
};

struct HostPort {
  std::string host;
  int port = 0;
};

// What Start would refuse of an address, without listening: invalid_argument
// (daemon.listen.invalid), failed_precondition (daemon.listen.insecure) off loopback unless
// `secure` or `insecure`.
absl::Status CheckListen(const std::string& listen, bool secure, bool insecure);

class ServerHost {
 public:
  explicit ServerHost(HostOptions options);
  // Stops if still running.
  ~ServerHost();

  // REQUIRES: before Start; `service` outlives this host. `full_name` is e.g.
  // "tilewright.v1.AgentService".
  void AddService(grpc::Service* service, std::string full_name);

  // Listens and answers. failed_precondition (daemon.listen.insecure) off loopback without TLS or
  // `insecure`; unavailable (daemon.listen.failed) if the address cannot be bound;
  // invalid_argument (daemon.listen.invalid) if it is not HOST:PORT.
  absl::Status Start();

  // HOST:PORT that clients can dial, once Start returned ok.
  const std::string& address() const { return address_; }

  // Health of all services and the process.
  void SetServing(bool serving);

  // NOT_SERVING, no new calls, wait for calls in flight (cancelled after drain_ms), port file
  // removed. Idempotent. Must not be called from a handler.
  void Stop();

 private:
  bool secure() const;
  void SetLimits(grpc::ServerBuilder* builder) const;
  void AddInterceptors(grpc::ServerBuilder* builder);

  HostOptions options_;
  std::vector<std::pair<grpc::Service*, std::string>> services_;
  std::unique_ptr<ReflectionService> reflection_;  // while the server runs
  std::optional<PlainTextGate> plain_text_gate_;   // without TLS, while the server runs
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

// "127.0.0.1:80", "[::1]:0", "localhost:1234". invalid_argument (<slug>) otherwise.
absl::StatusOr<HostPort> ParseHostPort(const std::string& text, std::string_view slug);

// Whether only this machine can reach the host part of an address.
bool IsLoopbackHost(const std::string& host);

}  // namespace tilewright::daemon
