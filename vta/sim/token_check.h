// Whether the dependence flags of a stream order every conflict: a happens-before check over the
// whole stream, independent of any one execution. The k-th pop of a queue waits for its k-th push,
// so tokens and the order inside a module give each instruction a vector clock; two instructions of
// different modules that touch the same element, one of them writing, must be ordered by it. Pure
// functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

// Half-open range of elements of a memory (a Memory's value), or of DRAM in bytes.
struct Access {
  static constexpr int kDram = -1;
  int memory = kDram;
  int64_t begin = 0, end = 0;
  bool is_write = false;
};
// What an instruction touches; gemm and alu by the micro-ops that `uops` (the whole micro-op
// memory) holds when they run. `out` is written with acc. Ranges may cover gaps between rows of
// DRAM.
std::vector<Access> AccessesOf(const Isa& isa, const Instruction& instruction,
                               std::span<const MicroOp> uops);

// vta.tokens.balance: a queue with more pushes than pops or the reverse; vta.tokens.deadlock;
// vta.tokens.race: the two instructions and what they share. `dram` is the image at the start: the
// micro-ops are read from it as the stream loads them.
absl::Status CheckTokens(const Isa& isa, std::span<const Word128> stream,
                         const std::vector<uint8_t>& dram);

}  // namespace tilewright::vta
