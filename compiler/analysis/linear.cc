#include "compiler/analysis/linear.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/numeric.h"
#include "compiler/ir/visit.h"

namespace tilewright::analysis {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::Var;

class Extractor {
 public:
  Extractor(const std::vector<Var>& vars, ir::DType type) : vars_(vars), type_(type) {
    result_.coefficients.assign(vars.size(), 0);
  }

  // result += scale * e; false when e is not affine.
  bool Add(const Expr& e, int64_t scale) {
    switch (e->kind) {
      case ExprKind::kIntImm:
        result_.constant = Wrap(Product(scale, e->int_value), result_.constant);
        return true;
      case ExprKind::kAdd:
        return Add(e->args[0], scale) && Add(e->args[1], scale);
      case ExprKind::kSub:
        return Add(e->args[0], scale) && Add(e->args[1], Product(scale, -1));
      case ExprKind::kMul:
        if (const int64_t* c = ir::AsInt(e->args[1])) return Add(e->args[0], Product(scale, *c));
        if (const int64_t* c = ir::AsInt(e->args[0])) return Add(e->args[1], Product(scale, *c));
        return AddRest(e, scale);
      case ExprKind::kVar: {
        auto it = std::find(vars_.begin(), vars_.end(), e);
        if (it == vars_.end()) return AddRest(e, scale);
        int64_t& c = result_.coefficients[it - vars_.begin()];
        c = Wrap(c, scale);
        return true;
      }
      default:
        return AddRest(e, scale);
    }
  }
  Linear Take() { return std::move(result_); }

 private:
  int64_t Product(int64_t a, int64_t b) const {
    return ir::WrapInt(static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)),
                       type_);
  }
  int64_t Wrap(int64_t a, int64_t b) const {
    return ir::WrapInt(static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)),
                       type_);
  }
  bool AddRest(const Expr& e, int64_t scale) {
    bool uses =
        std::any_of(vars_.begin(), vars_.end(), [&](const Var& v) { return ir::UsesVar(e, v); });
    if (uses) return false;
    Expr part = scale == 1 ? e : e * ir::Int(scale, e->dtype);
    result_.rest = result_.rest == nullptr ? part : result_.rest + part;
    return true;
  }

  const std::vector<Var>& vars_;
  ir::DType type_;
  Linear result_;
};

}  // namespace

std::optional<Linear> AsLinear(const Expr& e, const std::vector<Var>& vars) {
  if (!e->dtype.is_int() || e->dtype.is_vector()) return std::nullopt;
  Extractor extractor(vars, e->dtype);
  if (!extractor.Add(e, 1)) return std::nullopt;
  return extractor.Take();
}

std::optional<int64_t> StrideOf(const Expr& e, const Var& var) {
  std::optional<Linear> linear = AsLinear(e, {var});
  if (!linear) return std::nullopt;
  return linear->coefficients[0];
}

}  // namespace tilewright::analysis
