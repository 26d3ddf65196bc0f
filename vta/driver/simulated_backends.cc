#include "vta/driver/simulated_backends.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/sim/functional_sim.h"
#include "vta/sim/stream_cycles.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

constexpr int64_t kSimulatedBytes = int64_t{1} << 30;
constexpr char kCycleUnit[] = "simulated_cycles";

// The DRAM, and the stream as the fetch finds it there.
class SimulatedBackend : public Backend {
 public:
  explicit SimulatedBackend(BackendInfo info) : info_(std::move(info)) {}

  const BackendInfo& info() const override { return info_; }
  absl::Status CheckConfig(const Config& config) const override { return vta::CheckConfig(config); }
  absl::Status Grow(int64_t bytes) override {
    const auto wanted = static_cast<size_t>(bytes);
    if (bytes > info_.memory_bytes) {
      return support::ResourceExhausted(
          "vta.driver.memory",
          StrCat("expected at most ", info_.memory_bytes, " bytes, found ", bytes));
    }
    if (wanted <= dram_.size()) return absl::OkStatus();
    const auto most = static_cast<size_t>(info_.memory_bytes);
    dram_.resize(std::min(most, std::max(wanted, 2 * dram_.size())));
    return absl::OkStatus();
  }
  std::span<uint8_t> memory() override { return dram_; }

 protected:
  std::vector<Word128> Fetched(const StreamRun& run) const {
    std::vector<Word128> words(static_cast<size_t>(run.count));
    static_assert(sizeof(Word128) == 16);
    std::memcpy(words.data(), dram_.data() + run.address, words.size() * sizeof(Word128));
    return words;
  }

  const BackendInfo info_;
  std::vector<uint8_t> dram_;
};

std::string AllConfigs() {
  std::vector<std::string_view> names;
  for (const NamedConfig& named : NamedConfigs()) names.push_back(named.name);
  return support::Join(names, ",");
}

std::string TimingText(const CycleTiming& t) {
  return StrCat("dram_latency=", t.dram_latency, ",bytes_per_beat=", t.bytes_per_beat,
                ",outstanding=", t.outstanding, ",burst_beats=", t.burst_beats,
                ",fetch_burst=", t.fetch_burst, ",fetch_queue=", t.fetch_queue,
                ",module_queue=", t.module_queue, ",token_depth=", t.token_depth,
                ",pipeline_depth=", t.pipeline_depth);
}

class CycleModel final : public SimulatedBackend {
 public:
  explicit CycleModel(const CycleTiming& timing)
      : SimulatedBackend({.name = "vta cycle model",
                          .version = TimingText(timing),
                          .configs = AllConfigs(),
                          .unit = kCycleUnit,
                          .memory_bytes = kSimulatedBytes}),
        timing_(timing) {}

  absl::StatusOr<int64_t> Run(const Isa& isa, const StreamRun& run) override {
    TW_ASSIGN(const CycleReport report,
              RunCycles(isa, Fetched(run), timing_, /*seed=*/++runs_, &dram_, run.max_cycles));
    return report.cycles;
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
                          .configs = AllConfigs(),
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
