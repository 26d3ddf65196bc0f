#include "vta/sim/functional_sim.h"

#include <array>

#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/sim/stream_progress.h"
#include "vta/sim/tokens.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

absl::Status RunInRandomOrder(const Stream& stream, uint64_t seed, Datapath* datapath) {
  support::Rng rng = support::Rng(seed).Split("order");
  StreamProgress progress(stream);
  for (size_t left = stream.size(); left > 0; --left) {
    std::array<size_t, kModules> ready;
    size_t count = 0;
    for (size_t m = 0; m < kModules; ++m) {
      if (progress.HasWork(m) && progress.HeadHasTokens(m)) ready[count++] = m;
    }
    if (count == 0) return progress.Deadlock();
    const size_t index = progress.Start(ready[rng.Uniform(count)]);
    const Instruction& i = stream.instructions[index];
    absl::Status status = datapath->Execute(i);
    if (status.ok() && i.op == Opcode::kFinish) status = progress.CheckAllStarted();
    if (!status.ok()) return support::WithContext(status, StrCat("instruction ", index));
    progress.End(index);
  }
  return progress.CheckNoTokens();
}

}  // namespace

absl::Status RunFunctional(const Isa& isa, std::span<const Word128> words, uint64_t seed,
                           std::vector<uint8_t>* dram, SimCounters* counters) {
  TW_ASSIGN(const Stream stream, ReadStream(isa, words));
  Datapath datapath(isa, seed, dram);
  const absl::Status status = RunInRandomOrder(stream, seed, &datapath);
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
