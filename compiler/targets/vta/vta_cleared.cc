#include "compiler/targets/vta/vta_cleared.h"

#include <algorithm>

namespace tilewright::vta {
namespace {

// The sums of all points of the loops that move, from the lowest.
std::vector<size_t> SumsOf(const std::vector<VtaLoopStep>& steps, int64_t base) {
  std::vector<size_t> sums = {static_cast<size_t>(base)};
  for (const VtaLoopStep& loop : steps) {
    const size_t points = sums.size();
    if (loop.step[0] == 0) continue;
    for (int64_t i = 1; i < loop.extent; ++i) {
      for (size_t p = 0; p < points; ++p)
        sums.push_back(sums[p] + static_cast<size_t>(i * loop.step[0]));
    }
  }
  std::sort(sums.begin(), sums.end());
  return sums;
}

}  // namespace

void ClearedSums::Clear(const std::vector<VtaLoopStep>& steps, int64_t base) {
  for (const size_t sum : SumsOf(steps, base)) {
    count_ += cleared_[sum] ? 0 : 1;
    cleared_[sum] = true;
  }
}

bool ClearedSums::TakeIfAll(const std::vector<VtaLoopStep>& steps, int64_t base) {
  if (count_ == 0) return false;
  const std::vector<size_t> sums = SumsOf(steps, base);
  if (std::adjacent_find(sums.begin(), sums.end()) != sums.end()) return false;
  if (!std::all_of(sums.begin(), sums.end(), [this](size_t sum) { return cleared_[sum]; }))
    return false;
  for (const size_t sum : sums) cleared_[sum] = false;
  count_ -= static_cast<int64_t>(sums.size());
  return true;
}

std::optional<ClearedSums::Run> ClearedSums::Take(int64_t begin, int64_t end) {
  if (count_ == 0) return std::nullopt;
  const auto from = cleared_.begin() + begin, to = cleared_.begin() + end;
  const auto first = std::find(from, to, true);
  if (first == to) return std::nullopt;
  const auto last = std::find(first, to, false);
  const Run run{first - cleared_.begin(), last - cleared_.begin()};
  Forget(run.begin, run.end);
  return run;
}

void ClearedSums::Forget(int64_t begin, int64_t end) {
  for (int64_t sum = begin; sum < end; ++sum) {
    const auto at = static_cast<size_t>(sum);
    count_ -= cleared_[at] ? 1 : 0;
    cleared_[at] = false;
  }
}

}  // namespace tilewright::vta
