// Measures the single-precision peak of this machine's cores: only fused multiply-adds in
// registers. A kernel's speed is given as a share of it. Uses the requested cores for about the
// requested time. Thread-safe.
#pragma once

#include <cstdint>

#include "deploy/runtime/cpu_info.h"

namespace tilewright::device_agent {

// GFLOP/s of `threads` threads together (a fused multiply-add is two operations), the best of
// several rounds of `round_ms` each.
double MeasureFmaPeak(const runtime::CpuInfo& cpu, int threads, int64_t round_ms);

}  // namespace tilewright::device_agent
