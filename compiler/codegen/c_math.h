// Functions of floats that a C-like language lacks, as text over those that it has. The polynomials
// are those of the LLVM back end (math_tables.h). Pure functions; thread-safe.
#pragma once

#include <string>
#include <string_view>

namespace tilewright::codegen {

// Definitions of PREFIXNAME(float): PREFIXexp, PREFIXfma and PREFIXfabs are defined before them,
// and PREFIXtanh before expm1. Errors are a few units of the last place.
std::string TanhText(std::string_view prefix);
std::string Expm1Text(std::string_view prefix);
std::string ErfText(std::string_view prefix);

}  // namespace tilewright::codegen
