#include "device_agent/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include "deploy/support/file.h"
#include "deploy/support/sanitizers.h"
#include "deploy/support/strings.h"
#include "device_agent/control_group.h"
#include "device_agent/driver_profile.h"
#include "device_agent/landlock.h"
#include "device_agent/probe_child.h"
#include "device_agent/seccomp_filter.h"

// <linux/sched.h> and <sched.h> cannot both be included; the flag is part of the kernel's ABI.
#ifndef CLONE_THREAD
#define CLONE_THREAD 0x00010000
#endif

namespace tilewright::device_agent {
namespace {

using support::ErrnoError;
using support::StrCat;
using support::Unavailable;

constexpr int64_t kOpenFiles = 16;
constexpr int64_t kDriverOpenFiles = 512;
// Processes and threads of the user that the measuring process runs as, all together.
constexpr int64_t kDriverProcesses = 1024;
constexpr int64_t kStrictProcesses = 256;    // counted apart
constexpr int64_t kNobodysProcesses = 1024;  // of root's candidates on all devices
constexpr int64_t kUsersProcesses = 4096;    // together with what else an ordinary user runs
// Their shadow memory and helpers need more than we allow.
constexpr char kSanitizerWord[] = "a sanitizer build";
// Then the worker's process and a dash.
constexpr std::string_view kScratchPrefix = "tilewright-driver-";

// Computing, memory, own threads, time, and what the loader needs.
constexpr std::array kAllowed = {
    SCMP_SYS(access),
    SCMP_SYS(arch_prctl),
    SCMP_SYS(brk),
    SCMP_SYS(clock_getres),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(clock_nanosleep),
    SCMP_SYS(close),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
    SCMP_SYS(faccessat),
    SCMP_SYS(fstat),
    SCMP_SYS(fstatfs),
    SCMP_SYS(futex),
    SCMP_SYS(getcpu),
    SCMP_SYS(getcwd),
    SCMP_SYS(getdents64),
    SCMP_SYS(getpid),
    SCMP_SYS(getrandom),
    SCMP_SYS(getrusage),
    SCMP_SYS(gettid),
    SCMP_SYS(gettimeofday),
    SCMP_SYS(lseek),
    SCMP_SYS(madvise),
    SCMP_SYS(membarrier),
    SCMP_SYS(memfd_create),
    SCMP_SYS(mmap),
    SCMP_SYS(mprotect),
    SCMP_SYS(mremap),
    SCMP_SYS(munmap),
    SCMP_SYS(nanosleep),
    SCMP_SYS(newfstatat),
    SCMP_SYS(poll),
    SCMP_SYS(pread64),
    SCMP_SYS(read),
    SCMP_SYS(readlink),
    SCMP_SYS(readlinkat),
    SCMP_SYS(restart_syscall),
    SCMP_SYS(rseq),
    SCMP_SYS(rt_sigaction),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(sched_getaffinity),
    SCMP_SYS(sched_yield),
    SCMP_SYS(set_robust_list),
    SCMP_SYS(set_tid_address),
    SCMP_SYS(sigaltstack),
    SCMP_SYS(stat),
    SCMP_SYS(statx),
    SCMP_SYS(sysinfo),
    SCMP_SYS(time),
    SCMP_SYS(uname),
    SCMP_SYS(write),
    SCMP_SYS(writev),
};

// Of fcntl. Not among them: who gets a signal about a descriptor, and how large a pipe is.
constexpr std::array kDescriptorCalls = {
    F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_ADD_SEALS, F_GET_SEALS,
};
constexpr uint64_t kInt = 0xFFFFFFFF;  // what the kernel reads of an argument of type int

// What the loader and the runtime read: libraries, and the number of cores.
constexpr std::array kLoaderFiles = {
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/sys/devices/system/cpu/online",
    "/sys/fs/cgroup/cpu.max",
};

absl::Status Limit(__rlimit_resource resource, const char* name, int64_t soft, int64_t hard) {
  const rlimit limit{static_cast<rlim_t>(soft), static_cast<rlim_t>(hard)};
  if (setrlimit(resource, &limit) == 0) return absl::OkStatus();
  return ErrnoError(errno, "sandbox.limit.refused", name);
}

// The first number of the file: pages that are mapped.
int64_t BytesInUse() {
  constexpr uint64_t kMaxText = 4096;
  const auto text = support::ReadFile("/proc/self/statm", kMaxText);
  if (!text.ok()) return 0;
  return support::ParseInt64(text->substr(0, text->find(' '))).value_or(0) * sysconf(_SC_PAGESIZE);
}

// A candidate never runs as root.
void DropRoot(const std::vector<unsigned>& groups) {
  if (geteuid() != 0) return;
  if (setgroups(groups.size(), groups.data()) != 0 || setresgid(kNobody, kNobody, kNobody) != 0 ||
      setresuid(kNobody, kNobody, kNobody) != 0) {
    errno = 0;  // A user namespace without that id, for example: root there is nobody outside.
  }
}

// Whoever makes a user namespace has all rights in it, until it gives them up.
absl::Status DropCapabilities() {
  __user_cap_header_struct header{};
  header.version = _LINUX_CAPABILITY_VERSION_3;
  const std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> none{};
  if (syscall(SYS_capset, &header, none.data()) == 0) return absl::OkStatus();
  return ErrnoError(errno, "sandbox.limit.refused", "capabilities");
}

int64_t ProcessLimit(const SandboxSpec& spec) {
  if (spec.profile == SandboxProfile::kDriver) return kDriverProcesses;
  if (spec.jail != nullptr && spec.jail->own_users()) return kStrictProcesses;
  return geteuid() == 0 ? kNobodysProcesses : kUsersProcesses;
}

void AllowCallsByArgument(SeccompFilter* filter) {
  for (const int what : kDescriptorCalls) {
    filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(fcntl), When(1, SCMP_CMP_MASKED_EQ, kInt, what));
  }
  filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(fcntl), When(1, SCMP_CMP_MASKED_EQ, kInt, F_SETFL),
              When(2, SCMP_CMP_MASKED_EQ, O_ASYNC, 0));
  // Its own limits, to read. Setting them is refused, since libraries try.
  filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), When(0, SCMP_CMP_MASKED_EQ, kInt, 0),
              When(2, SCMP_CMP_EQ, 0));
  filter->Add(SCMP_ACT_ERRNO(EPERM), SCMP_SYS(prlimit64), When(0, SCMP_CMP_MASKED_EQ, kInt, 0),
              When(2, SCMP_CMP_NE, 0));
  filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(prctl), When(0, SCMP_CMP_EQ, PR_SET_NAME));
  filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(prctl), When(0, SCMP_CMP_EQ, PR_SET_NO_NEW_PRIVS));
  // abort() signals its own process only.
  filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(tgkill), When(0, SCMP_CMP_EQ, kSelf));
  // A thread's own, by itself.
  filter->Add(SCMP_ACT_ALLOW, SCMP_SYS(sched_setaffinity), When(0, SCMP_CMP_MASKED_EQ, kInt, 0));
}

}  // namespace

std::string_view SandboxProfileName(SandboxProfile profile) {
  return profile == SandboxProfile::kDriver ? "driver" : "strict";
}

absl::StatusOr<SandboxProfile> ParseSandboxProfile(std::string_view name) {
  for (const SandboxProfile profile : {SandboxProfile::kStrict, SandboxProfile::kDriver}) {
    if (name == SandboxProfileName(profile)) return profile;
  }
  return support::InvalidArgument("agent.profile.unknown",
                                  "expected strict or driver, found " + support::Quote(name));
}

absl::Status ApplyLimits(const SandboxSpec& spec, int parent) {
  const SandboxLimits& limits = spec.limits;
  const bool driver = spec.profile == SandboxProfile::kDriver;
  const int64_t files = driver ? kDriverOpenFiles : kOpenFiles;
  const int64_t file_bytes = driver ? kDriverFileBytes : limits.code_bytes;
  TW_TRY(Limit(RLIMIT_CORE, "core", 0, 0));
  TW_TRY(Limit(RLIMIT_NOFILE, "open files", files, files));
  TW_TRY(Limit(RLIMIT_FSIZE, "file size", file_bytes, file_bytes));
  if (limits.cpu_s > 0) TW_TRY(Limit(RLIMIT_CPU, "cpu", limits.cpu_s, limits.cpu_s + 1));
  if (limits.memory_bytes > 0 && !support::kSanitizerBuild) {
    const int64_t bytes = BytesInUse() + limits.memory_bytes;
    TW_TRY(driver ? Limit(RLIMIT_DATA, "memory", bytes, bytes)
                  : Limit(RLIMIT_AS, "address space", bytes, bytes));
  }
  const int64_t processes = ProcessLimit(spec);
  TW_TRY(Limit(RLIMIT_NPROC, "processes", processes, processes));
  if (spec.jail != nullptr) TW_TRY(spec.jail->Enter());
  DropRoot(NodeGroups(spec.driver.nodes));
  TW_TRY(DropCapabilities());
  // The worker and a change of the user took this away; without it the process cannot open its own
  // /proc/self/fd, from which code is loaded.
  prctl(PR_SET_DUMPABLE, 1);
  RaiseOomScore(kCandidateOomScore);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    return ErrnoError(errno, "sandbox.limit.refused", "parent-death signal");
  }
  // From a process namespace the parent outside has no number.
  if (getppid() != (spec.jail != nullptr ? 0 : parent))
    return Unavailable("sandbox.parent.gone", "the worker has ended");
  if (driver && !spec.driver.scratch.empty()) {
    for (const auto& [name, value] : DriverEnvironment(spec.driver.scratch)) {
      setenv(name, value.c_str(), 1);
    }
  }
  return absl::OkStatus();
}

std::vector<FileRule> FilesOf(const SandboxSpec& spec) {
  if (spec.profile == SandboxProfile::kDriver) return DriverFiles(spec.driver);
  std::vector<FileRule> rules;
  for (const char* path : kLoaderFiles) rules.push_back({path, FileAccess::kRead});
  return rules;
}

absl::StatusOr<std::unique_ptr<Jail>> MakeJail(const SandboxSpec& spec) {
  if (support::kSanitizerBuild) return Unavailable("sandbox.filter.sanitizer", kSanitizerWord);
  return Jail::Create(FilesOf(spec));
}

absl::StatusOr<FilterProgram> MakeFilter(SandboxProfile profile) {
  if (support::kSanitizerBuild) return Unavailable("sandbox.filter.sanitizer", kSanitizerWord);
  SeccompFilter filter(SCMP_ACT_KILL_PROCESS);
  filter.AddAll(SCMP_ACT_ALLOW, kAllowed);
  // The arguments of clone3 lie in memory, out of a filter's sight; the C library falls back to
  // clone.
  filter.Add(SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3));
  AllowCallsByArgument(&filter);
  if (profile == SandboxProfile::kDriver) {
    AllowDriverCalls(&filter);
    return filter.Compile();
  }
  // Reading only. O_CREAT and O_TRUNC imply a change whatever the access mode says.
  filter.Add(SCMP_ACT_ALLOW, SCMP_SYS(openat),
             When(2, SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC | __O_TMPFILE, O_RDONLY));
  // Threads, no processes.
  filter.Add(SCMP_ACT_ALLOW, SCMP_SYS(clone),
             When(0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
  return filter.Compile();
}

absl::Status ApplyFilter(const SandboxSpec& spec) {
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return Unavailable("sandbox.filter.privileges", "no_new_privs is refused");
  }
  if (spec.filter == nullptr) return Unavailable("sandbox.filter.missing", "none could be made");
  if (spec.landlock) TW_TRY(RestrictFiles(FilesOf(spec)));
  if (spec.profile == SandboxProfile::kDriver) TW_TRY(DenyDriverCalls());
  return LoadProgram(*spec.filter);
}

absl::StatusOr<support::TempDir> MakeScratch(const std::string& parent) {
  TW_ASSIGN(support::TempDir folder,
            support::TempDir::Create(StrCat(kScratchPrefix, getpid(), "-"), parent));
  // To whom the process will be that uses it; where that is refused it stays ours, as it will.
  if (geteuid() == 0 && chown(folder.path().c_str(), kNobody, kNobody) != 0) errno = 0;
  return folder;
}

void SweepScratch() {
  std::error_code error;
  const std::filesystem::path parent = std::filesystem::temp_directory_path(error);
  for (const auto& entry : std::filesystem::directory_iterator(parent, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kScratchPrefix)) continue;
    const std::string rest = name.substr(kScratchPrefix.size());
    const auto pid = support::ParseInt64(rest.substr(0, rest.find('-')));
    const bool gone =
        pid.has_value() && *pid > 0 && kill(static_cast<pid_t>(*pid), 0) != 0 && errno == ESRCH;
    // What belongs to others stays.
    if (gone) (void)support::RemoveTree(entry.path().string());
  }
}

namespace {

absl::Status TrySandbox(const SandboxSpec& spec) {
  constexpr int64_t kTimeoutMs = 10'000;
  const pid_t parent = getpid();
  return InChild(
             [&]() -> absl::StatusOr<std::string> {
               TW_TRY(ApplyLimits(spec, parent));
               TW_TRY(ApplyFilter(spec));
               return std::string();
             },
             kTimeoutMs)
      .status();
}

std::string Namespaces(const Jail& jail) {
  return StrCat(jail.own_users() ? "user, " : "", "process, ", jail.files().ok() ? "mount, " : "",
                "network and IPC namespaces, ");
}

}  // namespace

SandboxProbe ProbeSandbox(SandboxProfile profile,
                          const absl::StatusOr<std::unique_ptr<Jail>>& jail) {
  SandboxProbe probe;
  std::vector<std::string> missing;
  const auto lacks = [&](const char* what, const absl::Status& why) {
    if (!why.ok()) missing.push_back(StrCat(what, " (", support::StatusText(why), ")"));
  };
  SandboxSpec spec;
  spec.profile = profile;
  spec.jail = jail.ok() ? jail->get() : nullptr;
  const auto filter = MakeFilter(profile);
  spec.filter = filter.ok() ? &*filter : nullptr;
  lacks("namespaces", jail.status());
  if (jail.ok()) lacks("mount namespace", (*jail)->files());
  absl::Status tried = filter.ok() ? TrySandbox(spec) : filter.status();
  if (support::Slug(tried).starts_with("sandbox.landlock.")) {
    lacks("Landlock", tried);
    spec.landlock = false;
    if (profile == SandboxProfile::kStrict) tried = TrySandbox(spec);
  }
  probe.sandboxed = tried.ok();
  probe.landlock = tried.ok() && spec.landlock;
  if (spec.landlock || profile == SandboxProfile::kStrict) lacks("system-call filter", tried);
  probe.missing = support::Join(missing, "; ");
  if (!tried.ok()) {
    probe.detail = support::StatusText(tried);
    return probe;
  }
  probe.detail =
      StrCat(SandboxProfileName(profile), ": ", spec.jail != nullptr ? Namespaces(*spec.jail) : "",
             spec.landlock ? "Landlock, " : "",
             "seccomp allow-list, no_new_privs, resource limits, own process");
  return probe;
}

}  // namespace tilewright::device_agent
