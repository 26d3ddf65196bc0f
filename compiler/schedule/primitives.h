// The schedule primitives: declaration, meaning, before → after, results (new handles, in this
// order) and refusals. Each is `Status F(Schedule&, const Step&)`; it succeeds or leaves the
// schedule unchanged. All keep the function's meaning; reductions may be reassociated by split,
// fuse and reorder of their loops (that licence is these steps' own), everything else is exact.
// Call them through Schedule::Apply, which checks the step's form and records it.
//
// A block's bindings are quasi-affine over its loops and simplified by every step that touches
// them; its predicate is a conjunction over its loops.
#pragma once

#include "absl/status/status.h"
#include "compiler/schedule/schedule.h"

namespace tilewright::schedule {

// split %l [f0,f1,…] tail=mask|peel — factors outermost first, at most one `?` = ceil(extent /
// product of the others).
//   for i in 0..E: S   →   for i_0 in 0..f0: for i_1 in 0..f1: S[i := i_0*f1 + i_1]
//                          where (i_0*f1 + i_1 < E) if the product is not E
// A block is never cloned; the tail is a predicate. With tail=peel an uneven split carries the
// annotation tail="peel" on its outermost loop: the pass partition_loops makes a main part without
// the predicate and a remainder with constant extents. mask keeps the predicate (vector stores are
// masked). Results: the new loops, outermost first.
// Refuses: not_serial, too_few (product < extent), too_large, symbolic_extent (`?` must come
// first).
absl::Status ApplySplit(Schedule& s, const Step& step);

// fuse %a %b … — perfectly nested adjacent serial loops, outermost first, become one.
//   for i in 0..N: for j in 0..M: S   →   for i_j_f in 0..N*M: S[i := i_j_f floordiv M,
//                                                               j := i_j_f floormod M]
// Result: the fused loop. Refuses: not_nested, not_serial, symbolic_extent, dependent_range,
// too_large.
absl::Status ApplyFuse(Schedule& s, const Step& step);

// reorder %a %b … — the named loops (of one perfect nest, other loops between them stay where they
// are) take the named order. No results.
// Refuses: repeated, not_nested, not_serial (a named loop is parallel or vectorised),
// dependent_range, order_matters (a loop feeds an ordered iterator; a loop feeds both spatial and
// reduction iterators of a block with init; a reduction would change places with a loop that
// repeats its work).
absl::Status ApplyReorder(Schedule& s, const Step& step);

// vectorize / unroll / parallel %l — mark a serial loop. No results.
// parallel and vectorize refuse (conflict) loops that feed a reduction or an ordered iterator, and
// loops whose iterations may write the same element of a buffer that is not private to an iteration
// (vector lanes share every buffer); and nesting (nested) that has no meaning. vectorize wants a
// constant extent in 2..64, unroll one in 1..256 (extent).
absl::Status ApplyVectorize(Schedule& s, const Step& step);
absl::Status ApplyUnroll(Schedule& s, const Step& step);
absl::Status ApplyParallel(Schedule& s, const Step& step);

// cache_write %b scope=local|global — block b writes a new buffer B_local; a new block B_copy right
// after b's nest copies it to B.
//   for i, k: B[i] += X[i,k]   →   for i, k: B_local[i] += X[i,k];  for i_c: B[i_c] = B_local[i_c]
// Results: the copy block, then its loops, outermost first.
// Refuses: write_form, partial_write, several_writers, nested (b stands inside loops of others).
absl::Status ApplyCacheWrite(Schedule& s, const Step& step);

// set_scope %b global|local — the scope of the intermediate buffer that block b writes. No results.
// Refuses: not_intermediate.
absl::Status ApplySetScope(Schedule& s, const Step& step);

// compute_at %b %l — producer block b moves to the start of loop l's body and computes just the
// region that its consumers below l need.
//   for i: P[i] = …;  for j_0: for j_1: C[j] = P[j] + P[j+1]
//   →  for j_0: { for i_a in 0..T+1: P[j_0*T + i_a] = … where inside P;  for j_1: C[j] = … }
// The region is a box; where it may leave the buffer, the block gets a predicate. Loop kinds of the
// old nest are gone. Results: b's new loops inside l, one per iterator in their order (unit loops
// included), outermost first.
// Refuses: already_below, shared_nest (another block shares the loops that b would leave), after,
// vectorized, write_form, output, several_writers, consumer_outside, no_consumer, input_later.
absl::Status ApplyComputeAt(Schedule& s, const Step& step);

// reverse_compute_at %b %l — consumer block b moves to the end of loop l's body, over the region
// that its producers complete in one iteration of l.
//   for i_0: for i_1: P[i] = …;  for j: C[j] = P[j]
//   →  for i_0: { for i_1: P[i] = …;  for j_a in 0..T: C[i_0*T + j_a] = P[…] }
// b must be free of reductions and read each producer below l at its own iterators. Results: b's
// new loops, one per iterator.
// Refuses: already_below, shared_nest, before, vectorized, write_form, reduction, read_form,
// incomplete (a reduction loop of the producer is l or around it), inexact_region, mismatch,
// input_later, no_producer, conflict.
absl::Status ApplyReverseComputeAt(Schedule& s, const Step& step);

// inline %b — a block of one store without reduction is replaced by its expression in its
// consumers; its buffer and loops are gone. No results.
// Refuses: write_form, not_injective, output, several_writers, no_consumer, too_large, conflict.
absl::Status ApplyInline(Schedule& s, const Step& step);

// decompose_reduction %b %l — the init of block b becomes a block `b_init` right before loop l,
// over copies of b's loops at or below l that feed spatial iterators.
//   for i: for k: { init: B[i] = 0; B[i] += … }   →  (at k)  for i: { B[i] = 0; for k: B[i] += … }
// Results: the init block, then its loops, outermost first.
// Refuses: no_init, not_around, reduction_outside, mixed_loop, mixed_predicate, repeated,
// vectorized, write_form, conflict.
absl::Status ApplyDecomposeReduction(Schedule& s, const Step& step);

// annotate %h key=value — a hint for later passes (step.h lists the keys). No results.
// Refuses: unknown_key, wrong_kind, value.
absl::Status ApplyAnnotate(Schedule& s, const Step& step);

}  // namespace tilewright::schedule
