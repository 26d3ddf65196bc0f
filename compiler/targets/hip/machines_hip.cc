// GPUs by the name of their instruction set. No such GPU has run anything of this yet: limits and
// sizes are those of the vendor's public documents (the "HIP hardware features" tables of ROCm; the
// instruction set manuals of CDNA 2, CDNA 3 and RDNA 3; the white papers of MI200 and MI300X; the
// product page of the RX 7900 XTX). Latencies and the costs of launches and barriers are typical
// figures, not measured ones.
#include "compiler/targets/gpu_machine.h"
#include "compiler/targets/kind_table.h"

namespace tilewright::hip {
namespace {

using targets::KiB;
using targets::MiB;
using targets::SetUnits;

// What differs between the machines; a unit is a compute unit.
struct Facts {
  std::string_view name, features;
  int64_t units, warp;
  double fma_per_cycle;  // of warps; packed and dual operations are not counted
  int64_t unit_threads, unit_registers;
  int64_t l1_bytes, l2_bytes, l2_sharers, l3_bytes;
  double l3_bytes_per_cycle, memory_bytes_per_cycle, clock_ghz;
};

// A group has 64 KiB of local memory on all of them.
constexpr target::Machine Row(const Facts& f) {
  target::Machine m = targets::WarpMachine(f.name, f.features);
  m.fma_per_cycle = f.fma_per_cycle;
  m.dots_per_cycle = f.fma_per_cycle;  // v_dot4
  m.divide_cycles = 8;
  m.spill_cycles = 2;
  m.l1 = {.bytes = f.l1_bytes, .bytes_per_cycle = 64, .line_bytes = 128};
  m.l2 = {.bytes = f.l2_bytes / f.l2_sharers,
          .sharers = static_cast<int>(f.l2_sharers),
          .bytes_per_cycle = 64,
          .line_bytes = 128};
  m.l3 = {.bytes = f.l3_bytes / f.units,
          .sharers = static_cast<int>(f.units),
          .bytes_per_cycle = f.l3_bytes_per_cycle,
          .line_bytes = 128};
  m.memory_bytes_per_cycle = f.memory_bytes_per_cycle;
  m.clock_ghz = f.clock_ghz;
  SetUnits(f.units, f.unit_threads, &m.launch);
  m.launch.groups_yz = 65535;
  m.launch.shared_bytes = 64 * KiB;
  m.launch.registers = 200;
  m.launch.usual_threads = 256;
  m.launch.warp = f.warp;
  m.launch.unit_shared_bytes = 64 * KiB;
  m.launch.unit_registers = f.unit_registers;
  m.launch.transaction_bytes = 64;
  m.launch.launch_ns = 6'000;
  m.launch.group_ns = 20;
  m.launch.load_latency = 300;
  m.launch.shared_latency = 64;
  return m;
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

constinit const target::Family kFamily = {
    .machine_key = "arch", .machines = kHipMachines, .code_format = "hsaco", .has_plugin = false};

}  // namespace tilewright::hip
