// Compiles a function for WebAssembly and runs it in Node.js: the other side of comparisons with
// the interpreter, like run_emulated.h. Each call is a process of its own.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/ir.h"
#include "compiler/target/target.h"

namespace tilewright::tests {

// The targets whose code Node.js runs here. Empty, with a line "[SKIP] why" on stderr, without it.
std::vector<target::Target> WasmTargets();

// Lowers, compiles and runs; `args` in parameter order, outputs are resized and overwritten.
// REQUIRES: one of WasmTargets().
absl::Status RunWasm(const ir::Function& f, const target::Target& target,
                     const std::vector<int64_t>& sizes, std::vector<ir::TensorData*> args);

// Returns the nanoseconds of the quickest of `calls` calls, after as many that do not count.
absl::StatusOr<double> TimeWasm(const ir::Function& f, const target::Target& target, int calls,
                                std::vector<ir::TensorData*> args);

}  // namespace tilewright::tests
