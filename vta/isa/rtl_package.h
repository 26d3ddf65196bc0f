// The package of the RTL, vta_isa.sv next to this file, from the rows of isa.def: sizes, opcodes,
// instructions as packed structs, control registers. A test compares the two. A pure function.
#pragma once

#include <span>
#include <string>

#include "vta/isa/config.h"

namespace tilewright::vta {

// SystemVerilog: the package vta_isa, once for each configuration. The macro VTA_CONFIG_<name>
// takes one; without it, the first is taken.
// REQUIRES: at least one configuration, and all of them can exist.
std::string RtlPackageText(std::span<const NamedConfig> configs);

}  // namespace tilewright::vta
