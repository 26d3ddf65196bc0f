#include "vta/driver/rtl_backend.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/driver/simulated_backend.h"
#include "vta/rtl/rtl_sim.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

constexpr char kRtlUnit[] = "rtl_cycles";
constexpr uint64_t kSeed = 1;  // of what on-chip memories hold at first

class RtlBackend final : public SimulatedBackend {
 public:
  explicit RtlBackend(int64_t dram_latency)
      : SimulatedBackend({.name = "vta rtl",
                          .version = StrCat("dram_latency=", dram_latency),
                          .configs = NamesOfConfigs(),
                          .unit = kRtlUnit,
                          .memory_bytes = kSimulatedBytes}),
        dram_latency_(dram_latency) {}

  absl::Status CheckConfig(const Config& config) const override {
    const auto named = NamedConfigs();
    if (std::any_of(named.begin(), named.end(),
                    [&](const NamedConfig& row) { return row.config == config; })) {
      return absl::OkStatus();
    }
    return support::FailedPrecondition(
        "vta.config.other",
        StrCat("expected one of ", info_.configs, ", which have models, found code for ",
               config.ToString(), "; compile for one of them"));
  }

  absl::StatusOr<int64_t> Run(const Isa& isa, const StreamRun& run) override {
    // A model has state of megabytes, so only those in use exist.
    std::unique_ptr<RtlSim>& sim = sims_[isa.config().Id()];
    if (sim == nullptr) {
      TW_ASSIGN(sim, RtlSim::Make(isa.config(), kSeed));
    }
    TW_ASSIGN(const RtlReport report,
              sim->Run({.address = run.address, .count = run.count},
                       {.dram_latency = dram_latency_, .max_cycles = run.max_cycles}, dram_));
    return report.cycles;
  }

 private:
  const int64_t dram_latency_;
  std::map<std::string, std::unique_ptr<RtlSim>> sims_;  // by the configuration's identifier
};

}  // namespace

std::unique_ptr<Backend> MakeRtl(int64_t dram_latency) {
  return std::make_unique<RtlBackend>(dram_latency);
}

}  // namespace tilewright::vta
