#include "compiler/codegen/index_width.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <unordered_set>

#include "compiler/analysis/analyzer.h"
#include "compiler/ir/visit.h"

namespace tilewright::codegen {
namespace {

using ir::Expr;
using ir::Stmt;

constexpr analysis::Interval kInt32{std::numeric_limits<int32_t>::min(),
                                    std::numeric_limits<int32_t>::max()};

bool IsInt64(ir::DType type) { return type.Element() == ir::kI64; }

class WidthCheck {
 public:
  bool fits() const { return fits_; }

  void Walk(const Stmt& body) {
    // Ranges of variables before the expressions that use them.
    ir::VisitStmts(body, [&](const Stmt& s) {
      if (s->kind == ir::StmtKind::kFor) {
        analyzer_.SetRange(s->var, s->range);
        // The loop's end is computed, too.
        fits_ = fits_ && analyzer_.Values(s->var).max < kInt32.max;
      }
      if (s->kind == ir::StmtKind::kLet) analyzer_.SetValue(s->var, s->value);
      if (s->buffer != nullptr && IsInt64(s->buffer->dtype)) fits_ = false;
      return fits_;
    });
    ir::VisitExprsIn(body, [&](const Expr& e) { return Check(e); });
  }

 private:
  bool Check(const Expr& e) {
    if (!fits_ || !seen_.insert(e.get()).second) return false;
    if (e->kind == ir::ExprKind::kLoad && IsInt64(e->dtype)) fits_ = false;
    if (IsInt64(e->dtype)) {
      fits_ = fits_ && analyzer_.Values(e).Within(kInt32);
    }
    return fits_;
  }

  analysis::Analyzer analyzer_;
  std::unordered_set<const ir::ExprNode*> seen_;
  bool fits_ = true;
};

}  // namespace

bool FitsInt32(const ir::Function& kernel) {
  if (!kernel.size_params.empty()) return false;
  const bool wide = std::any_of(kernel.params.begin(), kernel.params.end(),
                                [](const ir::Buffer& b) { return IsInt64(b->dtype); });
  if (wide) return false;
  WidthCheck check;
  check.Walk(kernel.body);
  return check.fits();
}

}  // namespace tilewright::codegen
