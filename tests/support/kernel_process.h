// Calls one kernel in a process of its own: the near side of kernel_runner.c and kernel_runner.mjs.
// A fault of the kernel is an error with the process's words.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/ir.h"

namespace tilewright::tests {

// Gives each argument the bytes of its parameter at these sizes.
absl::Status SizeArguments(const ir::Function& f, const std::vector<int64_t>& sizes,
                           const std::vector<ir::TensorData*>& args);

// Runs the command, which gets the arguments of `f` by standard input, and fills the outputs.
// Returns what it wrote to standard error.
absl::StatusOr<std::string> CallKernelProcess(const std::vector<std::string>& command,
                                              const ir::Function& f,
                                              const std::vector<ir::TensorData*>& args);

}  // namespace tilewright::tests
