// Runs a command in a child process: foreign code that crashes there ends the child, and this
// process says so; an interrupt ends the child, and this process cleans up. REQUIRES: the calling
// process has no other threads and no other children.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "deploy/support/status.h"

namespace tilewright::cli {

// Says what the child is about to do ("loading its code"), in case it is the last thing.
using StepSink = std::function<void(std::string_view)>;

struct OwnProcess {
  std::string command;  // "run": for messages
  std::string what;     // "cannot run model.tw"
  std::string scratch;  // prefix of a temporary folder that is the child's TMPDIR; empty: none
  std::string crash;    // slug of the error if the child crashes: "run.code.crashed"
};

// Returns the exit code: that of `body` if the child returned from it, else that of the error that
// it prints. If a signal interrupts the command, the child and its descendants are ended, the
// folder is removed, and the signal ends this process, too. Folders that killed processes left
// behind are swept first.
int RunInOwnProcess(const OwnProcess& own, const std::function<int(const StepSink&)>& body);

}  // namespace tilewright::cli
