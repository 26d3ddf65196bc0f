#include "compiler/schedule/legality.h"

#include <algorithm>

#include "compiler/analysis/footprint.h"
#include "compiler/analysis/injective.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using analysis::AffineSum;
using analysis::AffineTerm;
using analysis::Analyzer;
using analysis::UpperBound;
using ir::Stmt;
using ir::StmtKind;
using support::StrCat;

constexpr size_t kMaxShownBytes = 4096;

bool OnlyLoopsAndBlocks(const Stmt& s) {
  switch (s->kind) {
    case StmtKind::kFor:
      return OnlyLoopsAndBlocks(s->body);
    case StmtKind::kSeq:
      return std::all_of(s->stmts.begin(), s->stmts.end(), OnlyLoopsAndBlocks);
    case StmtKind::kBlock:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::Status Refuse(const Step& step, std::string_view reason, std::string_view detail,
                    const Stmt& around) {
  std::string shown = around == nullptr ? "" : ir::Print(around);
  if (shown.size() > kMaxShownBytes) {
    shown.resize(shown.rfind('\n', kMaxShownBytes) + 1);
    shown += "...\n";
  }
  return support::FailedPrecondition(StrCat("schedule.", RowOf(step.kind).name, ".", reason),
                                     StrCat(detail, shown.empty() ? "" : "\n", shown));
}

absl::StatusOr<Path> LoopPath(const Schedule& s, const Step& step, size_t operand) {
  TW_ASSIGN(ir::Var var, s.Loop(step.handles[operand]));
  Path path = FindLoop(s.function().body, var);
  TW_CHECK(!path.empty()) << "live handle %" << step.handles[operand] << " names no loop";
  if (!OnlyLoopsAndBlocks(path.back())) {
    return Refuse(step, "not_scheduled_form",
                  "expected loops, sequences and blocks below the loop, found another statement",
                  path.back());
  }
  return path;
}

absl::StatusOr<Path> BlockPath(const Schedule& s, const Step& step, size_t operand) {
  TW_ASSIGN(std::string name, s.Block(step.handles[operand]));
  Path path = FindBlock(s.function().body, name);
  TW_CHECK(!path.empty()) << "live handle %" << step.handles[operand] << " names no block";
  return path;
}

Analyzer BlockAnalyzer(const ir::Function& f, const BlockSite& site) {
  Analyzer analyzer = AnalyzerOf(f, site.loops);
  for (const ir::IterVar& iter : site.block->iters) analyzer.Define(iter.var, iter.binding);
  return analyzer;
}

std::vector<AffineSum> BindingSums(const Analyzer& analyzer, const ir::StmtNode& block) {
  std::vector<AffineSum> sums;
  for (const ir::IterVar& iter : block.iters) sums.push_back(analyzer.Affine(iter.binding));
  return sums;
}

std::vector<AffineSum> PointSums(const Analyzer& analyzer, const ir::BufferRegion& region) {
  std::vector<AffineSum> sums;
  for (const ir::Range& r : region.region) {
    if (!ir::IsInt(r.extent, 1)) return {};
    sums.push_back(analyzer.Affine(r.min));
  }
  return sums;
}

std::vector<AffineSum> WriteTiles(const Analyzer& analyzer, const ir::BufferRegion& region) {
  std::vector<AffineSum> sums;
  for (const ir::Range& r : region.region) {
    const int64_t* extent = ir::AsInt(r.extent);
    if (extent == nullptr || *extent < 1) return {};
    AffineSum sum = analyzer.Affine(r.min);
    if (sum.constant % *extent != 0) return {};
    sum.constant /= *extent;
    for (AffineTerm& t : sum.terms) {
      if (t.coeff % *extent != 0) return {};
      t.coeff /= *extent;
    }
    sums.push_back(std::move(sum));
  }
  return sums;
}

std::vector<AffineSum> WriteSums(const Analyzer& analyzer, const ir::StmtNode& block) {
  if (block.writes.size() != 1) return {};
  return PointSums(analyzer, block.writes[0]);
}

std::string WhyNotConcurrent(const ir::Function& f, const Path& path, bool vector) {
  const Stmt& loop = path.back();
  std::vector<Stmt> outer = LoopsOf(path, path.size() - 1);
  std::vector<BlockSite> below = BlocksIn(loop, outer);
  std::vector<BlockSite> all = BlocksIn(path.front());
  for (const BlockSite& site : below) {
    const ir::StmtNode& block = *site.block;
    Feeds feeds = FeedsOf(block, loop->var);
    if (feeds.reduce || feeds.ordered) {
      return StrCat("expected a loop over spatial iterators only, found that ", loop->var->name,
                    " feeds a ", feeds.reduce ? "reduction" : "ordered", " iterator of ",
                    block.name);
    }
    if (vector && HasLoops(block.body)) {
      return StrCat("expected blocks without loops in their bodies below a vectorised loop, found ",
                    block.name);
    }
    for (const ir::BufferRegion& w : block.writes) {
      bool used_outside = w.buffer->role != ir::Role::kIntermediate ||
                          std::any_of(all.begin(), all.end(), [&](const BlockSite& o) {
                            return (Reads(*o.block, w.buffer) || Writes(*o.block, w.buffer)) &&
                                   !IsBelow(o, loop->var);
                          });
      if (!vector && !used_outside) continue;
      Analyzer analyzer = BlockAnalyzer(f, site);
      std::vector<AffineSum> sums = WriteTiles(analyzer, w);
      std::vector<ir::Var> vars;
      for (size_t i = outer.size(); i < site.loops.size(); ++i) vars.push_back(site.loops[i]->var);
      std::vector<UpperBound> bounds = UpperBounds(analyzer, block.predicate);
      if (sums.empty() || !InjectiveIn(sums, vars, bounds, analyzer)[0]) {
        return StrCat("expected that each iteration of ", loop->var->name,
                      " writes its own part of ", w.buffer->name, ", found that block ", block.name,
                      " may write one element in several");
      }
    }
  }
  return "";
}

absl::Status CheckConcurrentLoops(const Step& step, const ir::Function& f, const Stmt& body) {
  std::vector<ir::Var> seen;
  for (const BlockSite& site : BlocksIn(body)) {
    for (const Stmt& loop : site.loops) {
      if (!ir::IsConcurrent(loop->for_kind)) continue;
      if (std::find(seen.begin(), seen.end(), loop->var) != seen.end()) continue;
      seen.push_back(loop->var);
      bool vector = loop->for_kind == ir::ForKind::kVectorized;
      std::string why = WhyNotConcurrent(f, FindLoop(body, loop->var), vector);
      if (!why.empty()) return Refuse(step, "conflict", why, loop);
    }
  }
  return absl::OkStatus();
}

namespace {

// Every region at the indices of the first.
bool AtOnePoint(const std::vector<ir::BufferRegion>& regions) {
  for (const ir::BufferRegion& r : regions) {
    if (r.region.size() != regions[0].region.size()) return false;
    for (size_t d = 0; d < r.region.size(); ++d) {
      if (!ir::StructuralEqual(r.region[d].min, regions[0].region[d].min) ||
          !ir::StructuralEqual(r.region[d].extent, regions[0].region[d].extent))
        return false;
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<std::vector<int>> WrittenIters(const Step& step, const Stmt& block, bool tuples) {
  auto bad = [&](std::string_view found) {
    return Refuse(
        step, "write_form",
        StrCat("expected a block that writes one buffer at its spatial iterators, found ", found),
        block);
  };
  bool tuple = tuples && block->body->kind == StmtKind::kCombine && AtOnePoint(block->writes);
  if (block->writes.size() != 1 && !tuple)
    return bad(StrCat(block->writes.size(), " written buffers"));
  std::vector<int> iters;
  const ir::BufferRegion& region = block->writes[0];
  for (size_t d = 0; d < region.region.size(); ++d) {
    const ir::Range& r = region.region[d];
    if (!ir::IsInt(r.extent, 1)) return bad("a written region that is not a point");
    int found = -1;
    for (size_t i = 0; i < block->iters.size(); ++i) {
      if (block->iters[i].var == r.min) found = static_cast<int>(i);
    }
    bool unit = found < 0 && ir::IsInt(r.min, 0) && ir::IsInt(region.buffer->shape[d], 1);
    if (found < 0 && !unit) return bad(StrCat("the index ", ir::Print(r.min)));
    if (found >= 0) {
      const ir::IterVar& iter = block->iters[static_cast<size_t>(found)];
      bool twice = std::find(iters.begin(), iters.end(), found) != iters.end();
      if (twice || iter.type != ir::IterType::kSpatial) {
        return bad(StrCat("the iterator ", iter.var->name,
                          twice ? " in two dimensions" : " of another type"));
      }
    }
    iters.push_back(found);
  }
  for (size_t i = 0; i < block->iters.size(); ++i) {
    const ir::IterVar& iter = block->iters[i];
    bool written = std::find(iters.begin(), iters.end(), static_cast<int>(i)) != iters.end();
    if (iter.type == ir::IterType::kSpatial && !written) {
      return bad(StrCat("the spatial iterator ", iter.var->name, " in no dimension"));
    }
    if (iter.type == ir::IterType::kSequential || iter.type == ir::IterType::kOpaque) {
      return bad(StrCat("the ordered iterator ", iter.var->name));
    }
  }
  return iters;
}

absl::StatusOr<std::vector<int>> ReadIters(const Step& step, const Stmt& block,
                                           const ir::BufferRegion& region) {
  std::vector<int> iters;
  for (size_t d = 0; d < region.region.size(); ++d) {
    int found = -1;
    for (size_t i = 0; i < block->iters.size(); ++i) {
      if (block->iters[i].var == region.region[d].min) found = static_cast<int>(i);
    }
    bool zero = ir::IsInt(region.region[d].min, 0) && ir::IsInt(region.buffer->shape[d], 1);
    bool twice = found >= 0 && std::find(iters.begin(), iters.end(), found) != iters.end();
    if (!ir::IsInt(region.region[d].extent, 1) || (found < 0 && !zero) || twice) {
      return Refuse(step, "read_form",
                    StrCat("expected that ", block->name, " reads ", region.buffer->name,
                           " at its own iterators, found another index"),
                    block);
    }
    iters.push_back(found);
  }
  return iters;
}

std::vector<BlockSite> WritersOf(const std::vector<BlockSite>& sites, const ir::Buffer& buffer) {
  std::vector<BlockSite> writers;
  for (const BlockSite& s : sites) {
    if (Writes(*s.block, buffer)) writers.push_back(s);
  }
  return writers;
}

ir::Buffer ReadBuffer(const ir::StmtNode& block, int64_t index) {
  std::vector<ir::Buffer> seen;
  for (const ir::BufferRegion& r : block.reads) {
    if (Writes(block, r.buffer)) continue;
    if (std::find(seen.begin(), seen.end(), r.buffer) == seen.end()) seen.push_back(r.buffer);
  }
  return index < static_cast<int64_t>(seen.size()) ? seen[static_cast<size_t>(index)] : nullptr;
}

bool IsGiven(const ir::Buffer& buffer) {
  return buffer->role == ir::Role::kInput || buffer->role == ir::Role::kConstant;
}

bool IsBelow(const BlockSite& site, const ir::Var& loop) {
  return std::any_of(site.loops.begin(), site.loops.end(),
                     [&](const Stmt& l) { return l->var == loop; });
}

bool HasLoopOfKind(const std::vector<Stmt>& loops, ir::ForKind kind) {
  return std::any_of(loops.begin(), loops.end(),
                     [&](const Stmt& l) { return l->for_kind == kind; });
}

std::vector<Stmt> LoopsBelow(const Stmt& loop) {
  std::vector<Stmt> loops;
  for (const BlockSite& site : BlocksIn(loop->body)) {
    loops.insert(loops.end(), site.loops.begin(), site.loops.end());
  }
  return loops;
}

absl::Status CheckSerial(const Step& step, const Stmt& loop) {
  if (loop->for_kind == ir::ForKind::kSerial) return absl::OkStatus();
  return Refuse(
      step, "not_serial",
      StrCat("expected a serial loop, found that ", loop->var->name, " is mapped already"), loop);
}

void SetKind(Schedule& s, const Path& path, ir::ForKind kind) {
  auto node = std::make_shared<ir::StmtNode>(*path.back());
  node->for_kind = kind;
  s.SetBody(ReplaceAt(path, path.size() - 1, std::move(node)));
}

void ReplaceIntermediate(Schedule& s, const ir::Buffer& from, const ir::Buffer& to) {
  ir::Function& f = s.mutable_function();
  std::replace(f.allocs.begin(), f.allocs.end(), from, to);
  s.SetBody(ir::ReplaceBuffers(f.body, {{from.get(), to}}));
}

std::string LoopNameFor(const ir::IterVar& iter) {
  const std::string& name = iter.var->name;
  return name.size() > 1 && name[0] == 'v' ? name.substr(1) : name;
}

}  // namespace tilewright::schedule
