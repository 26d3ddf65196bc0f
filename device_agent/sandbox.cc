#include "device_agent/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "deploy/support/file.h"
#include "deploy/support/strings.h"

// <linux/sched.h> and <sched.h> cannot both be included; the flag is part of the kernel's ABI.
#ifndef CLONE_THREAD
#define CLONE_THREAD 0x00010000
#endif

namespace tilewright::device_agent {
namespace {

using support::ErrnoError;
using support::StrCat;
using support::Unavailable;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitizerBuild = true;  // their shadow memory and helpers need more than we allow
#else
constexpr bool kSanitizerBuild = false;
#endif

constexpr int64_t kOpenFiles = 64;
constexpr uid_t kNobody = 65534;

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
    SCMP_SYS(fcntl),
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
    SCMP_SYS(prlimit64),
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
    SCMP_SYS(seccomp),
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

// Allowed while loading only.
constexpr std::array kSealed = {
    SCMP_SYS(access),       SCMP_SYS(faccessat),  SCMP_SYS(getcwd), SCMP_SYS(getdents64),
    SCMP_SYS(memfd_create), SCMP_SYS(newfstatat), SCMP_SYS(openat), SCMP_SYS(readlink),
    SCMP_SYS(readlinkat),   SCMP_SYS(stat),       SCMP_SYS(statx),  SCMP_SYS(sched_setaffinity),
};

// A condition on an argument of a system call.
scmp_arg_cmp When(unsigned argument, scmp_compare comparison, uint64_t a, uint64_t b = 0) {
  return {argument, comparison, a, b};
}

class Filter {
 public:
  explicit Filter(uint32_t default_action) : context_(seccomp_init(default_action)) {}
  ~Filter() {
    if (context_ != nullptr) seccomp_release(context_);
  }
  Filter(const Filter&) = delete;
  Filter& operator=(const Filter&) = delete;

  template <typename... Comparisons>
  void Add(uint32_t action, int call, Comparisons... comparisons) {
    if (context_ == nullptr) return;
    const int result =
        seccomp_rule_add(context_, action, call, sizeof...(comparisons), comparisons...);
    if (result != 0 && error_ == 0) error_ = -result;
  }

  absl::Status Load() {
    if (context_ == nullptr) return Unavailable("sandbox.filter.init", "libseccomp refuses");
    if (error_ == 0) error_ = -seccomp_load(context_);
    if (error_ == 0) return absl::OkStatus();
    return Unavailable("sandbox.filter.load", ErrnoError(error_, "", "").ToString());
  }

 private:
  scmp_filter_ctx context_;
  int error_ = 0;
};

absl::Status Limit(__rlimit_resource resource, const char* name, int64_t soft, int64_t hard) {
  const rlimit limit{static_cast<rlim_t>(soft), static_cast<rlim_t>(hard)};
  if (setrlimit(resource, &limit) == 0) return absl::OkStatus();
  return ErrnoError(errno, "sandbox.limit.refused", name);
}

// The first number of the file: pages that are mapped.
int64_t MappedBytes() {
  constexpr uint64_t kMaxText = 4096;
  const auto text = support::ReadFile("/proc/self/statm", kMaxText);
  if (!text.ok()) return 0;
  return support::ParseInt64(text->substr(0, text->find(' '))).value_or(0) * sysconf(_SC_PAGESIZE);
}

// A candidate never runs as root. Changing the user clears "dumpable", without which the process
// could not open its own /proc/self/fd, and the parent-death signal, which is set afterwards.
absl::Status DropRoot() {
  if (geteuid() != 0) return absl::OkStatus();
  if (setgroups(0, nullptr) != 0 || setresgid(kNobody, kNobody, kNobody) != 0 ||
      setresuid(kNobody, kNobody, kNobody) != 0) {
    // A user namespace without that id, for example: stay who we are; the filter still holds.
    return absl::OkStatus();
  }
  prctl(PR_SET_DUMPABLE, 1);
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyLimits(const SandboxLimits& limits, int parent) {
  TW_TRY(Limit(RLIMIT_CORE, "core", 0, 0));
  TW_TRY(Limit(RLIMIT_NOFILE, "open files", kOpenFiles, kOpenFiles));
  TW_TRY(Limit(RLIMIT_FSIZE, "file size", limits.code_bytes, limits.code_bytes));
  if (limits.cpu_s > 0) TW_TRY(Limit(RLIMIT_CPU, "cpu", limits.cpu_s, limits.cpu_s + 1));
  if (limits.memory_bytes > 0 && !kSanitizerBuild) {
    const int64_t bytes = MappedBytes() + limits.memory_bytes;
    TW_TRY(Limit(RLIMIT_AS, "address space", bytes, bytes));
  }
  TW_TRY(DropRoot());
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    return ErrnoError(errno, "sandbox.limit.refused", "parent-death signal");
  }
  if (getppid() != parent) return Unavailable("sandbox.parent.gone", "the worker has ended");
  return absl::OkStatus();
}

absl::Status ApplyFilter() {
  if (kSanitizerBuild) return Unavailable("sandbox.filter.sanitizer", "a sanitizer build");
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) {
    return Unavailable("sandbox.filter.privileges", "no_new_privs is refused");
  }
  Filter filter(SCMP_ACT_KILL_PROCESS);
  for (const int call : kAllowed) filter.Add(SCMP_ACT_ALLOW, call);
  // Reading only. O_CREAT and O_TRUNC imply a change whatever the access mode says.
  filter.Add(SCMP_ACT_ALLOW, SCMP_SYS(openat),
             When(2, SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC | __O_TMPFILE, O_RDONLY));
  // Threads, no processes. The arguments of clone3 lie in memory, out of a filter's sight; the C
  // library falls back to clone.
  filter.Add(SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3));
  filter.Add(SCMP_ACT_ALLOW, SCMP_SYS(clone),
             When(0, SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
  filter.Add(SCMP_ACT_ALLOW, SCMP_SYS(prctl), When(0, SCMP_CMP_EQ, PR_SET_NAME));
  filter.Add(SCMP_ACT_ALLOW, SCMP_SYS(prctl), When(0, SCMP_CMP_EQ, PR_SET_NO_NEW_PRIVS));
  // Its own threads only, by each itself, and while loading (kSealed).
  filter.Add(SCMP_ACT_ALLOW, SCMP_SYS(sched_setaffinity), When(0, SCMP_CMP_EQ, 0));
  // abort() signals its own process only.
  filter.Add(SCMP_ACT_ALLOW, SCMP_SYS(tgkill),
             When(0, SCMP_CMP_EQ, static_cast<uint64_t>(getpid())));
  return filter.Load();
}

absl::Status SealFilter() {
  TW_TRY(Limit(RLIMIT_FSIZE, "file size", 0, 0));
  Filter filter(SCMP_ACT_ALLOW);
  for (const int call : kSealed) filter.Add(SCMP_ACT_KILL_PROCESS, call);
  filter.Add(SCMP_ACT_KILL_PROCESS, SCMP_SYS(prlimit64), When(2, SCMP_CMP_NE, 0));
  return filter.Load();
}

SandboxProbe ProbeSandbox() {
  constexpr size_t kMaxReason = 512;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {false, "no pipe for the probe"};
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    absl::Status status = ApplyLimits({}, parent);
    if (status.ok()) status = ApplyFilter();
    if (status.ok()) status = SealFilter();
    const std::string reason = support::StatusText(status).substr(0, kMaxReason);
    if (status.ok() || write(ends[1], reason.data(), reason.size()) < 0) _exit(0);
    _exit(1);
  }
  close(ends[1]);
  std::string reason(kMaxReason, '\0');
  ssize_t got = 0;
  int raw = 0;
  if (pid > 0) {
    got = read(ends[0], reason.data(), reason.size());
    waitpid(pid, &raw, 0);
  }
  close(ends[0]);
  if (pid < 0) return {false, "no process for the probe"};
  if (got > 0) return {false, reason.substr(0, static_cast<size_t>(got))};
  if (!WIFEXITED(raw) || WEXITSTATUS(raw) != 0) {
    return {false, StrCat("the probe ended with wait status ", raw)};
  }
  return {true, "strict: seccomp allow-list, no_new_privs, resource limits, own process"};
}

}  // namespace tilewright::device_agent
