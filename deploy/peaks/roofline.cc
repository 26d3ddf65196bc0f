#include "deploy/peaks/roofline.h"

#include <algorithm>
#include <utility>

#include "deploy/peaks/fma_peak.h"
#include "deploy/peaks/read_bandwidth.h"
#include "deploy/runtime/cpu_info.h"

namespace tilewright::peaks {
namespace {

constexpr int64_t kRoundMs = 10;
constexpr int64_t kSmallestSet = int64_t{32} << 10;
constexpr int64_t kLargestSet = int64_t{128} << 20;
constexpr int64_t kStep = 4;

}  // namespace

Roofline Roofline::Measure(int threads) {
  const runtime::CpuInfo cpu = runtime::DetectCpu();
  std::vector<Bandwidth> reads;
  for (int64_t bytes = kSmallestSet; bytes <= kLargestSet; bytes *= kStep) {
    reads.push_back({bytes, ReadBandwidth(static_cast<size_t>(bytes), threads)});
  }
  return Roofline(MeasureFmaPeak(cpu, threads, kRoundMs), MeasureInt8Peak(cpu, threads, kRoundMs),
                  std::move(reads), MeasureBFloatPeak(cpu, threads, kRoundMs));
}

Roofline::Roofline(double gflop_s, double int8_gop_s, std::vector<Bandwidth> reads,
                   double bfloat_gflop_s)
    : gflop_s_(gflop_s),
      int8_gop_s_(int8_gop_s),
      bfloat_gflop_s_(bfloat_gflop_s > 0 ? bfloat_gflop_s : gflop_s),
      reads_(std::move(reads)) {}

double Roofline::PeakOf(module::DType type) const {
  switch (type) {
    case module::DType::kFloat32:
    case module::DType::kFloat16:
      return gflop_s_;
    case module::DType::kBFloat16:
      return bfloat_gflop_s_;
    case module::DType::kFloat64:
      return gflop_s_ / 2;  // half the lanes
    case module::DType::kInt8:
    case module::DType::kUInt8:
      return int8_gop_s_;
    default:
      return 0;
  }
}

double Roofline::ComputeNs(const KernelWork& work) const {
  const double peak = PeakOf(work.type);  // 10^9 a second are one a nanosecond
  return peak > 0 ? work.operations / peak : 0;
}

double Roofline::MemoryNs(const KernelWork& work) const {
  const auto above = std::find_if(reads_.begin(), reads_.end(), [&](const Bandwidth& read) {
    return static_cast<double>(read.bytes) > work.bytes;
  });
  const double gb_s = (above == reads_.begin() ? above : above - 1)->gb_s;
  return gb_s > 0 ? work.bytes / gb_s : 0;
}

double Roofline::LeastNs(const KernelWork& work) const {
  return std::max(ComputeNs(work), MemoryNs(work));
}

Bound Roofline::BoundOf(const KernelWork& work) const {
  if (LeastNs(work) <= 0) return Bound::kUnknown;
  return ComputeNs(work) >= MemoryNs(work) ? Bound::kCompute : Bound::kMemory;
}

}  // namespace tilewright::peaks
