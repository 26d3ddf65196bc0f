// Finding and replacing loops and blocks in a scheduled function. Trees are immutable: replacing
// rebuilds the path from the root and shares everything else. Pure functions; thread-safe.
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "compiler/analysis/analyzer.h"
#include "compiler/ir/ir.h"

namespace tilewright::schedule {

// From the root statement down to the one that was looked for; empty when there is none.
using Path = std::vector<ir::Stmt>;
Path FindLoop(const ir::Stmt& root, const ir::Var& var);
Path FindBlock(const ir::Stmt& root, std::string_view name);

// The root with path[depth] replaced by `with`; null removes it, and whatever becomes empty by
// that.
ir::Stmt ReplaceAt(const Path& path, size_t depth, ir::Stmt with);

// A block with the loops around it, outermost first.
struct BlockSite {
  ir::Stmt block;
  std::vector<ir::Stmt> loops;
};
// Blocks below `s` in program order; `outer` are the loops around `s`.
std::vector<BlockSite> BlocksIn(const ir::Stmt& s, const std::vector<ir::Stmt>& outer = {});
// The loops of a path, outermost first; with `upto`, only of path[0 .. upto).
std::vector<ir::Stmt> LoopsOf(const Path& path, size_t upto = SIZE_MAX);

// The depth of the outermost statement on the path (a block's) below which there is no other block:
// the root of the block's own nest.
size_t OwnNest(const Path& block_path);

// The same tree with every block replaced by f(block) and every loop's range by g(range); unchanged
// parts are shared.
ir::Stmt MapBlocks(const ir::Stmt& s, const std::function<ir::Stmt(const ir::Stmt&)>& f);

// Ranges of loops around a block (and of the function's size parameters).
analysis::Analyzer AnalyzerOf(const ir::Function& f, const std::vector<ir::Stmt>& loops);
void AddLoop(const ir::Stmt& loop, analysis::Analyzer* analyzer);

bool Writes(const ir::StmtNode& block, const ir::Buffer& buffer);
bool Reads(const ir::StmtNode& block, const ir::Buffer& buffer);
bool HasLoops(const ir::Stmt& s);  // or blocks: of a body, that it is blockized
std::vector<ir::Var> VarsOf(const std::vector<ir::Stmt>& loops);

// A loop's kind of work for one block: which iterator types its variable reaches.
struct Feeds {
  bool spatial = false, reduce = false, ordered = false;  // ordered: sequential or opaque
  bool any() const { return spatial || reduce || ordered; }
};
Feeds FeedsOf(const ir::StmtNode& block, const ir::Var& loop);

}  // namespace tilewright::schedule
