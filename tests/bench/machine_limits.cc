// What this machine can do at most, as one JSON document: its FMA peak and, for working sets of the
// given sizes, what can be read per second.
//   machine_limits [--threads N] BYTES...
#include <CLI/CLI.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "deploy/peaks/fma_peak.h"
#include "deploy/peaks/read_bandwidth.h"
#include "deploy/runtime/cpu_info.h"

int main(int argc, char** argv) {
  int threads = 1;
  std::vector<size_t> sizes;
  CLI::App app("Peak and bandwidth of this machine");
  app.add_option("--threads", threads, "Threads that work at once");
  app.add_option("BYTES", sizes, "Sizes of working sets");
  CLI11_PARSE(app, argc, argv);
  constexpr int64_t kRoundMs = 200;
  nlohmann::json reads = nlohmann::json::array();
  for (const size_t bytes : sizes) {
    reads.push_back({{"bytes", bytes}, {"gb_s", tilewright::peaks::ReadBandwidth(bytes, threads)}});
  }
  const double gflop_s =
      tilewright::peaks::MeasureFmaPeak(tilewright::runtime::DetectCpu(), threads, kRoundMs);
  printf(
      "%s\n",
      nlohmann::json({{"threads", threads}, {"gflop_s", gflop_s}, {"read", reads}}).dump().c_str());
  return 0;
}
