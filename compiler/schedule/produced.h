// What a block has written by the end of an iteration of a loop, or of its whole nest: a box, or a
// refusal where it is none. Pure functions over immutable trees; thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/analysis/analyzer.h"
#include "compiler/schedule/legality.h"

namespace tilewright::schedule {

// One dimension of a box: [min, min + extent), over the loops that stay fixed; nothing means the
// whole dimension.
struct Dim {
  analysis::AffineSum min;
  int64_t extent = 1;
};
using Box = std::vector<std::optional<Dim>>;

// What one producer below a loop has completed at the end of an iteration: a box, and conditions
// over outer loops under which it ran at all.
struct Produced {
  Box box;
  std::vector<ir::Expr> guards;
};

// The variables of a block's loops that run inside `loop`; all of them where `loop` is null.
std::vector<ir::Var> InnerVars(const BlockSite& site, const ir::Var& loop);
bool OnlyMentions(const analysis::AffineSum& sum, const std::vector<ir::Var>& vars);

// Grows `box` to hold `region` (of a block at `site`) while the loops inside `loop` run; `first`
// starts it.
void GrowBox(const ir::Function& f, const BlockSite& site, const ir::BufferRegion& region,
             const ir::Var& loop, bool first, Box* box);

// The box of an iteration of `loop`; null: of the whole function. Refuses (reasons incomplete,
// inexact_region).
absl::StatusOr<Produced> ProducedAt(const Step& step, const ir::Function& f, const BlockSite& site,
                                    const ir::Var& loop);

// The points that a block visits while the loops `own` around it run, a box over the loops around
// those: one entry per iterator, nothing where the outer loops do not feed it. Refuses
// (inexact_region) what is no box.
absl::StatusOr<Box> OwnPoints(const Step& step, const ir::Function& f, const BlockSite& site,
                              const std::vector<ir::Var>& own);

// Refuses (reason partial_write) a buffer that no block writes all of: parts of it may be
// undefined.
absl::Status CheckWhollyWritten(const Step& step, const ir::Function& f,
                                const std::vector<BlockSite>& sites, const ir::Buffer& buffer);

}  // namespace tilewright::schedule
