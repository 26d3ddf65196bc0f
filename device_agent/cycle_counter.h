// The virtual cycle counter of an emulated board (qemu_board.c), read by the process that it
// counts. A copyable handle; const methods from one thread at a time.
#pragma once

#include <cstdint>
#include <string_view>

#include "deploy/support/status.h"
#include "device_agent/board_counter.h"

namespace tilewright::device_agent {

class CycleCounter {
 public:
  // `address` as text, as the emulator's plug-in has it. invalid_argument (worker.counter.missing)
  // if no counter is there; a child looks first, because a wrong address ends the process.
  static absl::StatusOr<CycleCounter> At(std::string_view address);

  int64_t Now() const { return static_cast<int64_t>(counter_->cycles); }
  // The next access to memory finds all of the board's caches empty.
  void EmptyCaches() const { counter_->empty_caches = 1; }

 private:
  explicit CycleCounter(volatile TwBoardCounter* counter) : counter_(counter) {}
  volatile TwBoardCounter* counter_;
};

}  // namespace tilewright::device_agent
