#include "tuner_server/cli/own_process.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "deploy/support/process.h"
#include "deploy/support/scratch_folder.h"
#include "deploy/support/strings.h"
#include "tuner_server/cli/cli_error.h"

namespace tilewright::cli {
namespace {

constexpr int kInterrupts[] = {SIGINT, SIGTERM, SIGHUP};
// For descendants that end with the child; others are not waited for.
constexpr int kReapRounds = 200;
constexpr timespec kReapPause = {0, 10'000'000};

// What the child tells the parent, in memory that both see: it can be written at any time, and
// outlives the child.
struct Board {
  char step[64];
  bool returned;
};

Board* MakeBoard() {
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Board*>(memory);
}

[[noreturn]] void ChildMain(const OwnProcess& own, const std::string& temporary, pid_t parent,
                            const sigset_t& mask, Board* board,
                            const std::function<int(const StepSink&)>& body) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kExitFailed);
  if (!temporary.empty()) setenv("TMPDIR", temporary.c_str(), 1);
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  int code = body([board](std::string_view step) {
    const size_t size = std::min(step.size(), sizeof(board->step) - 1);
    std::memcpy(board->step, step.data(), size);
    board->step[size] = '\0';
  });
  code = FinishOutput(own.command, code);
  std::fflush(nullptr);
  board->returned = true;
  _exit(code);
}

// Those that end this process: nohup has one ignored.
sigset_t Watched() {
  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  for (const int signal : kInterrupts) {
    struct sigaction action{};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&watched, signal);
  }
  return watched;
}

// Waits for the child; returns a signal that interrupted the command, or 0.
int Wait(pid_t child, const sigset_t& watched, int* raw) {
  while (true) {
    siginfo_t info{};
    const int got = sigwaitinfo(&watched, &info);
    if (got < 0) continue;
    const bool interrupted =
        std::find(std::begin(kInterrupts), std::end(kInterrupts), got) != std::end(kInterrupts);
    if (interrupted) {
      kill(child, SIGKILL);
      while (waitpid(child, raw, 0) < 0 && errno == EINTR) {
      }
      return got;
    }
    if (waitpid(child, raw, WNOHANG) != 0) break;
  }
  // The terminal's Ctrl-C goes to both; the child's end may be seen first.
  for (const int signal : kInterrupts) {
    if (WIFSIGNALED(*raw) && WTERMSIG(*raw) == signal) return signal;
  }
  return 0;
}

// The child's own children, which became ours.
void ReapOthers() {
  sigset_t ended;
  sigemptyset(&ended);
  sigaddset(&ended, SIGCHLD);
  for (int round = 0; round < kReapRounds; ++round) {
    const pid_t got = waitpid(-1, nullptr, WNOHANG);
    if (got < 0) return;
    if (got == 0) sigtimedwait(&ended, nullptr, &kReapPause);
  }
}

absl::Status Verdict(const OwnProcess& own, int raw, const Board& board) {
  support::ExitStatus end;
  end.signal = WIFSIGNALED(raw) ? WTERMSIG(raw) : 0;
  end.exit_code = WIFEXITED(raw) ? WEXITSTATUS(raw) : 0;
  return support::DataLoss(own.crash,
                           support::StrCat("the process ended with ", end.ToString(),
                                           board.step[0] == '\0' ? "" : " while ", board.step));
}

}  // namespace

int RunInOwnProcess(const OwnProcess& own, const std::function<int(const StepSink&)>& body) {
  const auto fail = [&](const absl::Status& why) { return Finish(own.command, own.what, why); };
  std::optional<support::ScratchFolder> scratch;
  if (!own.scratch.empty()) {
    support::SweepScratchFolders(own.scratch);
    auto made = support::ScratchFolder::Create(own.scratch);
    if (!made.ok()) return fail(made.status());
    scratch.emplace(*std::move(made));
  }
  Board* const board = MakeBoard();
  if (board == nullptr) {
    return fail(support::ErrnoError(errno, "process.start.failed", "no shared memory"));
  }
  // Descendants of a child that was killed become ours, so that none writes when the folder goes.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  signal(SIGCHLD, SIG_DFL);  // ignored, as some parents leave it, there is nothing to wait for
  const sigset_t watched = Watched();
  sigset_t before;
  sigprocmask(SIG_BLOCK, &watched, &before);
  std::fflush(nullptr);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) {
    ChildMain(own, scratch.has_value() ? scratch->path() : "", parent, before, board, body);
  }
  if (child < 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    return fail(support::ErrnoError(errno, "process.start.failed", "fork"));
  }
  int raw = 0;
  const int interrupt = Wait(child, watched, &raw);
  ReapOthers();
  scratch.reset();
  if (interrupt != 0) {
    signal(interrupt, SIG_DFL);
    raise(interrupt);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);  // a pending interrupt ends this process here
  if (WIFEXITED(raw) && board->returned) return WEXITSTATUS(raw);
  return fail(Verdict(own, raw, *board));
}

}  // namespace tilewright::cli
