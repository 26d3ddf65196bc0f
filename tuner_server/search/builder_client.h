// The parent's side of a tilewright-builder child: starts it, sends requests, waits with a
// deadline, and kills it when it does not answer. Other processes use the compiler only in this
// way. Links no LLVM. One owner, one request at a time; any thread may call Kill.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "deploy/support/process.h"
#include "deploy/support/status.h"
#include "tilewright/v1/builder.pb.h"

namespace tilewright::search {

// A builder that gets no memory ends with this code.
inline constexpr int kNoMemoryExitCode = 71;

// A task with larger expected outputs is refused: agents keep them in memory and compare all.
inline constexpr uint64_t kMaxExpectedBytes = uint64_t{1} << 30;

struct BuilderOptions {
  std::string program;            // empty: tilewright-builder in the folder of this executable
  std::string mode;               // "search" or "build"
  std::vector<std::string> args;  // more flags
  support::Limits limits;
  // A kernel of as many threads as there are cores takes twice as long next to a search. False
  // where somebody waits for the answer and nothing is measured.
  bool background = true;
};

class BuilderClient {
 public:
  // Errors: process.start.* if the binary is missing.
  static absl::StatusOr<std::unique_ptr<BuilderClient>> Start(const BuilderOptions& options);

  // Sends one request and returns its reply. An error in the reply becomes the returned status,
  // with its shortage. After deadline_exceeded (builder.timeout) or unavailable (builder.died, with
  // the exit status and the end of the standard error) the child is dead: start another one.
  // Shortage kKilled: it was killed by another process (the kernel does so when memory runs out),
  // or it got no memory.
  absl::StatusOr<v1::BuilderReply> Ask(v1::BuilderRequest request, int64_t timeout_ms);

  bool alive() const { return alive_; }
  pid_t pid() const { return child_->pid(); }
  void Kill() {
    killed_ = true;
    child_->Kill();
  }

 private:
  explicit BuilderClient(std::unique_ptr<support::Child> child) : child_(std::move(child)) {}
  absl::Status Died(const absl::Status& why);

  std::unique_ptr<support::Child> child_;
  uint64_t next_id_ = 1;
  bool alive_ = true;
  std::atomic<bool> killed_{false};  // by this process
};

}  // namespace tilewright::search
