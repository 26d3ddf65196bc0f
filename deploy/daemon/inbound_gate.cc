#include "deploy/daemon/inbound_gate.h"

#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "deploy/daemon/daemon_log.h"
#include "deploy/daemon/http2_gate.h"
#include "deploy/security/tls_inspect.h"
#include "deploy/support/clock.h"
#include "deploy/support/mutex.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::daemon {
namespace {

constexpr int64_t kLogPauseNs = 1'000'000'000;

// The state of the definitions at the end of this file, which have no other place for it. Never
// destroyed: libraries read until the process ends.
class InboundGates {
 public:
  static InboundGates& All() {
    static InboundGates* const all = new InboundGates();
    return *all;
  }

  support::Clock* clock() { return &clock_; }

  void AddPort(int port) {
    support::MutexLock lock(mutex_);
    ports_.insert(port);
    any_port_.store(true);
  }
  void RemovePort(int port) {
    support::MutexLock lock(mutex_);
    ports_.erase(ports_.find(port));
    any_port_.store(!ports_.empty());
    std::erase_if(plain_, [port](const auto& one) { return one.second.port == port; });
  }

  // The gate of a connection in plain text; null if it is none of ours.
  std::shared_ptr<Http2Gate> PlainGate(int fd) {
    if (!any_port_.load(std::memory_order_relaxed)) return nullptr;
    uint64_t cookie = 0;
    socklen_t length = sizeof(cookie);
    if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &length) != 0) return nullptr;
    support::MutexLock lock(mutex_);
    PlainConnection& known = plain_[fd];
    if (known.cookie == cookie) return known.gate;
    known = {cookie, LocalPort(fd), nullptr};  // the descriptor is another connection's by now
    if (ports_.count(known.port) > 0) known.gate = std::make_shared<Http2Gate>(&clock_);
    return known.gate;
  }

  // Whether a line of the log is due, not more than one a second; how many were not since the last.
  std::optional<int64_t> TakeLine() {
    support::MutexLock lock(mutex_);
    const int64_t now_ns = clock_.NowNs();
    if (now_ns < next_line_ns_) {
      ++untold_;
      return std::nullopt;
    }
    next_line_ns_ = now_ns + kLogPauseNs;
    return std::exchange(untold_, 0);
  }

 private:
  struct PlainConnection {
    uint64_t cookie = 0;  // the kernel gives each socket another one, never 0
    int port = 0;
    std::shared_ptr<Http2Gate> gate;
  };

  static int LocalPort(int fd) {
    sockaddr_storage local{};
    socklen_t length = sizeof(local);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) != 0) return 0;
    if (local.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in*>(&local)->sin_port);
    if (local.ss_family != AF_INET6) return 0;
    return ntohs(reinterpret_cast<sockaddr_in6*>(&local)->sin6_port);
  }

  support::SystemClock clock_;
  std::atomic<bool> any_port_{false};
  support::Mutex mutex_;
  std::multiset<int> ports_ TW_GUARDED_BY(mutex_);
  std::map<int, PlainConnection> plain_ TW_GUARDED_BY(mutex_);  // by descriptor
  int64_t next_line_ns_ TW_GUARDED_BY(mutex_) = 0;
  int64_t untold_ TW_GUARDED_BY(mutex_) = 0;
};

using RecvmsgFunction = ssize_t(int, msghdr*, int);

RecvmsgFunction* LibraryRecvmsg() {
  static auto* const function = reinterpret_cast<RecvmsgFunction*>(dlsym(RTLD_NEXT, "recvmsg"));
  TW_CHECK(function != nullptr) << "no library defines recvmsg";
  return function;
}

Http2Abuse Show(Http2Gate* gate, const msghdr& message, size_t size) {
  Http2Abuse abuse = Http2Abuse::kNone;
  for (size_t i = 0; i < message.msg_iovlen && size > 0; ++i) {
    const iovec& part = message.msg_iov[i];
    const size_t filled = std::min(part.iov_len, size);
    abuse = gate->Take({static_cast<const char*>(part.iov_base), filled});
    size -= filled;
  }
  return abuse;
}

std::string PeerAddress(int fd) {
  sockaddr_storage peer{};
  socklen_t length = sizeof(peer);
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&peer), length, host, sizeof(host), port,
                  sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  return support::StrCat(host, ":", port);
}

void Tell(Http2Abuse abuse, const std::function<std::string()>& peer) {
  const std::optional<int64_t> others = InboundGates::All().TakeLine();
  if (!others.has_value()) return;
  LogWarning("daemon.connection.abuse",
             {{"reason", Http2AbuseText(abuse)},
              {"peer", peer()},
              {"not_logged_before", *others},
              {"message", "a client broke the limits of HTTP/2; its connection was closed"}});
}

}  // namespace

void GateTls() {
  security::InspectAcceptedTls([] {
    const auto gate = std::make_shared<Http2Gate>(InboundGates::All().clock());
    return [gate](const security::TlsBytes& bytes) {
      const Http2Abuse abuse = gate->Take(bytes.plain, bytes.answered);
      if (abuse != Http2Abuse::kNone) Tell(abuse, bytes.peer);
      return abuse == Http2Abuse::kNone;
    };
  });
}

PlainTextGate::PlainTextGate(int port) : port_(port) { InboundGates::All().AddPort(port_); }

PlainTextGate::~PlainTextGate() { InboundGates::All().RemovePort(port_); }

}  // namespace tilewright::daemon

// In place of the C library's.
extern "C" __attribute__((visibility("default"))) ssize_t recvmsg(int fd, msghdr* message,
                                                                  int flags) {
  using tilewright::daemon::Http2Abuse;
  const ssize_t got = tilewright::daemon::LibraryRecvmsg()(fd, message, flags);
  if (got <= 0) return got;
  const auto gate = tilewright::daemon::InboundGates::All().PlainGate(fd);
  if (gate == nullptr) return got;
  const Http2Abuse abuse = tilewright::daemon::Show(gate.get(), *message, static_cast<size_t>(got));
  if (abuse == Http2Abuse::kNone) return got;
  tilewright::daemon::Tell(abuse, [fd] { return tilewright::daemon::PeerAddress(fd); });
  errno = ECONNRESET;
  return -1;
}
