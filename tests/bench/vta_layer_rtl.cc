#include <time.h>

#include <memory>
#include <vector>

#include "deploy/support/clock.h"
#include "deploy/support/status.h"
#include "tests/bench/vta_layer_run.h"
#include "vta/rtl/rtl_sim.h"

namespace tilewright::bench {
namespace {

// Of processor time: other work on the machine counts less.
double ProcessorSeconds() {
  return static_cast<double>(support::ReadClockNs(CLOCK_PROCESS_CPUTIME_ID)) * 1e-9;
}

}  // namespace

absl::StatusOr<RtlRun> RunOnRtl(const VtaProgram& program) {
  TW_ASSIGN(const vta::Isa isa, vta::Isa::Make(program.code.config));
  const vta::Program& code = program.code.programs.at(0);
  TW_ASSIGN(const std::vector<vta::Word128> words, code.Encoded(isa));
  TW_ASSIGN(const SimulatedRun run, RunOnSimulators(program));
  std::vector<uint8_t> real = run.operands;
  TW_ASSIGN(const std::unique_ptr<vta::RtlSim> rtl, vta::RtlSim::Make(isa.config(), kImageSeed));
  const double start = ProcessorSeconds();
  TW_ASSIGN(const vta::RtlReport report,
            rtl->Run(words, {.dram_latency = vta::CycleTiming().dram_latency}, &real));
  const double seconds = ProcessorSeconds() - start;
  TW_TRY(CheckSameImage("RTL", run.image, real));
  return RtlRun{.cycles = report.cycles, .seconds = seconds};
}

}  // namespace tilewright::bench
