// The results of a stream: what it stores, and the operations that make it, which can be cut. Pure
// functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "compiler/targets/vta/vta_tokens.h"
#include "compiler/targets/vta/vta_uops.h"
#include "vta/isa/isa.h"

namespace tilewright::vta {

// Stores one after the other, of elements [begin, end) of acc, and the operations right before
// them, each over all of these elements, one after the other.
struct Results {
  size_t first_operation = 0, first_store = 0, last = 0;  // in the stream; `last` is behind them
  int64_t begin = std::numeric_limits<int64_t>::max(), end = 0;
  int64_t before = 0;     // cycles of compute since the results before
  int64_t until_use = 0;  // cycles of compute from here to the next that waits for the stores
  int64_t size() const { return end - begin; }
  int64_t operations() const { return static_cast<int64_t>(first_store - first_operation); }
};

// All results, in their order. Those whose operations have another form have none.
std::vector<Results> FindResults(const MicroOpTable& uops, const std::vector<VtaEvent>& events);

// Elements [from, from + size) of results, counted from their first.
struct Slice {
  int64_t from = 0, size = 0;
};

// Whether instructions can do the slice alone: it is whole outer iterations of each operation or a
// part of one, and whole stores or rows of one or a part of one.
bool CanCut(const Results& results, const std::vector<VtaEvent>& events, const Slice& slice);

// Appends the slice's instructions; `uops` gets their micro-ops.
void AppendSlice(const Isa& isa, const Results& results, const std::vector<VtaEvent>& events,
                 const Slice& slice, MicroOpTable* uops, std::vector<VtaEvent>* to);

// How many stores the slice is.
int64_t StoresOf(const Results& results, const std::vector<VtaEvent>& events, const Slice& slice);

}  // namespace tilewright::vta
