#include "vta/sim/stream_progress.h"

#include <string>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vta {

using support::StrCat;

bool StreamProgress::HeadHasTokens(size_t module) const {
  const TokenSet pops = PopsOf(stream_.instructions[Head(module)]);
  for (size_t q = 0; q < kNumTokenQueues; ++q) {
    if (pops[q] && tokens_[q] == 0) return false;
  }
  return true;
}

size_t StreamProgress::Start(size_t module) {
  const size_t index = Head(module);
  const TokenSet pops = PopsOf(stream_.instructions[index]);
  for (size_t q = 0; q < kNumTokenQueues; ++q) tokens_[q] -= pops[q];
  ++next_[module];
  return index;
}

bool StreamProgress::HasRoom(size_t instruction, int64_t depth) const {
  const TokenSet pushes = PushesOf(stream_.instructions[instruction]);
  for (size_t q = 0; q < kNumTokenQueues; ++q) {
    if (pushes[q] && tokens_[q] >= depth) return false;
  }
  return true;
}

void StreamProgress::End(size_t instruction) {
  const TokenSet pushes = PushesOf(stream_.instructions[instruction]);
  for (size_t q = 0; q < kNumTokenQueues; ++q) tokens_[q] += pushes[q];
}

absl::Status StreamProgress::CheckAllStarted() const {
  for (size_t m = 0; m < kModules; ++m) {
    if (!HasWork(m)) continue;
    return support::FailedPrecondition("vta.sim.finish",
                                       StrCat("expected all work to be done at finish, found ",
                                              Disassemble(stream_.instructions[Head(m)])));
  }
  return absl::OkStatus();
}

absl::Status StreamProgress::CheckNoTokens() const {
  for (size_t q = 0; q < kNumTokenQueues; ++q) {
    if (tokens_[q] == 0) continue;
    return support::FailedPrecondition(
        "vta.sim.tokens",
        StrCat("expected no tokens at the end, found ", tokens_[q], " from ", TokenQueueText(q)));
  }
  return absl::OkStatus();
}

absl::Status StreamProgress::Deadlock() const {
  std::string heads;
  for (size_t m = 0; m < kModules; ++m) {
    if (HasWork(m))
      heads += StrCat("; ", Head(m), ": ", Disassemble(stream_.instructions[Head(m)]));
  }
  return support::FailedPrecondition(
      "vta.sim.deadlock", StrCat("expected a module that can continue, found none", heads));
}

}  // namespace tilewright::vta
