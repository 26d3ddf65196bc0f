// The hardware configuration of a target: one with a name, and the sizes of memories that the
// target says. Pure functions; thread-safe.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "compiler/target/machine.h"
#include "vta/isa/config.h"

namespace tilewright::vta {

// `name`: of the configuration; empty: the first. `unit`: its memories; without a block, those of
// the configuration.
//   vta.config.name: no such configuration; vta.config.memories: instructions cannot address such
//   memories, with the largest that they can.
absl::StatusOr<Config> ConfigOf(std::string_view name, const target::MatrixUnit& unit);

}  // namespace tilewright::vta
