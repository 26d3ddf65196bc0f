// What backends share whose DRAM is memory of this process. Objects belong to one thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "vta/driver/vta_backend.h"
#include "vta/sim/cycle_model.h"

namespace tilewright::vta {

inline constexpr int64_t kSimulatedBytes = int64_t{1} << 30;

// The names of all configurations that have one, with commas.
std::string NamesOfConfigs();
// What cycles depend on, as BackendInfo::version has it.
std::string TimingText(const CycleTiming& timing);

// The DRAM grows with its use.
class SimulatedBackend : public Backend {
 public:
  explicit SimulatedBackend(BackendInfo info) : info_(std::move(info)) {}

  const BackendInfo& info() const override { return info_; }
  absl::Status CheckConfig(const Config& config) const override { return vta::CheckConfig(config); }
  absl::Status Grow(int64_t bytes) override;
  std::span<uint8_t> memory() override { return dram_; }

 protected:
  // The instructions as the fetch finds them in DRAM.
  std::vector<Word128> Fetched(const StreamRun& run) const;

  const BackendInfo info_;
  std::vector<uint8_t> dram_;
};

}  // namespace tilewright::vta
