// GPUs by the name of their instruction set. Sources: the vendor's programming guide (limits of a
// launch and of a multiprocessor), its white papers (multiprocessors, memories, clocks). Latencies
// and the costs of launches and barriers are typical figures of published measurements, or what
// orders kernels best that an H100 measured (tests/bench/results/gpu_estimate.txt).
#include "compiler/targets/gpu_machine.h"
#include "compiler/targets/kind_table.h"

namespace tilewright::cuda {
namespace {

using targets::KiB;
using targets::MiB;
using targets::SetUnits;

// A group has 48 KiB of shared memory whose size the text says, and more where the launch says it:
// 163 KiB on the A100, of which other devices that run code for sm_80 have 99.
// Of the 255 registers of a thread, what addresses and counters leave. A thread's operation
// computes one float. The largest device of a row is one of `units` multiprocessors.
// Tensor cores: 312 Tflop/s of fp16 on the A100 and 989 on the H100 by the white papers, twice as
// many of bytes, half as many of tf32. mma.sync gets 63% of the H100's (Luo et al., "Benchmarking
// and Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking", 2024); the rest is for
// wgmma.
constexpr target::Machine Row(std::string_view name, std::string_view features, int64_t units,
                              int64_t unit_shared_bytes, int64_t second_cache_bytes,
                              double memory_bytes_per_cycle, double clock_ghz, double half_products,
                              int64_t launch_shared_bytes, double shared_half_products = 0) {
  target::Machine m = targets::WarpMachine(name, features);
  // Of warps, by the four parts of a multiprocessor together. It makes 64 dp4a in a cycle (CUDA C++
  // Programming Guide, "Arithmetic Instructions").
  m.fma_per_cycle = 4;
  m.dots_per_cycle = 2;
  m.divide_cycles = 4;
  m.spill_cycles = 2;
  m.computes_f16 = true;
  m.l1 = {.bytes = unit_shared_bytes - 100 * KiB, .bytes_per_cycle = 128, .line_bytes = 128};
  m.l2 = {.bytes = second_cache_bytes / units,
          .sharers = static_cast<int>(units),
          .bytes_per_cycle = 32};
  m.l3 = m.l2;
  m.memory_bytes_per_cycle = memory_bytes_per_cycle;
  m.clock_ghz = clock_ghz;
  SetUnits(units, 2048, &m.launch);
  m.launch.groups_yz = 65535;
  m.launch.shared_bytes = 48 * KiB;
  m.launch.launch_shared_bytes = launch_shared_bytes;
  m.launch.registers = 200;
  m.launch.usual_threads = 128;
  m.launch.unit_shared_bytes = unit_shared_bytes;
  m.launch.unit_registers = 64 << 10;
  m.launch.unit_groups = 32;
  m.launch.transaction_bytes = 32;
  m.launch.launch_ns = 4'000;
  m.launch.group_ns = 20;
  m.launch.load_latency = 200;
  m.launch.shared_latency = 30;
  m.inexact_feature = "tf32";
  m.fragments = {.half_products = half_products,
                 .byte_products = 2 * half_products,
                 .rounded_products = half_products / 2,
                 .shared_half_products = shared_half_products,
                 .bulk_copies = shared_half_products > 0};
  return m;
}

constexpr target::Machine kCudaMachines[] = {
    Row("sm_80", "fma,mma,sm_80", 108, 164 * KiB, 40 * MiB, 10.2, 1.41, 1024, 99 * KiB),
    Row("sm_90", "fma,mma,sm_90", 132, 228 * KiB, 50 * MiB, 13.7, 1.83, 1290, 227 * KiB),
    Row("sm_90a", "fma,mma,sm_90a", 132, 228 * KiB, 50 * MiB, 13.7, 1.83, 1290, 227 * KiB, 2048),
};

}  // namespace

constinit const target::Family kFamily = {
    .machine_key = "arch", .machines = kCudaMachines, .code_format = "cubin"};

}  // namespace tilewright::cuda
