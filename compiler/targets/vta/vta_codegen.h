// Code generation for the accelerator of vta/: a lowered function whose every statement is a tensor
// intrinsic `vta.*` becomes one instruction stream, its micro-ops and a layout of DRAM. Loops
// around matrix and ALU operations become the loops of one instruction; all others are written out.
// The dependence flags are derived from the regions that instructions touch in their scopes. Pure
// functions; thread-safe.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "compiler/codegen/codegen.h"
#include "compiler/transform/passes.h"
#include "vta/isa/code_object.h"
#include "vta/isa/config.h"

namespace tilewright::vta {

// Of a program; what needs more is refused (codegen.vta.extent).
inline constexpr int64_t kMaxInstructions = 1 << 16;

// A code object of vta/isa/code_object.h with a program for each function, which is one call
// without groups. The functions are those of Pipeline(), with constant sizes.
// The target names a configuration of vta/isa/config.h as its processor; none: the first.
//   vta.config.name | codegen.function.none | codegen.vta.stage | form (a statement that is no
//   intrinsic) | extent | alignment | block (an intrinsic of other lanes than the hardware has) |
//   memory (a scope is full) | padding (of a load: more than an instruction has, or in
//   another form) | immediate | dram_hazard (a load of what a store wrote)
absl::StatusOr<codegen::Artifact> Generate(const codegen::Request& request);
// The same for any hardware configuration. vta.config.value | vta.config.bits
absl::StatusOr<codegen::Artifact> GenerateFor(const Config& config,
                                              const codegen::Request& request);

// The passes before it: kScheduled in; kLoops out, of tensor intrinsics where the schedule made it
// so. Instructions are loops of those: nothing below that level is lowered.
std::span<const transform::PassRow> Pipeline();

}  // namespace tilewright::vta
