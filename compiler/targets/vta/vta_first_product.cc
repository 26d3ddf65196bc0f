#include "compiler/targets/vta/vta_first_product.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "compiler/targets/vta/vta_cycles.h"
#include "compiler/targets/vta/vta_transfers.h"
#include "deploy/support/status.h"

namespace tilewright::vta {
namespace {

constexpr size_t kOperands = 3;     // the sums, inputs and weights
constexpr int64_t kMostParts = 16;  // more are shorter than what begins each
// So many products, or instructions, show what another beginning gains: later ones have loads of
// their own to wait for.
constexpr size_t kProductsBehind = 4, kMostBehind = 32;

// The loop of a product that is cut, and the other one; steps in elements of each operand.
struct Loop {
  int64_t extent = 1;
  std::array<int64_t, kOperands> step = {};
};
struct Loops {
  Loop cut, other;
  bool out = false;  // the outer one is cut
};
Loops LoopsOf(const Instruction& i) {
  const Loop out{i.iter_out, {i.dst_factor_out, i.src_factor_out, i.wgt_factor_out}};
  const Loop in{i.iter_in, {i.dst_factor_in, i.src_factor_in, i.wgt_factor_in}};
  return i.iter_out > 1 ? Loops{out, in, true} : Loops{in, out, false};
}

int64_t& OperandOf(MicroOp& uop, size_t operand) {
  return operand == 0 ? uop.dst : operand == 1 ? uop.src : uop.wgt;
}

// Elements that iterations [from, to) of the cut loop touch.
struct Touched {
  int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
};
Touched TouchedBy(const Loops& loops, const std::vector<MicroOp>& uops, size_t operand,
                  int64_t from, int64_t to) {
  Touched range;
  for (MicroOp uop : uops) {
    const int64_t first = OperandOf(uop, operand) + from * loops.cut.step[operand];
    range.begin = std::min(range.begin, first);
    range.end = std::max(range.end, first + (to - from - 1) * loops.cut.step[operand] +
                                        (loops.other.extent - 1) * loops.other.step[operand] + 1);
  }
  return range;
}

struct FirstProduct {
  size_t at = 0;                       // in the stream
  std::vector<size_t> loads = {};      // of its operands
  std::vector<size_t> sum_loads = {};  // of what operations read, by compute
  std::vector<size_t> behind = {};     // loads and products that come next, in their order
  std::vector<MicroOp> uops = {};
  Loops loops = {};
};

bool LoadsOperands(const Instruction& i) {
  return i.op == Opcode::kLoad && ModuleOf(i) == Module::kLoad;
}

std::optional<FirstProduct> FindFirstProduct(const MicroOpTable& uops,
                                             const std::vector<VtaEvent>& events) {
  FirstProduct first;
  const auto is_gemm = [](const VtaEvent& e) { return e.instruction.op == Opcode::kGemm; };
  const auto found = std::find_if(events.begin(), events.end(), is_gemm);
  if (found == events.end() || found->instruction.reset != 0) return std::nullopt;
  first.at = static_cast<size_t>(found - events.begin());
  for (size_t e = 0, products = 0; e < events.size() && products < kProductsBehind; ++e) {
    if (e > first.at && first.behind.size() >= kMostBehind) break;
    const Instruction& i = events[e].instruction;
    if (e < first.at && i.op != Opcode::kLoad) return std::nullopt;
    if (e == first.at || i.op == Opcode::kStore) continue;
    const bool conflicts = Conflict(events[e], *found);
    if (e < first.at && !LoadsOperands(i)) {
      if (conflicts) return std::nullopt;
      first.sum_loads.push_back(e);
    } else if (e < first.at && conflicts) {
      first.loads.push_back(e);
    } else {
      first.behind.push_back(e);
      products += i.op == Opcode::kGemm ? 1 : 0;
    }
  }
  const Instruction& i = found->instruction;
  first.uops.assign(uops.all().begin() + i.uop_begin, uops.all().begin() + i.uop_end);
  first.loops = LoopsOf(i);
  return first;
}

// How many elements of a load the iterations of the cut loop up to `to` need: whole rows. All of a
// load with padding, since its rows are not all there is of it.
int64_t NeededOf(const FirstProduct& first, const VtaEvent& load, int64_t to) {
  const Instruction& i = load.instruction;
  const int64_t all = load.regions[0].end - load.regions[0].begin;
  const bool padded = i.y_pad_0 + i.y_pad_1 + i.x_pad_0 + i.x_pad_1 > 0;
  const size_t operand = i.memory == static_cast<int64_t>(Memory::kInp) ? 1 : 2;
  // The last part brings what the products behind the first need, too.
  if (to == first.loops.cut.extent || padded || first.loops.cut.step[operand] < 0 ||
      first.loops.other.step[operand] < 0)
    return all;
  const int64_t end = TouchedBy(first.loops, first.uops, operand, 0, to).end;
  const int64_t row = i.y_size > 1 ? i.x_size : 1;
  return std::clamp<int64_t>((end - load.regions[0].begin + row - 1) / row * row, 0, all);
}

// How the stream begins: in how many parts the first product is, and behind how many of them
// compute loads what operations read.
struct Beginning {
  int64_t parts = 1, before_sums = 0;
};

// When the modules load and compute are done with instructions, and the DRAM that they share. They
// wait for each other as a stream's tokens have it.
class Start {
 public:
  // A load by the module of loads, behind so many of compute's instructions.
  void Load(int64_t beats, size_t behind = 0) { loads_.push_back({beats, 0, behind}); }
  void ComputeLoad(int64_t beats) { steps_.push_back({beats, 0, 0}); }
  // Compute's work, behind so many loads.
  void Compute(int64_t cycles, size_t behind) { steps_.push_back({0, cycles, behind}); }
  size_t loads() const { return loads_.size(); }
  size_t steps() const { return steps_.size(); }

  // When compute is done.
  int64_t Run() {
    while (stepped_.size() < steps_.size()) {
      const Work& step = steps_[stepped_.size()];
      const bool can_step = step.behind <= loaded_.size();
      const bool can_load =
          loaded_.size() < loads_.size() && loads_[loaded_.size()].behind <= stepped_.size();
      TW_CHECK(can_step || can_load) << stepped_.size();
      const bool reads = step.beats > 0;
      if (can_step && (!reads || !can_load || End(stepped_) <= NextLoad())) {
        const int64_t begin = std::max(End(stepped_), EndOf(loaded_, step.behind));
        stepped_.push_back(reads ? Read(begin, step.beats) : begin + step.cycles);
      } else {
        loaded_.push_back(Read(NextLoad(), loads_[loaded_.size()].beats));
      }
    }
    return End(stepped_);
  }

 private:
  struct Work {
    int64_t beats, cycles;
    size_t behind;
  };
  static int64_t EndOf(const std::vector<int64_t>& ends, size_t count) {
    return count == 0 ? 0 : ends[count - 1];
  }
  static int64_t End(const std::vector<int64_t>& ends) { return EndOf(ends, ends.size()); }
  int64_t NextLoad() const {
    return std::max(End(loaded_), EndOf(stepped_, loads_[loaded_.size()].behind));
  }
  int64_t Read(int64_t now, int64_t beats) {
    dram_ = std::max(now + kTransferBegins, dram_) + beats;
    return dram_;
  }

  std::vector<Work> loads_, steps_;
  std::vector<int64_t> loaded_, stepped_;  // the ends of those that are done
  int64_t dram_ = 0;
};

int64_t BeatsOf(const Isa& isa, const VtaEvent& load, int64_t elements) {
  return BeatsOf(isa, static_cast<Memory>(load.instruction.memory), elements);
}
int64_t BeatsOf(const Isa& isa, const VtaEvent& load) {
  return BeatsOf(isa, load, load.regions[0].end - load.regions[0].begin);
}

// Appends the loads and products behind the first.
void AddBehind(const Isa& isa, const FirstProduct& first, const std::vector<VtaEvent>& events,
               Start* start) {
  std::vector<std::pair<size_t, size_t>> loads, computes;  // events, and how many were before
  computes.emplace_back(first.at, start->steps());
  for (const size_t load : first.loads) loads.emplace_back(load, start->loads());
  const auto last_conflict = [&](const auto& earlier, size_t e) -> size_t {
    for (size_t n = earlier.size(); n-- > 0;) {
      if (Conflict(events[earlier[n].first], events[e])) return earlier[n].second;
    }
    return 0;
  };
  for (const size_t e : first.behind) {
    const Instruction& i = events[e].instruction;
    if (LoadsOperands(i)) {
      // Those that stood before the first product wait for none.
      start->Load(BeatsOf(isa, events[e]), e < first.at ? 0 : last_conflict(computes, e));
      loads.emplace_back(e, start->loads());
    } else if (i.op == Opcode::kLoad) {
      start->ComputeLoad(BeatsOf(isa, events[e]));
      computes.emplace_back(e, start->steps());
    } else {
      start->Compute(ComputeCycles(i), last_conflict(loads, e));
      computes.emplace_back(e, start->steps());
    }
  }
}

// Cycles until compute is done with the first products.
int64_t CyclesOf(const Isa& isa, const FirstProduct& first, const std::vector<VtaEvent>& events,
                 int64_t all_uops, const Beginning& beginning) {
  const int64_t size = first.loops.cut.extent / beginning.parts;
  const auto uops = static_cast<int64_t>(first.uops.size());
  const int64_t more_uops = beginning.parts > 1 ? beginning.parts * uops : 0;
  Start start;
  start.ComputeLoad(BeatsOf(isa, Memory::kUop, all_uops + more_uops));
  std::vector<int64_t> loaded(first.loads.size(), 0);
  for (int64_t part = 0; part <= beginning.parts; ++part) {
    if (part == beginning.before_sums) {
      for (const size_t load : first.sum_loads) start.ComputeLoad(BeatsOf(isa, events[load]));
    }
    if (part == beginning.parts) break;
    for (size_t l = 0; l < loaded.size(); ++l) {
      const VtaEvent& event = events[first.loads[l]];
      const int64_t needed = NeededOf(first, event, (part + 1) * size);
      if (needed > loaded[l]) start.Load(BeatsOf(isa, event, needed - loaded[l]));
      loaded[l] = needed;
    }
    start.Compute(kLoopsBegin + size * first.loops.other.extent * uops, start.loads());
  }
  AddBehind(isa, first, events, &start);
  return start.Run();
}

Beginning BestBeginning(const Isa& isa, const FirstProduct& first,
                        const std::vector<VtaEvent>& events, int64_t all_uops) {
  const int64_t free_uops = isa.InfoOf(Memory::kUop).elements - all_uops;
  Beginning best;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int64_t parts = 1; parts <= std::min(kMostParts, first.loops.cut.extent); ++parts) {
    if (parts > 1 && parts * static_cast<int64_t>(first.uops.size()) > free_uops) break;
    if (first.loops.cut.extent % parts != 0) continue;
    for (const int64_t before : {int64_t{0}, int64_t{1}, parts}) {
      const Beginning beginning{parts, before};
      const int64_t cycles = CyclesOf(isa, first, events, all_uops, beginning);
      if (cycles < least) best = beginning, least = cycles;
    }
  }
  return best;
}

VtaEvent PartOfProduct(const FirstProduct& first, const VtaEvent& whole, int64_t from, int64_t to,
                       MicroOpTable* uops) {
  VtaEvent part = whole;
  Instruction& i = part.instruction;
  (first.loops.out ? i.iter_out : i.iter_in) = to - from;
  std::vector<MicroOp> moved = first.uops;
  for (MicroOp& uop : moved) {
    for (size_t k = 0; k < kOperands; ++k) OperandOf(uop, k) += from * first.loops.cut.step[k];
  }
  i.uop_begin = uops->At(moved);
  i.uop_end = i.uop_begin + static_cast<int64_t>(moved.size());
  for (VtaRegion& region : part.regions) {
    const size_t operand = region.space == static_cast<int>(Memory::kAcc)   ? 0
                           : region.space == static_cast<int>(Memory::kInp) ? 1
                                                                            : 2;
    if (first.loops.cut.step[operand] < 0 || first.loops.other.step[operand] < 0) continue;
    const Touched range = TouchedBy(first.loops, first.uops, operand, from, to);
    region.begin = range.begin;
    region.end = range.end;
  }
  return part;
}

// The loads and products in their parts.
void AppendParts(const Isa& isa, const FirstProduct& first, const std::vector<VtaEvent>& events,
                 int64_t parts, MicroOpTable* uops, std::vector<VtaEvent>* loads,
                 std::vector<VtaEvent>* products) {
  const int64_t size = first.loops.cut.extent / parts;
  std::vector<int64_t> loaded(first.loads.size(), 0);
  for (int64_t part = 0; part < parts; ++part) {
    for (size_t l = 0; l < loaded.size(); ++l) {
      const VtaEvent& whole = events[first.loads[l]];
      const int64_t needed = NeededOf(first, whole, (part + 1) * size);
      if (needed == loaded[l]) continue;
      const bool all = needed - loaded[l] == whole.regions[0].end - whole.regions[0].begin;
      loads->push_back(all ? whole : PartOfTransfer(isa, whole, loaded[l], needed - loaded[l]));
      loaded[l] = needed;
    }
    products->push_back(
        parts == 1 ? events[first.at]
                   : PartOfProduct(first, events[first.at], part * size, (part + 1) * size, uops));
  }
}

}  // namespace

void SliceFirstProduct(const Isa& isa, MicroOpTable* uops, std::vector<VtaEvent>* events) {
  const std::optional<FirstProduct> first = FindFirstProduct(*uops, *events);
  if (!first.has_value() || first->loads.empty()) return;
  const Beginning beginning = BestBeginning(isa, *first, *events, uops->size());
  std::vector<VtaEvent> loads, products;
  AppendParts(isa, *first, *events, beginning.parts, uops, &loads, &products);
  std::vector<VtaEvent> sum_loads;
  for (const size_t load : first->sum_loads) sum_loads.push_back((*events)[load]);
  products.insert(products.begin() + beginning.before_sums, sum_loads.begin(), sum_loads.end());
  std::set<size_t> replaced(first->loads.begin(), first->loads.end());
  replaced.insert(first->sum_loads.begin(), first->sum_loads.end());
  std::vector<VtaEvent> cut;
  for (size_t e = 0; e < events->size(); ++e) {
    if (e == first->loads[0]) cut.insert(cut.end(), loads.begin(), loads.end());
    if (e == first->at) {
      cut.insert(cut.end(), products.begin(), products.end());
    } else if (!replaced.contains(e)) {
      cut.push_back(std::move((*events)[e]));
    }
  }
  *events = std::move(cut);
}

}  // namespace tilewright::vta
