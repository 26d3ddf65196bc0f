// Code generation for the accelerator of vta/: a lowered function whose every statement is a tensor
// intrinsic `vta.*` becomes one instruction stream, its micro-ops and a layout of DRAM. Loops
// around matrix and ALU operations become the loops of one instruction; all others are written out.
// The dependence flags are derived from the regions that instructions touch in their scopes. Pure
// functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

struct VtaProgram {
  struct Param {
    std::string name;
    int64_t offset = 0, bytes = 0;  // in the image
  };
  std::vector<vta::Instruction> stream;
  std::vector<vta::MicroOp> uops;
  std::vector<Param> params;  // in the order of the function's parameters, row-major
  int64_t uop_offset = 0;
  int64_t image_bytes = 0;

  // One instruction a line, micro-ops below.
  std::string Listing() const;
  absl::StatusOr<std::vector<vta::Word128>> Encoded() const;
  // A DRAM image with the micro-ops in place and everything else 0.
  absl::StatusOr<std::vector<uint8_t>> Image() const;
};

// `f` is at stage kLoops with virtual threads written out and constant sizes.
//   codegen.vta.stage | form (a statement that is no intrinsic) | extent | alignment | memory (a
//   scope is full) | immediate | dram_hazard (a load of what a store wrote)
absl::StatusOr<VtaProgram> GenerateVta(const ir::Function& f);

}  // namespace tilewright::vta
