// How far a stream has run: the next instruction of each module and the tokens in the queues. What
// the simulators share; which module goes next, and when, is theirs. Not thread-safe.
#pragma once

#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "vta/sim/tokens.h"

namespace tilewright::vta {

class StreamProgress {
 public:
  // `stream` outlives it.
  explicit StreamProgress(const Stream& stream) : stream_(stream) {}

  bool HasWork(size_t module) const { return next_[module] < stream_.of[module].size(); }
  // The next instruction of a module. REQUIRES: HasWork(module).
  size_t Head(size_t module) const { return stream_.of[module][next_[module]]; }
  // Whether the tokens are there that it waits for. REQUIRES: HasWork(module).
  bool HeadHasTokens(size_t module) const;
  // The next instruction starts: takes its tokens and returns it. REQUIRES: HeadHasTokens(module).
  size_t Start(size_t module);
  // Whether the queues with at most `depth` tokens have room for those that it gives.
  bool HasRoom(size_t instruction, int64_t depth) const;
  // An instruction is done and gives its tokens.
  void End(size_t instruction);

  // vta.sim.finish: instructions that have not started. For the finish.
  absl::Status CheckAllStarted() const;
  // vta.sim.tokens: tokens are left. For the end.
  absl::Status CheckNoTokens() const;
  // The error vta.sim.deadlock, with what each module waits for.
  absl::Status Deadlock() const;

 private:
  const Stream& stream_;
  std::array<size_t, kModules> next_ = {};
  std::array<int64_t, kNumTokenQueues> tokens_ = {};
};

}  // namespace tilewright::vta
