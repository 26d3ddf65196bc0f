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

// split %l [f0,f1,…] tail=mask|peel|overlap|pad — factors outermost first, at most one `?` =
// ceil(extent / product of the others).
//   for i in 0..E: S   →   for i_0 in 0..f0: for i_1 in 0..f1: S[i := i_0*f1 + i_1]
//                          where (i_0*f1 + i_1 < E) if the product is not E
// A block is never cloned; the tail is a predicate. With tail=peel an uneven split carries the
// annotation tail="peel" on its outermost loop: the pass partition_loops makes a main part without
// the predicate and a remainder with constant extents. mask keeps the predicate (vector stores are
// masked). With overlap the last tile is moved back so that it ends at E, and computes some points
// a second time:
//                          S[i := min(i_0*f1, E - f1) + i_1]
// with pad the loop runs to the end of the last tile, and what S writes grows to hold it; the rest
// holds values of padded operands where S reads such at i, zeros otherwise:
//   for i in 0..E: P[i] = f(X[i])   →   P[i_0*f1 + i_1] = select(i_0*f1 + i_1 < E, f(X[…]), 0)
// Results: the new loops, outermost first.
// Refuses: not_serial, too_few (product < extent), too_large, symbolic_extent (`?` must come
// first; overlap and pad want constants); overlap: too_short (E < f1), not_repeatable (a block
// below adds to what it finds); pad: pad_form (the loop is more than one spatial iterator of each
// block below), output, several_writers, write_form.
absl::Status ApplySplit(Schedule& s, const Step& step);

// fuse %a %b … — perfectly nested adjacent serial loops, outermost first, become one.
//   for i in 0..N: for j in 0..M: S   →   for i_j_f in 0..N*M: S[i := i_j_f floordiv M,
//                                                               j := i_j_f floormod M]
// M may be open. Where the predicate of the one block below ends the rows i then, N ends there.
// Result: the fused loop. Refuses: not_nested, not_serial, empty (M is 0), dependent_range,
// too_large.
absl::Status ApplyFuse(Schedule& s, const Step& step);

// reorder %a %b … — the named loops (of one perfect nest, other loops between them stay where they
// are) take the named order. No results.
// Refuses: repeated, not_nested, not_serial (a named loop is parallel or vectorised),
// dependent_range, order_matters (a loop feeds an ordered iterator; a loop feeds both spatial and
// reduction iterators of a block with init; a reduction would change places with a loop that
// repeats its work; two loops over the values of an ordered combiner), conflict (a loop that stays
// in between runs at once, and would from then on write one element in several iterations).
absl::Status ApplyReorder(Schedule& s, const Step& step);

// vectorize / unroll / parallel %l — mark a serial loop. No results.
// parallel and vectorize refuse (conflict) loops that feed a reduction or an ordered iterator, and
// loops whose iterations may write the same element of a buffer that is not private to an iteration
// (vector lanes share every buffer); and nesting (nested) that has no meaning. vectorize wants a
// constant extent in 2..64, unroll one in 1..256 (extent).
absl::Status ApplyVectorize(Schedule& s, const Step& step);
absl::Status ApplyUnroll(Schedule& s, const Step& step);
absl::Status ApplyParallel(Schedule& s, const Step& step);

// cache_read %b read=N scope=local|global|shared|vta.inp|… — block b reads the N-th buffer that it
// reads (counted by distinct buffers, its own result left out) through a copy; a new block X_local
// right before b's outermost nest fills the copy, all of it. compute_at brings it to where it is
// used.
//   for i, k: B[i] += X[i,k]   →   for d0, d1: X_local[d0,d1] = X[d0,d1];
//                                  for i, k: B[i] += X_local[i,k]
// Results: the copy block, then its loops, outermost first.
// Refuses: no_such_read, nested (the buffer is written in the nest that b stands in),
// partial_write (nobody writes all of the buffer).
absl::Status ApplyCacheRead(Schedule& s, const Step& step);

// cache_write %b scope=local|global|shared — block b writes a new buffer B_local; a new block
// B_copy right after b's nest copies it to B.
//   for i, k: B[i] += X[i,k]   →   for i, k: B_local[i] += X[i,k];  for i_c: B[i_c] = B_local[i_c]
// Results: the copy block, then its loops, outermost first.
// Refuses: write_form, partial_write, several_writers, nested (b stands inside loops of others).
absl::Status ApplyCacheWrite(Schedule& s, const Step& step);

// set_scope %b SCOPE — the scope (a word of scopes.def) of the intermediate buffer that block b
// writes. No results. Refuses: not_intermediate.
absl::Status ApplySetScope(Schedule& s, const Step& step);

// compute_at %b %l — producer block b moves to the start of loop l's body and computes just the
// region that its consumers below l need.
//   for i: P[i] = …;  for j_0: for j_1: C[j] = P[j] + P[j+1]
//   →  for j_0: { for i_a in 0..T+1: P[j_0*T + i_a] = … where inside P;  for j_1: C[j] = … }
// The region is a box; where it may leave the buffer, the block gets a predicate. Loop kinds of the
// old nest are gone. Results: b's new loops inside l, one per iterator in their order (unit loops
// included), outermost first.
// Refuses: already_below, shared_nest (another block shares the loops that b would leave), after,
// vectorized, write_form, output, several_writers, consumer_outside, no_consumer, input_later,
// inexact_region (in loops that b stays in, it did not work on a box).
absl::Status ApplyComputeAt(Schedule& s, const Step& step);

// reverse_compute_at %b %l — consumer block b moves to the end of loop l's body, over the region
// that its producers complete in one iteration of l.
//   for i_0: for i_1: P[i] = …;  for j: C[j] = P[j]
//   →  for i_0: { for i_1: P[i] = …;  for j_a in 0..T: C[i_0*T + j_a] = P[…] }
// b must be free of reductions and read each producer below l at its own iterators. Results: b's
// new loops, one per iterator.
// Refuses: already_below, shared_nest, before, vectorized, write_form, reduction, read_form,
// domain, incomplete (a reduction loop of the producer is l or around it), inexact_region,
// mismatch, input_later, no_producer, conflict.
absl::Status ApplyReverseComputeAt(Schedule& s, const Step& step);

// inline %b — a block of one store without reduction is replaced by its expression in its
// consumers; its buffer and loops are gone. No results.
// Refuses: write_form, not_injective, output, several_writers, no_consumer, prefetched (a prefetch
// reads it), consumer_form, too_large, conflict.
absl::Status ApplyInline(Schedule& s, const Step& step);

// reverse_inline %b — a block of one store without reduction, which reads the result of one
// producer at its own iterators, moves into that producer; the buffer between them is gone. No
// results.
//   for i: P[i] = f(X[i]);  for j: C[j] = g(P[j])   →   for i: C[i] = g(f(X[i]))
// Refuses: write_form, not_injective, read_form, no_producer, output (P leaves the function),
// other_consumer, several_writers, reduction (the producer's), domain (the two do not run over the
// same points), input_later, too_large, conflict.
absl::Status ApplyReverseInline(Schedule& s, const Step& step);

// decompose_reduction %b %l — the init of block b becomes a block `b_init` right before loop l,
// over copies of b's loops at or below l that feed spatial iterators.
//   for i: for k: { init: B[i] = 0; B[i] += … }   →  (at k)  for i: { B[i] = 0; for k: B[i] += … }
// Results: the init block, then its loops, outermost first.
// Refuses: no_init, not_around, reduction_outside, mixed_loop, mixed_predicate, repeated,
// vectorized, write_form, conflict.
absl::Status ApplyDecomposeReduction(Schedule& s, const Step& step);

// rfactor %b %l axis=last|first — the reduction over loop l is put off: block b_rf computes one
// partial result per iteration of l, and b, in a nest of its own right after, combines them. l
// becomes a spatial loop of b_rf; the partial results' dimension over l comes last or first.
//   for i: for k_0: for k_1: B[i] += X[i, k_0*T + k_1]
//   →  for i: for k_0: for k_1: B_rf[i,k_1] += X[i, k_0*T + k_1];
//      for i_w: for k_1_w: B[i_w] += B_rf[i_w,k_1_w]
// The reduction is reassociated; steps that a tail's predicate leaves out add op's identity.
// Results: the block b_rf, then b's new loops, outermost first.
// Refuses: no_init, not_around, not_reduction (l feeds no reduction, or also a spatial iterator),
// not_serial, extent, combiner (the update is not B = B op x with op's identity as init),
// mixed_loop, mixed_predicate, reduction_outside, repeated, write_form, conflict.
absl::Status ApplyRfactor(Schedule& s, const Step& step);

// transform_layout %b (D0,D1,…) — the intermediate buffer that b writes gets a new shape, each
// dimension a digit of an old one: `d` all of it, `d/N` the part above N, `d%N` the part below,
// `d/N%M` one between. All accesses follow. The blocks that write it iterate over the digits; their
// loops stay.
//   map (0,1/16,2,1%16):  B[n,c,h] = …  →  B[n, c floordiv 16, h, c floormod 16] = …
// With cache_read of a constant before it, this packs the constant: the copy is a block of its own
// that reads constants only. A dimension that N does not divide is padded first (split tail=pad of
// its loop). No results.
// Refuses: not_intermediate, write_form, map (the digits of a dimension do not make it up), uneven
// (they make up more), domain, aligned, tensorized, conflict.
absl::Status ApplyTransformLayout(Schedule& s, const Step& step);

// pad_einsum %b [p0,p1,…] — block b, a sum of products of elements at single iterators, runs over
// extents rounded up to multiples of p (one factor per iterator, in their order). Operands get
// zero-padded copies, a padded result is copied back.
//   for i, j, k: C[i,j] += A[i,k] * B[k,j]
//   →  for d0, d1: A_pad[d0,d1] = select(inside, A[d0,d1], 0);  … B_pad;
//      for i, j, k to the padded extents: C_pad[i,j] += A_pad[i,k] * B_pad[k,j];
//      for d0, d1: C[d0,d1] = C_pad[d0,d1]
// Results: each copy's block followed by its loops, operands in the order of the product, the
// result's copy last.
// Refuses: write_form, loops (not one plain serial loop per iterator), nested, factors,
// not_einsum (also: a factor that does not know a padded reduction iterator), extent,
// several_writers, partial_write.
absl::Status ApplyPadEinsum(Schedule& s, const Step& step);

// storage_align %b dim=D factor=F offset=O — the stride of dimension D of the intermediate that b
// writes becomes O modulo F elements: rows are padded in memory (flatten_buffers). No results.
// Refuses: not_intermediate, dimension (none inside D), offset (>= factor).
absl::Status ApplyStorageAlign(Schedule& s, const Step& step);

// swizzle %b dim=D vector=V — turns the rows of dimension D of the intermediate that b writes: in
// row r, vector c (of V elements) of the row's n lies in place of vector (c + r) mod n
// (flatten_buffers), so that readers of a column meet different banks. No results. Rows that become
// another length in compact_buffers are turned if they are a power of two of vectors then, too.
//   alloc B: f32[8, 16]   →   alloc B: f32[8, 16] swizzle=1,4
//   B[r, c]               →   B[16r + (floordiv(c, 4) + r) % 4 * 4 + c % 4]
// Refuses: not_intermediate, dimension (as storage_align), symbolic_extent (inside D), row (not a
// power of two of at least two vectors, and nothing makes it shorter), tensorized (a tensor
// intrinsic reads or writes it).
absl::Status ApplySwizzle(Schedule& s, const Step& step);

// double_buffer %b — marks block b so that the pipeline passes give its buffer two versions, one
// read while the other is written. No results.
// Refuses: not_intermediate, several_writers, not_in_loop (no loop around b and all consumers),
// not_serial (that loop is mapped).
absl::Status ApplyDoubleBuffer(Schedule& s, const Step& step);

// prefetch %b %l read=N distance=D — at the start of loop l's body, a new block touches the cache
// lines of what b will read of its N-th read buffer, a parameter, D iterations of l later.
//   for i: for k: B[i] += X[i,k]   →   for i: { prefetch(X[i+D, …]) where inside X;  for k: … }
// Results: the prefetching block, then its loops, outermost first.
// Refuses: not_around, vectorized, not_parameter, region (unknown, or more than 64 lines).
absl::Status ApplyPrefetch(Schedule& s, const Step& step);

// stream_writes %b — what b writes, an output that nothing here reads, goes to memory past the
// caches: whole lines are not fetched before they are written, and other data keeps its place. Pays
// for results larger than the last cache. Only whole, aligned registers go that way. No results.
// Refuses: not_output, read.
absl::Status ApplyStreamWrites(Schedule& s, const Step& step);

// variant NAME — the schedule starts from another of the operator's algorithms. First step only;
// handles are numbered anew, as if the schedule had been made of that function. No results.
// Refuses: not_first, unknown.
absl::Status ApplyVariant(Schedule& s, const Step& step);
// blockize %l — loop l and everything below it (one block, perfectly nested, serial loops) becomes
// the body of that block: one instance of it computes a whole tile.
//   for i_0: for i_1 in 0..4: block B(vi = i_0*4 + i_1) { Y[vi] = f(vi) }
//   →  for i_0: block B(vi_o = i_0) { for i_1 in 0..4: Y[vi_o*4 + i_1] = f(vi_o*4 + i_1) }
// Iterators that only loops outside feed stay; those that only loops inside feed are gone. The init
// of a reduction becomes a nest of its own: the block's init while a reduction iterator is left
// outside, else it stands in the body before the update. The block's handle stays; the loops from l
// down are gone. No results.
// Refuses: not_perfect, not_serial, body_form, vectorized, ordered, predicate (a tile may be cut
// off), binding, unaligned (tiles do not start at multiples of their size), mixed_loop, repeated.
absl::Status ApplyBlockize(Schedule& s, const Step& step);

// tensorize %l|%b intrin=NAME — the loops of a blockized block (or loop l, blockized first) are
// marked as one use of a tensor intrinsic (ir/tensor_intrinsics.h): the update nest as NAME, the
// nest of the init as NAME.reset. The nests must match the intrinsic's descriptions; what they
// compute is unchanged, and no later step may take them apart. Results: none. Refuses: what
// blockize refuses, not_blockized, mismatch (shows the description and what was found).
absl::Status ApplyTensorize(Schedule& s, const Step& step);

// bind %l blockIdx.x|…|threadIdx.z — a serial loop becomes an axis of the launch's grid or of its
// group of threads. No results.
//   for i in 0..E: S   →   for i in 0..E blockIdx.x: S
// Several loops may be bound to one thread axis, one after the other: they are the same threads,
// which meet between the loops. What they share lives in scope shared (or in local, where each
// element stays with one thread: the pass merge_threads says otherwise).
// A reduction across threads is rfactor of its loop, bind of that loop, set_scope shared.
// Refuses: not_serial, range, extent (more than 1024 threads), nested (an axis twice, block axes
// below thread axes, parallel or vectorised loops around), conflict (as parallel).
absl::Status ApplyBind(Schedule& s, const Step& step);

// virtual_thread %l — the iterations of a serial loop become virtual threads, which
// inject_virtual_threads interleaves statement by statement. No results.
// Refuses: not_serial, range, extent (more than 16), nested, conflict.
absl::Status ApplyVirtualThread(Schedule& s, const Step& step);

// software_pipeline %l [s1,s2,…] order=program|consumers async=0|1 — the nests of l's body run in
// stages: while the last stage works on iteration i, stage 1 works on iteration i + (last - 1).
//   for i in 0..N: { A; B }  [1,2]   →   A(0);  for i in 0..N-1: { A(i+1); B(i) };  B(N-1)
// order=consumers puts later stages first in each step, so that one buffer less is needed; async=1
// issues the copies of stage 1 asynchronously. Results: none; the loop and its nests are marked,
// inject_software_pipeline does the work.
// Refuses: not_serial, twice, form (the body is not several nests), stages, extent (constant, at
// least as many iterations as stages), dependence (a value would flow backwards, or what passes
// between stages does not belong to one iteration).
absl::Status ApplySoftwarePipeline(Schedule& s, const Step& step);

// divide %a %b … [n] — the iterations from n on of each named loop become a nest of their own,
// behind the last named one. The loops are the outermost of nests at the top that follow each
// other. An intermediate buffer becomes two, each as long as its part needs.
//   for i in 0..E: T[i] = f(X[i]);  for j in 0..E: Y[j] = g(T[j])
//   →  for i in 0..n: T[i] = f(X[i]);  for j in 0..n: Y[j] = g(T[j]);
//      for i_r in 0..E-n: T_rest[i_r] = f(X[i_r + n]);
//      for j_r in 0..E-n: Y[j_r + n] = g(T_rest[j_r])
// The parts may be scheduled in different ways: sums of few results in parts, for example.
// Results: for each named loop the new block, then its loops, outermost first.
// Refuses: form (not serial loops from 0 to numbers around one block without a predicate, the
// outermost one spatial iterator and nothing else), not_consecutive, extent (n is not below the
// extent, or extents differ), used_elsewhere (another nest uses what the nests write), not_apart
// (an access of what they write at another index than the loop's iterator).
absl::Status ApplyDivide(Schedule& s, const Step& step);

// annotate %h key=value — a hint for later passes (step.h lists the keys). No results.
// Refuses: unknown_key, wrong_kind, value.
absl::Status ApplyAnnotate(Schedule& s, const Step& step);

}  // namespace tilewright::schedule
