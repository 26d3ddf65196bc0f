#include "compiler/targets/vta/vta_first_product.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <utility>

#include "compiler/targets/vta/vta_cycles.h"

namespace tilewright::vta {
namespace {

constexpr size_t kOperands = 3;  // the sums, inputs and weights

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
  size_t at = 0;                        // in the stream
  std::vector<size_t> loads = {};       // of its operands
  std::vector<size_t> next_loads = {};  // of those of the product behind it
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
  const auto next = std::find_if(found + 1, events.end(), is_gemm);
  for (size_t e = 0; e < static_cast<size_t>(next - events.begin()); ++e) {
    const Instruction& i = events[e].instruction;
    if (e < first.at && i.op != Opcode::kLoad) return std::nullopt;
    if (!LoadsOperands(i)) continue;
    if (e < first.at && Conflict(events[e], *found)) {
      first.loads.push_back(e);
    } else if (next != events.end() && Conflict(events[e], *next)) {
      first.next_loads.push_back(e);
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
  if (padded || first.loops.cut.step[operand] < 0 || first.loops.other.step[operand] < 0)
    return all;
  const int64_t end = TouchedBy(first.loops, first.uops, operand, 0, to).end;
  const int64_t row = i.y_size > 1 ? i.x_size : 1;
  return std::clamp<int64_t>((end - load.regions[0].begin + row - 1) / row * row, 0, all);
}

int64_t LoadCycles(const Isa& isa, const VtaEvent& load, int64_t elements) {
  return kTransferBegins + BeatsOf(isa, static_cast<Memory>(load.instruction.memory), elements);
}

// Cycles until the product behind the first can begin.
int64_t CyclesOf(const Isa& isa, const FirstProduct& first, const std::vector<VtaEvent>& events,
                 int64_t parts) {
  const int64_t size = first.loops.cut.extent / parts;
  const auto uops = static_cast<int64_t>(first.uops.size());
  int64_t load = 0, compute = 0;
  std::vector<int64_t> loaded(first.loads.size(), 0);
  for (int64_t part = 1; part <= parts; ++part) {
    for (size_t l = 0; l < loaded.size(); ++l) {
      const VtaEvent& event = events[first.loads[l]];
      const int64_t needed = NeededOf(first, event, part * size);
      if (needed == loaded[l]) continue;
      load += LoadCycles(isa, event, needed - loaded[l]);
      loaded[l] = needed;
    }
    compute = std::max(compute, load) + kLoopsBegin + size * first.loops.other.extent * uops;
  }
  for (const size_t next : first.next_loads) {
    const VtaRegion& region = events[next].regions[0];
    load += LoadCycles(isa, events[next], region.end - region.begin);
  }
  return std::max(compute, load) + (parts > 1 ? BeatsOf(isa, Memory::kUop, parts * uops) : 0);
}

int64_t BestParts(const Isa& isa, const FirstProduct& first, const std::vector<VtaEvent>& events,
                  int64_t free_uops) {
  int64_t best = 1, least = CyclesOf(isa, first, events, 1);
  for (int64_t parts = 2; parts <= first.loops.cut.extent; ++parts) {
    if (parts * static_cast<int64_t>(first.uops.size()) > free_uops) break;
    if (first.loops.cut.extent % parts != 0) continue;
    const int64_t cycles = CyclesOf(isa, first, events, parts);
    if (cycles < least) best = parts, least = cycles;
  }
  return best;
}

// The elements [from, to) of a load, from the start of a row up to the end of one.
VtaEvent PartOfLoad(const Isa& isa, const VtaEvent& whole, int64_t from, int64_t to) {
  VtaEvent part = whole;
  Instruction& i = part.instruction;
  if (i.y_size > 1) {
    i.dram_base += from / i.x_size * i.x_stride;
    i.y_size = (to - from) / i.x_size;
  } else {
    i.dram_base += from;
    i.x_size = i.x_stride = to - from;
  }
  i.sram_base += from;
  const int64_t bytes = isa.InfoOf(static_cast<Memory>(i.memory)).element_bytes;
  const int64_t end = i.dram_base + (i.y_size - 1) * i.x_stride + i.x_size;
  part.regions[0].begin = i.sram_base;
  part.regions[0].end = i.sram_base + to - from;
  part.regions[1].begin = i.dram_base * bytes;
  part.regions[1].end = end * bytes;
  return part;
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

}  // namespace

void SliceFirstProduct(const Isa& isa, MicroOpTable* uops, std::vector<VtaEvent>* events) {
  const std::optional<FirstProduct> first = FindFirstProduct(*uops, *events);
  if (!first.has_value() || first->loads.empty()) return;
  const int64_t parts =
      BestParts(isa, *first, *events, isa.InfoOf(Memory::kUop).elements - uops->size());
  if (parts == 1) return;
  const int64_t size = first->loops.cut.extent / parts;
  std::vector<VtaEvent> loads, products;
  std::vector<int64_t> loaded(first->loads.size(), 0);
  for (int64_t part = 0; part < parts; ++part) {
    for (size_t l = 0; l < loaded.size(); ++l) {
      const VtaEvent& whole = (*events)[first->loads[l]];
      const int64_t needed = NeededOf(*first, whole, (part + 1) * size);
      if (needed == loaded[l]) continue;
      const bool all = needed - loaded[l] == whole.regions[0].end - whole.regions[0].begin;
      loads.push_back(all ? whole : PartOfLoad(isa, whole, loaded[l], needed));
      loaded[l] = needed;
    }
    products.push_back(
        PartOfProduct(*first, (*events)[first->at], part * size, (part + 1) * size, uops));
  }
  std::vector<VtaEvent> cut;
  for (size_t e = 0; e < events->size(); ++e) {
    if (e == first->loads[0]) cut.insert(cut.end(), loads.begin(), loads.end());
    if (e == first->at) cut.insert(cut.end(), products.begin(), products.end());
    const bool replaced = e == first->at || std::find(first->loads.begin(), first->loads.end(),
                                                      e) != first->loads.end();
    if (!replaced) cut.push_back(std::move((*events)[e]));
  }
  *events = std::move(cut);
}

}  // namespace tilewright::vta
