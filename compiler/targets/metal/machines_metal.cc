// Apple's GPUs by the names of Metal's families. No such GPU has run anything of this yet. Limits
// are those of Apple's "Metal Feature Set Tables". Numbers that differ between devices are those of
// the M1, the smallest desktop chip of its family: cores, clock and memory by its public
// specification, registers and shared memory of a core by published microbenchmarks. Costs of
// launches and barriers are typical figures, not measured ones.
#include "compiler/targets/kind_table.h"

namespace tilewright::metal {
namespace {

constexpr int64_t KiB = 1 << 10;
constexpr int64_t MiB = 1 << 20;
constexpr int64_t kCores = 8, kCoreThreads = 1024;

// Code for apple7 runs on all later families: functions of simdgroups begin there.
constexpr target::Machine kMetalMachines[] = {
    {.name = "apple7",
     .features = "fma,apple7",
     // Of simdgroups, by the four parts of a core together.
     .fma_per_cycle = 4,
     .loads_per_cycle = 1,
     .sums_in_flight = 16,
     .divide_cycles = 6,
     .special_cycles = 4,
     .spill_cycles = 4,
     .searched_body_ops = 512,
     .searched_tile = {.rows = 16, .steps = 64},
     .short_reduction = 16,
     .l1 = {.bytes = 8 * KiB, .bytes_per_cycle = 64},
     .l2 = {.bytes = 768 * KiB / kCores, .sharers = kCores, .bytes_per_cycle = 32},
     .l3 = {.bytes = 8 * MiB / kCores, .sharers = kCores, .bytes_per_cycle = 16},
     .memory_bytes_per_cycle = 6.7,
     .clock_ghz = 1.28,
     .launch = {.group_threads = 1024,
                .shared_bytes = 32 * KiB,
                .registers = 100,
                .usual_threads = 128,
                .warp = 32,
                .sub_groups = true,
                .unit_threads = kCoreThreads,
                .unit_shared_bytes = 60 * KiB,
                .unit_registers = 208 * KiB / 4,
                .units = kCores,
                .busy_threads = kCores * kCoreThreads,
                .thread_bytes = 4,
                .load_bytes = 16,
                .transaction_bytes = 64,
                .shared_banks = 32,
                .launch_ns = 10'000,
                .group_ns = 50,
                .barrier_cycles = 4,
                .load_latency = 300,
                .shared_latency = 30},
     .rule_set = target::RuleSet::kGroups,
     .feature_set = target::FeatureSet::kGroups},
};

}  // namespace

constinit const target::Family kFamily = {.machine_key = "arch",
                                          .machines = kMetalMachines,
                                          .code_format = "msl",
                                          .driver_compiles = true,
                                          .predictor = target::Predictor::kEstimate,
                                          .has_plugin = false};

}  // namespace tilewright::metal
