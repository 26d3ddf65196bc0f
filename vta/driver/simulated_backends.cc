#include "vta/driver/simulated_backends.h"

#include <utility>
#include <vector>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/driver/simulated_backend.h"
#include "vta/sim/functional_sim.h"
#include "vta/sim/stream_cycles.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

constexpr char kCycleUnit[] = "simulated_cycles";

class CycleModel final : public SimulatedBackend {
 public:
  explicit CycleModel(const CycleTiming& timing)
      : SimulatedBackend({.name = "vta cycle model",
                          .version = TimingText(timing),
                          .configs = NamesOfConfigs(),
                          .any_memories = true,
                          .unit = kCycleUnit,
                          .traced_timing = timing,
                          .memory_bytes = kSimulatedBytes}),
        timing_(timing) {}

  absl::StatusOr<int64_t> Run(const Isa& isa, const StreamRun& run) override {
    TW_ASSIGN(CycleReport report,
              RunCycles(isa, Fetched(run), timing_, /*seed=*/++runs_, &dram_, run.max_cycles));
    const int64_t cycles = report.cycles;
    if (run.report != nullptr) *run.report = std::move(report);
    return cycles;
  }

 private:
  const CycleTiming timing_;
  uint64_t runs_ = 0;
};

class FunctionalSimulator final : public SimulatedBackend {
 public:
  explicit FunctionalSimulator(uint64_t seed)
      : SimulatedBackend({.name = "vta functional simulator",
                          .version = "serial",
                          .configs = NamesOfConfigs(),
                          .any_memories = true,
                          .unit = kCycleUnit,
                          .memory_bytes = kSimulatedBytes}),
        seed_(seed) {}

  absl::StatusOr<int64_t> Run(const Isa& isa, const StreamRun& run) override {
    const std::vector<Word128> words = Fetched(run);
    std::vector<Instruction> stream;
    for (const Word128& word : words) {
      TW_ASSIGN(const Instruction instruction, isa.Decode(word));
      stream.push_back(instruction);
    }
    const int64_t cycles = SerialCycles(isa, stream, {});
    if (cycles > run.max_cycles) {
      return support::DeadlineExceeded(
          "vta.sim.timeout", StrCat("expected the end of the stream within ", run.max_cycles,
                                    " cycles, found ", cycles));
    }
    TW_TRY(RunFunctional(isa, words, seed_++, &dram_));
    return cycles;
  }

 private:
  uint64_t seed_;
};

}  // namespace

std::unique_ptr<Backend> MakeCycleModel(const CycleTiming& timing) {
  return std::make_unique<CycleModel>(timing);
}

std::unique_ptr<Backend> MakeFunctionalSimulator(uint64_t seed) {
  return std::make_unique<FunctionalSimulator>(seed);
}

}  // namespace tilewright::vta
