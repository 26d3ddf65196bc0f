#include "deploy/daemon/systemd.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "deploy/daemon/daemon_log.h"
#include "deploy/support/clock.h"
#include "deploy/support/env.h"
#include "deploy/support/strings.h"

namespace tilewright::daemon {
namespace {

// Nanoseconds between beats that count; 0 without a watchdog, or with one for another process.
int64_t BeatEveryNs() {
  constexpr int64_t kBeatsPerLimit = 4;
  const auto limit_us = support::ParseInt64(support::GetEnv("WATCHDOG_USEC").value_or(""));
  const auto pid = support::ParseInt64(support::GetEnv("WATCHDOG_PID").value_or(""));
  if (limit_us.value_or(0) <= 0 || (pid.has_value() && *pid != getpid())) return 0;
  return *limit_us * 1000 / kBeatsPerLimit;
}

}  // namespace

void NotifySystemd(const std::string& message) {
  const auto path = support::GetEnv("NOTIFY_SOCKET");
  if (!path.has_value() || path->empty()) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path->size() >= sizeof(address.sun_path)) return;
  std::memcpy(address.sun_path, path->data(), path->size());
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';  // the abstract namespace
  const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const socklen_t length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path->size());
  if (sendto(fd, message.data(), message.size(), MSG_NOSIGNAL,
             reinterpret_cast<const sockaddr*>(&address), length) < 0) {
    LogWarning("daemon.notify.failed", {{"error", std::strerror(errno)}});
  }
  close(fd);
}

void BeatWatchdog() {
  static const int64_t every_ns = BeatEveryNs();
  static std::atomic<int64_t> next_ns{INT64_MIN};
  if (every_ns == 0) return;
  support::SystemClock clock;
  const int64_t now_ns = clock.NowNs();
  if (now_ns < next_ns.load()) return;
  next_ns.store(now_ns + every_ns);
  NotifySystemd("WATCHDOG=1");
}

}  // namespace tilewright::daemon
