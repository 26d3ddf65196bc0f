// A convolution on the accelerator: its program for a tile, and runs of it on the simulators, the
// RTL and the interpreter. Programs are values; runs are pure functions of the program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/space/matrix_tiles.h"
#include "compiler/target/target.h"
#include "vta/isa/code_object.h"
#include "vta/sim/cycle_model.h"

namespace tilewright::bench {

struct VtaLayer {
  std::string name;  // of FindLayer (layers.h)
  ir::Function function;
  int64_t products = 0;  // of a vector and a matrix, each once
  int64_t outputs = 0;   // vectors of accumulators
};
// A convolution with bias, relu and a requantisation to bytes, channels in blocks of `block`.
absl::StatusOr<VtaLayer> MakeVtaLayer(const std::string& name, int64_t block);

struct VtaProgram {
  space::MatrixTile tile;
  vta::CodeObject code;       // has one program
  int64_t operations = 0;     // cycles of alu
  int64_t resets = 0;         // cycles of gemm that only clears
  int64_t operand_bytes = 0;  // of all parameters but the result
};
// The default schedule with the members of the tile that are not 0; the others are chosen.
//   bench.tile: no such tile fits the memories.
absl::StatusOr<VtaProgram> CompileTile(const VtaLayer& layer, const target::Target& target,
                                       const space::MatrixTile& given);

// Runs on the cycle model, on zeros: cycles do not depend on data.
absl::StatusOr<vta::CycleReport> RunOnModel(const VtaProgram& program);

// Of operands, and of what on-chip memories hold at first.
inline constexpr uint64_t kImageSeed = 1;

// A run on both simulators, on random operands: DRAM before and after it.
struct SimulatedRun {
  std::vector<uint8_t> operands, image;
};
//   bench.image: images differ, or results that hardly differ from each other, which would show
//   nothing.
absl::StatusOr<SimulatedRun> RunOnSimulators(const VtaProgram& program);
// bench.image if they differ.
absl::Status CheckSameImage(std::string_view device, const std::vector<uint8_t>& expected,
                            const std::vector<uint8_t>& found);

// Whether both simulators compute what the interpreter of the tensor IR does with the layer's
// function, unscheduled, on random operands. bench.interpreter: another byte. Returns the number of
// bytes of the result.
absl::StatusOr<int64_t> CompareWithInterpreter(const VtaLayer& layer, const VtaProgram& program);

struct RtlRun {
  int64_t cycles = 0;
  double seconds = 0;  // of processor time that the simulation took
};
// Runs on the RTL of the program's configuration and on both simulators, as RunOnSimulators.
// bench.rtl.none: this build has no RTL.
absl::StatusOr<RtlRun> RunOnRtl(const VtaProgram& program);

}  // namespace tilewright::bench
