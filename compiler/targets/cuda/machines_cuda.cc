// GPUs by the name of their instruction set. Sources: the vendor's programming guide (limits of a
// launch and of a multiprocessor), its white papers (multiprocessors, memories, clocks). Latencies
// and the costs of launches and barriers are typical figures of published measurements, or what
// orders kernels best that an H100 measured (tests/bench/results/gpu_estimate.txt).
#include "compiler/targets/kind_table.h"

namespace tilewright::cuda {
namespace {

constexpr int64_t KiB = 1 << 10;
constexpr int64_t MiB = 1 << 20;

// A group has 48 KiB of shared memory whose size the text says, and more where the launch says it:
// 163 KiB on the A100, of which other devices that run code for sm_80 have 99.
// Of the 255 registers of a thread, what addresses and counters leave. A thread's operation
// computes one float. The largest device of a row is one of `units` multiprocessors.
// Tensor cores: 312 Tflop/s of fp16 on the A100 and 989 on the H100 by the white papers, twice as
// many of bytes. mma.sync gets 63% of the latter (Luo et al., "Benchmarking and Dissecting the
// Nvidia Hopper GPU Architecture via Microbenchmarking", 2024); the rest is for wgmma.
constexpr target::Machine Row(std::string_view name, std::string_view features, int64_t units,
                              int64_t unit_shared_bytes, int64_t second_cache_bytes,
                              double memory_bytes_per_cycle, double clock_ghz, double half_products,
                              int64_t launch_shared_bytes, double shared_half_products = 0) {
  return {.name = name,
          .features = features,
          // Of warps, by the four parts of a multiprocessor together.
          .fma_per_cycle = 4,
          .loads_per_cycle = 1,
          .sums_in_flight = 16,
          .divide_cycles = 4,
          .special_cycles = 4,
          .spill_cycles = 2,
          .searched_body_ops = 512,
          .searched_tile = {.rows = 16, .steps = 64},
          .short_reduction = 16,
          .l1 = {.bytes = unit_shared_bytes - 100 * KiB, .bytes_per_cycle = 128, .line_bytes = 128},
          .l2 = {.bytes = second_cache_bytes / units,
                 .sharers = static_cast<int>(units),
                 .bytes_per_cycle = 32},
          .l3 = {.bytes = second_cache_bytes / units,
                 .sharers = static_cast<int>(units),
                 .bytes_per_cycle = 32},
          .memory_bytes_per_cycle = memory_bytes_per_cycle,
          .clock_ghz = clock_ghz,
          .launch = {.group_threads = 1024,
                     .groups_yz = 65535,
                     .shared_bytes = 48 * KiB,
                     .launch_shared_bytes = launch_shared_bytes,
                     .registers = 200,
                     .usual_threads = 128,
                     .warp = 32,
                     .sub_groups = true,
                     .unit_threads = 2048,
                     .unit_shared_bytes = unit_shared_bytes,
                     .unit_registers = 64 << 10,
                     .units = units,
                     .busy_threads = units * 2048,
                     .thread_bytes = 4,
                     .load_bytes = 16,
                     .transaction_bytes = 32,
                     .shared_banks = 32,
                     .launch_ns = 4'000,
                     .group_ns = 20,
                     .barrier_cycles = 4,
                     .load_latency = 200,
                     .shared_latency = 30},
          .fragments = {.half_products = half_products,
                        .byte_products = 2 * half_products,
                        .shared_half_products = shared_half_products},
          .rule_set = target::RuleSet::kGroups,
          .feature_set = target::FeatureSet::kGroups};
}

constexpr target::Machine kCudaMachines[] = {
    Row("sm_80", "fma,mma,sm_80", 108, 164 * KiB, 40 * MiB, 10.2, 1.41, 1024, 99 * KiB),
    Row("sm_90", "fma,mma,sm_90", 132, 228 * KiB, 50 * MiB, 13.7, 1.83, 1290, 227 * KiB),
    Row("sm_90a", "fma,mma,sm_90a", 132, 228 * KiB, 50 * MiB, 13.7, 1.83, 1290, 227 * KiB, 2048),
};

}  // namespace

constinit const target::Family kFamily = {.machine_key = "arch",
                                          .machines = kCudaMachines,
                                          .code_format = "cubin",
                                          .predictor = target::Predictor::kEstimate};

}  // namespace tilewright::cuda
