// Time as an argument. Logic that depends on time takes a Clock&, so that tests and replays decide
// what time it is. SystemClock is stateless; FakeClock may be advanced from any thread.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace tilewright::support {

class Clock {
 public:
  virtual ~Clock() = default;
  // Nanoseconds from an arbitrary start; never goes back. For durations and deadlines.
  virtual int64_t NowNs() = 0;
  // Microseconds since the Unix epoch. For records that people read; may jump.
  virtual int64_t WallMicros() = 0;
};

class SystemClock : public Clock {
 public:
  int64_t NowNs() override;
  int64_t WallMicros() override;
};

// Advances only when a test calls AdvanceNs.
class FakeClock : public Clock {
 public:
  explicit FakeClock(int64_t now_ns = 0, int64_t wall_micros = 1'700'000'000'000'000)
      : now_ns_(now_ns), wall_micros_(wall_micros) {}
  int64_t NowNs() override { return now_ns_.load(); }
  int64_t WallMicros() override { return wall_micros_.load(); }
  // Moves both clocks forward. REQUIRES: delta_ns >= 0.
  void AdvanceNs(int64_t delta_ns) {
    now_ns_ += delta_ns;
    wall_micros_ += delta_ns / 1000;
  }
  // Moves the wall clock alone, as an administrator would.
  void SetWallMicros(int64_t wall_micros) { wall_micros_ = wall_micros; }

 private:
  std::atomic<int64_t> now_ns_;
  std::atomic<int64_t> wall_micros_;
};

// Nanoseconds of one of the system's clocks: a thread's processor time, CLOCK_MONOTONIC.
int64_t ReadClockNs(clockid_t clock);

// Blocks the calling thread. For polling loops of mains and tests; logic waits on conditions.
void SleepMs(int64_t milliseconds);

}  // namespace tilewright::support
