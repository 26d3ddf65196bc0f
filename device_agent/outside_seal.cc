#include "device_agent/outside_seal.h"

#include <errno.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

using support::DataLoss;
using support::StrCat;

constexpr int64_t kFiltering = 2;  // SECCOMP_MODE_FILTER
constexpr int64_t kStrictFilters = 1;
constexpr int64_t kDriverFilters = 3;  // gate, denied requests, allow-list

// A number of /proc/PID/status; nullopt if this kernel has no such line.
std::optional<int64_t> Field(const std::string& status, const std::string& name) {
  const size_t at = status.find("\n" + name + ":");
  if (at == std::string::npos) return std::nullopt;
  const size_t begin = at + name.size() + 2;
  return support::ParseInt64(support::Trim(status.substr(begin, status.find('\n', begin) - begin)));
}

absl::StatusOr<std::string> StatusOf(const std::string& process) {
  constexpr uint64_t kMaxText = 1 << 16;
  return support::ReadFile(StrCat("/proc/", process, "/status"), kMaxText);
}

// Root without CAP_SYS_RESOURCE (in a container) may change the limits of a process only while it
// is, as a real user, who that process is. It keeps its rights meanwhile.
bool SetLimitAsChild(pid_t child, __rlimit_resource resource, const rlimit& limit) {
  if (geteuid() != 0 || setresgid(kNobody, -1, -1) != 0) return false;
  bool set = false;
  int error = EPERM;
  if (setresuid(kNobody, -1, -1) == 0) {
    set = prlimit(child, resource, &limit, nullptr) == 0;
    error = errno;
    TW_CHECK(setresuid(0, -1, -1) == 0) << "root may become root";
  }
  TW_CHECK(setresgid(0, -1, -1) == 0) << "root may become root";
  errno = error;
  return set;
}

absl::Status TakeAway(pid_t child, __rlimit_resource resource, const char* what) {
  const rlimit none{0, 0};
  if (prlimit(child, resource, &none, nullptr) == 0) return absl::OkStatus();
  if (errno == EPERM && SetLimitAsChild(child, resource, none)) return absl::OkStatus();
  if (errno == ESRCH) return support::Unavailable("sandbox.seal.gone", "the process has ended");
  return DataLoss("sandbox.seal.missing", support::ErrnoError(errno, "", what).ToString());
}

// Whether the process ends within moments: one that is ending has given its filters back.
bool EndsSoon(pid_t child) {
  constexpr int kPatienceMs = 500;
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  if (fd < 0) return true;
  pollfd entry{fd, POLLIN, 0};
  const bool ended = poll(&entry, 1, kPatienceMs) == 1;
  close(fd);
  return ended;
}

// The filters of a service manager, which this process has as well, do not count.
absl::Status CheckFilters(pid_t child, int64_t expected) {
  TW_ASSIGN(const std::string own, StatusOf("self"));
  const auto status = StatusOf(std::to_string(child));
  if (!status.ok()) return support::Unavailable("sandbox.seal.gone", "the process has ended");
  const bool filtered = Field(*status, "Seccomp") == kFiltering;
  const auto before = Field(own, "Seccomp_filters");  // Linux 5.9
  const auto found = Field(*status, "Seccomp_filters");
  const bool counted = before.has_value() && found.has_value();
  if (filtered && (!counted || *found == *before + expected)) return absl::OkStatus();
  if (EndsSoon(child)) return support::Unavailable("sandbox.seal.gone", "the process has ended");
  return DataLoss("sandbox.seal.missing",
                  StrCat("expected ", expected, " system-call filters, found ",
                         counted ? *found - *before : 0));
}

}  // namespace

absl::Status SealFromOutside(pid_t child, SandboxProfile profile) {
  const bool strict = profile == SandboxProfile::kStrict;
  TW_TRY(TakeAway(child, RLIMIT_FSIZE, "file size"));
  if (strict) TW_TRY(TakeAway(child, RLIMIT_NOFILE, "open files"));
  return CheckFilters(child, strict ? kStrictFilters : kDriverFilters);
}

}  // namespace tilewright::device_agent
