// transform_layout: another shape for an intermediate buffer.
#include <algorithm>
#include <utility>

#include "compiler/ir/structural.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"
#include "compiler/schedule/primitives.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using analysis::Analyzer;
using ir::Expr;
using ir::Stmt;
using ir::StmtNode;
using support::StrCat;

// The digits of one old dimension, lowest first, as positions in the map.
std::vector<size_t> DigitsOf(const IndexMap& map, int dim) {
  std::vector<size_t> digits;
  for (size_t i = 0; i < map.size(); ++i) {
    if (map[i].dim == dim) digits.push_back(i);
  }
  std::stable_sort(digits.begin(), digits.end(),
                   [&](size_t a, size_t b) { return map[a].div < map[b].div; });
  return digits;
}

// Each old index must be the sum of its digits: every digit starts where the one below it ends, and
// the highest has no end.
absl::Status CheckMap(const Step& step, const IndexMap& map, const ir::Buffer& buffer,
                      const Stmt& block) {
  bool good = true;
  for (const IndexDigit& d : map) good = good && d.dim < static_cast<int>(buffer->shape.size());
  for (size_t dim = 0; dim < buffer->shape.size(); ++dim) {
    std::vector<size_t> digits = DigitsOf(map, static_cast<int>(dim));
    int64_t next = 1;
    for (size_t i = 0; i < digits.size(); ++i) {
      const IndexDigit& d = map[digits[i]];
      bool last = i + 1 == digits.size();
      good = good && d.div == next && (last ? d.mod == 0 : d.mod > 0);
      if (!good) break;
      next = d.div * d.mod;
    }
    good = good && !digits.empty();
  }
  if (good) return absl::OkStatus();
  return Refuse(step, "map",
                StrCat("expected digits that make up each of the ", buffer->shape.size(),
                       " dimensions of ", buffer->name, ", found ", ToText(map)),
                block);
}

// What a digit takes a whole number of times.
int64_t UnitOf(const IndexDigit& d) { return d.mod == 0 ? d.div : d.div * d.mod; }

bool IsMultiple(const Expr& extent, int64_t unit) {
  const int64_t* number = ir::AsInt(extent);
  return unit == 1 || (number != nullptr && *number % unit == 0);
}

// Every point of the new shape is one of the old: a block computes all of its iteration space.
absl::Status CheckEven(const Step& step, const IndexMap& map, const ir::Buffer& buffer,
                       const Stmt& block) {
  for (const IndexDigit& d : map) {
    const Expr& size = buffer->shape[static_cast<size_t>(d.dim)];
    const int64_t* extent = ir::AsInt(size);
    if (IsMultiple(size, UnitOf(d))) continue;
    return Refuse(
        step, "uneven",
        StrCat("expected dimension ", d.dim, " of ", buffer->name, " as a multiple of ", UnitOf(d),
               ", found ", extent == nullptr ? "a symbolic size" : StrCat(*extent),
               " (split tail=pad of its loop pads it)"),
        block);
  }
  return absl::OkStatus();
}

// A nest that stands for an intrinsic says how its operands lie.
bool HasTensorNest(const Stmt& block) {
  bool found = false;
  ir::VisitStmts(block->body, [&](const Stmt& s) {
    found = found || s->annotations.count(ir::kTensorKey) != 0;
    return !found;
  });
  return found;
}

Expr DigitOf(const IndexDigit& d, const Expr& index) {
  Expr value = index;
  if (d.div != 1) value = ir::FloorDiv(value, ir::Int(d.div, index->dtype));
  if (d.mod != 0) value = ir::FloorMod(value, ir::Int(d.mod, index->dtype));
  return value;
}

Expr ExtentOf(const IndexDigit& d, const Expr& extent) {
  if (d.mod != 0) return ir::Int(d.mod, extent->dtype);
  if (d.div == 1) return extent;
  return ir::FloorDiv(extent, ir::Int(d.div, extent->dtype));
}

// The iterators of a writer that took the place of one old iterator.
struct DigitIters {
  int dim = 0;
  Expr whole;              // the old iterator's value
  std::vector<Expr> vars;  // per new dimension; null where it is no digit of this one
};

// Rewrites the accesses of one buffer inside a block; `analyzer` knows the block's iterators.
class AccessMapper : public ir::Rewriter {
 public:
  AccessMapper(const IndexMap& map, ir::Buffer from, ir::Buffer to, const Analyzer& analyzer,
               const std::vector<DigitIters>& own)
      : map_(map), from_(std::move(from)), to_(std::move(to)), analyzer_(analyzer), own_(own) {}

  Expr RewriteExpr(const Expr& e) override {
    Expr r = RewriteChildren(e);
    if (r->kind != ir::ExprKind::kLoad || r->buffer != from_) return r;
    return ir::Load(to_, Mapped(r->args), r->mask);
  }
  Stmt RewriteStmt(const Stmt& s) override {
    Stmt r = RewriteChildren(s);
    if (r->kind != ir::StmtKind::kStore || r->buffer != from_) return r;
    return ir::MakeStore(to_, Mapped(r->indices), r->value, r->mask);
  }
  // A box becomes the box around its image; points stay points.
  ir::BufferRegion Region(const ir::BufferRegion& old) const {
    if (old.buffer != from_) return old;
    ir::BufferRegion region{to_, {}};
    for (size_t i = 0; i < map_.size(); ++i) {
      const IndexDigit& d = map_[i];
      const ir::Range& range = old.region[static_cast<size_t>(d.dim)];
      const ir::DType type = range.min->dtype;
      const int64_t* extent = ir::AsInt(range.extent);
      if (d.div == 1 && d.mod == 0) {
        region.region.push_back(range);
      } else if (extent != nullptr && *extent == 1) {
        region.region.push_back({Mapped(i, range.min), range.extent});
      } else if (d.mod == 0 && extent != nullptr) {
        int64_t most = (*extent + d.div - 2) / d.div + 1;
        region.region.push_back({analyzer_.Normal(DigitOf(d, range.min)), ir::Int(most, type)});
      } else {
        region.region.push_back({ir::Int(0, type), to_->shape[i]});
      }
    }
    return region;
  }

 private:
  // The index of new dimension i.
  Expr Mapped(size_t i, const Expr& index) const {
    const IndexDigit& d = map_[i];
    if (d.div == 1 && d.mod == 0) return index;
    for (const DigitIters& own : own_) {
      if (own.dim == d.dim && ir::StructuralEqual(own.whole, index)) return own.vars[i];
    }
    return analyzer_.Normal(DigitOf(d, index));
  }
  std::vector<Expr> Mapped(const std::vector<Expr>& indices) const {
    std::vector<Expr> mapped;
    for (size_t i = 0; i < map_.size(); ++i) {
      mapped.push_back(Mapped(i, indices[static_cast<size_t>(map_[i].dim)]));
    }
    return mapped;
  }

  const IndexMap& map_;
  ir::Buffer from_, to_;
  const Analyzer& analyzer_;
  const std::vector<DigitIters>& own_;
};

// The writer's iterators of split dimensions are replaced by one per digit.
StmtNode WithDigitIters(Schedule& s, const BlockSite& site, const std::vector<int>& written,
                        const IndexMap& map, std::vector<DigitIters>* own) {
  StmtNode node = *site.block;
  Analyzer loops = AnalyzerOf(s.function(), site.loops);
  ir::VarMap values;
  std::vector<ir::IterVar> iters;
  for (size_t i = 0; i < node.iters.size(); ++i) {
    const ir::IterVar iter = node.iters[i];
    auto at = std::find(written.begin(), written.end(), static_cast<int>(i));
    std::vector<size_t> digits = at == written.end()
                                     ? std::vector<size_t>()
                                     : DigitsOf(map, static_cast<int>(at - written.begin()));
    if (digits.size() < 2) {
      iters.push_back(iter);
      continue;
    }
    Expr whole;
    own->push_back({map[digits[0]].dim, nullptr, std::vector<Expr>(map.size())});
    for (size_t k = digits.size(); k-- > 0;) {
      const IndexDigit& d = map[digits[k]];
      const ir::DType type = iter.var->dtype;
      ir::Var var = ir::MakeVar(s.UniqueName(StrCat(iter.var->name, "_", k)), type);
      iters.push_back({var,
                       {ir::Int(0, type), ExtentOf(d, iter.domain.extent)},
                       iter.type,
                       loops.Normal(DigitOf(d, iter.binding))});
      own->back().vars[digits[k]] = var;
      Expr part = d.div == 1 ? Expr(var) : var * ir::Int(d.div, type);
      whole = whole == nullptr ? part : whole + part;
    }
    own->back().whole = whole;
    values[iter.var.get()] = whole;
  }
  node.iters = std::move(iters);
  for (auto* regions : {&node.reads, &node.writes}) {
    for (ir::BufferRegion& r : *regions) {
      for (ir::Range& d : r.region) d.min = ir::Substitute(d.min, values);
    }
  }
  if (node.init != nullptr) node.init = ir::Substitute(node.init, values);
  node.body = ir::Substitute(node.body, values);
  return node;
}

Stmt MapBlock(Schedule& s, StmtNode node, const IndexMap& map, const ir::Buffer& from,
              const ir::Buffer& to, const std::vector<DigitIters>& own) {
  Analyzer analyzer = AnalyzerOf(s.function(), {});
  for (const ir::IterVar& iter : node.iters) analyzer.SetRange(iter.var, iter.domain);
  AccessMapper mapper(map, from, to, analyzer, own);
  for (auto* regions : {&node.reads, &node.writes}) {
    for (ir::BufferRegion& r : *regions) r = mapper.Region(r);
  }
  if (node.init != nullptr) node.init = mapper.RewriteStmt(node.init);
  node.body = mapper.RewriteStmt(node.body);
  return std::make_shared<StmtNode>(std::move(node));
}

}  // namespace

absl::Status ApplyTransformLayout(Schedule& s, const Step& step) {
  TW_ASSIGN(Path path, BlockPath(s, step, 0));
  TW_ASSIGN(IndexMap map, ParseIndexMap(step.word));
  const Stmt& block = path.back();
  if (block->writes.size() != 1 || block->writes[0].buffer->role != ir::Role::kIntermediate) {
    return Refuse(step, "not_intermediate",
                  "expected a block that writes one intermediate buffer, found another", block);
  }
  const ir::Buffer from = block->writes[0].buffer;
  TW_TRY(CheckMap(step, map, from, block));
  TW_TRY(CheckEven(step, map, from, block));
  if (from->storage_align.has_value() || from->swizzle.has_value()) {
    return Refuse(
        step, "aligned",
        StrCat("expected the layout of ", from->name, " before its alignment, found it aligned"),
        block);
  }
  std::vector<BlockSite> sites = BlocksIn(path[0]);
  std::vector<std::pair<std::string, std::vector<int>>> writers;
  for (const BlockSite& site : WritersOf(sites, from)) {
    TW_ASSIGN(std::vector<int> written, WrittenIters(step, site.block));
    for (size_t dim = 0; dim < written.size(); ++dim) {
      if (written[dim] < 0) continue;
      const ir::Range& domain = site.block->iters[static_cast<size_t>(written[dim])].domain;
      // A divided loop's nest writes a part of the dimension.
      const bool whole = std::ranges::all_of(DigitsOf(map, static_cast<int>(dim)), [&](size_t k) {
        return IsMultiple(domain.extent, UnitOf(map[k]));
      });
      if (ir::IsInt(domain.min, 0) && whole) continue;
      return Refuse(step, "domain",
                    "expected iterators from 0 over whole digits, found another domain",
                    site.block);
    }
    writers.emplace_back(site.block->name, std::move(written));
  }
  auto node = std::make_shared<ir::BufferNode>(*from);
  node->shape.clear();
  for (const IndexDigit& d : map) {
    node->shape.push_back(ExtentOf(d, from->shape[static_cast<size_t>(d.dim)]));
  }
  const ir::Buffer to = node;
  Schedule trial = s;  // names are taken only when the step is accepted
  Stmt body = path[0];
  for (const BlockSite& site : sites) {
    if (!Reads(*site.block, from) && !Writes(*site.block, from)) continue;
    if (HasTensorNest(site.block)) {
      return Refuse(step, "tensorized",
                    StrCat("expected the layout of ", from->name, " before ", site.block->name,
                           " is tensorized, found it tensorized"),
                    site.block);
    }
    auto writer = std::find_if(writers.begin(), writers.end(),
                               [&](const auto& w) { return w.first == site.block->name; });
    std::vector<DigitIters> own;
    StmtNode changed = writer == writers.end()
                           ? *site.block
                           : WithDigitIters(trial, site, writer->second, map, &own);
    Path at = FindBlock(body, site.block->name);
    body = ReplaceAt(at, at.size() - 1, MapBlock(trial, std::move(changed), map, from, to, own));
  }
  TW_TRY(CheckConcurrentLoops(step, trial.function(), body));
  ir::Function& f = trial.mutable_function();
  std::replace(f.allocs.begin(), f.allocs.end(), from, to);
  trial.SetBody(std::move(body));
  s = std::move(trial);
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
