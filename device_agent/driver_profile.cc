#include "device_agent/driver_profile.h"

#include <asm/sockios.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

namespace tilewright::device_agent {
namespace {

// Flags of clone that make namespaces; part of the kernel's ABI (<sched.h> hides them from C++ that
// includes <linux/sched.h> as well).
constexpr uint64_t kNamespaceFlags = 0x7E020000 | 0x00000080;
constexpr uint64_t kThreadFlag = 0x00010000;
constexpr uint64_t kSharedPages = MAP_SHARED | MAP_ANONYMOUS;

// Beyond what strict allows. Files: Landlock decides which.
constexpr std::array kDriverCalls = {
    SCMP_SYS(chmod),
    SCMP_SYS(copy_file_range),
    SCMP_SYS(dup),
    SCMP_SYS(dup2),
    SCMP_SYS(dup3),
    SCMP_SYS(epoll_create1),
    SCMP_SYS(epoll_ctl),
    SCMP_SYS(epoll_pwait),
    SCMP_SYS(epoll_wait),
    SCMP_SYS(eventfd2),
    SCMP_SYS(execve),
    SCMP_SYS(faccessat2),
    SCMP_SYS(fallocate),
    SCMP_SYS(fchmod),
    SCMP_SYS(fdatasync),
    SCMP_SYS(flock),
    SCMP_SYS(fsync),
    SCMP_SYS(ftruncate),
    SCMP_SYS(get_mempolicy),
    SCMP_SYS(getegid),
    SCMP_SYS(geteuid),
    SCMP_SYS(getgid),
    SCMP_SYS(getpgrp),
    SCMP_SYS(getppid),
    SCMP_SYS(getpriority),
    SCMP_SYS(getrlimit),
    SCMP_SYS(getuid),
    SCMP_SYS(ioctl),
    SCMP_SYS(lstat),
    SCMP_SYS(mbind),
    SCMP_SYS(mkdir),
    SCMP_SYS(mkdirat),
    SCMP_SYS(mlock),
    SCMP_SYS(mlock2),
    SCMP_SYS(munlock),
    SCMP_SYS(open),
    SCMP_SYS(openat),
    SCMP_SYS(pipe),
    SCMP_SYS(pipe2),
    SCMP_SYS(ppoll),
    SCMP_SYS(preadv),
    SCMP_SYS(pwrite64),
    SCMP_SYS(readv),
    SCMP_SYS(rename),
    SCMP_SYS(renameat),
    SCMP_SYS(renameat2),
    SCMP_SYS(rmdir),
    SCMP_SYS(sched_get_priority_max),
    SCMP_SYS(sched_get_priority_min),
    SCMP_SYS(sched_getparam),
    SCMP_SYS(sched_getscheduler),
    SCMP_SYS(set_mempolicy),
    SCMP_SYS(statfs),
    SCMP_SYS(symlink),
    SCMP_SYS(times),
    SCMP_SYS(umask),
    SCMP_SYS(unlink),
    SCMP_SYS(unlinkat),
    SCMP_SYS(vfork),
    SCMP_SYS(wait4),
    SCMP_SYS(waitid),
};

// Drivers try these and can live without: an error instead of the process's end.
constexpr std::array kRefused = {
    SCMP_SYS(connect),     SCMP_SYS(sched_setattr), SCMP_SYS(sched_setscheduler),
    SCMP_SYS(setpriority), SCMP_SYS(socketpair),
};

// NVIDIA's driver fails (error 304) unless it can listen at a local address, for other processes
// that share its memory. Nobody calls there: connecting is refused, and the jail has a network
// namespace of its own.
constexpr std::array kListening = {
    SCMP_SYS(accept), SCMP_SYS(accept4), SCMP_SYS(bind), SCMP_SYS(listen), SCMP_SYS(setsockopt),
};

// With clone for what is no thread.
constexpr std::array kProcessCalls = {SCMP_SYS(execve), SCMP_SYS(vfork)};

// What loaders and drivers read of /etc; the rest may be an agent's configuration and its keys.
constexpr std::array kSettings = {
    "/etc/OpenCL",       "/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf",
    "/etc/ld.so.conf.d", "/etc/localtime",    "/etc/nvidia",      "/etc/vulkan",
};

// Below /opt, where a vendor's driver may be, and an agent as well.
std::vector<std::string> VendorFolders() {
  constexpr std::array<std::string_view, 6> kVendors = {"amdgpu", "arm",    "cuda",
                                                        "intel",  "nvidia", "rocm"};
  std::vector<std::string> folders;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/opt", error)) {
    const std::string name = entry.path().filename().string();
    const bool known = std::any_of(kVendors.begin(), kVendors.end(), [&](std::string_view vendor) {
      return name.starts_with(vendor);
    });
    if (known) folders.push_back(entry.path().string());
  }
  return folders;
}

// Who is told about a descriptor, and input that a terminal seems to have got.
constexpr std::array<uint64_t, 5> kDeniedRequests = {FIOASYNC, FIOSETOWN, SIOCSPGRP, TIOCSTI,
                                                     TIOCLINUX};
constexpr uint64_t kLow32 = 0xFFFFFFFF;

}  // namespace

std::vector<std::string> KnownDeviceNodes() {
  std::vector<std::string> nodes;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", error)) {
    const std::string name = entry.path().filename().string();
    const bool known =
        name == "dri" || name == "kfd" || name.starts_with("nvidia") || name.starts_with("mali");
    if (known) nodes.push_back(entry.path().string());
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

std::vector<FileRule> DriverFiles(const DriverAccess& access) {
  std::vector<FileRule> rules;
  for (const char* folder : {"/usr", "/lib", "/lib64", "/bin"}) {
    rules.push_back({folder, FileAccess::kReadExecute});
  }
  // /proc/self and the like; processes outside are closed by Landlock itself.
  for (const char* folder : {"/proc", "/sys", "/dev/urandom"}) {
    rules.push_back({folder, FileAccess::kRead});
  }
  // NVIDIA's driver fails (error 304) unless it can name its threads.
  rules.push_back({"/proc/self/task", FileAccess::kChange});
  for (const char* path : kSettings) rules.push_back({path, FileAccess::kRead});
  for (const std::string& path : VendorFolders()) rules.push_back({path, FileAccess::kRead});
  rules.push_back({"/dev/null", FileAccess::kDevice});
  for (const std::string& path : access.libraries) rules.push_back({path, FileAccess::kRead});
  for (const std::string& node : access.nodes) rules.push_back({node, FileAccess::kDevice});
  if (!access.scratch.empty()) rules.push_back({access.scratch, FileAccess::kScratch});
  return rules;
}

std::vector<std::pair<const char*, std::string>> DriverEnvironment(const std::string& scratch) {
  return {
      {"HOME", scratch},
      {"TMPDIR", scratch},
      {"XDG_CACHE_HOME", scratch},
      {"POCL_CACHE_DIR", scratch + "/pocl"},
      {"CUDA_CACHE_PATH", scratch + "/cuda"},
  };
}

std::vector<unsigned> NodeGroups(const std::vector<std::string>& nodes) {
  std::vector<unsigned> groups;
  const auto add = [&](const std::string& path) {
    struct stat found{};
    if (stat(path.c_str(), &found) == 0 && found.st_gid != 0) groups.push_back(found.st_gid);
  };
  for (const std::string& node : nodes) {
    add(node);
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(node, error)) {
      add(entry.path().string());
    }
  }
  std::sort(groups.begin(), groups.end());
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  return groups;
}

absl::Status DenyDriverCalls() {
  SeccompFilter filter(SCMP_ACT_ALLOW);
  for (const uint64_t request : kDeniedRequests) {
    filter.Add(SCMP_ACT_KILL_PROCESS, SCMP_SYS(ioctl),
               When(1, SCMP_CMP_MASKED_EQ, kLow32, request));
  }
  return filter.Load();
}

void AllowDriverCalls(SeccompFilter* filter) {
  filter->AddAll(SCMP_ACT_ALLOW, kDriverCalls);
  filter->AddAll(SCMP_ACT_ALLOW, kListening);
  filter->AddAll(SCMP_ACT_ERRNO(EACCES), kRefused);
  filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(socket), When(0, SCMP_CMP_EQ, AF_UNIX));
  filter->Add(SCMP_ACT_ERRNO(EACCES), SCMP_SYS(socket), When(0, SCMP_CMP_NE, AF_UNIX));
  for (const int lock : {F_GETLK, F_SETLK, F_SETLKW}) {
    filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(fcntl), When(1, SCMP_CMP_MASKED_EQ, kLow32, lock));
  }
  // Of another process's threads, or of another thread.
  filter->Add(SCMP_ACT_ERRNO(EPERM), SCMP_SYS(sched_setaffinity), When(0, SCMP_CMP_NE, 0));
  // Threads, and the driver's own tools; no namespaces, in which everybody is root.
  filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(clone), When(0, SCMP_CMP_MASKED_EQ, kNamespaceFlags, 0));
}

void AskAtGate(SeccompFilter* filter) {
  filter->AddAll(SCMP_ACT_NOTIFY, kProcessCalls);
  filter->Add(SCMP_ACT_NOTIFY, SCMP_SYS(clone), When(0, SCMP_CMP_MASKED_EQ, kThreadFlag, 0));
  filter->Add(SCMP_ACT_NOTIFY, SCMP_SYS(memfd_create));
  filter->Add(SCMP_ACT_NOTIFY, SCMP_SYS(mmap),
              When(3, SCMP_CMP_MASKED_EQ, kSharedPages, kSharedPages));
}

}  // namespace tilewright::device_agent
