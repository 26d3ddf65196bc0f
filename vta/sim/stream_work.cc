#include "vta/sim/stream_work.h"

#include <algorithm>

#include "vta/sim/stream_cycles.h"

namespace tilewright::vta {

StreamWork WorkOf(std::span<const Instruction> stream, const CycleReport& report,
                  const CycleTiming& timing) {
  StreamWork work{.peak_products = 1, .peak_bytes = static_cast<double>(timing.bytes_per_beat)};
  for (const Instruction& i : stream) {
    const bool product = i.op == Opcode::kGemm && i.reset == 0;
    if (product) work.products += LoopCycles(i, /*pipeline_depth=*/0);
  }
  work.bytes = std::max(report.read_beats, report.write_beats) * timing.bytes_per_beat;
  return work;
}

}  // namespace tilewright::vta
