#include "compiler/estimate/step_access.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "compiler/analysis/analyzer.h"

namespace tilewright::estimate {
namespace {

constexpr int64_t kBankWord = 4;  // bytes
constexpr int64_t kSteps = 2;     // whose accesses are looked at

int64_t FloorDivide(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

// What a vector of a thread is for memory: so many accesses of so many neighbours each. `lanes` is
// more than 1 where one access has elements that lie `apart`.
struct Accesses {
  int64_t count = 1, bytes = 4, lanes = 1, apart = 0;
};
Accesses AccessesOf(const StatementSummary& s, const AccessSummary& access,
                    const target::LaunchLimits& limits) {
  int64_t lanes = 1, stride = 0, aligned = access.first * access.element_bytes;
  for (size_t i = 0; i < s.loops.size(); ++i) {
    if (s.loops[i].kind == ir::ForKind::kVectorized && access.strides[i] != 0) {
      lanes = s.loops[i].extent;
      stride = access.strides[i];
    } else if (s.loops[i].extent > 1) {
      aligned = std::gcd(aligned, access.strides[i] * access.element_bytes);
    }
  }
  // Drivers for processors have vectors of any length and place.
  if (limits.warp <= 1 && stride == 1) return {1, lanes * access.element_bytes};
  if (limits.warp <= 1) return {1, access.element_bytes, lanes, stride * access.element_bytes};
  if (stride != 1) return {lanes, access.element_bytes};
  for (const int64_t thread : access.thread_offsets)
    aligned = std::gcd(aligned, thread * access.element_bytes);
  aligned = std::gcd(std::gcd(aligned, lanes * access.element_bytes), limits.load_bytes);
  const int64_t bytes = std::max(aligned, access.element_bytes);
  return {lanes * access.element_bytes / bytes, bytes};
}

// Where the first accesses of threads from `begin` on, `step` of them, begin.
std::vector<int64_t> StartsOf(const AccessSummary& access, const Accesses& accesses, int64_t begin,
                              int64_t step) {
  const auto threads = static_cast<int64_t>(access.thread_offsets.size());
  std::vector<int64_t> starts;
  for (int64_t t = begin; t < std::max<int64_t>(1, std::min(threads, begin + step)); ++t) {
    const int64_t thread = threads == 0 ? 0 : access.thread_offsets[static_cast<size_t>(t)];
    for (int64_t lane = 0; lane < accesses.lanes; ++lane) {
      starts.push_back((access.first + thread) * access.element_bytes + lane * accesses.apart);
    }
  }
  return starts;
}

// Adds a loop: the shares of starts at each word of a transaction.
void Move(int64_t stride_bytes, int64_t extent, std::vector<double>* shares) {
  const auto words = static_cast<int64_t>(shares->size());
  std::vector<double> moved(shares->size());
  for (int64_t i = 0; i < std::min(extent, words); ++i) {
    const int64_t times = extent / words + (i < extent % words ? 1 : 0);
    const int64_t by = i * FloorDivide(stride_bytes, kBankWord) % words;
    for (int64_t at = 0; at < words; ++at) {
      moved[static_cast<size_t>((at + by + words) % words)] += (*shares)[static_cast<size_t>(at)] *
                                                               static_cast<double>(times) /
                                                               static_cast<double>(extent);
    }
  }
  *shares = std::move(moved);
}

// How often the accesses of a step begin so many words from where the first ones do, modulo a
// transaction.
std::vector<double> StartShares(const StatementSummary& s, const AccessSummary& access,
                                const Accesses& accesses, const target::LaunchLimits& limits) {
  const int64_t words = limits.transaction_bytes / kBankWord;
  std::vector<double> shares(static_cast<size_t>(std::max<int64_t>(1, words)));
  shares[0] = 1;
  for (size_t i = 0; i < s.loops.size(); ++i) {
    const LoopSummary& loop = s.loops[i];
    if (loop.extent == 1 || access.strides[i] == 0 || ir::IsThreadAxis(loop.kind)) continue;
    if (loop.kind != ir::ForKind::kVectorized) {
      Move(access.strides[i] * access.element_bytes, loop.extent, &shares);
    } else if (accesses.count > 1) {
      const int64_t apart = access.strides[i] * access.element_bytes * loop.extent;
      Move(apart / accesses.count, accesses.count, &shares);
    }
  }
  return shares;
}

// Transactions of accesses that begin `at` bytes from their places. Places ascend.
int64_t Transactions(const std::vector<int64_t>& places, int64_t at, int64_t bytes,
                     int64_t transaction) {
  int64_t count = 0, next = std::numeric_limits<int64_t>::min();
  for (const int64_t place : places) {
    const int64_t first = std::max(next, FloorDivide(place + at, transaction));
    const int64_t last = FloorDivide(place + at + bytes - 1, transaction);
    count += std::max<int64_t>(0, last - first + 1);
    next = std::max(next, last + 1);
  }
  return count;
}

// Threads whose accesses the banks serve in a turn, if none waits for another.
int64_t ThreadsInTurn(int64_t bytes, const target::LaunchLimits& limits) {
  return std::max<int64_t>(1, limits.shared_banks * kBankWord / std::max(bytes, kBankWord));
}
int64_t LeastTurns(size_t threads, int64_t bytes, const target::LaunchLimits& limits) {
  const auto in_turn = static_cast<size_t>(ThreadsInTurn(bytes, limits));
  return static_cast<int64_t>((threads + in_turn - 1) / in_turn);
}
// Turns of the banks for accesses of shared memory: a bank gives one word in each.
int64_t BankTurns(const std::vector<int64_t>& places, int64_t bytes,
                  const target::LaunchLimits& limits) {
  const int64_t banks = std::max<int64_t>(1, limits.shared_banks);
  const auto in_turn = static_cast<size_t>(ThreadsInTurn(bytes, limits));
  int64_t turns = 0;
  for (size_t first = 0; first < places.size(); first += in_turn) {
    std::set<int64_t> words;
    for (size_t t = first; t < std::min(places.size(), first + in_turn); ++t) {
      for (int64_t at = places[t]; at < places[t] + bytes; at += kBankWord)
        words.insert(FloorDivide(at, kBankWord));
    }
    std::map<int64_t, int64_t> in_bank;
    int64_t most = 1;
    for (const int64_t w : words) most = std::max(most, ++in_bank[(w % banks + banks) % banks]);
    turns += most;
  }
  return turns;
}

// Distinct elements of an access by the loops that still run, of loops in a new order.
void FillUnique(const std::vector<LoopSummary>& loops, AccessSummary* access) {
  const double all = access->unique[0];
  access->unique.assign(loops.size() + 1, 1);
  analysis::Analyzer analyzer;
  for (const LoopSummary& loop : loops) analyzer.Set(loop.var, analysis::Interval::Point(loop.min));
  for (size_t i = loops.size(); i-- > 0;) {
    analyzer.Set(loops[i].var, {loops[i].min, loops[i].min + loops[i].extent - 1});
    double spans = 1;
    for (const ir::Expr& index : access->indices) {
      const analysis::Interval range = analyzer.Values(index);
      spans *= range.is_bounded() ? static_cast<double>(range.max - range.min + 1) : all;
    }
    const double most = access->unique[i + 1] * static_cast<double>(loops[i].extent);
    access->unique[i] = std::max(1.0, std::min({spans, most, all}));
  }
}

}  // namespace

StatementSummary InStep(const StatementSummary& statement) {
  std::vector<size_t> order;
  for (const bool threads : {false, true}) {
    for (size_t i = 0; i < statement.loops.size(); ++i) {
      if (ir::IsThreadAxis(statement.loops[i].kind) == threads) order.push_back(i);
    }
  }
  StatementSummary out = statement;
  if (std::is_sorted(order.begin(), order.end())) return out;
  for (size_t i = 0; i < order.size(); ++i) out.loops[i] = statement.loops[order[i]];
  for (size_t a = 0; a < out.accesses.size(); ++a) {
    for (size_t i = 0; i < order.size(); ++i)
      out.accesses[a].strides[i] = statement.accesses[a].strides[order[i]];
    FillUnique(out.loops, &out.accesses[a]);
  }
  return out;
}

StepAccess AnalyzeStep(const StatementSummary& s, const AccessSummary& access,
                       const target::LaunchLimits& limits, int64_t step) {
  const Accesses accesses = AccessesOf(s, access, limits);
  const std::vector<double> shares = StartShares(s, access, accesses, limits);
  const auto threads = static_cast<int64_t>(access.thread_offsets.size());
  const int64_t steps = std::clamp<int64_t>((threads + step - 1) / step, 1, kSteps);
  double turns = 0, least_turns = 0, lines = 0, least_lines = 0;
  for (int64_t i = 0; i < steps; ++i) {
    const std::vector<int64_t> starts = StartsOf(access, accesses, i * step, step);
    turns += static_cast<double>(BankTurns(starts, accesses.bytes, limits));
    least_turns += static_cast<double>(LeastTurns(starts.size(), accesses.bytes, limits));
    std::vector<int64_t> places = starts;
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    for (size_t word = 0; word < shares.size(); ++word) {
      if (shares[word] == 0) continue;
      const int64_t at = static_cast<int64_t>(word) * kBankWord;
      lines += shares[word] * static_cast<double>(Transactions(places, at, accesses.bytes,
                                                               limits.transaction_bytes));
    }
    const double bytes = static_cast<double>(places.size()) * static_cast<double>(accesses.bytes);
    least_lines += std::ceil(bytes / static_cast<double>(limits.transaction_bytes));
  }
  StepAccess out;
  out.accesses = static_cast<double>(accesses.count);
  out.bank_cycles = out.accesses * turns / static_cast<double>(steps);
  out.conflicts = turns / least_turns;
  out.transactions = out.accesses * lines / static_cast<double>(steps);
  out.coalesced = least_lines / lines;
  return out;
}

}  // namespace tilewright::estimate
