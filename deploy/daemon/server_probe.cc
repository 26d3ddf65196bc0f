#include "deploy/daemon/server_probe.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string_view>

namespace tilewright::daemon {
namespace {

// A ClientHello of TLS 1.2 with the usual suites and curves, without session, host name or tickets.
// The answer to it is a ServerHello (22) or an alert (21).
constexpr unsigned char kClientHello[] = {
    0x16, 0x03, 0x01, 0x00, 0x57,                                     // record: handshake
    0x01, 0x00, 0x00, 0x53, 0x03, 0x03,                               // ClientHello, TLS 1.2
    't',  'i',  'l',  'e',  'w',  'r',  'i',  'g',  'h',  't',  ' ',  // 32 bytes that need not be
    'a',  's',  'k',  's',  ':',  ' ',  'w',  'h',  'a',  't',  ' ',  // random: no handshake
    'd',  'o',  ' ',  'y',  'o',  'u',  ' ',  'u',  's',  'e',        // follows
    0x00,                                                             // no session
    0x00, 0x08, 0xc0, 0x2b, 0xc0, 0x2f, 0xc0, 0x2c, 0xc0, 0x30,       // ECDHE, AES-GCM
    0x01, 0x00,                                                       // no compression
    0x00, 0x22,                                                       // extensions:
    0x00, 0x0a, 0x00, 0x08, 0x00, 0x06, 0x00, 0x1d, 0x00, 0x17, 0x00, 0x18,  // groups
    0x00, 0x0b, 0x00, 0x02, 0x01, 0x00,                                      // point formats
    0x00, 0x0d, 0x00, 0x0c, 0x00, 0x0a, 0x04, 0x03, 0x08, 0x04, 0x04, 0x01,
    0x05, 0x03, 0x05, 0x01};  // signature algorithms

constexpr unsigned char kTlsHandshake = 22;
constexpr unsigned char kTlsAlert = 21;
constexpr unsigned char kHttp2Frame = 0;  // a SETTINGS frame begins with its length, below 2^16

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

bool WaitFor(int fd, short events, int64_t timeout_ms) {
  pollfd waited{fd, events, 0};
  int ready = -1;
  do {
    ready = poll(&waited, 1, static_cast<int>(timeout_ms));
  } while (ready < 0 && errno == EINTR);
  return ready == 1;
}

bool Connect(int fd, const addrinfo& to, int64_t timeout_ms) {
  if (connect(fd, to.ai_addr, to.ai_addrlen) == 0) return true;
  if (errno != EINPROGRESS || !WaitFor(fd, POLLOUT, timeout_ms)) return false;
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

Speaks Ask(const addrinfo& to, int64_t timeout_ms) {
  const Socket socket(
      ::socket(to.ai_family, to.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, to.ai_protocol));
  if (socket.get() < 0 || !Connect(socket.get(), to, timeout_ms)) return Speaks::kNothing;
  if (send(socket.get(), kClientHello, sizeof kClientHello, MSG_NOSIGNAL) < 0) {
    return Speaks::kOther;
  }
  unsigned char first = 0;
  if (!WaitFor(socket.get(), POLLIN, timeout_ms)) return Speaks::kNothing;
  if (recv(socket.get(), &first, 1, 0) != 1) return Speaks::kOther;
  if (first == kTlsHandshake || first == kTlsAlert) return Speaks::kTls;
  return first == kHttp2Frame ? Speaks::kPlainText : Speaks::kOther;
}

}  // namespace

Speaks ProbeServer(const std::string& address, int64_t timeout_ms) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return Speaks::kNothing;
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found) != 0) {
    return Speaks::kNothing;
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  for (const addrinfo* to = found; to != nullptr; to = to->ai_next) {
    const Speaks speaks = Ask(*to, timeout_ms);
    if (speaks != Speaks::kNothing) return speaks;
  }
  return Speaks::kNothing;
}

}  // namespace tilewright::daemon
