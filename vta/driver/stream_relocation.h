// Relocation: a program's addresses count from its own image of DRAM (vta/isa/code_object.h). A
// driver moves them to where the operands are. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "vta/isa/code_object.h"

namespace tilewright::vta {

// Bytes of the device's DRAM.
struct OperandPlaces {
  std::vector<int64_t> params;  // where each parameter of the program is
  int64_t own = 0;              // where its constants and micro-ops are
};

// Which parameters the stream stores to, by index. Errors as Relocate.
absl::StatusOr<std::vector<bool>> StoredParams(const Isa& isa, const Program& program);

// Returns the stream with the addresses of its loads and stores moved. Each of them works inside of
// one parameter, or loads constants or micro-ops: otherwise vta.driver.address, with the
// instruction.
//   vta.driver.alignment: a parameter is not at an element of the memory that it is moved to.
//   REQUIRES: as many places as parameters.
absl::StatusOr<std::vector<Instruction>> Relocate(const Isa& isa, const Program& program,
                                                  const OperandPlaces& places);

}  // namespace tilewright::vta
