// TRANSFORMATION of shorten_loops (kLoops → kLoops)
//
//   for v in 0..12 { for w in 0..16 { if v < 8 { S } } }
//     → for v in 0..8 { for w in 0..16 { S } }
#include <algorithm>
#include <memory>
#include <vector>

#include "compiler/analysis/simplify.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/loop_cuts.h"
#include "compiler/transform/passes.h"

namespace tilewright::transform {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtKind;

class Shortener final : public ir::Rewriter {
 public:
  explicit Shortener(const ir::Function& f) : analyzer_(f) {}
  bool changed() const { return changed_; }

  Stmt RewriteStmt(const Stmt& s) override {
    if (s->kind == StmtKind::kLet) analyzer_.SetValue(s->var, s->value);
    if (s->kind != StmtKind::kFor) return RewriteChildren(s);
    analyzer_.SetRange(s->var, s->range);
    const Stmt loop = Shortened(s);
    analyzer_.SetRange(loop->var, loop->range);
    return RewriteChildren(loop);
  }

 private:
  Stmt Shortened(const Stmt& s) {
    const Expr past = CutFinder(analyzer_, {}, {}).FindEnd(s, /*known=*/true);
    const int64_t* end = past == nullptr ? nullptr : ir::AsInt(past);
    const int64_t *min = ir::AsInt(s->range.min), *extent = ir::AsInt(s->range.extent);
    if (end == nullptr || min == nullptr || extent == nullptr || *end >= *min + *extent) return s;
    changed_ = true;
    auto loop = std::make_shared<ir::StmtNode>(*s);
    loop->range.extent = ir::Int(std::max<int64_t>(0, *end - *min));
    return loop;
  }

  analysis::Analyzer analyzer_;
  bool changed_ = false;
};

}  // namespace

absl::StatusOr<Function> ShortenLoops(const Function& f, const PassContext& ctx) {
  Shortener shortener(f);
  Function result = f;
  result.body = shortener.RewriteStmt(f.body);
  return shortener.changed() ? SimplifyFunction(result, ctx) : f;
}

}  // namespace tilewright::transform
