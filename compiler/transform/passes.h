// The lowering passes with their pre- and post-conditions. A pass is a pure function
// `StatusOr<Function>(const Function&, const PassContext&)`; the pipeline of a target is a table
// (pipelines.cc).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/target/target.h"

namespace tilewright::transform {

struct PassContext {
  target::Target target;
  bool verify_each = false;     // ir::Verify after every pass (tests, tilewright-opt)
  std::string dump_dir;         // --dump-ir: NN_<pass>.tir after each pass ("(unchanged)" noted)
  int64_t block_terms = 512;    // sum_in_blocks: at most so many are added one after the other
  std::string test_miscompile;  // "tail" | "init": plants a wrong bound / a missing init (builder
                                // flag, tests only)
};
using Function = ir::Function;
using PassFn = absl::StatusOr<Function> (*)(const Function&, const PassContext&);

// kScheduled → kLoops: blocks become plain statements; a reduction's init goes before its outermost
// reduction loop, or is guarded by "all reduce iterators at their minimum"; predicates become If;
// Alloc statements are placed at the smallest statement that contains all uses (never inside a
// vectorised or value-carrying loop).
absl::StatusOr<Function> LowerBlocks(const Function& f, const PassContext& ctx);
// kLoops → kLoops: allocated buffers shrink to the box that is live inside their Alloc (rolling
// over loops outside it).
absl::StatusOr<Function> CompactBuffers(const Function& f, const PassContext& ctx);
// kLoops → kLoops: sums of loops marked local_sums=1 are in a local buffer, numbered by the loops
// over them. What such a loop does other than that leaves it as it is.
absl::StatusOr<Function> LocalSums(const Function& f, const PassContext& ctx);
// kLoops → kLoops: integer simplification with loop ranges; dead branches, unit loops and empty
// loops go.
absl::StatusOr<Function> SimplifyFunction(const Function& f, const PassContext& ctx);
// kLoops → kLoops: conditions on open sizes around what is written to buffers of the function go
// where all that the store touches is there without them. Expects simplified conditions.
absl::StatusOr<Function> DropGuards(const Function& f, const PassContext& ctx);
// kLoops → kLoops: loops marked tail=peel whose conditions hold on a prefix are split into a main
// part without them and remainders with constant extents; of loops over open sizes also those
// without a mark. Expects simplified conditions.
absl::StatusOr<Function> PartitionLoops(const Function& f, const PassContext& ctx);
// kLoops → kLoops: a loop of a known number of iterations ends where none does anything any more.
// For what is asked of a function at some of its sizes: a tile may be larger than these.
absl::StatusOr<Function> ShortenLoops(const Function& f, const PassContext& ctx);
// kLoops → kLoops: buffers of open size stand around the whole body; iterations of a parallel loop
// get one each. The code generator asks for them there.
absl::StatusOr<Function> HoistOpenBuffers(const Function& f, const PassContext& ctx);
// kLoops → kLoops: every buffer has one dimension (row-major), every access one index.
absl::StatusOr<Function> FlattenBuffers(const Function& f, const PassContext& ctx);
// kLoops with flat buffers → same: nests marked as tensor intrinsics (ir/tensor_intrinsics.h)
// become explicit vector code; only those of fragments are left, which code generators know. Fails
// where the target lacks the intrinsic.
absl::StatusOr<Function> LowerTensorNests(const Function& f, const PassContext& ctx);
// kLoops → kLoops: kVectorized loops become ramps, broadcasts and masked accesses; no vector loop
// remains.
absl::StatusOr<Function> VectorizeLoops(const Function& f, const PassContext& ctx);
// kLoops → kFlat (given the two passes before): kUnrolled loops, and loops over small local
// buffers, are replicated.
absl::StatusOr<Function> UnrollLoops(const Function& f, const PassContext& ctx);
// kFlat → kFlat: vectors of local buffers that are written under one mask only are written whole.
absl::StatusOr<Function> DropMasks(const Function& f, const PassContext& ctx);
// kLoops → kLoops, unrolled and simplified: products of constants with the zeros around a padded
// image are left out of private sums.
absl::StatusOr<Function> DropZeroTerms(const Function& f, const PassContext& ctx);
// any → same: arithmetic in f32 on widened f16 whose results are rounded to f16 is done in f16,
// where the machine has it. Before contract_fma, which rounds less.
absl::StatusOr<Function> NarrowArithmetic(const Function& f, const PassContext& ctx);
// any → same: float a*b + c becomes fma(a, b, c) where the target has it.
absl::StatusOr<Function> ContractFma(const Function& f, const PassContext& ctx);
// kFlat → kFlat: sums that an innermost loop adds to in a buffer of the function are in registers
// while it runs.
absl::StatusOr<Function> KeepSums(const Function& f, const PassContext& ctx);
// kLoops → kLoops, vectorised and unrolled: innermost loops ask for the constants they will load
// some iterations later, where those are too large for a core's caches.
absl::StatusOr<Function> PrefetchConstants(const Function& f, const PassContext& ctx);
// kFlat → kFlat: long sums of floats in local buffers are sums of blocks, which round less.
absl::StatusOr<Function> SumInBlocks(const Function& f, const PassContext& ctx);
// kScheduled → kScheduled: nests of blocks that double_buffer marked become the first stage of a
// pipeline of their loop.
absl::StatusOr<Function> MarkDoubleBuffers(const Function& f, const PassContext& ctx);
// kLoops → kLoops: loops that software_pipeline marked get a prologue, a steady state and an
// epilogue, and what passes between stages one copy for each iteration under way. Before loops lose
// their annotations (simplify removes unit loops).
absl::StatusOr<Function> InjectSoftwarePipeline(const Function& f, const PassContext& ctx);
// kLoops → kLoops: no virtual loop remains; their iterations are interleaved statement by
// statement, each with its own part of what was allocated inside.
absl::StatusOr<Function> InjectVirtualThreads(const Function& f, const PassContext& ctx);
// kLoops → kLoops: a launch whose block loop is marked with_next=1 and the next one are one launch,
// if neither writes what the other touches.
absl::StatusOr<Function> MergeLaunches(const Function& f, const PassContext& ctx);
// kLoops → kLoops: a launch whose block loop is marked groups=G has G groups at most, each of which
// does its share of the loop's iterations, one after the other.
absl::StatusOr<Function> ShareTiles(const Function& f, const PassContext& ctx);
// kLoops → kLoops: each launch has one nest of thread loops directly below its block loops, around
// everything, and a barrier before every part; no thread loop elsewhere. Shared buffers stand
// around the thread loops, global ones around the launch. From here on threads run side by side.
absl::StatusOr<Function> MergeThreads(const Function& f, const PassContext& ctx);
// kLoops → kLoops, after merge_threads: only the barriers that some pair of threads needs remain.
absl::StatusOr<Function> PruneSync(const Function& f, const PassContext& ctx);

struct PassRow {
  std::string_view name;  // also the tilewright-opt flag and the dump's file name
  PassFn run;
};
// The passes of a CPU target in order; kScheduled in, kFlat out.
std::span<const PassRow> CpuPipeline();
// The same for GPUs; codegen/host_device.h cuts the result into launches.
std::span<const PassRow> GpuPipeline();
const PassRow* FindPass(std::string_view name);
// The lowered loop program of the cost model's features: MarkDoubleBuffers, LowerBlocks,
// CompactBuffers, Simplify only (≤ 0.3 ms).
absl::StatusOr<Function> LowerToLoops(const Function& f, const PassContext& ctx);
// Runs a table; on an error the message names the pass and the reproducer.
absl::StatusOr<Function> RunPipeline(Function f, std::span<const PassRow> passes,
                                     const PassContext& ctx);

}  // namespace tilewright::transform
