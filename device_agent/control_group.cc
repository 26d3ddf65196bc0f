#include "device_agent/control_group.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <string_view>
#include <vector>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

using support::PathJoin;
using support::StrCat;

constexpr uint64_t kMaxText = 1 << 16;
constexpr char kAgentGroup[] = "agent";
constexpr std::string_view kWorkerPrefix = "worker-";
// A worker's own memory, and what the kernel keeps for its processes.
constexpr int64_t kWorkerBytes = int64_t{512} << 20;
// Processes and threads of a worker: more than the sandbox lets a candidate start.
constexpr int kMostProcesses = 2048;

// The folder of this process's group. Version 1 has a line for each controller; the one line of
// version 2 starts with 0.
std::optional<std::string> OwnGroup(const ControlGroupFiles& files) {
  constexpr std::string_view kVersion2 = "0::";
  const auto text = support::ReadFile(files.own, kMaxText);
  for (const std::string& line : support::Split(text.value_or(""), '\n')) {
    if (line.starts_with(kVersion2)) return files.root + line.substr(kVersion2.size());
  }
  return std::nullopt;
}

bool Write(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool good = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int error = errno;
  close(fd);
  errno = error;
  return good;
}

// Whether the service manager gave the group away: it marks those (systemd 250 and later). Others
// that can be written, as root can all, are not ours to change.
bool IsDelegated(const std::string& folder) {
  char value = 0;
  for (const char* mark : {"user.delegate", "trusted.delegate"}) {
    if (getxattr(folder.c_str(), mark, &value, 1) == 1 && value == '1') return true;
  }
  return false;
}

bool BoundsMemory(const std::string& folder) {
  const auto text = support::ReadFile(PathJoin(folder, "cgroup.subtree_control"), kMaxText);
  for (const std::string& word : support::Split(support::Trim(text.value_or("")), ' ')) {
    if (word == "memory") return true;
  }
  return false;
}

// The folder that holds the groups of agent and workers; REQUIRES: DivideControlGroup returned true
// in the agent.
std::optional<std::string> DividedGroup(const ControlGroupFiles& files) {
  const auto own = OwnGroup(files);
  if (!own.has_value() || support::BaseName(*own) != kAgentGroup) return std::nullopt;
  std::string folder = support::DirName(*own);
  if (!BoundsMemory(folder)) return std::nullopt;
  return folder;
}

absl::Status Refused(const std::string& what) {
  return support::Unavailable("agent.control_group.refused", StrCat(what, ": ", strerror(errno)));
}

// The process that writes.
constexpr char kThisProcess[] = "0";

}  // namespace

absl::StatusOr<bool> DivideControlGroup(const ControlGroupFiles& files) {
  if (DividedGroup(files).has_value()) return true;  // before
  const auto own = OwnGroup(files);
  if (!own.has_value() || !IsDelegated(*own)) return false;
  // A group with parts may not have processes itself.
  const std::string part = PathJoin(*own, kAgentGroup);
  if (mkdir(part.c_str(), 0755) != 0 && errno != EEXIST) return Refused(part);
  if (!Write(PathJoin(part, "cgroup.procs"), kThisProcess)) return Refused("move to " + part);
  if (!Write(PathJoin(*own, "cgroup.subtree_control"), "+memory +pids")) {
    return Refused("let parts of " + *own + " bound memory");
  }
  return true;
}

void SweepWorkerGroups(const ControlGroupFiles& files) {
  const auto folder = DividedGroup(files);
  if (!folder.has_value()) return;
  const auto names = support::ListDir(*folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    // Refused by the kernel while a process is left.
    if (name.starts_with(kWorkerPrefix)) rmdir(PathJoin(*folder, name).c_str());
  }
}

void RaiseOomScore(int score) { (void)Write("/proc/self/oom_score_adj", std::to_string(score)); }

std::optional<WorkerGroup> WorkerGroup::Enter(const ControlGroupFiles& files) {
  const auto folder = DividedGroup(files);
  if (!folder.has_value()) return std::nullopt;
  WorkerGroup group(PathJoin(*folder, StrCat(kWorkerPrefix, getpid())));
  if (mkdir(group.folder_.c_str(), 0755) != 0 && errno != EEXIST) return std::nullopt;
  if (Write(PathJoin(group.folder_, "cgroup.procs"), kThisProcess)) return group;
  rmdir(group.folder_.c_str());
  return std::nullopt;
}

bool WorkerGroup::Limit(int64_t memory_bytes) const {
  // Inputs and outputs are both in the worker and in the measuring process.
  const std::string most =
      memory_bytes > 0 ? std::to_string(2 * memory_bytes + kWorkerBytes) : std::string("max");
  Write(PathJoin(folder_, "memory.swap.max"), "0");  // a kernel without swap has no such file
  return Write(PathJoin(folder_, "memory.max"), most) &&
         Write(PathJoin(folder_, "pids.max"), std::to_string(kMostProcesses));
}

}  // namespace tilewright::device_agent
