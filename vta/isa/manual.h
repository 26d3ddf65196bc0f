// The manual of the instruction set, MANUAL.md next to this file, from the rows of isa.def. A test
// compares the two. A pure function.
#pragma once

#include <string>

namespace tilewright::vta {

// Markdown: the configurations, instructions, operations, memories, and the bits of every field in
// every named configuration.
std::string ManualText();

}  // namespace tilewright::vta
