#include "compiler/targets/vta/vta_uops.h"

#include <algorithm>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

#include "deploy/support/status.h"

namespace tilewright::vta {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

// Micro-ops [begin, end) of the program, which an instruction runs.
using Range = std::pair<int64_t, int64_t>;

Range RangeOf(const Instruction& i) { return {i.uop_begin, i.uop_end}; }

bool HasLoops(const Instruction& i) { return i.op == Opcode::kGemm || i.op == Opcode::kAlu; }

Instruction LoadOf(int64_t place, int64_t from, int64_t count) {
  Instruction load{.op = Opcode::kLoad};
  load.memory = static_cast<int64_t>(Memory::kUop);
  load.sram_base = place;
  load.dram_base = from;
  load.y_size = 1;
  load.x_size = load.x_stride = count;
  return load;
}

class UopCache {
 public:
  UopCache(int64_t capacity, const std::vector<VtaEvent>& events) : capacity_(capacity) {
    for (size_t at = 0; at < events.size(); ++at) {
      if (HasLoops(events[at].instruction))
        uses_[RangeOf(events[at].instruction)].push_back(static_cast<int64_t>(at));
    }
  }

  // The place of a range that is on the chip, or -1.
  int64_t Find(const Range& range) const {
    for (const auto& [place, held] : held_) {
      if (held.first <= range.first && range.second <= held.second)
        return place + range.first - held.first;
    }
    return -1;
  }

  // Puts a range where what it overwrites is needed last, seen from event `now`; returns the place.
  int64_t Put(const Range& range, int64_t now) {
    const int64_t size = range.second - range.first;
    TW_CHECK(size <= capacity_) << size;
    int64_t best = 0, latest = -1;
    const auto consider = [&](int64_t place) {
      if (place + size > capacity_) return;
      int64_t next = kNever;
      for (const auto& [at, held] : held_) {
        const bool apart = at >= place + size || at + held.second - held.first <= place;
        if (!apart) next = std::min(next, NextUse(held, now));
      }
      if (next > latest) best = place, latest = next;
    };
    consider(0);
    for (const auto& [at, held] : held_) {
      consider(at);
      consider(at + held.second - held.first);
    }
    std::erase_if(held_, [&](const auto& entry) {
      const auto& [at, held] = entry;
      return at < best + size && best < at + held.second - held.first;
    });
    held_[best] = range;
    return best;
  }

 private:
  int64_t NextUse(const Range& range, int64_t now) const {
    const std::vector<int64_t>& uses = uses_.at(range);
    const auto next = std::upper_bound(uses.begin(), uses.end(), now);
    return next == uses.end() ? kNever : *next;
  }

  const int64_t capacity_;
  std::map<Range, std::vector<int64_t>> uses_;  // by events, in their order
  std::map<int64_t, Range> held_;               // by place on the chip
};

}  // namespace

int64_t MicroOpTable::At(std::span<const MicroOp> wanted) {
  static_assert(std::has_unique_object_representations_v<MicroOp>);
  std::string key(reinterpret_cast<const char*>(wanted.data()), wanted.size_bytes());
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  const auto found = std::search(all_.begin(), all_.end(), wanted.begin(), wanted.end());
  const int64_t at = found - all_.begin();
  if (found == all_.end()) all_.insert(all_.end(), wanted.begin(), wanted.end());
  known_[std::move(key)] = at;
  return at;
}

void PlaceMicroOps(const Isa& isa, int64_t first, int64_t count, std::vector<VtaEvent>* events) {
  if (count == 0) return;
  const int64_t capacity = isa.InfoOf(Memory::kUop).elements;
  if (count <= capacity) {
    events->insert(events->begin(), {LoadOf(0, first, count), {}});
    return;
  }
  UopCache cache(capacity, *events);
  std::vector<VtaEvent> placed;
  placed.reserve(events->size());
  for (size_t at = 0; at < events->size(); ++at) {
    VtaEvent& event = (*events)[at];
    Instruction& i = event.instruction;
    if (HasLoops(i)) {
      const Range range = RangeOf(i);
      int64_t place = cache.Find(range);
      if (place < 0) {
        place = cache.Put(range, static_cast<int64_t>(at));
        placed.push_back({LoadOf(place, first + range.first, range.second - range.first), {}});
      }
      i.uop_begin = place;
      i.uop_end = place + range.second - range.first;
    }
    placed.push_back(std::move(event));
  }
  *events = std::move(placed);
}

}  // namespace tilewright::vta
