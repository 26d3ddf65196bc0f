// Times in messages (google.protobuf.Duration and Timestamp, or any type with seconds and nanos) as
// integers. A message may hold any number: more than ten years count as ten years, so that sums
// with a clock's reading never overflow. To write such messages: google::protobuf::util::TimeUtil.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tilewright::support {

inline constexpr int64_t kLongestDurationS = int64_t{10} * 365 * 24 * 3600;
inline constexpr int64_t kLastUnixSecond = 253'402'300'799;  // of the year 9999

// In nanoseconds; negative for negative ones.
template <typename Duration>
int64_t DurationNs(const Duration& duration) {
  const int64_t seconds = std::clamp<int64_t>(static_cast<int64_t>(duration.seconds()),
                                              -kLongestDurationS, kLongestDurationS);
  return seconds * 1'000'000'000 + duration.nanos();
}

// In whole milliseconds, rounded towards zero.
template <typename Duration>
int64_t DurationMs(const Duration& duration) {
  return DurationNs(duration) / 1'000'000;
}

// In microseconds since 1970; no earlier than that and no later than the year 9999.
template <typename Timestamp>
int64_t UnixMicros(const Timestamp& time) {
  const int64_t seconds =
      std::clamp<int64_t>(static_cast<int64_t>(time.seconds()), 0, kLastUnixSecond);
  return seconds * 1'000'000 + std::clamp<int64_t>(time.nanos(), 0, 999'999'999) / 1000;
}

}  // namespace tilewright::support
