// What listens at an address. For a client whose call failed: the transport only says "Socket
// closed" when one side speaks TLS and the other does not. Blocking; thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "deploy/support/status.h"

namespace tilewright::daemon {

enum class Speaks {
  kNothing,    // no server listens there, or the answer did not come in time
  kPlainText,  // HTTP/2 without TLS
  kTls,
  kOther,
};

// Connects to HOST:PORT, offers a TLS handshake and looks at the first byte of the answer. Takes at
// most twice timeout_ms.
Speaks ProbeServer(const std::string& address, int64_t timeout_ms);

}  // namespace tilewright::daemon
