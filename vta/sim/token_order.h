// Which instructions of a stream are done before another starts, however fast the modules are: the
// order that tokens and the order inside each module give. The k-th pop of a queue waits for its
// k-th push, so every instruction has a vector clock. Pure functions; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "vta/sim/tokens.h"

namespace tilewright::vta {

// How many instructions of each module are done before.
using VectorClock = std::array<int64_t, kModules>;

struct TokenOrder {
  std::vector<VectorClock> before;  // of each instruction of the stream
  std::vector<size_t> sequence;     // all instructions in one order that respects the clocks
};

// vta.tokens.deadlock: an instruction that waits for ever; vta.tokens.balance: a queue with more
// pushes than pops. Takes linear time.
absl::StatusOr<TokenOrder> OrderOf(const Stream& stream);

// vta.tokens.finish: an instruction that may run after the finish.
absl::Status CheckFinishIsLast(const Stream& stream, const TokenOrder& order);

}  // namespace tilewright::vta
