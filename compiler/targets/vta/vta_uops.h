// Where micro-ops are on the chip. The micro-ops of a program are in DRAM. If all of them fit the
// chip, they are loaded at the start. If not, the memory is a cache that the program manages: it
// loads the micro-ops of an instruction right before the instruction, unless they are still there.
// These loads and their users are instructions of one module, so no tokens are needed. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "compiler/targets/vta/vta_tokens.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

// The micro-ops of a program, each sequence once.
class MicroOpTable {
 public:
  // Where `wanted` begins; adds what is not there yet.
  int64_t At(std::span<const MicroOp> wanted);
  const std::vector<MicroOp>& all() const { return all_; }
  int64_t size() const { return static_cast<int64_t>(all_.size()); }

 private:
  std::vector<MicroOp> all_;
  std::unordered_map<std::string, int64_t> known_;  // results of At, by wanted bytes
};

// Moves uop_begin and uop_end of gemm and alu, which count from the program's first micro-op in
// DRAM, to places on the chip, and inserts the loads. `first` is the element of the first micro-op
// in DRAM, `count` how many there are. Since programs have no branches, the uses to come are known:
// a load overwrites what is needed last.
// REQUIRES: the micro-ops of each instruction fit the memory.
void PlaceMicroOps(const Isa& isa, int64_t first, int64_t count, std::vector<VtaEvent>* events);

}  // namespace tilewright::vta
