// The timing of instruction fetch: bursts of instructions from DRAM into a queue, and from there,
// in order and one a cycle, to the queues of the modules. Times are cycles. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "vta/sim/read_port.h"

namespace tilewright::vta {

inline constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
inline constexpr int64_t kInstructionBytes = 16;

class FetchUnit {
 public:
  // Of a stream of `total` instructions. The queue has room for at least one burst.
  FetchUnit(int64_t total, int64_t burst, int64_t queue, int64_t bytes_per_beat)
      : total_(total), burst_(burst), queue_(queue), bytes_per_beat_(bytes_per_beat) {}

  // When the next burst can be asked for: in the cycle after the one that makes room for all of it.
  int64_t NextRequest(const ReadPort& port) const {
    return HasRoom() ? std::max(room_, port.Accepts()) : kNever;
  }
  void Request(int64_t now, ReadPort* port) {
    const int64_t count = Burst();
    const ByteRange bytes{0, count * kInstructionBytes};
    const int64_t first = port->Read(now, BeatsOf(bytes, bytes_per_beat_));
    for (int64_t n = 1; n <= count; ++n)
      arrival_.push_back(first + BeatsOf({0, n * kInstructionBytes}, bytes_per_beat_));
  }

  // When the next instruction can leave the queue, and which it is.
  int64_t NextDispatch() const {
    if (dispatched_ == requested()) return kNever;
    return std::max(next_dispatch_, arrival_[static_cast<size_t>(dispatched_)]);
  }
  size_t next() const { return static_cast<size_t>(dispatched_); }
  void Dispatch(int64_t now) {
    const bool had_room = HasRoom();
    ++dispatched_;
    next_dispatch_ = now + 1;
    if (!had_room) room_ = now + 1;
  }

 private:
  int64_t requested() const { return static_cast<int64_t>(arrival_.size()); }
  bool HasRoom() const {
    return requested() < total_ && requested() + Burst() - dispatched_ <= queue_;
  }
  int64_t Burst() const { return std::min(burst_, total_ - requested()); }

  const int64_t total_, burst_, queue_, bytes_per_beat_;
  std::vector<int64_t> arrival_;  // of each instruction that was asked for
  int64_t dispatched_ = 0;
  int64_t next_dispatch_ = 0;
  int64_t room_ = 0;  // from when on the queue has room
};

}  // namespace tilewright::vta
