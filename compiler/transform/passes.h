// The lowering passes with their pre- and post-conditions. A pass is a pure function
// `StatusOr<Function>(const Function&, const PassContext&)`; the pipeline of a target is a table (pipelines.cc).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/target.h"

namespace tilewright::transform {

struct PassContext {
  ir::Target target;
  bool verify_each = false;          // ir::Verify after every pass (tests, tilewright-opt)
  std::string dump_dir;              // --dump-ir: NN_<pass>.tir after each pass ("(unchanged)" noted)
  std::string test_miscompile;       // "tail" | "init": plants a wrong bound / a missing init (builder flag, tests only)
};
using Function = ir::Function;
using PassFn = absl::StatusOr<Function> (*)(const Function&, const PassContext&);

// kScheduled → kScheduled: intermediate buffers shrink to the region live at their allocation point (rolling over loops
// outside it); the allocation point is the lowest loop that contains all uses (never inside a vectorised loop).
absl::StatusOr<Function> CompactBuffers(const Function& f, const PassContext& ctx);
// kScheduled → kLoops: blocks become plain statements; init is guarded by "all reduce iterators at their minimum" where it
// was not decomposed; predicates become If or store masks; Alloc statements are placed.
absl::StatusOr<Function> LowerBlocks(const Function& f, const PassContext& ctx);
// kLoops → kLoops: loops whose predicates are true on a prefix are split into a main part without and a tail part with
// constant extents (tail=peel; also at parallel-free loops where it removes a predicate from a vector body).
absl::StatusOr<Function> PartitionLoops(const Function& f, const PassContext& ctx);
// kLoops → kLoops: integer simplification with loop ranges; dead branches, unit loops and empty loops go.
absl::StatusOr<Function> SimplifyFunction(const Function& f, const PassContext& ctx);
// kLoops → kLoops: kUnrolled loops are replicated (bodies up to a size limit).
absl::StatusOr<Function> UnrollLoops(const Function& f, const PassContext& ctx);
// kLoops → kLoops: kVectorized loops become ramps, broadcasts and masked accesses; no vector loop remains.
absl::StatusOr<Function> VectorizeLoops(const Function& f, const PassContext& ctx);
// kLoops → kFlat: every access has one index (row-major).
absl::StatusOr<Function> FlattenBuffers(const Function& f, const PassContext& ctx);
// any → same: float a*b + c becomes fma(a, b, c).
absl::StatusOr<Function> ContractFma(const Function& f, const PassContext& ctx);

struct PassRow {
  std::string_view name;             // also the tilewright-opt flag and the dump's file name
  PassFn run;
};
// The passes of a CPU target in order; kScheduled in, kFlat out.
std::span<const PassRow> CpuPipeline();
const PassRow* FindPass(std::string_view name);
// The lowered loop program of the cost model's features: CompactBuffers, LowerBlocks, Simplify only (≤ 0.3 ms).
absl::StatusOr<Function> LowerToLoops(const Function& f, const PassContext& ctx);
// Runs a table; on an error the message names the pass and the reproducer.
absl::StatusOr<Function> RunPipeline(Function f, std::span<const PassRow> passes, const PassContext& ctx);

}  // namespace tilewright::transform
