#include "device_agent/sandboxed_run.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "deploy/module/module_file.h"
#include "deploy/runtime/run_times.h"
#include "deploy/runtime/runtime.h"
#include "deploy/support/clock.h"
#include "deploy/support/frame_io.h"
#include "deploy/support/process.h"
#include "deploy/support/strings.h"

namespace tilewright::device_agent {
namespace {

constexpr int kAnswerFd = 3;
constexpr size_t kAnswerSpare = size_t{1} << 20;  // what an answer has beside the outputs

// Of the worker's descriptors only standard error and the answer's pipe stay.
void ArrangeAnswer(int answer) {
  const int high = fcntl(answer, F_DUPFD, 10);
  const int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  dup2(high, kAnswerFd);
  syscall(SYS_close_range, static_cast<unsigned>(kAnswerFd + 1), UINT_MAX, 0U);
}

absl::Status TakeInputs(const v1::RunModule& request, runtime::Session* session) {
  if (request.inputs_size() != static_cast<int>(session->num_inputs())) {
    return support::InvalidArgument(
        "run.inputs.count", support::StrCat("expected ", session->num_inputs(), " inputs, found ",
                                            request.inputs_size()));
  }
  for (int i = 0; i < request.inputs_size(); ++i) {
    TW_TRY(session->SetInput(static_cast<size_t>(i), request.inputs(i).data(),
                             request.inputs(i).size()));
  }
  return absl::OkStatus();
}

// Its nanoseconds are the cycles of a counter.
class CountedClock final : public support::SystemClock {
 public:
  explicit CountedClock(const CycleCounter& counter) : counter_(counter) {}
  int64_t NowNs() override { return counter_.Now(); }

 private:
  const CycleCounter counter_;
};

absl::StatusOr<v1::ModuleRan> RunHere(std::string_view bytes, const v1::RunModule& request,
                                      const CycleCounter* counter) {
  TW_ASSIGN(module::ModuleFile file, module::ModuleFile::FromBytes(bytes));
  TW_ASSIGN(auto module, runtime::LoadedModule::Load(std::move(file)));
  runtime::SessionOptions options;
  options.num_threads = request.threads();
  std::optional<CountedClock> clock;
  if (counter != nullptr) options.clock = &clock.emplace(*counter);
  TW_ASSIGN(auto session, runtime::Session::Create(std::move(module), options));
  TW_TRY(TakeInputs(request, session.get()));
  TW_ASSIGN(const runtime::RunTimes times,
            runtime::TimeRuns(session.get(), request.repeat(), request.per_launch()));
  v1::ModuleRan ran;
  ran.set_value_kind(counter != nullptr ? v1::VALUE_KIND_VIRTUAL_CYCLES : v1::VALUE_KIND_WALL_NS);
  ran.set_median_ns(times.median);
  ran.set_p10_ns(times.p10);
  ran.set_p90_ns(times.p90);
  ran.set_threads(session->num_threads());
  ran.mutable_launch_ns()->Assign(times.launches.begin(), times.launches.end());
  for (size_t i = 0; i < session->num_outputs(); ++i) {
    const runtime::TensorView view = session->output(i);
    ran.add_outputs(view.data, view.bytes);
  }
  return ran;
}

[[noreturn]] void ChildMain(std::string_view module, const v1::RunModule& request,
                            const SandboxSpec& sandbox, bool filtered, const CycleCounter* counter,
                            pid_t parent, int answer) {
  setpgid(0, 0);
  // First the limits: the jail's descriptors are among those that ArrangeAnswer closes.
  absl::Status status = ApplyLimits(sandbox, parent);
  ArrangeAnswer(answer);
  v1::WorkerReply reply;
  if (status.ok() && filtered) status = ApplyFilter(sandbox);
  if (status.ok()) {
    auto ran = RunHere(module, request, counter);
    status = ran.status();
    if (ran.ok()) *reply.mutable_ran() = *std::move(ran);
  }
  if (!status.ok()) {
    reply.mutable_error()->set_slug(support::Slug(status));
    reply.mutable_error()->set_detail(support::Detail(status));
  }
  const absl::Status written = support::WriteFrame(kAnswerFd, reply.SerializeAsString());
  _exit(written.ok() ? 0 : 1);
}

absl::Status Crashed(int raw) {
  support::ExitStatus end;
  end.signal = WIFSIGNALED(raw) ? WTERMSIG(raw) : 0;
  end.exit_code = WIFEXITED(raw) ? WEXITSTATUS(raw) : 0;
  return support::DataLoss("run.code.crashed",
                           support::StrCat("the confined process ended with ", end.ToString()));
}

}  // namespace

absl::StatusOr<v1::ModuleRan> RunInSandbox(std::string_view module, const v1::RunModule& request,
                                           const SandboxSpec& sandbox, bool filtered,
                                           const CycleCounter* counter) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return support::ErrnoError(errno, "run.sandbox.failed", "no pipe");
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) ChildMain(module, request, sandbox, filtered, counter, parent, ends[1]);
  const int forked = errno;
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return support::ErrnoError(forked, "run.sandbox.failed", "no process");
  }
  setpgid(pid, pid);  // both sides: the first one counts
  const auto frame = support::ReadFrame(
      ends[0], static_cast<size_t>(std::max<int64_t>(0, request.output_bytes())) + kAnswerSpare);
  close(ends[0]);
  if (frame.ok()) {
    kill(-pid, SIGKILL);
    kill(pid, SIGKILL);
  }
  int raw = 0;
  while (waitpid(pid, &raw, 0) < 0 && errno == EINTR) {
  }
  kill(-pid, SIGKILL);
  v1::WorkerReply reply;
  if (!frame.ok() || !reply.ParseFromString(*frame)) return Crashed(raw);
  if (reply.has_ran()) return std::move(*reply.mutable_ran());
  if (reply.has_error()) {
    return support::FailedPrecondition(reply.error().slug(), reply.error().detail());
  }
  return Crashed(raw);
}

}  // namespace tilewright::device_agent
