// What one instruction does: the semantics of the instruction set. A Datapath has the on-chip
// memories and a DRAM image, and executes instructions one by one as it is told; who runs when is
// the business of the functional simulator and of the cycle model. Objects belong to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

struct SimCounters {
  int64_t instructions = 0;
  int64_t gemm_iterations = 0, alu_iterations = 0;  // micro-ops executed
  int64_t bytes_loaded = 0, bytes_stored = 0;

  bool operator==(const SimCounters&) const = default;
};

class Datapath {
 public:
  // The memories start with arbitrary contents drawn from the seed. `isa` and `dram` outlive the
  // datapath.
  Datapath(const Isa& isa, uint64_t seed, std::vector<uint8_t>* dram);

  // vta.sim.bounds: an access outside of a memory or the image; vta.sim.illegal: an instruction
  // that means nothing. Tokens are the caller's.
  absl::Status Execute(const Instruction& instruction);

  const SimCounters& counters() const { return counters_; }

 private:
  // An accumulator: the first lanes that the configuration has.
  using Lanes = std::array<int32_t, 32>;

  absl::Status Transfer(const Instruction& i);
  absl::Status CheckLoops(const Instruction& i) const;
  absl::Status Loops(const Instruction& i);
  absl::Status Gemm(const Instruction& i, const MicroOp& at);
  absl::Status Alu(const Instruction& i, const MicroOp& at);
  absl::StatusOr<uint8_t*> Element(Memory memory, int64_t index);
  absl::Status StoreAcc(int64_t index, const Lanes& values);
  absl::StatusOr<Lanes> LoadAcc(int64_t index);

  const Isa& isa_;
  const size_t block_;
  std::vector<uint8_t>& dram_;
  std::array<std::vector<uint8_t>, 8> sram_;
  SimCounters counters_;
};

}  // namespace tilewright::vta
