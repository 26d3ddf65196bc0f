// The roofline of this machine: the least time in which its cores can do so many operations on so
// many bytes. A value; Measure uses the cores for about a fifth of a second.
#pragma once

#include <cstdint>
#include <vector>

#include "deploy/module/dtype.h"

namespace tilewright::peaks {

// What a kernel has to do, however it is written.
struct KernelWork {
  double operations = 0;                         // multiplications and additions; 0 if unknown
  double bytes = 0;                              // of everything that it reads or writes, once
  module::DType type = module::DType::kFloat32;  // of its operands
};

enum class Bound { kUnknown, kCompute, kMemory };

class Roofline {
 public:
  struct Bandwidth {
    int64_t bytes = 0;  // working set
    double gb_s = 0;
  };

  // Of `threads` threads together. REQUIRES: threads >= 1.
  static Roofline Measure(int threads);
  // From measured values; `reads` by growing working set, at least one.
  // Without an own peak (0), bf16 computes in f32; so does f16.
  Roofline(double gflop_s, double int8_gop_s, std::vector<Bandwidth> reads,
           double bfloat_gflop_s = 0);

  // Nanoseconds; 0 if nothing is known about the kernel. A working set counts as the next smaller
  // one that was measured: the bound holds, though a larger one may be true.
  double LeastNs(const KernelWork& work) const;
  // Which of the two takes longer.
  Bound BoundOf(const KernelWork& work) const;

  // 10^9 operations a second; 0 where no peak was measured for the type.
  double PeakOf(module::DType type) const;
  const std::vector<Bandwidth>& reads() const { return reads_; }

 private:
  double ComputeNs(const KernelWork& work) const;
  double MemoryNs(const KernelWork& work) const;

  double gflop_s_;
  double int8_gop_s_;
  double bfloat_gflop_s_;
  std::vector<Bandwidth> reads_;
};

}  // namespace tilewright::peaks
