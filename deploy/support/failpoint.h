// Named places in the product where a test lets the process die as kill -9 does, so that tests meet
// the worst moments on purpose. Outside tests no failpoint is armed, and a place costs one load and
// a branch. All names are rows of failpoints.def. Thread-safe.
//
// The one mutable global of the product: a failpoint belongs to no object.
#pragma once

#include <array>
#include <atomic>
#include <string_view>

#include "deploy/support/status.h"

namespace tilewright::support {

enum class Failpoint : int {
#define TW_FAILPOINT(identifier, name) identifier,
#include "deploy/support/failpoints.def"
#undef TW_FAILPOINT
};

inline constexpr auto kFailpointNames = std::to_array<std::string_view>({
#define TW_FAILPOINT(identifier, name) name,
#include "deploy/support/failpoints.def"
#undef TW_FAILPOINT
});

// "NAME=N": the process dies when it is at NAME for the N-th time, N from 1. Arms one failpoint;
// the last call counts. invalid_argument (support.failpoint.invalid) for anything else.
absl::Status ArmFailpoint(std::string_view spec);

namespace internal {
inline std::atomic<int> armed_failpoint{-1};
void CountDownFailpoint();
}  // namespace internal

inline void HitFailpoint(Failpoint point) {
  if (internal::armed_failpoint.load(std::memory_order_relaxed) != static_cast<int>(point)) return;
  internal::CountDownFailpoint();
}

}  // namespace tilewright::support
