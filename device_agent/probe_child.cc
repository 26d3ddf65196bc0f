#include "device_agent/probe_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "deploy/support/clock.h"
#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

using support::StrCat;
using support::Unavailable;

constexpr size_t kMaxText = 65536;
constexpr char kDone = '+';
constexpr char kFailed = '-';

[[noreturn]] void ChildMain(const std::function<absl::StatusOr<std::string>()>& work, int out) {
  setpgid(0, 0);
  const auto result = work();
  std::string text = result.ok() ? kDone + *result : kFailed + support::StatusText(result.status());
  text.resize(std::min(text.size(), kMaxText));
  const ssize_t written = write(out, text.data(), text.size());
  _exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
}

// All that comes until the other end closes or time is up.
std::string ReadAll(int fd, int64_t timeout_ms) {
  support::SystemClock clock;
  const int64_t end_ns = clock.NowNs() + timeout_ms * 1'000'000;
  std::string text;
  while (text.size() <= kMaxText) {
    const int64_t left_ms = (end_ns - clock.NowNs()) / 1'000'000;
    pollfd entry{fd, POLLIN, 0};
    if (left_ms <= 0) break;
    if (poll(&entry, 1, static_cast<int>(left_ms)) <= 0) continue;
    std::array<char, 4096> buffer;
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> InChild(const std::function<absl::StatusOr<std::string>()>& work,
                                    int64_t timeout_ms) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Unavailable("probe.child.pipe", "no pipe");
  const pid_t pid = fork();
  if (pid == 0) ChildMain(work, ends[1]);
  close(ends[1]);
  if (pid > 0) setpgid(pid, pid);  // both sides: whoever comes first
  const std::string text = pid > 0 ? ReadAll(ends[0], timeout_ms) : "";
  close(ends[0]);
  if (pid < 0) return Unavailable("probe.child.fork", "no process");
  kill(-pid, SIGKILL);
  int raw = 0;
  while (waitpid(pid, &raw, 0) < 0 && errno == EINTR) {
  }
  if (!text.empty() && text[0] == kDone) return text.substr(1);
  if (text.empty()) {
    return Unavailable("probe.child.died",
                       StrCat("no answer within ", timeout_ms, " ms; wait status ", raw));
  }
  const size_t colon = std::min(text.find(": "), text.size());
  return Unavailable(text.substr(1, colon - 1), text.substr(std::min(colon + 2, text.size())));
}

}  // namespace tilewright::device_agent
