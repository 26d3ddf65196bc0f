// GPUs by the name of their instruction set. No such GPU has run anything of this yet: limits and
// sizes are those of the vendor's public documents (the "HIP hardware features" tables of ROCm; the
// instruction set manuals of CDNA 2, CDNA 3 and RDNA 3; the white papers of MI200 and MI300X; the
// product page of the RX 7900 XTX). Latencies and the costs of launches and barriers are typical
// figures, not measured ones.
#include "compiler/targets/kind_table.h"

namespace tilewright::hip {
namespace {

constexpr int64_t KiB = 1 << 10;
constexpr int64_t MiB = 1 << 20;

// What differs between the machines; a unit is a compute unit.
struct Facts {
  std::string_view name, features;
  int64_t units, warp;
  double fma_per_cycle;  // of warps; packed and dual operations are not counted
  int64_t unit_threads, unit_registers;
  int64_t l1_bytes, l2_bytes, l2_sharers, l3_bytes;
  double l3_bytes_per_cycle, memory_bytes_per_cycle, clock_ghz;
};

// A group has 64 KiB of local memory on all of them. A thread's operation computes one float.
constexpr target::Machine Row(const Facts& f) {
  return {.name = f.name,
          .features = f.features,
          .fma_per_cycle = f.fma_per_cycle,
          .loads_per_cycle = 1,
          .sums_in_flight = 16,
          .divide_cycles = 8,
          .special_cycles = 4,
          .spill_cycles = 2,
          .searched_body_ops = 512,
          .searched_tile = {.rows = 16, .steps = 64},
          .short_reduction = 16,
          .l1 = {.bytes = f.l1_bytes, .bytes_per_cycle = 64, .line_bytes = 128},
          .l2 = {.bytes = f.l2_bytes / f.l2_sharers,
                 .sharers = static_cast<int>(f.l2_sharers),
                 .bytes_per_cycle = 64,
                 .line_bytes = 128},
          .l3 = {.bytes = f.l3_bytes / f.units,
                 .sharers = static_cast<int>(f.units),
                 .bytes_per_cycle = f.l3_bytes_per_cycle,
                 .line_bytes = 128},
          .memory_bytes_per_cycle = f.memory_bytes_per_cycle,
          .clock_ghz = f.clock_ghz,
          .launch = {.group_threads = 1024,
                     .groups_yz = 65535,
                     .shared_bytes = 64 * KiB,
                     .registers = 200,
                     .usual_threads = 256,
                     .warp = f.warp,
                     .sub_groups = true,
                     .unit_threads = f.unit_threads,
                     .unit_shared_bytes = 64 * KiB,
                     .unit_registers = f.unit_registers,
                     .units = f.units,
                     .busy_threads = f.units * f.unit_threads,
                     .thread_bytes = 4,
                     .load_bytes = 16,
                     .transaction_bytes = 64,
                     .shared_banks = 32,
                     .launch_ns = 6'000,
                     .group_ns = 20,
                     .barrier_cycles = 4,
                     .load_latency = 300,
                     .shared_latency = 64},
          .rule_set = target::RuleSet::kGroups,
          .feature_set = target::FeatureSet::kGroups};
}

constexpr target::Machine kHipMachines[] = {
    // One of the two dies of an MI250X, which is a device of its own. It has no third cache.
    Row({.name = "gfx90a",
         .features = "fma,gfx90a",
         .units = 110,
         .warp = 64,
         .fma_per_cycle = 1,
         .unit_threads = 2048,
         .unit_registers = 128 << 10,
         .l1_bytes = 16 * KiB,
         .l2_bytes = 8 * MiB,
         .l2_sharers = 110,
         .l3_bytes = 8 * MiB,
         .l3_bytes_per_cycle = 64,
         .memory_bytes_per_cycle = 8.8,
         .clock_ghz = 1.7}),
    // MI300X: eight dies of 38 units share a cache of 256 MiB.
    Row({.name = "gfx942",
         .features = "fma,gfx942",
         .units = 304,
         .warp = 64,
         .fma_per_cycle = 1,
         .unit_threads = 2048,
         .unit_registers = 128 << 10,
         .l1_bytes = 32 * KiB,
         .l2_bytes = 4 * MiB,
         .l2_sharers = 38,
         .l3_bytes = 256 * MiB,
         .l3_bytes_per_cycle = 26,
         .memory_bytes_per_cycle = 8.3,
         .clock_ghz = 2.1}),
    // RX 7900 XTX.
    Row({.name = "gfx1100",
         .features = "fma,gfx1100",
         .units = 96,
         .warp = 32,
         .fma_per_cycle = 2,
         .unit_threads = 1024,
         .unit_registers = 96 << 10,
         .l1_bytes = 32 * KiB,
         .l2_bytes = 6 * MiB,
         .l2_sharers = 96,
         .l3_bytes = 96 * MiB,
         .l3_bytes_per_cycle = 14,
         .memory_bytes_per_cycle = 4,
         .clock_ghz = 2.5}),
};

}  // namespace

constinit const target::Family kFamily = {.machine_key = "arch",
                                          .machines = kHipMachines,
                                          .code_format = "hsaco",
                                          .predictor = target::Predictor::kEstimate,
                                          .has_plugin = false};

}  // namespace tilewright::hip
