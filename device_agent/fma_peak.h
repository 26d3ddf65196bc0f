// How many single-precision operations per second this machine's cores reach with nothing but fused
// multiply-adds in registers: what a kernel's speed is a share of. Thread-safe; takes about the
// time asked for and all cores asked for.
#pragma once

#include <cstdint>

#include "deploy/runtime/cpu_info.h"

namespace tilewright::device_agent {

// GFLOP/s of `threads` threads together (a fused multiply-add is two operations), the best of
// several rounds of `round_ms` each.
double MeasureFmaPeak(const runtime::CpuInfo& cpu, int threads, int64_t round_ms);

}  // namespace tilewright::device_agent
