// How the CLI ends: exit codes and error texts. An error is three lines on standard error: what
// failed, why, and what to do about it. Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>

#include "deploy/support/status.h"

namespace tilewright::cli {

// Fixed by DESIGN section 8: scripts rely on them.
enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,       // bad model, corrupt module, wrong input name or shape, build or run error
  kExitUsage = 2,        // flags, unknown target
  kExitNotFound = 3,     // file, job, module, device
  kExitUnavailable = 4,  // server, device
  kExitMismatch = 5,     // --expect, verify, signatures
  kExitUnchanged = 6,    // modules fetch --if-newer --exit-code: nothing new, no error
};

// not_found 3; unavailable, deadline_exceeded 4; slugs cli.usage.* and ir.target.* 2;
// slugs cli.mismatch.* and signing.signature.* 5; everything else 1.
int ExitCodeOf(const absl::Status& status);

// "tilewright run: cannot read the module\n  why: ...\n  do: ...\n". `what` says what was tried.
std::string ErrorText(std::string_view command, std::string_view what, const absl::Status& status);

// Returns what a person can do about the error, by its slug and code; never empty.
std::string Advice(const absl::Status& status);

// Prints ErrorText to standard error and returns ExitCodeOf. OK prints nothing and gives 0.
int Finish(std::string_view command, std::string_view what, const absl::Status& status);
// Returns `code`, unless the command succeeded and its standard output could not be written: then
// it prints that error and returns its exit code.
int FinishOutput(std::string_view command, int code);

}  // namespace tilewright::cli
