// A tilewright-builder child from its parent's side: starts it, asks, waits with a deadline, kills
// it when it does not answer. The only way other processes use the compiler; links no LLVM.
// One owner, one request at a time; Kill may be called from any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "deploy/support/process.h"
#include "deploy/support/status.h"
#include "tilewright/v1/builder.pb.h"

namespace tilewright::search {

struct BuilderOptions {
  std::string program;            // empty: tilewright-builder beside the running executable
  std::string mode;               // "search" or "build"
  std::vector<std::string> args;  // more flags
  support::Limits limits;
};

class BuilderClient {
 public:
  // process.start.* when the binary is missing.
  static absl::StatusOr<std::unique_ptr<BuilderClient>> Start(const BuilderOptions& options);

  // One request, one reply. The reply's error becomes the returned status. After
  // deadline_exceeded (builder.timeout) or unavailable (builder.died: with exit status and the tail
  // of its standard error) the child is dead: start another one.
  absl::StatusOr<v1::BuilderReply> Ask(v1::BuilderRequest request, int64_t timeout_ms);

  bool alive() const { return alive_; }
  pid_t pid() const { return child_->pid(); }
  void Kill() { child_->Kill(); }

 private:
  explicit BuilderClient(std::unique_ptr<support::Child> child) : child_(std::move(child)) {}
  absl::Status Died(const absl::Status& why);

  std::unique_ptr<support::Child> child_;
  uint64_t next_id_ = 1;
  bool alive_ = true;
};

}  // namespace tilewright::search
