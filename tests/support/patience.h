// How long a test waits for others before it calls them stuck. The one place that knows that
// programs under a sanitizer take many times as long: what is written in a test is meant for an
// ordinary build. Not for times that are part of what is tested (leases, holds, rates).
#pragma once

#include <cstdint>

namespace tilewright::tests {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int64_t kSlowdown = 10;
#else
inline constexpr int64_t kSlowdown = 1;
#endif

constexpr int64_t Patiently(int64_t milliseconds) { return milliseconds * kSlowdown; }

}  // namespace tilewright::tests
