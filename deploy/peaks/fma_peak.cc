#include "deploy/peaks/fma_peak.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <time.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "deploy/support/clock.h"

namespace tilewright::peaks {
namespace {

// Independent chains: enough to hide the latency of two units.
constexpr int kChains = 10;
constexpr int64_t kSteps = 20'000;
constexpr int kRounds = 3;

// One block of kSteps · kChains vector operations; returns a value that depends on all of them, and
// the floating-point operations done.
using Block = double (*)(float seed, double* operations);

#if defined(__x86_64__)
// An instruction with the operands before its sum, once for each chain.
#define ON_EACH_CHAIN(text)                                                                \
  text "%0\n" text "%1\n" text "%2\n" text "%3\n" text "%4\n" text "%5\n" text "%6\n" text \
       "%7\n" text "%8\n" text "%9\n"

__attribute__((target("avx512f"))) double BlockAvx512(float seed, double* operations) {
  __m512 s0 = _mm512_set1_ps(seed + 0);
  __m512 s1 = _mm512_set1_ps(seed + 1);
  __m512 s2 = _mm512_set1_ps(seed + 2);
  __m512 s3 = _mm512_set1_ps(seed + 3);
  __m512 s4 = _mm512_set1_ps(seed + 4);
  __m512 s5 = _mm512_set1_ps(seed + 5);
  __m512 s6 = _mm512_set1_ps(seed + 6);
  __m512 s7 = _mm512_set1_ps(seed + 7);
  __m512 s8 = _mm512_set1_ps(seed + 8);
  __m512 s9 = _mm512_set1_ps(seed + 9);
  const __m512 factor = _mm512_set1_ps(0.5f);
  const __m512 term = _mm512_set1_ps(seed);
  for (int64_t step = 0; step < kSteps; ++step) {
    // The compiler must neither fold the chains nor keep them in memory.
    asm volatile(ON_EACH_CHAIN("vfmadd213ps %[term], %[factor], ")
                 : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5), "+v"(s6), "+v"(s7),
                   "+v"(s8), "+v"(s9)
                 : [factor] "v"(factor), [term] "v"(term));
  }
  *operations = 2.0 * 16 * kChains * static_cast<double>(kSteps);
  return _mm512_cvtss_f32(s0) + _mm512_cvtss_f32(s1) + _mm512_cvtss_f32(s2) + _mm512_cvtss_f32(s3) +
         _mm512_cvtss_f32(s4) + _mm512_cvtss_f32(s5) + _mm512_cvtss_f32(s6) + _mm512_cvtss_f32(s7) +
         _mm512_cvtss_f32(s8) + _mm512_cvtss_f32(s9);
}

__attribute__((target("avx2,fma"))) double BlockAvx2(float seed, double* operations) {
  __m256 s0 = _mm256_set1_ps(seed + 0);
  __m256 s1 = _mm256_set1_ps(seed + 1);
  __m256 s2 = _mm256_set1_ps(seed + 2);
  __m256 s3 = _mm256_set1_ps(seed + 3);
  __m256 s4 = _mm256_set1_ps(seed + 4);
  __m256 s5 = _mm256_set1_ps(seed + 5);
  __m256 s6 = _mm256_set1_ps(seed + 6);
  __m256 s7 = _mm256_set1_ps(seed + 7);
  __m256 s8 = _mm256_set1_ps(seed + 8);
  __m256 s9 = _mm256_set1_ps(seed + 9);
  const __m256 factor = _mm256_set1_ps(0.5f);
  const __m256 term = _mm256_set1_ps(seed);
  for (int64_t step = 0; step < kSteps; ++step) {
    // The compiler must neither fold the chains nor keep them in memory.
    asm volatile(ON_EACH_CHAIN("vfmadd213ps %[term], %[factor], ")
                 : "+x"(s0), "+x"(s1), "+x"(s2), "+x"(s3), "+x"(s4), "+x"(s5), "+x"(s6), "+x"(s7),
                   "+x"(s8), "+x"(s9)
                 : [factor] "x"(factor), [term] "x"(term));
  }
  *operations = 2.0 * 8 * kChains * static_cast<double>(kSteps);
  return _mm256_cvtss_f32(s0) + _mm256_cvtss_f32(s1) + _mm256_cvtss_f32(s2) + _mm256_cvtss_f32(s3) +
         _mm256_cvtss_f32(s4) + _mm256_cvtss_f32(s5) + _mm256_cvtss_f32(s6) + _mm256_cvtss_f32(s7) +
         _mm256_cvtss_f32(s8) + _mm256_cvtss_f32(s9);
}

// Dot products of four bytes, added to 32-bit sums: eight operations per lane.
__attribute__((target("avx512f,avx512vnni"))) double BlockDots512(float seed, double* operations) {
  const __m512i a = _mm512_set1_epi32(static_cast<int>(seed)), b = a;
  __m512i s0 = a, s1 = a, s2 = a, s3 = a, s4 = a, s5 = a, s6 = a, s7 = a, s8 = a, s9 = a;
  for (int64_t step = 0; step < kSteps; ++step) {
    asm volatile(ON_EACH_CHAIN("vpdpbusd %[b], %[a], ")
                 : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5), "+v"(s6), "+v"(s7),
                   "+v"(s8), "+v"(s9)
                 : [a] "v"(a), [b] "v"(b));
  }
  *operations = 8.0 * 16 * kChains * static_cast<double>(kSteps);
  return static_cast<double>(s0[0]);
}

// Dot products of two bf16, added to f32: four operations per lane.
__attribute__((target("avx512f,avx512bf16"))) double BlockPairs512(float seed, double* operations) {
  const __m512 a = _mm512_set1_ps(seed), b = a;
  __m512 s0 = a, s1 = a, s2 = a, s3 = a, s4 = a, s5 = a, s6 = a, s7 = a, s8 = a, s9 = a;
  for (int64_t step = 0; step < kSteps; ++step) {
    asm volatile(ON_EACH_CHAIN("vdpbf16ps %[b], %[a], ")
                 : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5), "+v"(s6), "+v"(s7),
                   "+v"(s8), "+v"(s9)
                 : [a] "v"(a), [b] "v"(b));
  }
  *operations = 4.0 * 16 * kChains * static_cast<double>(kSteps);
  return static_cast<double>(s0[0]);
}

// The same of AVX-VNNI, for processors without AVX-512.
__attribute__((target("avx2"))) double BlockDots256(float seed, double* operations) {
  const __m256i a = _mm256_set1_epi32(static_cast<int>(seed)), b = a;
  __m256i s0 = a, s1 = a, s2 = a, s3 = a, s4 = a, s5 = a, s6 = a, s7 = a, s8 = a, s9 = a;
  for (int64_t step = 0; step < kSteps; ++step) {
    asm volatile(ON_EACH_CHAIN("%{vex%} vpdpbusd %[b], %[a], ")
                 : "+x"(s0), "+x"(s1), "+x"(s2), "+x"(s3), "+x"(s4), "+x"(s5), "+x"(s6), "+x"(s7),
                   "+x"(s8), "+x"(s9)
                 : [a] "x"(a), [b] "x"(b));
  }
  *operations = 8.0 * 8 * kChains * static_cast<double>(kSteps);
  return static_cast<double>(s0[0]);
}
#endif

typedef float Vector __attribute__((vector_size(16)));

// Multiplications and additions of the narrowest vectors, where there is nothing better.
double BlockPlain(float seed, double* operations) {
  Vector s0 = Vector{} + seed, s1 = s0 + 1, s2 = s0 + 2, s3 = s0 + 3, s4 = s0 + 4;
  Vector s5 = s0 + 5, s6 = s0 + 6, s7 = s0 + 7, s8 = s0 + 8, s9 = s0 + 9;
  const Vector factor = Vector{} + 0.5f;
  const Vector term = Vector{} + seed;
  for (int64_t step = 0; step < kSteps; ++step) {
    s0 = s0 * factor + term;
    s1 = s1 * factor + term;
    s2 = s2 * factor + term;
    s3 = s3 * factor + term;
    s4 = s4 * factor + term;
    s5 = s5 * factor + term;
    s6 = s6 * factor + term;
    s7 = s7 * factor + term;
    s8 = s8 * factor + term;
    s9 = s9 * factor + term;
  }
  *operations = 2.0 * 4 * kChains * static_cast<double>(kSteps);
  const Vector sum = s0 + s1 + s2 + s3 + s4 + s5 + s6 + s7 + s8 + s9;
  return sum[0];
}

Block ChooseBlock(const runtime::CpuInfo& cpu) {
#if defined(__x86_64__)
  if (cpu.HasFeature("avx512f")) return BlockAvx512;
  if (cpu.HasFeature("avx2") && cpu.HasFeature("fma")) return BlockAvx2;
#endif
  (void)cpu;
  return BlockPlain;
}

// Null where the processor has no dot products of bytes.
Block ChooseDots(const runtime::CpuInfo& cpu) {
#if defined(__x86_64__)
  if (cpu.HasFeature("avx512vnni")) return BlockDots512;
  if (cpu.HasFeature("avxvnni")) return BlockDots256;
#endif
  (void)cpu;
  return nullptr;
}

// Null where the processor has no dot products of bf16.
Block ChoosePairs(const runtime::CpuInfo& cpu) {
#if defined(__x86_64__)
  if (cpu.HasFeature("avx512bf16")) return BlockPairs512;
#endif
  (void)cpu;
  return nullptr;
}

// The calling thread's processor time: neighbours on the core do not make a machine slower.
int64_t ThreadNs() { return support::ReadClockNs(CLOCK_THREAD_CPUTIME_ID); }

// Operations per nanosecond of one round: every thread's own rate, added up.
double Round(Block block, int threads, int64_t round_ns) {
  std::vector<double> rates(static_cast<size_t>(threads), 0);
  std::atomic<int> ready{0};
  const auto work = [&](size_t slot) {
    volatile double sink = 0;
    double operations = 0;
    sink = block(1.0f, &operations);  // raises the clock
    ready.fetch_add(1);
    while (ready.load() < threads) std::this_thread::yield();
    const int64_t start = ThreadNs();
    double total = 0;
    int64_t elapsed = 0;
    while (elapsed < round_ns) {
      sink = sink + block(1.0f, &operations);
      total += operations;
      elapsed = ThreadNs() - start;
    }
    rates[slot] = total / static_cast<double>(elapsed);
  };
  std::vector<std::thread> helpers;
  for (int slot = 1; slot < threads; ++slot) helpers.emplace_back(work, static_cast<size_t>(slot));
  work(0);
  for (std::thread& helper : helpers) helper.join();
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

double Best(Block block, int threads, int64_t round_ms) {
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    best = std::max(best, Round(block, std::max(threads, 1), round_ms * 1'000'000));
  }
  return best;  // operations per nanosecond are GFLOP/s
}

}  // namespace

double MeasureFmaPeak(const runtime::CpuInfo& cpu, int threads, int64_t round_ms) {
  return Best(ChooseBlock(cpu), threads, round_ms);
}

double MeasureInt8Peak(const runtime::CpuInfo& cpu, int threads, int64_t round_ms) {
  const Block dots = ChooseDots(cpu);
  return dots == nullptr ? 0 : Best(dots, threads, round_ms);
}

double MeasureBFloatPeak(const runtime::CpuInfo& cpu, int threads, int64_t round_ms) {
  const Block pairs = ChoosePairs(cpu);
  return pairs == nullptr ? 0 : Best(pairs, threads, round_ms);
}

}  // namespace tilewright::peaks
