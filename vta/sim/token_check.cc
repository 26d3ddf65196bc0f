#include "vta/sim/token_check.h"

#include <algorithm>
#include <array>
#include <map>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"
#include "vta/sim/accesses.h"
#include "vta/sim/loaded_uops.h"
#include "vta/sim/range_max.h"
#include "vta/sim/token_order.h"
#include "vta/sim/tokens.h"

namespace tilewright::vta {
namespace {

using support::StrCat;

// The accesses of every instruction.
std::vector<std::vector<Access>> AllAccesses(const Isa& isa, const Stream& stream,
                                             const std::vector<uint8_t>& dram) {
  LoadedUops uops(isa, dram);
  std::vector<std::vector<Access>> all;
  all.reserve(stream.size());
  for (const Instruction& i : stream.instructions) {
    uops.Apply(i);
    all.push_back(AccessesOf(isa, i, uops.uops()));
  }
  return all;
}

// Who touched each part of one memory (or of DRAM) so far. Accesses come in an order that respects
// the clocks, so of the accesses of a module to a part the last one decides: whoever comes after it
// comes after all.
class History {
 public:
  // The memory falls into parts at the ends of all accesses to it, which are sorted.
  explicit History(std::vector<int64_t> ends) : ends_(std::move(ends)) {
    for (size_t m = 0; m < kModules; ++m) {
      reads_.emplace_back(ends_.size());
      writes_.emplace_back(ends_.size());
    }
  }

  // How many instructions of `module` must be done before the access.
  int64_t MustBeDone(size_t module, const Access& a) const {
    const size_t begin = PartOf(a.begin), end = PartOf(a.end);
    const int64_t wrote = writes_[module].Max(begin, end);
    return a.is_write ? std::max(wrote, reads_[module].Max(begin, end)) : wrote;
  }
  // The instruction that makes the access is the `count`-th of its module.
  void Add(size_t module, const Access& a, int64_t count) {
    (a.is_write ? writes_ : reads_)[module].Raise(PartOf(a.begin), PartOf(a.end), count);
  }

 private:
  size_t PartOf(int64_t end) const {
    return static_cast<size_t>(std::lower_bound(ends_.begin(), ends_.end(), end) - ends_.begin());
  }

  std::vector<int64_t> ends_;
  std::vector<RangeMax> reads_,
      writes_;  // of each module: how many were done after its last access
};

class RaceSearch {
 public:
  RaceSearch(const Stream& stream, const TokenOrder& order,
             const std::vector<std::vector<Access>>& accesses)
      : stream_(stream), order_(order), accesses_(accesses) {
    std::map<int, std::vector<int64_t>> ends;
    for (const std::vector<Access>& of : accesses) {
      for (const Access& a : of) ends[a.memory].insert(ends[a.memory].end(), {a.begin, a.end});
    }
    for (auto& [memory, of] : ends) {
      std::sort(of.begin(), of.end());
      of.erase(std::unique(of.begin(), of.end()), of.end());
      histories_.emplace(memory, History(std::move(of)));
    }
  }

  absl::Status Run() {
    std::array<int64_t, kModules> done = {};
    for (size_t index : order_.sequence) {
      const auto module = static_cast<size_t>(ModuleOf(stream_.instructions[index]));
      ++done[module];
      for (const Access& a : accesses_[index]) {
        History& history = histories_.at(a.memory);
        for (size_t other = 0; other < kModules; ++other) {
          const int64_t must = other == module ? 0 : history.MustBeDone(other, a);
          if (must > order_.before[index][other])
            return Race(stream_.of[other][static_cast<size_t>(must - 1)], index);
          if (must > 0 && IsUopLoad(index, a))
            return StoredUops(stream_.of[other][static_cast<size_t>(must - 1)], index);
        }
        history.Add(module, a, done[module]);
      }
    }
    return absl::OkStatus();
  }

 private:
  bool IsUopLoad(size_t index, const Access& a) const {
    const Instruction& i = stream_.instructions[index];
    return a.memory == Access::kDram && static_cast<Memory>(i.memory) == Memory::kUop;
  }

  absl::Status Race(size_t x, size_t y) const {
    const auto [first, second] = std::minmax(x, y);
    for (const Access& p : accesses_[first]) {
      for (const Access& q : accesses_[second]) {
        const bool conflict = p.memory == q.memory && (p.is_write || q.is_write) &&
                              p.begin < q.end && q.begin < p.end;
        if (!conflict) continue;
        return support::FailedPrecondition(
            "vta.tokens.race",
            StrCat("expected an order between ", first, " and ", second,
                   ", found none: ", Disassemble(stream_.instructions[first]), " / ",
                   Disassemble(stream_.instructions[second]), " share ",
                   p.memory == Access::kDram ? "dram" : MemoryText(static_cast<Memory>(p.memory)),
                   " [", std::max(p.begin, q.begin), ", ", std::min(p.end, q.end), ")"));
      }
    }
    TW_CHECK(false) << "no conflict of " << first << " and " << second;
  }

  absl::Status StoredUops(size_t store, size_t load) const {
    return support::FailedPrecondition(
        "vta.tokens.uops",
        StrCat("expected micro-ops that the stream does not store, found that ", load,
               " loads what ", store, " stored: ", Disassemble(stream_.instructions[load])));
  }

  const Stream& stream_;
  const TokenOrder& order_;
  const std::vector<std::vector<Access>>& accesses_;
  std::map<int, History> histories_;
};

}  // namespace

absl::Status CheckTokens(const Isa& isa, std::span<const Word128> words,
                         const std::vector<uint8_t>& dram) {
  TW_ASSIGN(const Stream stream, ReadStream(isa, words));
  TW_ASSIGN(const TokenOrder order, OrderOf(stream));
  const std::vector<std::vector<Access>> accesses = AllAccesses(isa, stream, dram);
  TW_TRY(RaceSearch(stream, order, accesses).Run());
  return CheckFinishIsLast(stream, order);
}

}  // namespace tilewright::vta
