#include <time.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <set>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "tests/bench/vta_layer_run.h"
#include "vta/rtl/rtl_sim.h"
#include "vta/sim/functional_sim.h"

namespace tilewright::bench {
namespace {

using support::StrCat;

constexpr uint64_t kRtlSeed = 1;      // of operands, and of what on-chip memories hold at first
constexpr size_t kLeastResults = 12;  // that differ

// Of processor time: other work on the machine counts less.
double ProcessorSeconds() {
  return static_cast<double>(support::ReadClockNs(CLOCK_PROCESS_CPUTIME_ID)) * 1e-9;
}

// Writes random numbers from `low` to `high` over a parameter, as integers of type T.
template <typename T>
void Fill(const vta::Program::Param& param, int64_t low, int64_t high, support::Rng* rng,
          std::vector<uint8_t>* image) {
  for (int64_t at = param.offset; at < param.offset + param.bytes; at += sizeof(T)) {
    const T value = static_cast<T>(rng->UniformInt(low, high));
    std::memcpy(image->data() + at, &value, sizeof value);
  }
}

// The parameters are image, weights, bias, multipliers and result. The ranges are such that relu
// and saturation meet some sums and not others.
std::vector<uint8_t> FilledImage(const vta::Program& code, std::vector<uint8_t> image) {
  TW_CHECK(code.params.size() == 5);
  support::Rng rng(kRtlSeed);
  Fill<int8_t>(code.params[0], -128, 127, &rng, &image);
  Fill<int8_t>(code.params[1], -16, 16, &rng, &image);
  Fill<int32_t>(code.params[2], -4000, 4000, &rng, &image);
  Fill<int32_t>(code.params[3], 1, 20, &rng, &image);
  return image;
}

absl::Status CheckSame(const char* device, const std::vector<uint8_t>& expected,
                       const std::vector<uint8_t>& found) {
  const auto at = std::mismatch(expected.begin(), expected.end(), found.begin()).first;
  if (at == expected.end()) return absl::OkStatus();
  return support::Internal("bench.rtl.image",
                           StrCat(device,
                                  ": expected the image of the functional simulator, found "
                                  "another byte at ",
                                  at - expected.begin()));
}

}  // namespace

absl::StatusOr<RtlRun> RunOnRtl(const VtaProgram& program) {
  TW_ASSIGN(const vta::Isa isa, vta::Isa::Make(program.code.config));
  const vta::Program& code = program.code.programs.at(0);
  TW_ASSIGN(const std::vector<vta::Word128> words, code.Encoded(isa));
  TW_ASSIGN(std::vector<uint8_t> expected, code.Image(isa));
  expected = FilledImage(code, std::move(expected));
  std::vector<uint8_t> modelled = expected, real = expected;
  TW_TRY(vta::RunFunctional(isa, words, kRtlSeed, &expected));
  const vta::Program::Param& result = code.params.back();
  const auto first = expected.begin() + result.offset;
  if (std::set<uint8_t>(first, first + result.bytes).size() < kLeastResults)
    return support::Internal("bench.rtl.image", "expected results that differ from each other");
  TW_TRY(vta::RunCycles(isa, words, {}, kRtlSeed, &modelled).status());
  TW_TRY(CheckSame("cycle model", expected, modelled));
  TW_ASSIGN(const std::unique_ptr<vta::RtlSim> rtl, vta::RtlSim::Make(isa.config(), kRtlSeed));
  const double start = ProcessorSeconds();
  TW_ASSIGN(const vta::RtlReport report,
            rtl->Run(words, {.dram_latency = vta::CycleTiming().dram_latency}, &real));
  const double seconds = ProcessorSeconds() - start;
  TW_TRY(CheckSame("RTL", expected, real));
  return RtlRun{.cycles = report.cycles, .seconds = seconds};
}

}  // namespace tilewright::bench
