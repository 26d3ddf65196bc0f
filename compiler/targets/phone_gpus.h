// GPUs of phones by the architecture that their makers sell, for the kinds that reach them (OpenCL,
// Vulkan). None has run anything of this yet. Limits are those that all devices of the row have.
// Numbers are of public documents, and where devices differ, of one of them:
// - valhall: a Mali-G78 of 20 cores. Threads, lines and what registers leave: Arm, "Mali Bifrost
//   and Valhall OpenCL Developer Guide" and "The Valhall Shader Core"; rates: its
//   VK_ARM_shader_core_builtins. Local memory lies in memory, behind the first cache: a copy of an
//   operand in it saves nothing.
// - adreno: an Adreno 730 as published microbenchmarks have it (Chips and Cheese, "Adreno Gets
//   Big", 2024); Qualcomm, "Snapdragon Mobile Platform OpenCL General Programming and
//   Optimization". Loads pass the first cache of textures: the first one that buffers have is
//   shared by two of its processors.
// Latencies and the costs of launches and barriers are typical figures, not measured ones. No row
// says that threads in step add up together: not every driver's version offers it.
#pragma once

#include "compiler/targets/gpu_machine.h"
#include "deploy/runtime/phone_gpu.h"

namespace tilewright::targets {

// What both have.
constexpr target::Machine PhoneGpu(std::string_view name) {
  target::Machine m = WarpMachine(name, "fma");
  m.divide_cycles = 8;
  m.spill_cycles = 4;
  m.dots_per_cycle = 0.5;
  m.launch.sub_groups = false;
  m.launch.group_threads = 512;
  m.launch.shared_bytes = 32 * KiB;
  m.launch.unit_registers = 32 << 10;
  m.launch.usual_threads = 128;
  m.launch.launch_ns = 20'000;
  m.launch.group_ns = 50;
  return m;
}

constexpr target::Machine Valhall() {
  constexpr int kCores = 20;
  target::Machine m = PhoneGpu(TW_PHONE_VALHALL);
  m.fma_per_cycle = 2;
  m.l1 = {.bytes = 16 * KiB, .bytes_per_cycle = 64};
  m.l2 = {.bytes = 2 * MiB / kCores, .sharers = kCores, .bytes_per_cycle = 12.8};
  m.l3 = {.bytes = 8 * MiB / kCores, .sharers = kCores, .bytes_per_cycle = 6.4};
  m.memory_bytes_per_cycle = 3;
  m.clock_ghz = 0.85;
  SetUnits(kCores, 1024, &m.launch);
  m.launch.warp = 16;
  m.launch.registers = 48;
  m.launch.shared_banks = 16;
  m.launch.cache_cycles = 1;
  m.launch.load_latency = 200;
  m.launch.shared_latency = 100;
  return m;
}

constexpr target::Machine Adreno() {
  constexpr int kProcessors = 4;
  target::Machine m = PhoneGpu(TW_PHONE_ADRENO);
  m.fma_per_cycle = 4;
  m.l1 = {.bytes = 64 * KiB, .sharers = 2, .bytes_per_cycle = 64};
  m.l2 = {.bytes = 4 * MiB / kProcessors, .sharers = kProcessors, .bytes_per_cycle = 32};
  m.l3 = m.l2;
  m.memory_bytes_per_cycle = 14;
  m.clock_ghz = 0.9;
  SetUnits(kProcessors, 2048, &m.launch);
  m.launch.warp = 64;
  m.launch.registers = 96;
  m.launch.unit_shared_bytes = 32 * KiB;
  m.launch.load_latency = 300;
  m.launch.shared_latency = 40;
  return m;
}

}  // namespace tilewright::targets
