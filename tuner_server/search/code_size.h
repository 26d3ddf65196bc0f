// Estimates the amount of machine code of a program before it is compiled. Programs that would take
// the compiler more than seconds are not candidates. Pure function; thread-safe.
#pragma once

#include "compiler/ir/ir.h"
#include "compiler/target/target.h"

namespace tilewright::search {

// Estimates how many instructions LLVM has to optimise for a function at stage kLoops, before
// unrolling and vectorisation. An unrolled loop counts its extent. A vectorised loop counts the
// registers it fills, or each lane if the lanes are not contiguous in memory. exp and similar
// functions count as the polynomials they become. Peeled tails count twice.
double CodeSize(const ir::Function& loops, const target::Target& target);

// Candidates above this are left out. Programs of usual layers stay below 30,000, and LLVM takes a
// millisecond for 40 to 800 instructions. Above, its time grows with the square of the largest
// basic block: softmax over 128 channels, unrolled, has 108,000 and takes 40 s.
inline constexpr double kMaxCodeSize = 40'000;

}  // namespace tilewright::search
