#include "compiler/schedule/loop_tree.h"

#include <algorithm>
#include <memory>

#include "compiler/ir/visit.h"
#include "deploy/support/status.h"

namespace tilewright::schedule {
namespace {

using analysis::Analyzer;
using ir::Stmt;
using ir::StmtKind;
using ir::StmtNode;

// The path is filled from its end.
template <typename Matches>
bool Find(const Stmt& s, const Matches& matches, Path* path) {
  bool found = matches(*s);
  if (!found && s->kind == StmtKind::kFor) {
    found = Find(s->body, matches, path);
  } else if (!found && s->kind == StmtKind::kSeq) {
    found = std::any_of(s->stmts.begin(), s->stmts.end(),
                        [&](const Stmt& child) { return Find(child, matches, path); });
  }
  if (found) path->push_back(s);
  return found;
}

template <typename Matches>
Path PathTo(const Stmt& root, const Matches& matches) {
  Path path;
  Find(root, matches, &path);
  std::reverse(path.begin(), path.end());
  return path;
}

void Collect(const Stmt& s, std::vector<Stmt>* loops, std::vector<BlockSite>* sites) {
  switch (s->kind) {
    case StmtKind::kFor:
      loops->push_back(s);
      Collect(s->body, loops, sites);
      loops->pop_back();
      return;
    case StmtKind::kSeq:
      for (const Stmt& child : s->stmts) Collect(child, loops, sites);
      return;
    case StmtKind::kBlock:
      sites->push_back({s, *loops});
      return;
    default:
      return;
  }
}

Stmt WithBody(const Stmt& loop, Stmt body) {
  auto node = std::make_shared<StmtNode>(*loop);
  node->body = std::move(body);
  return node;
}

bool Accesses(const std::vector<ir::BufferRegion>& regions, const ir::Buffer& buffer) {
  return std::any_of(regions.begin(), regions.end(),
                     [&](const ir::BufferRegion& r) { return r.buffer == buffer; });
}

}  // namespace

Path FindLoop(const Stmt& root, const ir::Var& var) {
  return PathTo(root, [&](const StmtNode& s) { return s.kind == StmtKind::kFor && s.var == var; });
}

Path FindBlock(const Stmt& root, std::string_view name) {
  return PathTo(root,
                [&](const StmtNode& s) { return s.kind == StmtKind::kBlock && s.name == name; });
}

Stmt ReplaceAt(const Path& path, size_t depth, Stmt with) {
  Stmt result = std::move(with);
  for (size_t i = depth; i-- > 0;) {
    const Stmt& parent = path[i];
    if (parent->kind == StmtKind::kFor) {
      if (result != nullptr) result = WithBody(parent, std::move(result));
      continue;
    }
    TW_CHECK(parent->kind == StmtKind::kSeq) << "a path runs through loops and sequences only";
    std::vector<Stmt> stmts;
    stmts.reserve(parent->stmts.size());
    for (const Stmt& child : parent->stmts) {
      if (child != path[i + 1]) {
        stmts.push_back(child);
      } else if (result != nullptr) {
        stmts.push_back(result);
      }
    }
    result = stmts.empty() ? nullptr : ir::MakeSeq(std::move(stmts));
  }
  return result;
}

std::vector<BlockSite> BlocksIn(const Stmt& s, const std::vector<Stmt>& outer) {
  std::vector<BlockSite> sites;
  std::vector<Stmt> loops = outer;
  Collect(s, &loops, &sites);
  return sites;
}

std::vector<Stmt> LoopsOf(const Path& path, size_t upto) {
  std::vector<Stmt> loops;
  for (size_t i = 0; i < std::min(upto, path.size()); ++i) {
    if (path[i]->kind == StmtKind::kFor) loops.push_back(path[i]);
  }
  return loops;
}

size_t OwnNest(const Path& block_path) {
  size_t depth = block_path.size() - 1;
  while (depth > 0 && block_path[depth - 1]->kind == StmtKind::kFor) --depth;
  return depth;
}

Stmt MapBlocks(const Stmt& s, const std::function<Stmt(const Stmt&)>& f) {
  switch (s->kind) {
    case StmtKind::kFor: {
      Stmt body = MapBlocks(s->body, f);
      return body == s->body ? s : WithBody(s, std::move(body));
    }
    case StmtKind::kSeq: {
      bool changed = false;
      std::vector<Stmt> stmts;
      for (const Stmt& child : s->stmts) {
        stmts.push_back(MapBlocks(child, f));
        changed = changed || stmts.back() != child;
      }
      return changed ? ir::MakeSeq(std::move(stmts)) : s;
    }
    case StmtKind::kBlock:
      return f(s);
    default:
      return s;
  }
}

void AddLoop(const Stmt& loop, Analyzer* analyzer) { analyzer->SetRange(loop->var, loop->range); }

Analyzer AnalyzerOf(const ir::Function& f, const std::vector<Stmt>& loops) {
  Analyzer analyzer;
  // No upper end: a box as wide as the largest size would be none.
  for (const ir::Var& size : f.size_params) analyzer.Set(size, {1, analysis::Interval::kMost});
  for (const Stmt& loop : loops) AddLoop(loop, &analyzer);
  return analyzer;
}

bool Writes(const StmtNode& block, const ir::Buffer& buffer) {
  return Accesses(block.writes, buffer);
}
bool Reads(const StmtNode& block, const ir::Buffer& buffer) {
  return Accesses(block.reads, buffer);
}

bool HasLoops(const Stmt& s) {
  bool found = false;
  ir::VisitStmts(s, [&](const Stmt& part) {
    found = found || part->kind == StmtKind::kFor || part->kind == StmtKind::kBlock;
    return !found;
  });
  return found;
}

std::vector<ir::Var> VarsOf(const std::vector<Stmt>& loops) {
  std::vector<ir::Var> vars;
  vars.reserve(loops.size());
  for (const Stmt& l : loops) vars.push_back(l->var);
  return vars;
}

Feeds FeedsOf(const StmtNode& block, const ir::Var& loop) {
  Feeds feeds;
  for (const ir::IterVar& iter : block.iters) {
    if (!ir::UsesVar(iter.binding, loop)) continue;
    feeds.spatial = feeds.spatial || iter.type == ir::IterType::kSpatial;
    feeds.reduce = feeds.reduce || iter.type == ir::IterType::kReduce;
    feeds.ordered = feeds.ordered || iter.type == ir::IterType::kSequential ||
                    iter.type == ir::IterType::kOpaque;
  }
  return feeds;
}

}  // namespace tilewright::schedule
