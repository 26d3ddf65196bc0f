#include "vta/driver/simulated_backend.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::vta {

using support::StrCat;

std::string NamesOfConfigs() {
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

absl::Status SimulatedBackend::Grow(int64_t bytes) {
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

std::vector<Word128> SimulatedBackend::Fetched(const StreamRun& run) const {
  std::vector<Word128> words(static_cast<size_t>(run.count));
  static_assert(sizeof(Word128) == 16);
  std::memcpy(words.data(), dram_.data() + run.address, words.size() * sizeof(Word128));
  return words;
}

}  // namespace tilewright::vta
