#include "tests/support/test_seed.h"

#include <cstdio>
#include <string>

#include "deploy/support/env.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {

uint64_t TestSeed(uint64_t standard) {
  uint64_t seed = standard;
  if (const auto text = support::GetEnv("TILEWRIGHT_SEED")) {
    const auto parsed = support::ParseUint64(*text);
    TW_CHECK(parsed.has_value()) << "TILEWRIGHT_SEED: expected a number, found " << *text;
    seed = *parsed;
  }
  std::printf("[SEED] TILEWRIGHT_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

int64_t TestRounds(int64_t standard) {
  const auto text = support::GetEnv("TILEWRIGHT_ROUNDS");
  if (!text.has_value()) return standard;
  const auto parsed = support::ParseInt64(*text);
  TW_CHECK(parsed.has_value() && *parsed > 0)
      << "TILEWRIGHT_ROUNDS: expected a positive number, found " << *text;
  return *parsed;
}

}  // namespace tilewright::tests
