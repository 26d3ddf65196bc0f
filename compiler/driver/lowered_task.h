// A scheduled task, lowered to flat tensor IR. Pure functions; thread-safe. Links no LLVM.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/driver/module_builder.h"
#include "compiler/ir/ir.h"
#include "compiler/target/target.h"

namespace tilewright::driver {

// A task's kernel, and what of it runs once before the first call.
struct LoweredTask {
  ir::Function main;  // inputs and constants, what is prepared, outputs
  std::optional<ir::Function> prepare;
  PreparedKernel prepared;
};

// `dump_dir`: where the program stands after each pass; empty: nowhere. `miscompile`: the pass that
// a test breaks. Errors of the passes.
absl::StatusOr<LoweredTask> LowerTask(const ir::Function& scheduled, const target::Target& target,
                                      const std::string& dump_dir, const std::string& miscompile);

// Whether all that a lowered function does are instructions of a matrix unit.
bool OnMatrixUnit(const LoweredTask& task);

// Two versions of one task in one kernel: where `condition` holds, `version` computes. What either
// has prepared is prepared once, before the first call. REQUIRES: both are of one task.
void AddVersion(const ir::Expr& condition, const LoweredTask& version, LoweredTask* task);

}  // namespace tilewright::driver
