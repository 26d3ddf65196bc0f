#include "vta/sim/functional_sim.h"

#include <array>
#include <string>

#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/sim/tokens.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

// Instructions of each module in order; among modules that have their tokens, the seed decides.
class RandomOrder {
 public:
  RandomOrder(const Stream& stream, uint64_t seed, Datapath* datapath)
      : stream_(stream), rng_(support::Rng(seed).Split("order")), datapath_(*datapath) {}

  absl::Status Run();

 private:
  bool HasWork(size_t module) const { return next_[module] < stream_.of[module].size(); }
  size_t Head(size_t module) const { return stream_.of[module][next_[module]]; }
  bool IsReady(size_t module) const;
  absl::Status Step(size_t module);
  absl::Status CheckFinish() const;
  absl::Status Deadlock() const;

  const Stream& stream_;
  support::Rng rng_;
  Datapath& datapath_;
  std::array<size_t, kModules> next_ = {};
  std::array<int64_t, kNumTokenQueues> tokens_ = {};
};

bool RandomOrder::IsReady(size_t module) const {
  if (!HasWork(module)) return false;
  const TokenSet pops = PopsOf(stream_.instructions[Head(module)]);
  for (size_t q = 0; q < kNumTokenQueues; ++q) {
    if (pops[q] && tokens_[q] == 0) return false;
  }
  return true;
}

absl::Status RandomOrder::CheckFinish() const {
  for (size_t m = 0; m < kModules; ++m) {
    if (!HasWork(m)) continue;
    return support::FailedPrecondition("vta.sim.finish",
                                       StrCat("expected all work to be done at finish, found ",
                                              Disassemble(stream_.instructions[Head(m)])));
  }
  return absl::OkStatus();
}

absl::Status RandomOrder::Step(size_t module) {
  const size_t index = Head(module);
  const Instruction& i = stream_.instructions[index];
  const TokenSet pops = PopsOf(i), pushes = PushesOf(i);
  for (size_t q = 0; q < kNumTokenQueues; ++q) tokens_[q] -= pops[q];
  ++next_[module];
  absl::Status status = datapath_.Execute(i);
  if (status.ok() && i.op == Opcode::kFinish) status = CheckFinish();
  if (!status.ok()) return support::WithContext(status, StrCat("instruction ", index));
  for (size_t q = 0; q < kNumTokenQueues; ++q) tokens_[q] += pushes[q];
  return absl::OkStatus();
}

absl::Status RandomOrder::Deadlock() const {
  std::string heads;
  for (size_t m = 0; m < kModules; ++m) {
    if (HasWork(m))
      heads += StrCat("; ", Head(m), ": ", Disassemble(stream_.instructions[Head(m)]));
  }
  return support::FailedPrecondition(
      "vta.sim.deadlock", StrCat("expected a module that can continue, found none", heads));
}

absl::Status RandomOrder::Run() {
  for (size_t left = stream_.size(); left > 0; --left) {
    std::array<size_t, kModules> ready;
    size_t count = 0;
    for (size_t m = 0; m < kModules; ++m) {
      if (IsReady(m)) ready[count++] = m;
    }
    if (count == 0) return Deadlock();
    TW_TRY(Step(ready[rng_.Uniform(count)]));
  }
  for (size_t q = 0; q < kNumTokenQueues; ++q) {
    if (tokens_[q] == 0) continue;
    return support::FailedPrecondition(
        "vta.sim.tokens",
        StrCat("expected no tokens at the end, found ", tokens_[q], " from ", TokenQueueText(q)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunFunctional(const Isa& isa, std::span<const Word128> words, uint64_t seed,
                           std::vector<uint8_t>* dram, SimCounters* counters) {
  TW_ASSIGN(const Stream stream, ReadStream(isa, words));
  Datapath datapath(isa, seed, dram);
  const absl::Status status = RandomOrder(stream, seed, &datapath).Run();
  if (counters != nullptr) *counters = datapath.counters();
  return status;
}

absl::Status RunFunctional(const Isa& isa, const CodeObject& code, size_t program, uint64_t seed,
                           std::vector<uint8_t>* dram, SimCounters* counters) {
  TW_TRY(CheckSameConfig(isa.config(), code.config));
  TW_ASSIGN(const std::vector<Word128> words, code.programs.at(program).Encoded(isa));
  return RunFunctional(isa, words, seed, dram, counters);
}

}  // namespace tilewright::vta
