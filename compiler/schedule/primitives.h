// The schedule primitives: declaration, meaning, before → after, results (new handles, in this order) and refusals.
// Each is `Status F(Schedule&, const Step&)`; it succeeds or leaves the schedule unchanged. All keep the function's meaning.
#pragma once

#include "absl/status/status.h"
#include "compiler/schedule/schedule.h"

namespace tilewright::schedule {

// split %l [f0,f1,…] tail=mask|peel — factors outermost first, at most one `?` = ceil(extent / product of the others).
//   for i in 0..E: S   →   for i0 in 0..f0: for i1 in 0..f1: S[i := i0*f1 + i1] where (i0*f1 + i1 < E) if not divisible
// A block is never cloned; the tail is a predicate. tail= is an annotation for the pass partition_loops: `peel` makes a main
// part without the predicate and a remainder part with constant extents; `mask` keeps it (vector stores are masked).
// Results: the new loops, outermost first. Refuses: product < extent without `?`, factor < 1, non-serial loop.
absl::Status ApplySplit(Schedule& s, const Step& step);

// fuse %a %b … — perfectly nested adjacent loops, outermost first, become one. Result: the fused loop.
//   for i in 0..N: for j in 0..M: S   →   for ij in 0..N*M: S[i := ij floordiv M, j := ij floormod M]
absl::Status ApplyFuse(Schedule& s, const Step& step);

// reorder %a %b … — the named loops (of one perfect nest, other loops between them stay) take the named order. No results.
// Refuses: not one nest, a sequential iterator involved, extents depending on a reordered variable, or a
// decomposed/initialising block whose init would no longer come first.
absl::Status ApplyReorder(Schedule& s, const Step& step);

// vectorize / unroll / parallel %l — mark the loop. parallel and vectorize refuse loops that feed a reduce, sequential or
// opaque iterator of a block below. vectorize needs a constant extent in 2..64 and no block-carried init that depends on it being serial. No results.
absl::Status ApplyVectorize(Schedule& s, const Step& step);
absl::Status ApplyUnroll(Schedule& s, const Step& step);
absl::Status ApplyParallel(Schedule& s, const Step& step);

// cache_write %b scope=local|global — block b writes a new buffer B_local; a new copy block `B_copy` after it writes B.
// Results: the copy block, then its loops, outermost first.
absl::Status ApplyCacheWrite(Schedule& s, const Step& step);

// set_scope %b local|global — the scope of the (intermediate) buffer that block b writes. No results.
absl::Status ApplySetScope(Schedule& s, const Step& step);

// compute_at %b %l — producer block b moves to the start of loop l's body and computes just the region that its consumers
// below l need (a box; predicate where the box may leave the buffer). Results: b's new loops inside l, outermost first.
// Refuses: a consumer outside l, b already below l, b an output, l a reduction loop of a consumer that writes b's inputs.
absl::Status ApplyComputeAt(Schedule& s, const Step& step);

// reverse_compute_at %b %l — consumer block b (its producer below l) moves to the end of l's body, over the region produced
// there. Results: b's new loops. Refuses when the region is not complete at l (a reduce loop of the producer encloses l).
absl::Status ApplyReverseComputeAt(Schedule& s, const Step& step);

// inline %b — an injective block is replaced by its expression in its consumers. No results.
absl::Status ApplyInline(Schedule& s, const Step& step);

// decompose_reduction %b %l — init of block b becomes a block `b_init` of its own right before loop l, over the spatial
// iterators that vary at or below l. Results: the init block, then its loops. Refuses when a reduce loop of b encloses l.
absl::Status ApplyDecomposeReduction(Schedule& s, const Step& step);

// annotate %h key=value — a hint for later passes (keys: unroll_max, prefetch, …; unknown keys are refused). No results.
absl::Status ApplyAnnotate(Schedule& s, const Step& step);

}  // namespace tilewright::schedule
