// How much memory a machine has on its chip. Pure.
#pragma once

#include <cstdint>

#include "compiler/target/machine.h"

namespace tilewright::target {

// Returns the bytes of the memories that programs fill themselves: of a matrix unit its inputs,
// weights, sums with the bytes that are made of them, and micro-ops. 0 for a machine without any.
constexpr int64_t OnChipBytes(const Machine& machine) {
  const MatrixUnit& unit = machine.matrix;
  constexpr int64_t kSumBytes = 4, kResultBytes = 1;
  return unit.block *
             (unit.inputs + unit.block * unit.weights + (kSumBytes + kResultBytes) * unit.sums) +
         unit.micro_ops * unit.micro_op_bytes;
}

}  // namespace tilewright::target
