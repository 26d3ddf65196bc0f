#include "compiler/targets/vta/vta_slices.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "compiler/targets/vta/vta_codegen.h"
#include "vta/isa/timing.h"

namespace tilewright::vta {
namespace {

constexpr CycleTiming kTiming;
constexpr int kAcc = static_cast<int>(Memory::kAcc);

// Stores one after the other, of elements [begin, end) of acc, and the operations right before
// them, each over all of these elements.
struct Results {
  size_t first_operation = 0, first_store = 0, last = 0;  // in the stream; `last` is behind them
  int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
  int64_t before = 0;     // cycles of compute since the results before
  int64_t until_use = 0;  // cycles of compute from here to the next that waits for the stores
  int64_t size() const { return end - begin; }
  int64_t operations() const { return static_cast<int64_t>(first_store - first_operation); }
};

// The iterations that an operation or a store has without a change of its outer loop.
int64_t InnerOf(const Instruction& i) {
  if (i.op == Opcode::kStore) return i.x_size;
  return i.iter_in > 1 ? i.iter_in : 1;
}

// Whether the operation goes over `size` elements from `begin`, one after the other, and reads
// nothing else of them.
bool GoesOver(const VtaEvent& event, const MicroOpTable& uops, int64_t begin, int64_t size) {
  const Instruction& i = event.instruction;
  if (i.op != Opcode::kAlu || i.uop_end != i.uop_begin + 1 || i.iter_out * i.iter_in != size)
    return false;
  const MicroOp& uop = uops.all()[static_cast<size_t>(i.uop_begin)];
  if (uop.dst != begin || (i.iter_in > 1 && i.dst_factor_in != 1) ||
      (i.iter_out > 1 && i.dst_factor_out != i.iter_in))
    return false;
  return std::all_of(event.regions.begin(), event.regions.end(), [&](const VtaRegion& r) {
    return r.is_write || r.end <= begin || r.begin >= begin + size;
  });
}

int64_t CyclesOfElement(const Instruction& i) {
  return i.op == Opcode::kAlu && i.use_imm == 0 ? CycleTiming::kTwoOperandCycles : 1;
}

// Cycles of compute for a product or operation.
int64_t ComputeCycles(const Instruction& i) {
  if (i.op != Opcode::kGemm && i.op != Opcode::kAlu) return 0;
  return CycleTiming::kDecodeCycles + kTiming.pipeline_depth +
         i.iter_out * i.iter_in * (i.uop_end - i.uop_begin) * CyclesOfElement(i);
}

// Cycles of compute behind the results until something touches their elements.
int64_t CyclesUntilUse(const Results& results, const std::vector<VtaEvent>& events) {
  const VtaEvent stored{.instruction = {},
                        .regions = {{kAcc, results.begin, results.end, /*is_write=*/false}}};
  int64_t cycles = 0;
  for (size_t at = results.last; at < events.size(); ++at) {
    if (Conflict(events[at], stored)) break;
    cycles += ComputeCycles(events[at].instruction);
  }
  return cycles;
}

// The results of a stream. Those whose operations have another form have none.
std::vector<Results> FindResults(const MicroOpTable& uops, const std::vector<VtaEvent>& events) {
  std::vector<Results> all;
  size_t behind = 0;  // the results before
  for (size_t at = 0; at < events.size(); ++at) {
    if (events[at].instruction.op != Opcode::kStore) continue;
    Results found{.first_store = at, .last = at};
    for (; found.last < events.size() && events[found.last].instruction.op == Opcode::kStore;
         ++found.last) {
      const VtaRegion& stored = events[found.last].regions[0];
      found.begin = std::min(found.begin, stored.begin);
      found.end = std::max(found.end, stored.end);
    }
    found.first_operation = found.first_store;
    while (found.first_operation > behind &&
           GoesOver(events[found.first_operation - 1], uops, found.begin, found.size()))
      --found.first_operation;
    for (size_t e = behind; e < found.first_operation; ++e)
      found.before += ComputeCycles(events[e].instruction);
    found.until_use = CyclesUntilUse(found, events);
    at = behind = found.last;
    all.push_back(found);
  }
  return all;
}

// Whether a slice of `size` elements is whole outer iterations of the instruction, or part of one.
bool CanCut(const Instruction& i, int64_t size) {
  const int64_t inner = InnerOf(i);
  return size % inner == 0 || inner % size == 0;
}

// Whether slices of `size` are parts of every instruction, and each of one store.
bool CanCut(const Results& results, const std::vector<VtaEvent>& events, int64_t size) {
  for (size_t at = results.first_operation; at < results.last; ++at) {
    if (!CanCut(events[at].instruction, size)) return false;
    if (at < results.first_store) continue;
    const VtaRegion& stored = events[at].regions[0];
    if ((stored.begin - results.begin) % size != 0 || (stored.end - stored.begin) % size != 0)
      return false;
  }
  return true;
}

// Into how many slices the results can be cut, in rising order; at most `most`.
std::vector<int64_t> Menu(const Results& results, const std::vector<VtaEvent>& events,
                          int64_t most) {
  std::vector<int64_t> menu = {1};
  for (int64_t slices = 2; slices <= std::min(most, results.size()); ++slices) {
    if (results.size() % slices == 0 && CanCut(results, events, results.size() / slices))
      menu.push_back(slices);
  }
  return menu;
}

// When compute and store are done with what was before.
struct Clock {
  int64_t compute = 0, store = 0;
};

// Lets the clock run over results in so many slices.
Clock After(const Isa& isa, const Results& results, const std::vector<VtaEvent>& events,
            int64_t slices, Clock clock) {
  const int64_t size = results.size() / slices;
  const int64_t element = isa.InfoOf(Memory::kOut).element_bytes;
  const auto beats = [&](int64_t elements) {
    return (elements * element + kTiming.bytes_per_beat - 1) / kTiming.bytes_per_beat;
  };
  const int64_t begin = CycleTiming::kDecodeCycles + kTiming.dram_latency;  // of a store
  clock.compute += results.before;
  for (int64_t slice = 0; slice < slices; ++slice) {
    for (size_t at = results.first_operation; at < results.first_store; ++at) {
      clock.compute += CycleTiming::kDecodeCycles + kTiming.pipeline_depth +
                       size * CyclesOfElement(events[at].instruction);
    }
    clock.store = std::max(clock.store, clock.compute) + begin + beats(size);
  }
  if (slices == 1) {
    const auto stores = static_cast<int64_t>(results.last - results.first_store);
    clock.store += (stores - 1) * begin;
  }
  return clock;
}

// A number of slices for each of some results.
using Slices = std::vector<int64_t>;

class Slicer {
 public:
  Slicer(const Isa& isa, const MicroOpTable& uops, const std::vector<VtaEvent>& events)
      : isa_(isa), uops_(uops), events_(events), results_(FindResults(uops, events)) {}

  const std::vector<Results>& results() const { return results_; }

  // Slices with which the stream takes the fewest cycles, as far as stores decide.
  Slices Best() {
    Slices slices;
    Clock clock;
    for (size_t r = 0; r + 2 < results_.size(); ++r) {
      slices.push_back(BestOf(results_[r], clock));
      clock = After(isa_, results_[r], events_, slices.back(), clock);
      Reserve(results_[r], slices.back());
    }
    const Slices last = BestOfLast(clock);
    slices.insert(slices.end(), last.begin(), last.end());
    return slices;
  }

 private:
  // The most slices of results for which there is room, if as many others want some too.
  int64_t Room(const Results& results, int64_t others) const {
    if (results.operations() == 0) return 1;
    const int64_t uops = isa_.InfoOf(Memory::kUop).elements - uops_.size() - used_uops_;
    const int64_t instructions =
        kMaxInstructions - 2 - static_cast<int64_t>(events_.size()) - used_instructions_;
    const int64_t each = results.operations();
    return std::min(uops / each, instructions / (each + 1)) / (others + 1);
  }
  void Reserve(const Results& results, int64_t slices) {
    if (slices == 1) return;
    used_instructions_ += slices * (results.operations() + 1);
    // Results at the same place share micro-ops.
    if (reserved_.insert({results.begin, slices}).second)
      used_uops_ += slices * results.operations();
  }

  // What they touch next waits as little as it can.
  int64_t BestOf(const Results& results, const Clock& clock) const {
    int64_t best = 1, least = std::numeric_limits<int64_t>::max();
    for (const int64_t slices : Menu(results, events_, Room(results, 0))) {
      const Clock after = After(isa_, results, events_, slices, clock);
      const int64_t cycles = std::max(after.compute, after.store - results.until_use);
      if (cycles < least) best = slices, least = cycles;
    }
    return best;
  }

  // The stream ends with the last store, which the one before it may delay.
  Slices BestOfLast(const Clock& clock) const {
    if (results_.empty()) return {};
    const Results& last = results_.back();
    Slices best;
    int64_t least = std::numeric_limits<int64_t>::max();
    const auto consider = [&](const Clock& start, int64_t load, Slices slices) {
      for (const int64_t of_last : Menu(last, events_, Room(last, 1))) {
        const Clock after = After(isa_, last, events_, of_last, start);
        const int64_t cycles = after.store + load + LoadCycles(last, of_last);
        if (cycles >= least) continue;
        least = cycles;
        best = slices;
        best.push_back(of_last);
      }
    };
    if (results_.size() == 1) {
      consider(clock, 0, {});
      return best;
    }
    const Results& before = results_[results_.size() - 2];
    for (const int64_t of_before : Menu(before, events_, Room(before, 1))) {
      consider(After(isa_, before, events_, of_before, clock), LoadCycles(before, of_before),
               {of_before});
    }
    return best;
  }

  // What the slices' micro-ops add to the load of all at the start.
  int64_t LoadCycles(const Results& results, int64_t slices) const {
    if (slices == 1) return 0;
    return slices * results.operations() * isa_.InfoOf(Memory::kUop).element_bytes /
           kTiming.bytes_per_beat;
  }

  const Isa& isa_;
  const MicroOpTable& uops_;
  const std::vector<VtaEvent>& events_;
  const std::vector<Results> results_;
  int64_t used_uops_ = 0, used_instructions_ = 0;
  std::set<std::pair<int64_t, int64_t>> reserved_;  // begin of results, slices
};

// The elements [from, from + size) of those that an operation goes over.
VtaEvent SliceOfOperation(const VtaEvent& whole, MicroOpTable* uops, int64_t from, int64_t size) {
  VtaEvent slice = whole;
  Instruction& i = slice.instruction;
  MicroOp uop = uops->all()[static_cast<size_t>(i.uop_begin)];
  const int64_t out = from / i.iter_in, in = from % i.iter_in;
  uop.dst += from;
  uop.src += out * i.src_factor_out + in * i.src_factor_in;
  i.iter_out = std::max<int64_t>(1, size / i.iter_in);
  i.iter_in = std::min(i.iter_in, size);
  i.uop_begin = uops->At({&uop, 1});
  i.uop_end = i.uop_begin + 1;
  for (VtaRegion& region : slice.regions) {
    if (region.is_write) region = {kAcc, uop.dst, uop.dst + size, true};
  }
  return slice;
}

// The elements [from, from + size) of those that a store moves.
VtaEvent SliceOfStore(const Isa& isa, const VtaEvent& whole, int64_t from, int64_t size) {
  VtaEvent slice = whole;
  Instruction& i = slice.instruction;
  i.sram_base += from;
  i.dram_base += from / i.x_size * i.x_stride + from % i.x_size;
  i.y_size = std::max<int64_t>(1, size / i.x_size);
  i.x_size = std::min(i.x_size, size);
  if (i.y_size == 1) i.x_stride = i.x_size;
  const int64_t bytes = isa.InfoOf(Memory::kOut).element_bytes;
  const int64_t end = i.dram_base + (i.y_size - 1) * i.x_stride + i.x_size;
  slice.regions[0].begin = i.sram_base;
  slice.regions[0].end = i.sram_base + size;
  slice.regions[1].begin = i.dram_base * bytes;
  slice.regions[1].end = end * bytes;
  return slice;
}

// Appends the slices of results to `cut`.
void Cut(const Isa& isa, const Results& results, int64_t slices,
         const std::vector<VtaEvent>& events, MicroOpTable* uops, std::vector<VtaEvent>* cut) {
  const int64_t size = results.size() / slices;
  for (int64_t from = 0; from < results.size(); from += size) {
    for (size_t at = results.first_operation; at < results.last; ++at) {
      const VtaEvent& event = events[at];
      if (event.instruction.op != Opcode::kStore) {
        cut->push_back(SliceOfOperation(event, uops, from, size));
        continue;
      }
      const VtaRegion& stored = event.regions[0];
      const int64_t place = results.begin + from;
      if (place >= stored.begin && place < stored.end)
        cut->push_back(SliceOfStore(isa, event, place - stored.begin, size));
    }
  }
}

}  // namespace

void SliceStores(const Isa& isa, MicroOpTable* uops, std::vector<VtaEvent>* events) {
  Slicer slicer(isa, *uops, *events);
  const Slices slices = slicer.Best();
  std::vector<VtaEvent> cut;
  size_t done = 0;
  const auto copy = [&](size_t to) {
    for (; done < to; ++done) cut.push_back((*events)[done]);
  };
  for (size_t r = 0; r < slices.size(); ++r) {
    const Results& results = slicer.results()[r];
    if (slices[r] == 1) continue;
    copy(results.first_operation);
    Cut(isa, results, slices[r], *events, uops, &cut);
    done = results.last;
  }
  copy(events->size());
  *events = std::move(cut);
}

}  // namespace tilewright::vta
