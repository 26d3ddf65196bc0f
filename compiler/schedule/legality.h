// What the primitives share: looking up operands, refusing with the IR shown, and the checks that
// keep concurrent loops free of conflicts. Pure functions over immutable trees; thread-safe.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/schedule/loop_tree.h"
#include "compiler/schedule/schedule.h"

namespace tilewright::schedule {

// schedule.<primitive>.<reason>: detail, then the printed statement.
absl::Status Refuse(const Step& step, std::string_view reason, std::string_view detail,
                    const ir::Stmt& around);

// The path of a handle operand. A loop's subtree must consist of loops, sequences and blocks.
absl::StatusOr<Path> LoopPath(const Schedule& s, const Step& step, size_t operand);
absl::StatusOr<Path> BlockPath(const Schedule& s, const Step& step, size_t operand);

// Context of a block: ranges of its loops, and its iterators defined as their bindings.
analysis::Analyzer BlockAnalyzer(const ir::Function& f, const BlockSite& site);
// Values of the iterators, or of the point that the block writes, over the loops. Empty when a
// written region is not a point.
std::vector<analysis::AffineSum> BindingSums(const analysis::Analyzer& analyzer,
                                             const ir::StmtNode& block);
std::vector<analysis::AffineSum> WriteSums(const analysis::Analyzer& analyzer,
                                           const ir::StmtNode& block);
std::vector<analysis::AffineSum> PointSums(const analysis::Analyzer& analyzer,
                                           const ir::BufferRegion& region);
// The same for boxes that start at multiples of their size: which box of the grid is written.
std::vector<analysis::AffineSum> WriteTiles(const analysis::Analyzer& analyzer,
                                            const ir::BufferRegion& region);

// Why the iterations of the loop at the end of `path` may not run at the same time; empty when they
// may. `vector`: lanes of one instruction share every buffer, threads do not share buffers that are
// used below the loop only.
std::string WhyNotConcurrent(const ir::Function& f, const Path& path, bool vector);
// The same for every parallel and vectorised loop below `body`, as a refusal of `step`.
absl::Status CheckConcurrentLoops(const Step& step, const ir::Function& f, const ir::Stmt& body);

// The iterator that each written dimension is, as an index into block.iters: -1 for a constant 0 of
// an extent-1 dimension. Refuses (reason `write_form`) anything else, two written buffers, or an
// iterator used twice. With `tuples`, a combine that writes several buffers at one point is one.
absl::StatusOr<std::vector<int>> WrittenIters(const Step& step, const ir::Stmt& block,
                                              bool tuples = false);

// The iterator that each dimension of a read is, as an index into block.iters; -1 for a constant 0.
// Refuses (reason `read_form`) anything else, and an iterator used twice.
absl::StatusOr<std::vector<int>> ReadIters(const Step& step, const ir::Stmt& block,
                                           const ir::BufferRegion& region);

// Every block of a buffer, in program order.
std::vector<BlockSite> WritersOf(const std::vector<BlockSite>& sites, const ir::Buffer& buffer);
// The `index`-th distinct buffer that the block reads and does not write; null when there is none.
ir::Buffer ReadBuffer(const ir::StmtNode& block, int64_t index);
// Inputs and constants: complete before the function starts.
bool IsGiven(const ir::Buffer& buffer);
bool IsBelow(const BlockSite& site, const ir::Var& loop);
bool HasLoopOfKind(const std::vector<ir::Stmt>& loops, ir::ForKind kind);

// Loops below a loop, and what steps that map a loop share.
std::vector<ir::Stmt> LoopsBelow(const ir::Stmt& loop);
absl::Status CheckSerial(const Step& step, const ir::Stmt& loop);  // reason `not_serial`
void SetKind(Schedule& s, const Path& path, ir::ForKind kind);

// Puts `to` in the place of the intermediate `from` everywhere: same elements, other properties.
void ReplaceIntermediate(Schedule& s, const ir::Buffer& from, const ir::Buffer& to);

// "oc" for an iteration variable `voc`: what a new loop over it is called.
std::string LoopNameFor(const ir::IterVar& iter);

}  // namespace tilewright::schedule
