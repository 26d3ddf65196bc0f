// Child processes: started with limits in a group of their own, killed as a group, waited for with
// a deadline, their last words kept. A Child belongs to one owner; Kill and stderr_tail may be
// called from any thread while another waits.
//
// Children are started by vfork and exec from one internal thread that lives as long as the
// process: starting one costs the same from a small and from a 2 GB process, and the kernel's
// parent-death signal, which follows the starting thread, fires only when this process ends.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "deploy/support/status.h"

namespace tilewright::support {

// Zero means no limit. They are inherited by the child's own children.
struct Limits {
  int64_t cpu_s = 0;                // processor seconds; SIGXCPU, one second later SIGKILL
  int64_t address_space_bytes = 0;  // RLIMIT_AS; not usable under the address sanitizer
  int64_t file_size_bytes = 0;      // largest file it may write; SIGXFSZ
  int64_t open_files = 0;
};

enum class Stdio {
  kInherit,  // the parent's own
  kNull,     // /dev/null
  kPipe,     // a pipe to the parent; for standard error: drained, the tail kept
};

struct ChildOptions {
  std::string program;            // path of the executable; no search in PATH
  std::vector<std::string> args;  // without argv[0]
  bool clear_env = false;         // start from an empty environment instead of the parent's
  std::vector<std::pair<std::string, std::string>> env;  // added; replaces variables of that name
  std::string cwd;                                       // empty: the parent's
  Stdio stdin_mode = Stdio::kNull;
  Stdio stdout_mode = Stdio::kInherit;
  Stdio stderr_mode = Stdio::kPipe;
  Limits limits;
  bool die_with_parent = true;  // SIGKILL when this process ends, however it ends
  // Work that must not disturb what others time: nice +10, in a session and so a scheduling group
  // (autogroup, sched(7)) of its own, for niceness counts within a group only.
  bool background = false;
};

struct ExitStatus {
  int exit_code = 0;  // valid when signal is 0
  int signal = 0;     // the signal that ended it, or 0
  double user_s = 0;
  double system_s = 0;
  int64_t max_rss_bytes = 0;

  bool ok() const { return signal == 0 && exit_code == 0; }
  // "exit code 3", "signal 11 (Segmentation fault)"
  std::string ToString() const;
};

// Kept from the end of a child's standard error.
inline constexpr size_t kStderrTailBytes = 64 << 10;

class Child {
 public:
  // not_found / permission_denied (process.start.*) when the program cannot be executed.
  static absl::StatusOr<std::unique_ptr<Child>> Start(const ChildOptions& options);

  // Kills the group and reaps the child if it still runs.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  pid_t pid() const;
  // Our ends of the pipes, non-blocking; -1 when not piped or closed. The Child owns them.
  int stdin_fd() const;
  int stdout_fd() const;
  void CloseStdin();

  // Sends the signal to the child's whole process group. Does nothing once the child is reaped.
  void Kill(int signal = 9);

  // Waits until the child ends. deadline_exceeded (process.wait.timeout) when it still runs after
  // timeout_ms; it is not killed. A negative timeout waits without end. After the end: the same
  // status again. When the child ends, the rest of its group is killed.
  absl::StatusOr<ExitStatus> Wait(int64_t timeout_ms);

  // The last 64 KiB written to standard error so far; complete after Wait returned a status.
  std::string stderr_tail() const;

 private:
  class Impl;
  explicit Child(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct CommandResult {
  ExitStatus status;
  std::string stdout_text;
  std::string stderr_text;  // the tail
};

// Runs a child to its end: writes `stdin_text` to it and collects its output. More than
// max_output_bytes is resource_exhausted (process.run.output_too_large). After timeout_ms it kills
// the child: deadline_exceeded (process.run.timeout), with the tail of its standard error in the
// message. A failing exit code is not an error here. The modes of stdin and stdout in `options` are
// ignored.
absl::StatusOr<CommandResult> RunCommand(const ChildOptions& options, std::string_view stdin_text,
                                         int64_t timeout_ms, size_t max_output_bytes = 64 << 20);

// Keeps other processes of the same user from reading and changing this one's memory
// (/proc/PID/mem, ptrace), and leaves its /proc/PID files to root. It leaves no core file.
// Programs that it starts are not concerned.
void ForbidInspection();

// Makes a write to a pipe without a reader an error instead of a fatal signal. Idempotent; the
// functions of this header and of frame_io.h call it themselves.
void IgnoreSigpipe();

}  // namespace tilewright::support
