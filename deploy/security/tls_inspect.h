// Shows an inspector what the TLS sessions decrypt that this process accepts, those inside gRPC
// included. gRPC reads and writes them by SSL_read and SSL_write. tls_inspect.cc defines both: the
// dynamic linker takes a program's own definitions for its libraries, too. They call OpenSSL's
// other ones (SSL_read_ex, SSL_write_ex); reading fails where the inspector says so, and gRPC then
// closes the connection. Thread-safe.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tilewright::security {

struct TlsBytes {
  std::string_view plain;  // what the other end sent next
  bool answered = false;   // whether this end has sent something before
  // Names the other end: the URI of its certificate and its serial number.
  std::function<std::string()> peer;
};

// Gets the bytes of one session in order, from one thread at a time. Returns false to end it.
using TlsInspector = std::function<bool(const TlsBytes& bytes)>;

// Each session that is made from now on and accepted gets an inspector of its own. The first call
// counts.
void InspectAcceptedTls(std::function<TlsInspector()> make);

}  // namespace tilewright::security
