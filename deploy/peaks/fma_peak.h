// Measures the peaks of this machine's cores in registers: fused multiply-adds of f32, and dot
// products of bytes and of pairs of bf16. A kernel's speed is given as a share of the peak of its
// data type. Uses the requested cores for about the requested time. Thread-safe.
#pragma once

#include <cstdint>

#include "deploy/runtime/cpu_info.h"

namespace tilewright::peaks {

// GFLOP/s of `threads` threads together (a fused multiply-add is two operations), the best of
// several rounds of `round_ms` each.
double MeasureFmaPeak(const runtime::CpuInfo& cpu, int threads, int64_t round_ms);
// The same of multiplications and additions of bytes in dot-product instructions (VNNI); 0 where
// the processor has none.
double MeasureInt8Peak(const runtime::CpuInfo& cpu, int threads, int64_t round_ms);
// The same of pairs of bf16 (avx512bf16); 0 where the processor has none.
double MeasureBFloatPeak(const runtime::CpuInfo& cpu, int threads, int64_t round_ms);

}  // namespace tilewright::peaks
