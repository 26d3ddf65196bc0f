#include "deploy/peaks/read_bandwidth.h"

#include <time.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <iterator>
#include <thread>
#include <vector>

#include "deploy/support/clock.h"

namespace tilewright::peaks {
namespace {

constexpr int kReadRounds = 5;
constexpr double kRoundBytes = 64e6;  // read in a round, by all

// 64 bytes at a time and eight sums, so that loads and not additions are what it waits for.
using CacheLine = uint64_t __attribute__((vector_size(64), may_alias));
struct alignas(64) Bytes {
  uint64_t words[8];
};

#if defined(__x86_64__)
#define TW_WIDEST_VECTORS gnu::target_clones("avx512f", "avx2", "default")
#else
#define TW_WIDEST_VECTORS gnu::noinline
#endif
template <size_t kStreams>
[[gnu::always_inline]] inline uint64_t ReadStreams(const Bytes* bytes, size_t lines) {
  const auto* data = reinterpret_cast<const CacheLine*>(bytes);
  const size_t part = lines / kStreams;
  constexpr size_t kLines = 8 / kStreams;
  CacheLine sums[8] = {};
  for (size_t i = 0; i + kLines <= part; i += kLines) {
    for (size_t s = 0; s < kStreams; ++s) {
      for (size_t j = 0; j < kLines; ++j) sums[s * kLines + j] ^= data[s * part + i + j];
    }
  }
  uint64_t all = 0;
  for (const CacheLine& sum : sums) all ^= sum[0] ^ sum[7];
  return all;
}
[[gnu::noinline, TW_WIDEST_VECTORS]] uint64_t ReadOne(const Bytes* bytes, size_t lines) {
  return ReadStreams<1>(bytes, lines);
}
[[gnu::noinline, TW_WIDEST_VECTORS]] uint64_t ReadFour(const Bytes* bytes, size_t lines) {
  return ReadStreams<4>(bytes, lines);
}
[[gnu::noinline, TW_WIDEST_VECTORS]] uint64_t ReadEight(const Bytes* bytes, size_t lines) {
  return ReadStreams<8>(bytes, lines);
}
// Prefetchers follow several streams at a time, each to the end of its page: more of them hide more
// of DRAM's latency.
constexpr uint64_t (*kWays[])(const Bytes*, size_t) = {ReadOne, ReadFour, ReadEight};

}  // namespace

double ReadBandwidth(size_t bytes, int threads) {
  constexpr size_t kWhole = 64;  // lines that every way reads to the last
  const size_t lines = bytes / sizeof(Bytes) / static_cast<size_t>(threads);
  const size_t share = std::max(kWhole, lines / kWhole * kWhole);
  const size_t turns =
      std::max<size_t>(1, static_cast<size_t>(kRoundBytes / static_cast<double>(bytes)));
  std::vector<std::vector<Bytes>> data(static_cast<size_t>(threads));
  volatile uint64_t sink = 0;
  double best = 1e300;
  std::vector<double> seconds(static_cast<size_t>(threads));
  std::barrier barrier(threads);
  const auto work = [&](size_t t) {
    data[t].assign(share, Bytes{{t}});
    for (size_t round = 0; round < kReadRounds * std::size(kWays); ++round) {
      const auto read = kWays[round % std::size(kWays)];
      barrier.arrive_and_wait();
      const int64_t start = support::ReadClockNs(CLOCK_MONOTONIC);
      for (size_t turn = 0; turn < turns; ++turn) sink = sink ^ read(data[t].data(), share);
      seconds[t] = static_cast<double>(support::ReadClockNs(CLOCK_MONOTONIC) - start) / 1e9;
      barrier.arrive_and_wait();
      if (t == 0) best = std::min(best, *std::max_element(seconds.begin(), seconds.end()));
    }
  };
  std::vector<std::thread> others;
  for (size_t t = 1; t < data.size(); ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread& thread : others) thread.join();
  return static_cast<double>(share * sizeof(Bytes) * turns * static_cast<size_t>(threads)) / best /
         1e9;
}

}  // namespace tilewright::peaks
