// What a parallel region costs beyond its work: fork, join and nothing in between, by the runtime's
// thread pool and by OpenMP beside it, and a region whose tasks work for a while.
//
//     parallel_region [threads]        JSON; nanoseconds, medians of many blocks
//
// `empty_ns`: a region of as many empty tasks as threads. `overhead_ns`: a region of tasks of
// `task_ns` each, less what one task takes alone. Quiet machines only: a thread without a core of
// its own cannot join in time.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "deploy/runtime/cpu_info.h"
#include "deploy/runtime/thread_pool.h"

namespace tilewright::bench {
namespace {

constexpr int kBlocks = 200, kRegions = 200;
constexpr int kSteps = 4000;  // of a task that works, some microseconds

volatile uint64_t sink = 1;

int32_t Empty(void*, int64_t) { return TW_OK; }

int32_t Work(void*, int64_t) {
  uint64_t x = sink;
  for (int i = 0; i < kSteps; ++i) x ^= x << 7, x ^= x >> 9;
  if (x == 0) sink = 2;
  return TW_OK;
}

template <typename Fn>
double MedianNs(const Fn& region) {
  std::vector<double> blocks;
  for (int b = 0; b < kBlocks; ++b) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kRegions; ++i) region();
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
    blocks.push_back(took.count() / kRegions);
  }
  std::nth_element(blocks.begin(), blocks.begin() + kBlocks / 2, blocks.end());
  return blocks[kBlocks / 2];
}

void Race(int threads) {
  runtime::ThreadPool pool(threads);
  const double task = MedianNs([] { Work(nullptr, 0); });
  const auto ours = [&](TwTaskBody body) {
    return MedianNs([&] { (void)pool.ParallelFor(body, nullptr, threads); });
  };
  const auto openmp = [&](TwTaskBody body) {
    return MedianNs([&] {
#pragma omp parallel for schedule(static) num_threads(threads)
      for (int t = 0; t < threads; ++t) body(nullptr, t);
    });
  };
  const double empty = ours(Empty), work = ours(Work);
  const double omp_empty = openmp(Empty), omp_work = openmp(Work);
  std::printf(
      "{\"threads\": %d, \"task_ns\": %.0f, \"empty_ns\": %.0f, \"overhead_ns\": %.0f, "
      "\"openmp_empty_ns\": %.0f, \"openmp_overhead_ns\": %.0f}\n",
      threads, task, empty, work - task, omp_empty, omp_work - task);
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : tilewright::runtime::UsableCores();
  if (threads < 1) {
    std::fprintf(stderr, "parallel_region: expected a number of threads, found '%s'\n", argv[1]);
    return 64;
  }
  tilewright::bench::Race(threads);
  return 0;
}
