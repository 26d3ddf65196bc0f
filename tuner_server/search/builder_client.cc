#include "tuner_server/search/builder_client.h"

#include <csignal>

#include "deploy/support/file.h"
#include "deploy/support/frame_io.h"
#include "deploy/support/shortage.h"
#include "deploy/support/strings.h"
#include "tuner_server/search/builder_error.h"

namespace tilewright::search {
namespace {

constexpr size_t kMaxReplyBytes = size_t{1} << 30;
constexpr int64_t kReapMs = 2'000;
constexpr size_t kTailBytes = 2'000;

std::string Tail(const std::string& text) {
  return text.size() > kTailBytes ? "..." + text.substr(text.size() - kTailBytes) : text;
}

bool EndedForMemory(const support::ExitStatus& status) {
  return status.signal == SIGKILL || (status.signal == 0 && status.exit_code == kNoMemoryExitCode);
}

}  // namespace

absl::StatusOr<std::unique_ptr<BuilderClient>> BuilderClient::Start(const BuilderOptions& options) {
  support::ChildOptions child;
  child.program = options.program;
  if (child.program.empty()) {
    TW_ASSIGN(child.program, support::FindSibling("tilewright-builder"));
  }
  child.args = {"--mode=" + options.mode};
  child.args.insert(child.args.end(), options.args.begin(), options.args.end());
  child.stdin_mode = support::Stdio::kPipe;
  child.stdout_mode = support::Stdio::kPipe;
  child.stderr_mode = support::Stdio::kPipe;
  child.limits = options.limits;
  child.background = options.background;
  // OpenMP threads that wait busily would take the cores that measure (see cost_model/README.md).
  child.env = {{"OMP_NUM_THREADS", "1"}, {"OMP_WAIT_POLICY", "passive"}};
  TW_ASSIGN(std::unique_ptr<support::Child> started, support::Child::Start(child));
  return std::unique_ptr<BuilderClient>(new BuilderClient(std::move(started)));
}

absl::Status BuilderClient::Died(const absl::Status& why) {
  alive_ = false;
  // A child that closed its pipe is about to end by itself and may still be saying why.
  auto status = child_->Wait(why.code() == absl::StatusCode::kUnavailable ? kReapMs : 0);
  if (!status.ok()) {
    Kill();
    status = child_->Wait(kReapMs);
  }
  const std::string end = status.ok() ? status->ToString() : "still ending";
  if (why.code() == absl::StatusCode::kDeadlineExceeded) {
    return support::DeadlineExceeded(
        "builder.timeout",
        support::StrCat("no answer in time; killed (", end, ")", Tail(child_->stderr_tail())));
  }
  const absl::Status died = support::Unavailable(
      "builder.died",
      support::StrCat(end, "; ", support::StatusText(why), "; ", Tail(child_->stderr_tail())));
  const bool from_outside = status.ok() && !killed_ && EndedForMemory(*status);
  return from_outside ? support::MarkShortage(died, support::Shortage::kKilled) : died;
}

absl::StatusOr<v1::BuilderReply> BuilderClient::Ask(v1::BuilderRequest request,
                                                    int64_t timeout_ms) {
  if (!alive_) return support::Unavailable("builder.died", "the child has ended before");
  request.set_id(next_id_++);
  absl::Status sent =
      support::WriteFrame(child_->stdin_fd(), request.SerializeAsString(), timeout_ms);
  if (!sent.ok()) return Died(sent);
  auto frame = support::ReadFrame(child_->stdout_fd(), kMaxReplyBytes, timeout_ms);
  if (!frame.ok()) return Died(frame.status());
  v1::BuilderReply reply;
  if (!reply.ParseFromString(*frame) || reply.id() != request.id()) {
    return Died(support::DataLoss("builder.reply.malformed", "not the answer to this request"));
  }
  if (reply.has_error()) return FromBuilderError(reply.error());
  return reply;
}

}  // namespace tilewright::search
