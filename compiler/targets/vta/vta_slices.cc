#include "compiler/targets/vta/vta_slices.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "compiler/targets/vta/vta_codegen.h"
#include "compiler/targets/vta/vta_cycles.h"
#include "compiler/targets/vta/vta_results.h"

namespace tilewright::vta {
namespace {

// The slices of results, which are all of their elements. One: the results stay whole.
using Slices = std::vector<Slice>;

// `parts` slices of one size.
Slices Equal(int64_t size, int64_t parts) {
  Slices slices;
  for (int64_t from = 0; from < size; from += size / parts) slices.push_back({from, size / parts});
  return slices;
}

// Each slice is half of what is left, in whole parts, down to one part.
Slices Halving(int64_t size, int64_t parts) {
  const int64_t part = size / parts;
  Slices slices;
  for (int64_t from = 0; from < size;) {
    const int64_t left = (size - from) / part;
    slices.push_back({from, (left + 1) / 2 * part});
    from += slices.back().size;
  }
  return slices;
}

// The ways to cut results into at most `most` slices; first of all, not.
std::vector<Slices> Menu(const Results& results, const std::vector<VtaEvent>& events,
                         int64_t most) {
  std::vector<Slices> menu = {{{0, results.size()}}};
  if (results.operations() == 0) return menu;
  for (int64_t parts = 2; parts <= results.size(); ++parts) {
    if (results.size() % parts != 0) continue;
    for (Slices slices : {Equal(results.size(), parts), Halving(results.size(), parts)}) {
      const bool fits = static_cast<int64_t>(slices.size()) <= most &&
                        std::all_of(slices.begin(), slices.end(), [&](const Slice& slice) {
                          return CanCut(results, events, slice);
                        });
      if (fits) menu.push_back(std::move(slices));
    }
  }
  return menu;
}

// When compute and store are done with what was before.
struct Clock {
  int64_t compute = 0, store = 0;
};

class Slicer {
 public:
  Slicer(const Isa& isa, const MicroOpTable& uops, const std::vector<VtaEvent>& events)
      : isa_(isa), uops_(uops), events_(events), results_(FindResults(uops, events)) {}

  const std::vector<Results>& results() const { return results_; }

  // For each of the results the slices with which the stream takes the fewest cycles, as far as
  // stores decide.
  std::vector<Slices> Best() {
    std::vector<Slices> best;
    Clock clock;
    for (size_t r = 0; r + 2 < results_.size(); ++r) {
      best.push_back(BestOf(results_[r], clock));
      clock = After(results_[r], best.back(), clock);
      Reserve(results_[r], best.back());
    }
    const std::vector<Slices> last = BestOfLast(clock);
    best.insert(best.end(), last.begin(), last.end());
    return best;
  }

 private:
  // Lets the clock run over results in slices.
  Clock After(const Results& results, const Slices& slices, Clock clock) const {
    clock.compute += results.before;
    for (const Slice& slice : slices) {
      for (size_t at = results.first_operation; at < results.first_store; ++at)
        clock.compute += kLoopsBegin + slice.size * CyclesOfElement(events_[at].instruction);
      clock.store = std::max(clock.store, clock.compute) +
                    StoresOf(results, events_, slice) * kTransferBegins +
                    BeatsOf(isa_, Memory::kOut, slice.size);
    }
    return clock;
  }

  // The most slices of results for which there is room, if as many others want some too.
  int64_t Room(const Results& results, int64_t others) const {
    const int64_t uops = isa_.InfoOf(Memory::kUop).elements - uops_.size() - used_uops_;
    const int64_t instructions =
        kMaxInstructions - 2 - static_cast<int64_t>(events_.size()) - used_instructions_;
    const int64_t each = std::max<int64_t>(1, results.operations());
    const auto stores = static_cast<int64_t>(results.last - results.first_store);
    return std::min(uops / each, instructions / (each + stores)) / (others + 1);
  }
  void Reserve(const Results& results, const Slices& slices) {
    if (slices.size() == 1) return;
    const auto count = static_cast<int64_t>(slices.size());
    used_instructions_ += static_cast<int64_t>(results.last - results.first_operation) * count;
    // Results at the same place share micro-ops.
    if (reserved_.insert({results.begin, count}).second) used_uops_ += count * results.operations();
  }

  // What they touch next waits as little as it can.
  Slices BestOf(const Results& results, const Clock& clock) const {
    Slices best = {{0, results.size()}};
    const auto cycles_of = [&](const Slices& slices) {
      const Clock after = After(results, slices, clock);
      return std::pair(std::max(after.compute, after.store - results.until_use), after.compute);
    };
    auto least = cycles_of(best);
    if (least.first == least.second) return best;  // nothing waits
    for (Slices& slices : Menu(results, events_, Room(results, 0))) {
      const auto cycles = cycles_of(slices);
      if (cycles.first < least.first) best = std::move(slices), least = cycles;
    }
    return best;
  }

  // The stream ends with the last store, which the one before it may delay.
  std::vector<Slices> BestOfLast(const Clock& clock) const {
    if (results_.empty()) return {};
    const Results& last = results_.back();
    const std::vector<Slices> of_last = Menu(last, events_, Room(last, 1));
    std::vector<Slices> best;
    int64_t least = std::numeric_limits<int64_t>::max();
    const auto consider = [&](const Clock& start, int64_t beats, const std::vector<Slices>& front) {
      for (const Slices& slices : of_last) {
        const int64_t cycles = After(last, slices, start).store + beats + LoadBeats(last, slices);
        if (cycles >= least) continue;
        least = cycles;
        best = front;
        best.push_back(slices);
      }
    };
    if (results_.size() == 1) {
      consider(clock, 0, {});
      return best;
    }
    const Results& before = results_[results_.size() - 2];
    for (const Slices& slices : Menu(before, events_, Room(before, 1)))
      consider(After(before, slices, clock), LoadBeats(before, slices), {slices});
    return best;
  }

  // What the slices' micro-ops add to the load of all at the start.
  int64_t LoadBeats(const Results& results, const Slices& slices) const {
    if (slices.size() == 1) return 0;
    return BeatsOf(isa_, Memory::kUop, static_cast<int64_t>(slices.size()) * results.operations());
  }

  const Isa& isa_;
  const MicroOpTable& uops_;
  const std::vector<VtaEvent>& events_;
  const std::vector<Results> results_;
  int64_t used_uops_ = 0, used_instructions_ = 0;
  std::set<std::pair<int64_t, int64_t>> reserved_;  // begin of results, how many slices
};

}  // namespace

void SliceStores(const Isa& isa, MicroOpTable* uops, std::vector<VtaEvent>* events) {
  Slicer slicer(isa, *uops, *events);
  const std::vector<Slices> slices = slicer.Best();
  std::vector<VtaEvent> cut;
  size_t done = 0;
  const auto copy = [&](size_t to) {
    for (; done < to; ++done) cut.push_back((*events)[done]);
  };
  for (size_t r = 0; r < slices.size(); ++r) {
    const Results& results = slicer.results()[r];
    if (slices[r].size() == 1) continue;
    copy(results.first_operation);
    for (const Slice& slice : slices[r]) AppendSlice(isa, results, *events, slice, uops, &cut);
    done = results.last;
  }
  copy(events->size());
  *events = std::move(cut);
}

}  // namespace tilewright::vta
