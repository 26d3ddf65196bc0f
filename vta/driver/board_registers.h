// The control registers of the accelerator, mapped (vta/isa/MANUAL.md lists them). Every access is
// one access of 32 bits, in the order of the program, and ordered with those to shared memory.
// Objects belong to one thread.
#pragma once

#include <cstdint>
#include <utility>

#include "vta/driver/mapped_device.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

// Bytes from the first register to the end of the last.
int64_t RegisterBytes();

class BoardRegisters {
 public:
  // REQUIRES: at least RegisterBytes() bytes.
  explicit BoardRegisters(MappedDevice mapped);

  uint32_t Read(Register number) const;
  // What this process wrote to memory is there before the hardware sees the register.
  void Write(Register number, uint32_t value);

  // Returns whether all bits of `status` are those that a bus without hardware gives.
  static bool IsDead(uint32_t status) { return status == 0xffff'ffff; }
  static bool Has(uint32_t status, Status bit) {
    return (status >> static_cast<int>(bit) & 1) != 0;
  }
  // The counter of cycles, whose halves are not read at the same time.
  int64_t Cycles() const;

 private:
  volatile uint32_t* At(Register number) const;

  MappedDevice mapped_;
};

}  // namespace tilewright::vta
