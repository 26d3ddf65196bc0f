// Which part of a buffer a piece of program touches: a box per buffer, for compute_at, buffer
// compaction and declared regions. Pure functions; thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "compiler/analysis/analyzer.h"
#include "compiler/ir/ir.h"

namespace tilewright::analysis {

struct LoopRange {
  ir::Var var;
  ir::Range range;  // in terms of what stays fixed, or of loops earlier in the list
};
struct RegionOptions {
  bool clamp_to_shape =
      false;  // cut the box to the buffer: min(...) / max(...) expressions where it is not decided
};

// The box of `indices[k]` (one vector per access) while `inner` loops run and everything else stays
// fixed; each range of the result is over the fixed variables. Exact for affine indices and for
// what split and fuse make of them; otherwise an over-approximation, at worst the whole dimension.
// Never an under-approximation.
ir::BufferRegion RegionOf(const ir::Buffer& buffer,
                          const std::vector<std::vector<ir::Expr>>& indices,
                          const std::vector<LoopRange>& inner, const Analyzer& analyzer,
                          const RegionOptions& options = {});

// The same for a list of regions of one buffer (declared reads or writes of blocks).
ir::BufferRegion RegionOf(const ir::Buffer& buffer, const std::vector<ir::BufferRegion>& regions,
                          const std::vector<LoopRange>& inner, const Analyzer& analyzer,
                          const RegionOptions& options = {});

// Every load from (reads) or store to (writes) `buffer` in a statement without free inner variables
// left: loops and block iterations inside `s` are the inner ranges. Block predicates and if
// conditions are not used to shrink the box, but for rows and columns of an open length. Nothing
// where it is not accessed (the box of a buffer without dimensions has none either).
struct StmtAccess {
  std::vector<ir::Expr> indices;
  std::vector<LoopRange> inner;  // loops of `s` around the access, outermost first; block iters
                                 // replaced by their bindings
  bool is_write = false;
};
std::vector<StmtAccess> AccessesOf(const ir::Stmt& s, const ir::Buffer& buffer);
std::optional<ir::BufferRegion> ReadRegion(const ir::Stmt& s, const ir::Buffer& buffer,
                                           const Analyzer& analyzer,
                                           const RegionOptions& options = {});
std::optional<ir::BufferRegion> WriteRegion(const ir::Stmt& s, const ir::Buffer& buffer,
                                            const Analyzer& analyzer,
                                            const RegionOptions& options = {});

// The smallest box around two boxes of one buffer, as far as their ends can be compared.
std::optional<ir::BufferRegion> UnionRegion(const std::optional<ir::BufferRegion>& a,
                                            const std::optional<ir::BufferRegion>& b,
                                            const Analyzer& analyzer);

}  // namespace tilewright::analysis
