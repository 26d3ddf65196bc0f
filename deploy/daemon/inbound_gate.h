// Puts an Http2Gate before each connection that gRPC's servers accept in this process. gRPC 1.51
// has no place for one between the network and its parser. deploy/security/tls_inspect.h shows what
// comes over TLS. For plain text inbound_gate.cc defines recvmsg, by which gRPC reads: the dynamic
// linker takes a program's own definition for its libraries, too. It calls the C library's, shows
// the gate what came, and fails where the gate says so. gRPC then closes the connection and frees
// what it kept of it. daemon_test attacks both: it fails if a newer gRPC reads in another way.
// Thread-safe.
#pragma once

namespace tilewright::daemon {

// From now on all TLS connections that this process accepts have a gate.
void GateTls();

// From now on, until it is destroyed, connections accepted on this local port have a gate. One per
// listener in plain text.
class PlainTextGate {
 public:
  explicit PlainTextGate(int port);
  ~PlainTextGate();
  PlainTextGate(const PlainTextGate&) = delete;
  PlainTextGate& operator=(const PlainTextGate&) = delete;

 private:
  const int port_;
};

}  // namespace tilewright::daemon
