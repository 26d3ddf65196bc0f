// The seed of a randomised test, always printed, so that any failure can be repeated. Stateless.
#pragma once

#include <cstdint>

namespace tilewright::tests {

// TILEWRIGHT_SEED where it is set, else `standard`.
uint64_t TestSeed(uint64_t standard = 1);

// How many rounds a randomised test runs: `standard`, or TILEWRIGHT_ROUNDS for a long run at night.
int64_t TestRounds(int64_t standard);

}  // namespace tilewright::tests
