#include "device_agent/measure_child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <new>
#include <optional>
#include <utility>

#include "deploy/support/clock.h"
#include "deploy/support/duration.h"
#include "deploy/support/file.h"
#include "deploy/support/frame_io.h"
#include "deploy/support/process.h"
#include "deploy/support/strings.h"
#include "device_agent/driver_gate.h"
#include "device_agent/driver_profile.h"
#include "device_agent/measure_names.h"
#include "device_agent/outside_seal.h"
#include "device_agent/referee.h"
#include "device_agent/sandbox.h"

namespace tilewright::device_agent {
namespace {

using support::StrCat;

constexpr size_t kMaxReplyBytes = 4 << 20;  // all that a child may say
constexpr size_t kErrorTailBytes = 4096;
constexpr int kReplyFd = 3;
constexpr int kGoFd = 4;
constexpr int64_t kMaxDeadlineMs = 24 * 3600 * 1000;

// --- in the child
// ---------------------------------------------------------------------------------

// Only the two pipes and standard error stay: the worker's own streams are not the candidate's.
void ArrangeDescriptors(int reply, int go, int error) {
  // Above all targets first, so that no copy overwrites a source.
  const int high_reply = fcntl(reply, F_DUPFD, 10);
  const int high_go = fcntl(go, F_DUPFD, 10);
  const int high_error = fcntl(error, F_DUPFD, 10);
  const int null = open("/dev/null", O_RDWR);
  dup2(null, 0);
  dup2(null, 1);
  dup2(high_error, 2);
  dup2(high_reply, kReplyFd);
  dup2(high_go, kGoFd);
  syscall(SYS_close_range, static_cast<unsigned>(kGoFd + 1), UINT_MAX, 0U);
}

void Say(const v1::MeasuringReport& report) {
  if (!support::WriteFrame(kReplyFd, report.SerializeAsString(), -1).ok()) _exit(1);
}

void Say(const v1::ModuleMeasured& measured) {
  v1::MeasuringReport report;
  *report.mutable_measured() = measured;
  Say(report);
}

void AwaitGo() {
  char go = 0;
  ssize_t got = 0;
  while ((got = read(kGoFd, &go, 1)) < 0 && errno == EINTR) {
  }
  if (got != 1) _exit(1);
}

MeasureHost HostOf(OutputJudge* judge) {
  MeasureHost host;
  host.announce = [](v1::WorkerPhase phase) {
    v1::MeasuringReport report;
    report.set_phase(phase);
    Say(report);
  };
  host.outputs = [](const v1::OutputList& outputs) {
    v1::MeasuringReport report;
    *report.mutable_outputs() = outputs;
    Say(report);
  };
  host.window = {judge->window(), judge->size()};
  host.wait = AwaitGo;
  host.claim = [](const v1::ModuleMeasured& measured) { Say(measured); };
  return host;
}

int64_t SecondsUp(const google::protobuf::Duration& duration) {
  return (support::DurationNs(duration) + 999'999'999) / 1'000'000'000;
}

SandboxSpec SpecOf(const ChildJob& job, const std::string& scratch) {
  SandboxSpec spec;
  spec.profile = job.profile;
  spec.limits.memory_bytes = job.memory_limit_bytes;
  spec.limits.code_bytes =
      static_cast<int64_t>(job.measure.module.size() + job.measure.baseline.size());
  const int64_t wall_s = SecondsUp(job.measure.request->wall_limit());
  if (wall_s > 0) spec.limits.cpu_s = (wall_s + 1) * (job.measure.max_threads + 1);
  spec.driver.scratch = scratch;
  spec.driver.nodes = job.device_nodes;
  if (job.measure.device != nullptr) spec.driver.libraries = {job.measure.device->plugin};
  spec.jail = job.jail;
  spec.landlock = job.landlock;
  spec.filter = job.filter;
  return spec;
}

[[noreturn]] void ChildMain(const ChildJob& job, const SandboxSpec& sandbox, DriverGate* gate,
                            OutputJudge* judge, pid_t parent, int reply, int go, int error) {
  setpgid(0, 0);
  // First the limits: the jail's descriptors are among those that ArrangeDescriptors closes.
  absl::Status status = ApplyLimits(sandbox, parent);
  if (status.ok() && gate != nullptr) status = gate->Install();
  ArrangeDescriptors(reply, go, error);
  std::set_new_handler([] { _exit(kExitOutOfMemory); });
  if (status.ok() && job.sandboxed) status = ApplyFilter(sandbox);
  if (status.ok()) {
    const MeasureHost host = HostOf(judge);
    Say(Measure(job.measure, host));
  } else {
    Say(NotMeasured(support::StatusText(status)));
  }
  _exit(0);
}

// --- in the parent
// --------------------------------------------------------------------------------

void CloseFd(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

struct Pipe {
  int ends[2] = {-1, -1};
  ~Pipe() {
    CloseFd(&ends[0]);
    CloseFd(&ends[1]);
  }
  bool Open() { return pipe2(ends, O_CLOEXEC) == 0; }
  bool OpenForPolling() { return Open() && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0; }
};

// Kills and reaps descendants that left the candidate's process group. Only without a filter, or
// where a driver may run programs: else a candidate has no descendants. REQUIRES: this process has
// no other children (a worker has none).
void EndStrays() {
  constexpr uint64_t kMaxText = 1 << 20;
  constexpr int kRounds = 1000;  // killing one may give us its children
  const std::string path = StrCat("/proc/self/task/", gettid(), "/children");
  for (int round = 0; round < kRounds; ++round) {
    const auto text = support::ReadFile(path, kMaxText);
    bool any = false;
    for (const std::string& word : support::Split(text.value_or(""), ' ')) {
      const auto pid = support::ParseInt64(support::Trim(word));
      if (!pid.has_value() || *pid <= 1) continue;
      any = true;
      kill(static_cast<pid_t>(*pid), SIGKILL);
      waitpid(static_cast<pid_t>(*pid), nullptr, 0);
    }
    if (!any) return;
  }
}

// Watches one child from its start to its end.
class Watch {
 public:
  Watch(const ChildJob& job, const std::function<void(v1::WorkerPhase)>& phase,
        const std::function<void(v1::ModuleMeasured)>& answer)
      : job_(job),
        phase_(phase),
        tell_(answer),
        judge_(job.judge != nullptr ? job.judge : &own_judge_),
        referee_({job.measure.request->tolerance(), job.measure.max_threads,
                  job.measure.device != nullptr, job.measure.unit},
                 judge_, [this] { return Observe(); }) {}

  void Run() {
    // Descendants whose parents have ended become our children, not init's.
    if (may_have_strays()) prctl(PR_SET_CHILD_SUBREAPER, 1);
    std::optional<support::TempDir> scratch;
    if (job_.profile == SandboxProfile::kDriver) {
      auto folder = MakeScratch(job_.scratch_parent);
      if (!folder.ok()) return tell_(NotMeasured(support::StatusText(folder.status())));
      scratch = *std::move(folder);
    }
    const SandboxSpec sandbox = SpecOf(job_, scratch.has_value() ? scratch->path() : "");
    if (!reply_.OpenForPolling() || !error_.OpenForPolling() || !go_.Open()) {
      return tell_(NotMeasured("measure.child.pipe: no pipe"));
    }
    DriverGate* gate = gated() ? &gate_ : nullptr;
    const absl::Status opened = gated() ? gate_.Open() : absl::OkStatus();
    if (!opened.ok()) return tell_(NotMeasured(support::StatusText(opened)));
    started_ns_ = clock_.NowNs();
    const pid_t parent = getpid();
    pid_ = fork();
    if (pid_ == 0) {
      ChildMain(job_, sandbox, gate, judge_, parent, reply_.ends[1], go_.ends[0], error_.ends[1]);
    }
    if (pid_ < 0) return tell_(NotMeasured(StrCat("measure.child.fork: ", strerror(errno))));
    setpgid(pid_, pid_);  // both sides: whoever comes first
    CloseFd(&reply_.ends[1]);
    CloseFd(&error_.ends[1]);
    gate_.ForgetChildsEnd();
    pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    Wait();
    const bool early = referee_.done() && !may_have_strays();
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
    if (early) {
      Drain();
      tell_(Verdict(0));
    }
    int raw = 0;
    while (waitpid(pid_, &raw, 0) < 0 && errno == EINTR) {
    }
    CloseFd(&pidfd_);
    if (early) return;
    if (may_have_strays()) {
      job_.jail != nullptr ? job_.jail->EndAll() : EndStrays();
    }
    Drain();
    tell_(Verdict(raw));
  }

 private:
  Observed Observe() {
    // Of the child and its threads, by the kernel's account.
    clockid_t clock{};
    timespec used{};
    if (clock_getcpuclockid(pid_, &clock) == 0 && clock_gettime(clock, &used) == 0) {
      cpu_ns_ = used.tv_sec * int64_t{1'000'000'000} + used.tv_nsec;
    }
    return {clock_.NowNs() - started_ns_, cpu_ns_};
  }

  // A filter of profile strict leaves a candidate no descendants.
  bool may_have_strays() const {
    return !job_.sandboxed || job_.profile == SandboxProfile::kDriver;
  }

  bool gated() const { return job_.sandboxed && job_.profile == SandboxProfile::kDriver; }

  // Until the answer is there, the child has ended, time is up, or nobody waits for it any more.
  void Wait() {
    const auto& limit = job_.measure.request->wall_limit();
    int64_t limit_ns = support::DurationNs(limit);
    if (limit_ns <= 0) limit_ns = kMaxDeadlineMs * 1'000'000;
    while (!referee_.done() && !gate_.violated()) {
      const int64_t left_ns = started_ns_ + limit_ns - clock_.NowNs();
      if (left_ns <= 0) {
        timed_out_ = true;
        return;
      }
      std::array<pollfd, 5> entries = {pollfd{reply_.ends[0], POLLIN, 0},
                                       pollfd{error_.ends[0], POLLIN, 0}, pollfd{pidfd_, POLLIN, 0},
                                       pollfd{job_.stop_fd, POLLRDHUP, 0},
                                       pollfd{gate_.fd(), POLLIN, 0}};
      const int64_t wait_ms = std::min((left_ns + 999'999) / 1'000'000, kMaxDeadlineMs);
      if (poll(entries.data(), entries.size(), static_cast<int>(wait_ms)) < 0) continue;
      const bool ended = (entries[2].revents & POLLIN) != 0;  // before the last look at the pipes
      Drain();
      // Not if Drain has just taken the listener from the socket: it has nothing to ask yet.
      if (entries[4].revents != 0 && entries[4].fd == gate_.fd()) gate_.Serve();
      if (ended) return;
      if ((entries[3].revents & (POLLHUP | POLLERR | POLLRDHUP)) != 0) return;
    }
  }

  void Drain() {
    ReadSome(&error_.ends[0], &error_text_, 2 * kErrorTailBytes, true);
    ReadSome(&reply_.ends[0], &reply_bytes_, kMaxReplyBytes, false);
    TakeFrames();
  }

  // Reads what is there. Beyond `limit` the front is dropped (a tail) or the rest refused.
  void ReadSome(int* fd, std::string* text, size_t limit, bool tail) {
    std::array<char, 65536> buffer;
    // A child that writes without end must not keep its parent here.
    for (int round = 0; *fd >= 0 && round < 16; ++round) {
      const ssize_t got = read(*fd, buffer.data(), buffer.size());
      if (got < 0) return;
      if (got == 0) {
        CloseFd(fd);
        return;
      }
      reply_total_ += tail ? 0 : static_cast<size_t>(got);
      text->append(buffer.data(), static_cast<size_t>(got));
      if (tail && text->size() > limit) text->erase(0, text->size() - limit / 2);
      if (!tail && reply_total_ > limit) {
        (void)referee_.Garbled();
        text->clear();
        return;
      }
    }
  }

  void TakeFrames() {
    constexpr size_t kHead = 4;
    while (!referee_.done() && reply_bytes_.size() >= kHead) {
      size_t size = 0;
      for (size_t i = 0; i < kHead; ++i) {
        size |= static_cast<size_t>(static_cast<uint8_t>(reply_bytes_[i])) << (8 * i);
      }
      if (size <= kMaxReplyBytes && reply_bytes_.size() < kHead + size) return;
      v1::MeasuringReport report;
      if (size > kMaxReplyBytes ||
          !report.ParseFromArray(reply_bytes_.data() + kHead, static_cast<int>(size))) {
        (void)referee_.Garbled();
        return;
      }
      reply_bytes_.erase(0, kHead + size);
      Take(report);
    }
  }

  void Take(const v1::MeasuringReport& report) {
    const v1::WorkerPhase before = referee_.phase();
    const Referee::Next next = referee_.Take(report);
    if (referee_.phase() > v1::WORKER_PHASE_LOAD) Seal();
    if (referee_.phase() != before) phase_(referee_.phase());
    constexpr char kGo = 1;
    // Both ends are open here, and it holds far more than a child may ask for.
    if (next == Referee::Next::kGo && write(go_.ends[1], &kGo, 1) != 1) (void)referee_.Garbled();
  }

  // At the first word after loading.
  void Seal() {
    if (!job_.sandboxed || std::exchange(sealed_, true)) return;
    if (gated() && !gate_.installed()) gate_.Serve();  // the process sent the gate first
    gate_.Shut();
    const absl::Status sealed =
        gated() && !gate_.installed()
            ? support::DataLoss("sandbox.seal.missing", "the process may start others")
            : SealFromOutside(pid_, job_.profile);
    if (absl::IsDataLoss(sealed)) (void)referee_.Refuse(sealed);
  }

  v1::ModuleMeasured Verdict(int raw) {
    v1::ModuleMeasured measured;
    if (gate_.violated()) {
      ClassifyDeath(SIGSYS, false, &measured);  // as if its own filter had ended it
      measured.set_phase(referee_.phase());
    } else if (referee_.done()) {
      measured = referee_.answer();
    } else {
      ClassifyDeath(raw, timed_out_, &measured);
      measured.set_phase(referee_.phase());
    }
    const bool failed = measured.outcome() != v1::OK && measured.outcome() != v1::EARLY_STOPPED;
    const std::string_view said = support::Trim(error_text_);
    if (failed && !said.empty()) {
      const size_t start = said.size() > kErrorTailBytes ? said.size() - kErrorTailBytes : 0;
      // A field of the protocol is text; a candidate may print anything.
      std::string text;
      for (const char c : said.substr(start)) {
        text.push_back(c == '\n' || (c >= ' ' && c <= '~') ? c : '?');
      }
      measured.set_error_detail(StrCat(measured.error_detail(), "; stderr: ", text));
    }
    return measured;
  }

  const ChildJob& job_;
  const std::function<void(v1::WorkerPhase)>& phase_;
  const std::function<void(v1::ModuleMeasured)>& tell_;
  support::SystemClock clock_;
  Pipe reply_;
  Pipe go_;
  Pipe error_;
  pid_t pid_ = -1;
  int pidfd_ = -1;
  int64_t started_ns_ = 0;
  int64_t cpu_ns_ = 0;
  std::string reply_bytes_;
  size_t reply_total_ = 0;
  std::string error_text_;
  bool timed_out_ = false;
  DriverGate gate_{job_.memory_limit_bytes, kDriverFileBytes};
  bool sealed_ = false;
  OutputJudge own_judge_;
  OutputJudge* const judge_;
  Referee referee_;
};

}  // namespace

void ClassifyDeath(int raw, bool timed_out, v1::ModuleMeasured* measured) {
  const auto set = [&](v1::Outcome outcome, const char* error_class, const std::string& detail) {
    measured->set_outcome(outcome);
    measured->set_error_class(error_class);
    measured->set_error_detail(detail);
  };
  support::ExitStatus status;
  status.signal = WIFSIGNALED(raw) ? WTERMSIG(raw) : 0;
  status.exit_code = WIFEXITED(raw) ? WEXITSTATUS(raw) : 0;
  if (timed_out) {
    measured->set_signal(SIGKILL);
    set(v1::RUN_TIMEOUT, "WALL_LIMIT", "the measurement was ended at its wall limit");
    return;
  }
  measured->set_signal(status.signal);
  measured->set_exit_code(status.exit_code);
  const std::string text = status.ToString();
  switch (status.signal) {
    case 0:
      if (status.exit_code == kExitOutOfMemory) {
        set(v1::OUT_OF_MEMORY, "ALLOCATION", "an allocation failed");
      } else {
        set(v1::RUN_CRASH, "EXITED", text + " without an answer");
      }
      return;
    case SIGKILL:  // not ours: the kernel's, when memory is short
      set(v1::OUT_OF_MEMORY, "KILLED", text);
      return;
    case SIGXCPU:
      set(v1::RUN_TIMEOUT, "CPU_LIMIT", text);
      return;
    case SIGSYS:
    case SIGXFSZ:
      set(v1::RUN_CRASH, "SANDBOX", text + ": a system call that measuring processes may not make");
      return;
    default:
      set(v1::RUN_CRASH, "SIGNAL", text);
      return;
  }
}

void MeasureInChild(const ChildJob& job, const std::function<void(v1::WorkerPhase)>& phase,
                    const std::function<void(v1::ModuleMeasured)>& answer) {
  Watch(job, phase, answer).Run();
}

}  // namespace tilewright::device_agent
