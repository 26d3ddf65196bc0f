// Apple's GPUs by the names of Metal's families. No such GPU has run anything of this yet. Limits
// are those of Apple's "Metal Feature Set Tables". Numbers that differ between devices are those of
// the M1, the smallest desktop chip of its family: cores, clock and memory by its public
// specification, registers and shared memory of a core by published microbenchmarks. Costs of
// launches and barriers are typical figures, not measured ones.
#include "compiler/targets/gpu_machine.h"
#include "compiler/targets/kind_table.h"

namespace tilewright::metal {
namespace {

using targets::KiB;
using targets::MiB;

// Code for apple7 runs on all later families: functions of simdgroups begin there.
constexpr target::Machine Apple7() {
  constexpr int kCores = 8;
  target::Machine m = targets::WarpMachine("apple7", "fma,apple7");
  // Of simdgroups, by the four parts of a core together.
  m.fma_per_cycle = 4;
  m.dots_per_cycle = 1;  // made of multiplications
  m.divide_cycles = 6;
  m.spill_cycles = 4;
  m.l1 = {.bytes = 8 * KiB, .bytes_per_cycle = 64};
  m.l2 = {.bytes = 768 * KiB / kCores, .sharers = kCores, .bytes_per_cycle = 32};
  m.l3 = {.bytes = 8 * MiB / kCores, .sharers = kCores, .bytes_per_cycle = 16};
  m.memory_bytes_per_cycle = 6.7;
  m.clock_ghz = 1.28;
  targets::SetUnits(kCores, 1024, &m.launch);
  m.launch.shared_bytes = 32 * KiB;
  m.launch.registers = 100;
  m.launch.usual_threads = 128;
  m.launch.unit_shared_bytes = 60 * KiB;
  m.launch.unit_registers = 208 * KiB / 4;
  m.launch.transaction_bytes = 64;
  m.launch.launch_ns = 10'000;
  m.launch.group_ns = 50;
  m.launch.load_latency = 300;
  m.launch.shared_latency = 30;
  return m;
}
constexpr target::Machine kMetalMachines[] = {Apple7()};

}  // namespace

constinit const target::Family kFamily = {.machine_key = "arch",
                                          .machines = kMetalMachines,
                                          .code_format = "msl",
                                          .driver_compiles = true,
                                          .has_plugin = false};

}  // namespace tilewright::metal
