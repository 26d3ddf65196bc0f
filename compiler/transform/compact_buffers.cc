// TRANSFORMATIONS of compact_buffers (kLoops → kLoops)
//   alloc B[d…] around S, where S touches only the box [min, min + extent) of B and everything
//   outside S is constant during S
//     → alloc B'[extent…] around S with B[i…] → B'[i - min…], dimension by dimension
// A dimension is kept whole where the box is unknown. A dimension that vectors run along, with
// others outside of it, is whole vectors in a local buffer, so that none of them overlaps the next
// row's.
#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "compiler/analysis/access_region.h"
#include "compiler/analysis/simplify.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/stmt_rewriter.h"

namespace tilewright::transform {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

// Extent up to which a dimension of a local buffer may grow to hold a whole tile.
constexpr int64_t kMaxPaddedExtent = 256;

// B[i…] → B'[i - min…]
class Rebase : public ir::Rewriter {
 public:
  Rebase(const Buffer& from, Buffer to, std::vector<Expr> offsets,
         const analysis::Analyzer& analyzer)
      : from_(from), to_(std::move(to)), offsets_(std::move(offsets)), analyzer_(analyzer) {}

  Expr RewriteExpr(const Expr& e) override {
    Expr r = RewriteChildren(e);
    return r->kind == ExprKind::kLoad && r->buffer == from_ ? ir::Load(to_, Moved(r->args), r->mask)
                                                            : r;
  }
  Stmt RewriteStmt(const Stmt& s) override {
    Stmt r = RewriteChildren(s);
    bool ours = r->kind == StmtKind::kStore && r->buffer == from_;
    return ours ? ir::MakeStore(to_, Moved(r->indices), r->value, r->mask) : r;
  }

 private:
  std::vector<Expr> Moved(const std::vector<Expr>& indices) const {
    std::vector<Expr> moved;
    for (size_t d = 0; d < indices.size(); ++d) {
      moved.push_back(ir::IsInt(offsets_[d], 0)
                          ? indices[d]
                          : analysis::Simplify(indices[d] - offsets_[d], analyzer_));
    }
    return moved;
  }

  const Buffer& from_;
  Buffer to_;
  std::vector<Expr> offsets_;
  const analysis::Analyzer& analyzer_;
};

// Lanes of the widest vectorized loop in `s` that moves each dimension of the buffer; 1 = none
// does.
std::vector<int64_t> LanesAlong(const Stmt& s, const Buffer& buffer) {
  std::vector<int64_t> lanes(buffer->shape.size(), 1);
  std::map<const ir::ExprNode*, int64_t> vectorized;
  ir::VisitStmts(s, [&](const Stmt& loop) {
    if (loop->kind != StmtKind::kFor || loop->for_kind != ir::ForKind::kVectorized) return true;
    const int64_t* extent = ir::AsInt(loop->range.extent);
    if (extent != nullptr) vectorized[loop->var.get()] = *extent;
    return true;
  });
  auto access = [&](const std::vector<Expr>& indices) {
    for (size_t d = 0; d < indices.size(); ++d) {
      ir::VisitExprs(indices[d], [&](const Expr& e) {
        if (auto it = vectorized.find(e.get()); it != vectorized.end()) {
          lanes[d] = std::max(lanes[d], it->second);
        }
        return true;
      });
    }
  };
  ir::VisitStmts(s, [&](const Stmt& store) {
    if (store->kind == StmtKind::kStore && store->buffer == buffer) access(store->indices);
    return true;
  });
  ir::VisitExprsIn(s, [&](const Expr& load) {
    if (load->kind == ExprKind::kLoad && load->buffer == buffer) access(load->args);
    return true;
  });
  return lanes;
}

class Compactor : public StmtRewriter {
 public:
  explicit Compactor(const ir::Function& f) : analyzer_(f) {}

  Stmt RewriteStmt(const Stmt& s) override {
    switch (s->kind) {
      case StmtKind::kFor:
        analyzer_.SetRange(s->var, s->range);
        return RewriteChildren(s);
      case StmtKind::kLet:
        if (s->value->dtype.is_int()) analyzer_.SetValue(s->var, s->value);
        return RewriteChildren(s);
      case StmtKind::kAlloc:
        return WalkAlloc(s);
      default:
        return RewriteChildren(s);
    }
  }

 private:
  Stmt WalkAlloc(const Stmt& s) {
    std::optional<ir::BufferRegion> box =
        analysis::UnionRegion(analysis::ReadRegion(s->body, s->buffer, analyzer_),
                              analysis::WriteRegion(s->body, s->buffer, analyzer_), analyzer_);
    std::vector<Expr> shape = s->buffer->shape, offsets;
    const bool local = s->buffer->scope == ir::Scope::kLocal;
    const std::vector<int64_t> lanes =
        local ? LanesAlong(s->body, s->buffer) : std::vector<int64_t>(shape.size(), 1);
    bool changed = false, rows = false;
    for (size_t d = 0; d < shape.size(); ++d) {
      offsets.push_back(ir::Int(0, shape[d]->dtype));
      if (!box.has_value()) continue;
      const Expr extent = analysis::Simplify(box->region[d].extent, analyzer_);
      const int64_t *size = ir::AsInt(extent), *before = ir::AsInt(shape[d]);
      if (size == nullptr || *size < 1) continue;
      const int64_t whole = (*size + lanes[d] - 1) / lanes[d] * lanes[d];
      const int64_t now = rows && whole <= kMaxPaddedExtent ? whole : *size;
      rows = rows || now > 1;
      if (before != nullptr && now == *before) continue;
      // A tile may be larger than what is left of the buffer; vectors of a register buffer must not
      // overlap all the same.
      if (before != nullptr && now > *before && !(local && now <= kMaxPaddedExtent)) continue;
      shape[d] = ir::Int(now, shape[d]->dtype);
      offsets[d] = ir::Cast(shape[d]->dtype, analysis::Simplify(box->region[d].min, analyzer_));
      changed = true;
    }
    if (!changed) return RewriteChildren(s);
    auto node = std::make_shared<ir::BufferNode>(*s->buffer);
    node->shape = std::move(shape);
    Stmt body = Rebase(s->buffer, node, std::move(offsets), analyzer_).RewriteStmt(s->body);
    return ir::MakeAlloc(node, RewriteStmt(body));
  }

  analysis::Analyzer analyzer_;
};

}  // namespace

absl::StatusOr<Function> CompactBuffers(const Function& f, const PassContext&) {
  Function result = f;
  result.body = Compactor(f).RewriteStmt(f.body);
  return result;
}

}  // namespace tilewright::transform
