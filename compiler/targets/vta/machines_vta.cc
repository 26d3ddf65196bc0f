// The configurations of vta/isa with a name, the default first: what the memories of each hold.
#include "compiler/targets/kind_table.h"
#include "compiler/targets/vta/vta_codegen.h"
#include "vta/isa/config.h"
#include "vta/isa/timing.h"

namespace tilewright::vta {
namespace {

constexpr CycleTiming kTiming;

constexpr target::Machine MachineOf(std::string_view name, const Config& c) {
  return {.name = name,
          .features = "matrix",
          .matrix = {.name = "vta",
                     .block = c.block,
                     .inputs = c.inp,
                     .weights = c.wgt,
                     .sums = c.acc,
                     .micro_ops = c.uop,
                     .instructions = kMaxInstructions,
                     .padding = (int64_t{1} << c.pad_bits) - 1,
                     .sums_cycles = CycleTiming::kTwoOperandCycles,
                     .start_cycles = CycleTiming::kDecodeCycles + kTiming.pipeline_depth,
                     .bytes_per_cycle = kTiming.bytes_per_beat,
                     .load_cycles = kTiming.dram_latency},
          .rule_set = target::RuleSet::kMatrix};
}

constexpr target::Machine kVtaMachines[] = {
#define TW_VTA_PRESET(name, ...) MachineOf(#name, Config{__VA_ARGS__}),
#include "vta/isa/isa.def"
};

}  // namespace

constinit const target::Family kFamily = {.machines = kVtaMachines, .code_format = "vta-stream"};

}  // namespace tilewright::vta
