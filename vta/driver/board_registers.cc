#include "vta/driver/board_registers.h"

#include <algorithm>
#include <atomic>

#include "deploy/support/status.h"

namespace tilewright::vta {
namespace {

// Between memory and registers a fence among processors is not enough on Arm: the other side is a
// device, so the barrier has to reach the whole system.
void Barrier() {
#if defined(__aarch64__) || defined(__arm__)
  asm volatile("dsb sy" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace

int64_t RegisterBytes() {
  int64_t last = 0;
#define TW_VTA_REGISTER(Name, text, address, what) last = std::max<int64_t>(last, address);
#include "vta/isa/isa.def"
  return last + int64_t{sizeof(uint32_t)};
}

BoardRegisters::BoardRegisters(MappedDevice mapped) : mapped_(std::move(mapped)) {
  TW_CHECK(static_cast<int64_t>(mapped_.bytes().size()) >= RegisterBytes())
      << mapped_.bytes().size();
}

volatile uint32_t* BoardRegisters::At(Register number) const {
  return reinterpret_cast<volatile uint32_t*>(mapped_.bytes().data() + static_cast<size_t>(number));
}

uint32_t BoardRegisters::Read(Register number) const {
  const uint32_t value = *At(number);
  Barrier();
  return value;
}

void BoardRegisters::Write(Register number, uint32_t value) {
  Barrier();
  *At(number) = value;
  Barrier();
}

int64_t BoardRegisters::Cycles() const {
  uint32_t high = Read(Register::kCyclesHigh);
  for (;;) {
    const uint32_t low = Read(Register::kCyclesLow);
    const uint32_t again = Read(Register::kCyclesHigh);
    if (again == high) return static_cast<int64_t>(uint64_t{high} << 32 | low);
    high = again;
  }
}

}  // namespace tilewright::vta
