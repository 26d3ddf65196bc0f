#include "compiler/targets/vta/vta_results.h"

#include <algorithm>

#include "compiler/targets/vta/vta_cycles.h"
#include "compiler/targets/vta/vta_transfers.h"

namespace tilewright::vta {
namespace {

constexpr int kSums = static_cast<int>(Memory::kAcc);

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

// Cycles of compute behind the results until something touches their elements.
int64_t CyclesUntilUse(const Results& results, const std::vector<VtaEvent>& events) {
  const VtaEvent stored{.instruction = {},
                        .regions = {{kSums, results.begin, results.end, /*is_write=*/false}}};
  int64_t cycles = 0;
  for (size_t at = results.last; at < events.size(); ++at) {
    if (Conflict(events[at], stored)) break;
    cycles += ComputeCycles(events[at].instruction);
  }
  return cycles;
}

// Whether [from, from + size) is whole runs of `inner` elements, or in one of them.
bool IsRuns(int64_t from, int64_t size, int64_t inner) {
  if (from % inner == 0 && size % inner == 0) return true;
  return from / inner == (from + size - 1) / inner;
}

// Elements that an operation goes over in one iteration of its outer loop.
int64_t InnerOf(const Instruction& i) { return i.iter_in > 1 ? i.iter_in : 1; }

VtaEvent SliceOfOperation(const VtaEvent& whole, const Slice& part, MicroOpTable* uops) {
  VtaEvent slice = whole;
  Instruction& i = slice.instruction;
  MicroOp uop = uops->all()[static_cast<size_t>(i.uop_begin)];
  const int64_t out = part.from / i.iter_in, in = part.from % i.iter_in;
  uop.dst += part.from;
  uop.src += out * i.src_factor_out + in * i.src_factor_in;
  i.iter_out = std::max<int64_t>(1, part.size / i.iter_in);
  i.iter_in = std::min(i.iter_in, part.size);
  i.uop_begin = uops->At({&uop, 1});
  i.uop_end = i.uop_begin + 1;
  for (VtaRegion& region : slice.regions) {
    if (region.is_write) region = {kSums, uop.dst, uop.dst + part.size, true};
  }
  return slice;
}

// What of a store is in a slice of the results, counted from the store's first element.
Slice InStore(const Results& results, const VtaRegion& stored, const Slice& slice) {
  const int64_t offset = stored.begin - results.begin, size = stored.end - stored.begin;
  const int64_t begin = std::clamp<int64_t>(slice.from - offset, 0, size);
  return {begin, std::clamp<int64_t>(slice.from + slice.size - offset, 0, size) - begin};
}

}  // namespace

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

bool CanCut(const Results& results, const std::vector<VtaEvent>& events, const Slice& slice) {
  for (size_t at = results.first_operation; at < results.first_store; ++at) {
    if (!IsRuns(slice.from, slice.size, InnerOf(events[at].instruction))) return false;
  }
  for (size_t at = results.first_store; at < results.last; ++at) {
    const VtaRegion& stored = events[at].regions[0];
    const Slice part = InStore(results, stored, slice);
    if (part.size == 0 || part.size == stored.end - stored.begin) continue;
    if (part.size != slice.size) return false;
    if (!IsRuns(part.from, part.size, events[at].instruction.x_size)) return false;
  }
  return true;
}

void AppendSlice(const Isa& isa, const Results& results, const std::vector<VtaEvent>& events,
                 const Slice& slice, MicroOpTable* uops, std::vector<VtaEvent>* to) {
  for (size_t at = results.first_operation; at < results.first_store; ++at)
    to->push_back(SliceOfOperation(events[at], slice, uops));
  for (size_t at = results.first_store; at < results.last; ++at) {
    const Slice part = InStore(results, events[at].regions[0], slice);
    if (part.size > 0) to->push_back(PartOfTransfer(isa, events[at], part.from, part.size));
  }
}

int64_t StoresOf(const Results& results, const std::vector<VtaEvent>& events, const Slice& slice) {
  int64_t stores = 0;
  for (size_t at = results.first_store; at < results.last; ++at)
    stores += InStore(results, events[at].regions[0], slice).size > 0 ? 1 : 0;
  return stores;
}

}  // namespace tilewright::vta
