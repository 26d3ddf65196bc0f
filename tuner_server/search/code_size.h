// How much machine code a program will be, before anything is compiled: what takes a compiler more
// than seconds is no candidate. Pure function; thread-safe.
#pragma once

#include "compiler/ir/ir.h"
#include "compiler/ir/target.h"

namespace tilewright::search {

// About how many instructions LLVM will have to optimise for a function of loops (kLoops, before
// unrolling and vectorisation): unrolled loops count their extent, vectorised ones the registers
// they fill or, where lanes lie apart in memory, each lane; exp and its like the polynomials they
// become; peeled tails twice.
double CodeSize(const ir::Function& loops, const ir::Target& target);

// More than this and a candidate is left out. LLVM takes a millisecond for 40 to 800 of them in the
// programs of usual layers, which stay below 30,000; beyond, its time grows with the square of what
// stands in one basic block (softmax over 128 channels, unrolled: 108,000, 40 s).
inline constexpr double kMaxCodeSize = 40'000;

}  // namespace tilewright::search
