#include "deploy/support/process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "deploy/support/clock.h"
#include "deploy/support/mutex.h"
#include "deploy/support/sanitizers.h"
#include "deploy/support/strings.h"

extern "C" char** environ;

namespace tilewright::support {
namespace {

void CloseFd(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

struct Pipe {
  int read_end = -1;
  int write_end = -1;
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    CloseFd(&read_end);
    CloseFd(&write_end);
  }
  absl::Status Open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      return ErrnoError(errno, "process.start.pipe", "cannot make a pipe");
    }
    read_end = ends[0];
    write_end = ends[1];
    return absl::OkStatus();
  }
};

constexpr int kBackgroundNice = 10;
constexpr std::string_view kBackgroundNiceText = "10";

enum StartStep : int { kSetpgid, kPrctl, kDup2, kChdir, kSetrlimit, kExecve };
constexpr std::array<const char*, 6> kStartStepNames = {"setpgid", "prctl",     "dup2",
                                                        "chdir",   "setrlimit", "execve"};

// Everything the child needs between vfork and exec, made before: there it may only call
// async-signal-safe functions and must not touch memory that the parent minds.
struct ExecPlan {
  std::string program;
  std::string cwd;
  std::vector<std::string> arg_text;
  std::vector<std::string> env_text;
  std::vector<char*> argv;
  std::vector<char*> envp;
  std::array<int, 3> stdio = {-1, -1, -1};  // -1: leave the inherited one
  Limits limits;
  bool die_with_parent = true;
  bool background = false;
  pid_t parent = 0;

  int report_fd = -1;  // the child's end of the pipe for a StartFailure; closes on exec
};

// What the child says when it cannot exec.
struct StartFailure {
  int error_number;
  StartStep step;
};

void FillEnvironment(const ChildOptions& options, ExecPlan* plan) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; !options.clear_env && entry != nullptr && *entry != nullptr;
       ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals != std::string_view::npos) {
      variables.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  for (const auto& [name, value] : options.env) variables[name] = value;
  for (const auto& [name, value] : variables) plan->env_text.push_back(name + "=" + value);
}

std::unique_ptr<ExecPlan> MakePlan(const ChildOptions& options) {
  auto plan = std::make_unique<ExecPlan>();
  plan->program = options.program;
  plan->cwd = options.cwd;
  plan->limits = options.limits;
  plan->die_with_parent = options.die_with_parent;
  plan->background = options.background;
  plan->parent = getpid();
  plan->arg_text.push_back(options.program);
  plan->arg_text.insert(plan->arg_text.end(), options.args.begin(), options.args.end());
  FillEnvironment(options, plan.get());
  for (std::string& text : plan->arg_text) plan->argv.push_back(text.data());
  for (std::string& text : plan->env_text) plan->envp.push_back(text.data());
  plan->argv.push_back(nullptr);
  plan->envp.push_back(nullptr);
  return plan;
}

bool SetLimit(__rlimit_resource resource, int64_t soft, int64_t hard) {
  const rlimit limit{static_cast<rlim_t>(soft), static_cast<rlim_t>(hard)};
  return setrlimit(resource, &limit) == 0;
}

bool ApplyLimits(const Limits& limits) {
  // No core files: a crashed candidate's memory is of no use, and a full disk harms everybody.
  if (!SetLimit(RLIMIT_CORE, 0, 0)) return false;
  if (limits.cpu_s > 0 && !SetLimit(RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 1)) return false;
  if (limits.file_size_bytes > 0 &&
      !SetLimit(RLIMIT_FSIZE, limits.file_size_bytes, limits.file_size_bytes)) {
    return false;
  }
  if (limits.open_files > 0 && !SetLimit(RLIMIT_NOFILE, limits.open_files, limits.open_files)) {
    return false;
  }
  return limits.address_space_bytes <= 0 ||
         SetLimit(RLIMIT_AS, limits.address_space_bytes, limits.address_space_bytes);
}

[[noreturn]] void FailInChild(const ExecPlan* plan, StartStep step) {
  const StartFailure failure{errno, step};
  // A pipe takes so few bytes at once or not at all; then the exit code has to do.
  if (write(plan->report_fd, &failure, sizeof(failure)) < 0) _exit(126);
  _exit(127);
}

// As far as the kernel lets us: a child of high priority computes the same.
void LowerPriority() { [[maybe_unused]] const int niceness = nice(kBackgroundNice); }

// The same for the child's scheduling group, by the parent: a child that has not executed its
// program yet may not, if its parent forbids inspection.
void LowerGroupPriority(pid_t pid) {
  const int fd = open(StrCat("/proc/", pid, "/autogroup").c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t written =
      write(fd, kBackgroundNiceText.data(), kBackgroundNiceText.size());
  close(fd);
}

// In the child, on the parent's memory, with all signals blocked.
[[noreturn]] void ExecInChild(const ExecPlan* plan) {
  // Either way it leads a process group of its own.
  if ((plan->background ? setsid() : setpgid(0, 0)) < 0) FailInChild(plan, kSetpgid);
  if (plan->background) LowerPriority();
  if (plan->die_with_parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) FailInChild(plan, kPrctl);
    if (getppid() != plan->parent) _exit(127);  // it ended before the line above
  }
  for (int fd = 0; fd < 3; ++fd) {
    if (plan->stdio[fd] >= 0 && dup2(plan->stdio[fd], fd) < 0) FailInChild(plan, kDup2);
  }
  // Descriptors that other code opened without O_CLOEXEC stay with the parent.
  syscall(SYS_close_range, 3U, UINT_MAX, CLOSE_RANGE_CLOEXEC);
  if (!plan->cwd.empty() && chdir(plan->cwd.c_str()) != 0) FailInChild(plan, kChdir);
  // Handlers would run on the parent's memory, and ignored signals would stay ignored after exec.
  struct sigaction default_action{};
  default_action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &default_action, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (!ApplyLimits(plan->limits)) FailInChild(plan, kSetrlimit);
  execve(plan->program.c_str(), plan->argv.data(), plan->envp.data());
  FailInChild(plan, kExecve);
}

// Its frame stays alive until the child has left it by exec or _exit.
__attribute__((noinline)) pid_t VforkExec(const ExecPlan* plan) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  // posix_spawn has no limits, no parent-death signal and no working folder.
  const pid_t pid = vfork();  // NOLINT(bugprone-unsafe-functions)
  if (pid == 0) ExecInChild(plan);
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return pid;
}

// Runs functions one after the other on one thread that never ends.
class SpawnThread {
 public:
  static SpawnThread& Get() {
    static Mutex mutex;
    static SpawnThread* instance = nullptr;
    static pid_t owner = 0;
    MutexLock lock(mutex);
    // Threads do not survive a fork: a forked child makes its own.
    if (instance == nullptr || owner != getpid()) {
      instance = new SpawnThread();
      owner = getpid();
    }
    return *instance;
  }

  void Run(const std::function<void()>& function) {
    MutexLock caller(callers_);
    MutexLock lock(mutex_);
    function_ = &function;
    changed_.NotifyAll();
    while (function_ != nullptr) changed_.Wait(mutex_);
  }

 private:
  SpawnThread() {
    std::thread([this] { Loop(); }).detach();
  }

  void Loop() {
    MutexLock lock(mutex_);
    while (true) {
      while (function_ == nullptr) changed_.Wait(mutex_);
      (*function_)();
      function_ = nullptr;
      changed_.NotifyAll();
    }
  }

  Mutex callers_;
  Mutex mutex_;
  CondVar changed_;
  const std::function<void()>* function_ TW_GUARDED_BY(mutex_) = nullptr;
};

int PidfdOpen(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

void ForbidInspection() {
  // The leak checker looks into its own process from outside.
  if (!kSanitizerBuild) prctl(PR_SET_DUMPABLE, 0);
}

void IgnoreSigpipe() {
  static std::once_flag once;
  std::call_once(once, [] {
    struct sigaction current{};
    // A program with a handler of its own has made its own choice.
    if (sigaction(SIGPIPE, nullptr, &current) == 0 && current.sa_handler == SIG_DFL) {
      signal(SIGPIPE, SIG_IGN);
    }
  });
}

std::string ExitStatus::ToString() const {
  if (signal == 0) return StrCat("exit code ", exit_code);
  const char* description = sigdescr_np(signal);
  return StrCat("signal ", signal, " (", description == nullptr ? "unknown" : description, ")");
}

class Child::Impl {
 public:
  ~Impl() {
    Kill(SIGKILL);
    // The group is dead, so this returns soon.
    Wait(-1).IgnoreError();
    StopDrain();
    CloseFd(&stdin_fd_);
    CloseFd(&stdout_fd_);
    CloseFd(&stderr_fd_);
    CloseFd(&stop_fd_);
    CloseFd(&pidfd_);
  }

  absl::Status Start(const ChildOptions& options);
  void Kill(int signal) TW_EXCLUDES(mutex_);
  absl::StatusOr<ExitStatus> Wait(int64_t timeout_ms) TW_EXCLUDES(mutex_);
  std::string StderrTail() TW_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return tail_;
  }

  pid_t pid_ = -1;
  int stdin_fd_ = -1;
  int stdout_fd_ = -1;

 private:
  absl::Status Exec(ExecPlan* plan);
  void Drain();
  void StopDrain();
  bool ReapLocked() TW_REQUIRES(mutex_);

  int stderr_fd_ = -1;
  int stop_fd_ = -1;  // eventfd: tells the drain thread to stop at the next empty pipe
  int pidfd_ = -1;
  std::thread drain_;
  Mutex mutex_;
  bool reaped_ TW_GUARDED_BY(mutex_) = true;
  ExitStatus status_ TW_GUARDED_BY(mutex_);
  std::string tail_ TW_GUARDED_BY(mutex_);
};

absl::Status Child::Impl::Exec(ExecPlan* plan) {
  Pipe report;
  TW_TRY(report.Open());
  plan->report_fd = report.write_end;
  int error = 0;
  pid_t pid = -1;
  SpawnThread::Get().Run([&] {
    pid = VforkExec(plan);
    if (pid < 0) error = errno;
    if (pid > 0 && plan->background) LowerGroupPriority(pid);
  });
  if (pid < 0) return ErrnoError(error, "process.start.fork", plan->program);
  CloseFd(&report.write_end);
  StartFailure failure{};
  ssize_t got = 0;
  do {
    got = read(report.read_end, &failure, sizeof(failure));
  } while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof(failure))) {
    waitpid(pid, nullptr, 0);
    return ErrnoError(failure.error_number, "process.start.exec",
                      StrCat(plan->program, ": ", kStartStepNames[failure.step]));
  }
  pid_ = pid;
  MutexLock lock(mutex_);
  reaped_ = false;
  return absl::OkStatus();
}

absl::Status Child::Impl::Start(const ChildOptions& options) {
  IgnoreSigpipe();
  Pipe in;
  Pipe out;
  Pipe err;
  if (options.stdin_mode == Stdio::kPipe) TW_TRY(in.Open());
  if (options.stdout_mode == Stdio::kPipe) TW_TRY(out.Open());
  if (options.stderr_mode == Stdio::kPipe) TW_TRY(err.Open());
  int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null_fd < 0) return ErrnoError(errno, "process.start.null", "/dev/null");
  std::unique_ptr<ExecPlan> plan = MakePlan(options);
  const auto choose = [&](Stdio mode, int pipe_end) {
    return mode == Stdio::kPipe ? pipe_end : mode == Stdio::kNull ? null_fd : -1;
  };
  plan->stdio = {choose(options.stdin_mode, in.read_end),
                 choose(options.stdout_mode, out.write_end),
                 choose(options.stderr_mode, err.write_end)};
  absl::Status started = Exec(plan.get());
  CloseFd(&null_fd);
  TW_TRY(started);
  stdin_fd_ = std::exchange(in.write_end, -1);
  stdout_fd_ = std::exchange(out.read_end, -1);
  stderr_fd_ = std::exchange(err.read_end, -1);
  for (int fd : {stdin_fd_, stdout_fd_, stderr_fd_}) {
    if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  }
  pidfd_ = PidfdOpen(pid_);
  if (pidfd_ < 0) return ErrnoError(errno, "process.start.pidfd", plan->program);
  fcntl(pidfd_, F_SETFD, FD_CLOEXEC);
  if (stderr_fd_ >= 0) {
    stop_fd_ = eventfd(0, EFD_CLOEXEC);
    if (stop_fd_ < 0) return ErrnoError(errno, "process.start.eventfd", plan->program);
    drain_ = std::thread([this] { Drain(); });
  }
  return absl::OkStatus();
}

// Reads standard error until it ends, or until it is empty after the child ended: a grandchild that
// left the group may hold the pipe open for ever.
void Child::Impl::Drain() {
  std::array<char, 4096> buffer;
  bool stopping = false;
  while (true) {
    const ssize_t got = read(stderr_fd_, buffer.data(), buffer.size());
    if (got > 0) {
      MutexLock lock(mutex_);
      tail_.append(buffer.data(), static_cast<size_t>(got));
      // Cut in large steps, so that a chatty child costs linear time.
      if (tail_.size() > 2 * kStderrTailBytes) tail_.erase(0, tail_.size() - kStderrTailBytes);
      continue;
    }
    if (got == 0 || (errno != EAGAIN && errno != EINTR)) break;
    if (stopping) break;
    std::array<pollfd, 2> entries = {pollfd{stderr_fd_, POLLIN, 0}, pollfd{stop_fd_, POLLIN, 0}};
    poll(entries.data(), entries.size(), -1);
    stopping = (entries[1].revents & POLLIN) != 0;
  }
  MutexLock lock(mutex_);
  if (tail_.size() > kStderrTailBytes) tail_.erase(0, tail_.size() - kStderrTailBytes);
}

void Child::Impl::StopDrain() {
  if (!drain_.joinable()) return;
  const uint64_t one = 1;
  if (write(stop_fd_, &one, sizeof(one)) < 0) TW_CHECK(errno == EAGAIN) << std::strerror(errno);
  drain_.join();
}

void Child::Impl::Kill(int signal) {
  MutexLock lock(mutex_);
  // The id may belong to somebody else once the child is reaped.
  if (!reaped_) kill(-pid_, signal);
}

bool Child::Impl::ReapLocked() {
  if (reaped_) return true;
  siginfo_t info{};
  // First look without reaping: while the zombie exists, its group id cannot be reused.
  if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0) {
    return false;
  }
  kill(-pid_, SIGKILL);
  int raw = 0;
  rusage usage{};
  if (wait4(pid_, &raw, 0, &usage) == pid_) {
    status_.exit_code = WIFEXITED(raw) ? WEXITSTATUS(raw) : 0;
    status_.signal = WIFSIGNALED(raw) ? WTERMSIG(raw) : 0;
    status_.user_s = Seconds(usage.ru_utime);
    status_.system_s = Seconds(usage.ru_stime);
    status_.max_rss_bytes = static_cast<int64_t>(usage.ru_maxrss) * 1024;
  }
  reaped_ = true;
  return true;
}

absl::StatusOr<ExitStatus> Child::Impl::Wait(int64_t timeout_ms) {
  const int64_t deadline_ns = SystemClock().NowNs() + std::max<int64_t>(timeout_ms, 0) * 1'000'000;
  while (true) {
    {
      MutexLock lock(mutex_);
      if (ReapLocked()) break;
    }
    const int64_t left_ns = deadline_ns - SystemClock().NowNs();
    if (timeout_ms >= 0 && left_ns <= 0) {
      return DeadlineExceeded("process.wait.timeout",
                              StrCat("process ", pid_, " still runs after ", timeout_ms, " ms"));
    }
    pollfd entry{pidfd_, POLLIN, 0};
    // Without a pidfd (it could not be opened: the start failed) poll in short steps.
    const int64_t step_ms = pidfd_ < 0 ? 1 : timeout_ms < 0 ? -1 : (left_ns + 999'999) / 1'000'000;
    poll(&entry, 1, static_cast<int>(std::min<int64_t>(step_ms, 3'600'000)));
  }
  StopDrain();
  MutexLock lock(mutex_);
  return status_;
}

Child::Child(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Child::~Child() = default;

absl::StatusOr<std::unique_ptr<Child>> Child::Start(const ChildOptions& options) {
  auto impl = std::make_unique<Impl>();
  TW_TRY(impl->Start(options));
  return std::unique_ptr<Child>(new Child(std::move(impl)));
}

pid_t Child::pid() const { return impl_->pid_; }
int Child::stdin_fd() const { return impl_->stdin_fd_; }
int Child::stdout_fd() const { return impl_->stdout_fd_; }
void Child::CloseStdin() { CloseFd(&impl_->stdin_fd_); }
void Child::Kill(int signal) { impl_->Kill(signal); }
absl::StatusOr<ExitStatus> Child::Wait(int64_t timeout_ms) { return impl_->Wait(timeout_ms); }
std::string Child::stderr_tail() const { return impl_->StderrTail(); }

namespace {

constexpr int64_t kLookMs = 20;  // for the end of a child that is fed and says nothing

// Feeds the child and collects its output until it has closed its standard output, and has all its
// input or wants no more.
absl::Status Converse(Child* child, std::string_view stdin_text, int64_t deadline_ns,
                      size_t max_output_bytes, std::string* output) {
  std::vector<char> buffer(64 << 10);
  bool says = true;  // its output is open
  while (true) {
    if (stdin_text.empty()) child->CloseStdin();
    if (!says && (stdin_text.empty() || child->Wait(0).ok())) return absl::OkStatus();
    std::array<pollfd, 2> entries = {pollfd{says ? child->stdout_fd() : -1, POLLIN, 0},
                                     pollfd{child->stdin_fd(), POLLOUT, 0}};
    const int64_t left_ns = deadline_ns - SystemClock().NowNs();
    if (left_ns <= 0) return DeadlineExceeded("process.run.timeout", "");
    const int64_t left_ms = left_ns / 1'000'000 + 1;
    poll(entries.data(), entries.size(),
         static_cast<int>(says ? left_ms : std::min(left_ms, kLookMs)));
    if (entries[1].revents != 0) {
      const ssize_t written = write(child->stdin_fd(), stdin_text.data(), stdin_text.size());
      if (written >= 0) {
        stdin_text.remove_prefix(static_cast<size_t>(written));
      } else if (errno == EPIPE) {
        stdin_text = {};  // a child that does not want all its input is no error
      }
    }
    if (entries[0].revents == 0) continue;
    const ssize_t got = read(child->stdout_fd(), buffer.data(), buffer.size());
    says = got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
    if (got > 0) output->append(buffer.data(), static_cast<size_t>(got));
    if (output->size() > max_output_bytes) {
      return ResourceExhausted("process.run.output_too_large",
                               StrCat("expected at most ", max_output_bytes, " bytes of output"));
    }
  }
}

}  // namespace

absl::StatusOr<CommandResult> RunCommand(const ChildOptions& options, std::string_view stdin_text,
                                         int64_t timeout_ms, size_t max_output_bytes) {
  const int64_t deadline_ns = SystemClock().NowNs() + timeout_ms * 1'000'000;
  ChildOptions piped = options;
  piped.stdin_mode = Stdio::kPipe;
  piped.stdout_mode = Stdio::kPipe;
  TW_ASSIGN(std::unique_ptr<Child> child, Child::Start(piped));
  CommandResult result;
  absl::Status talked =
      Converse(child.get(), stdin_text, deadline_ns, max_output_bytes, &result.stdout_text);
  absl::StatusOr<ExitStatus> status = absl::InternalError("");
  if (talked.ok()) {
    const int64_t left_ms = (deadline_ns - SystemClock().NowNs()) / 1'000'000;
    status = child->Wait(std::max<int64_t>(left_ms, 0));
    if (!status.ok()) talked = DeadlineExceeded("process.run.timeout", "");
  }
  if (!talked.ok()) {
    child->Kill(SIGKILL);
    child->Wait(-1).IgnoreError();
    if (Slug(talked) != "process.run.timeout") return talked;
    return DeadlineExceeded("process.run.timeout",
                            StrCat(options.program, " still ran after ", timeout_ms,
                                   " ms; its last words: ", Quote(child->stderr_tail(), 2000)));
  }
  result.status = *status;
  result.stderr_text = child->stderr_tail();
  return result;
}

}  // namespace tilewright::support
