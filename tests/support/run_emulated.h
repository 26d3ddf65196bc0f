// Compiles a function for another architecture and runs it in an emulator of that processor: the
// other side of comparisons with the interpreter, like run_compiled.h. Each call is a process of
// its own, so a fault of the kernel is an error with the emulator's words. The emulated processor
// has only the features of the target: an instruction that the target does not have is a fault.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/ir.h"
#include "compiler/target/target.h"

namespace tilewright::tests {

// The AArch64 targets that can be emulated here. Empty, with a line "[SKIP] why" on stderr, where
// the emulator or the cross compiler of the runner is missing.
std::vector<target::Target> EmulatedTargets();

// Lowers, compiles and runs; `args` in parameter order, outputs are resized and overwritten.
// REQUIRES: one of EmulatedTargets().
absl::Status RunEmulated(const ir::Function& f, const target::Target& target,
                         const std::vector<int64_t>& sizes, std::vector<ir::TensorData*> args);

// The cost of a call on the emulated board (device_agent/qemu_board.c), its caches empty before.
struct EmulatedCost {
  int64_t cycles = 0, instructions = 0;
};
absl::StatusOr<EmulatedCost> CountEmulated(const ir::Function& f, const target::Target& target,
                                           const std::vector<int64_t>& sizes,
                                           std::vector<ir::TensorData*> args);

// The same on a processor of the emulator's choice of names ("cortex-a53").
absl::Status RunEmulatedOn(const std::string& processor, const ir::Function& f,
                           const target::Target& target, const std::vector<int64_t>& sizes,
                           std::vector<ir::TensorData*> args);

}  // namespace tilewright::tests
