#include "compiler/ir/tuple_reduction.h"

#include <cmath>
#include <limits>
#include <utility>

#include "compiler/ir/numeric.h"
#include "compiler/ir/structural.h"
#include "deploy/support/status.h"

namespace tilewright::ir {
namespace {

Expr LowestFinite(DType t) {
  TW_CHECK(t.is_float()) << "expected a float type, found " << TypeName(t);
  if (t == kF64) return Float(-std::numeric_limits<double>::max(), t);
  if (t == kF16) return Float(-65504, t);
  double lowest = t == kBF16 ? -3.38953138925e38 : -std::numeric_limits<float>::max();
  return Float(lowest, t);
}

struct Sides {
  std::vector<Var> a, b;
};

Sides MakeSides(const std::vector<DType>& types) {
  Sides s;
  for (size_t i = 0; i < types.size(); ++i) {
    s.a.push_back(MakeVar("a" + std::to_string(i), types[i]));
    s.b.push_back(MakeVar("b" + std::to_string(i), types[i]));
  }
  return s;
}

TupleReduction Finish(Sides sides, std::vector<Expr> results, std::vector<Expr> identity) {
  auto combiner = std::make_shared<TupleCombiner>();
  combiner->lhs = std::move(sides.a);
  combiner->rhs = std::move(sides.b);
  combiner->results = std::move(results);
  return {std::move(combiner), std::move(identity)};
}

Expr Or(Expr a, Expr b) { return Binary(ExprKind::kOr, std::move(a), std::move(b)); }

TupleReduction ArgBest(DType value, DType index, bool max) {
  Sides s = MakeSides({value, index});
  Expr better = max ? s.a[0] < s.b[0] : s.b[0] < s.a[0];
  Expr take = Or(better, Eq(s.a[0], s.b[0]) && s.b[1] < s.a[1]);
  double infinity = std::numeric_limits<double>::infinity();
  Expr worst = value.is_float() ? Float(max ? -infinity : infinity, value)
                                : Int(max ? MinInt(value) : MaxInt(value), value);
  // Whatever ties with the identity has a smaller index.
  std::vector<Expr> identity = {worst, Int(MaxInt(index), index)};
  std::vector<Expr> results = {Select(take, s.b[0], s.a[0]), Select(take, s.b[1], s.a[1])};
  return Finish(std::move(s), std::move(results), std::move(identity));
}

Expr Exp(Expr x) { return Call(Intrinsic::kExp, {std::move(x)}); }

// `sums` weighted sums beside the maximum.
TupleReduction Softmax(DType type, int sums) {
  Sides s = MakeSides(std::vector<DType>(static_cast<size_t>(sums) + 1, type));
  Expr top = Max(s.a[0], s.b[0]);
  Expr left = Exp(s.a[0] - top), right = Exp(s.b[0] - top);
  std::vector<Expr> results = {top};
  // Finite, so that the difference of two of them is 0 and not NaN.
  std::vector<Expr> identity = {LowestFinite(type)};
  for (size_t i = 1; i < s.a.size(); ++i) {
    results.push_back(s.a[i] * left + s.b[i] * right);
    identity.push_back(Zero(type));
  }
  return Finish(std::move(s), std::move(results), std::move(identity));
}

// The combiner of `C = C op x`.
std::shared_ptr<const TupleCombiner> ScalarCombiner(ExprKind op, DType type) {
  Sides s = MakeSides({type});
  Expr result = Binary(op, s.a[0], s.b[0]);
  return Finish(std::move(s), {std::move(result)}, {}).combiner;
}

bool IsNeutral(ExprKind op, const Expr& e) {
  bool is_float = e->kind == ExprKind::kFloatImm;
  if (!is_float && e->kind != ExprKind::kIntImm) return false;
  double infinity = std::numeric_limits<double>::infinity();
  switch (op) {
    case ExprKind::kAdd:
      return is_float ? e->float_value == 0 : e->int_value == 0;
    case ExprKind::kMul:
      return is_float ? e->float_value == 1 : e->int_value == 1;
    case ExprKind::kMax:
      return is_float ? e->float_value == -infinity : e->int_value == MinInt(e->dtype);
    case ExprKind::kMin:
      return is_float ? e->float_value == infinity : e->int_value == MaxInt(e->dtype);
    default:
      return false;
  }
}

bool SamePlace(const Stmt& a, const Stmt& b) {
  if (a->buffer != b->buffer || a->indices.size() != b->indices.size()) return false;
  for (size_t i = 0; i < a->indices.size(); ++i) {
    if (!StructuralEqual(a->indices[i], b->indices[i])) return false;
  }
  return true;
}

bool Loads(const Expr& e, const BufferNode* buffer) {
  if (e->kind == ExprKind::kLoad && e->buffer.get() == buffer) return true;
  for (const Expr& a : e->args) {
    if (Loads(a, buffer)) return true;
  }
  return e->mask != nullptr && Loads(e->mask, buffer);
}

std::optional<ReductionForm> ScalarForm(const StmtNode& block) {
  const Stmt &init = block.init, &body = block.body;
  if (init->kind != StmtKind::kStore || !SamePlace(init, body) || body->mask != nullptr ||
      init->mask != nullptr)
    return std::nullopt;
  ExprKind op = body->value->kind;
  if (op != ExprKind::kAdd && op != ExprKind::kMul && op != ExprKind::kMin && op != ExprKind::kMax)
    return std::nullopt;
  Expr own = Load(body->buffer, body->indices);
  for (size_t side : {size_t{0}, size_t{1}}) {
    const Expr& value = body->value->args[1 - side];
    if (!StructuralEqual(body->value->args[side], own) || Loads(value, body->buffer.get()))
      continue;
    ReductionForm form;
    form.combiner = ScalarCombiner(op, body->buffer->dtype);
    form.targets = {MakeStore(body->buffer, body->indices, value)};
    form.identity = {init->value};
    form.neutral = IsNeutral(op, init->value);
    return form;
  }
  return std::nullopt;
}

}  // namespace

TupleReduction ArgMax(DType value, DType index) { return ArgBest(value, index, /*max=*/true); }
TupleReduction ArgMin(DType value, DType index) { return ArgBest(value, index, /*max=*/false); }
TupleReduction OnlineSoftmax(DType type) { return Softmax(type, 1); }
TupleReduction OnlineAttention(DType type) { return Softmax(type, 2); }

TupleReduction Welford(DType type) {
  Sides s = MakeSides({type, type, type});
  Expr count = s.a[0] + s.b[0], apart = s.b[1] - s.a[1];
  // Two empty sides: nothing to share out.
  Expr part = s.b[0] / Max(count, Float(1, type));
  std::vector<Expr> results = {count, s.a[1] + apart * part,
                               s.a[2] + s.b[2] + apart * apart * s.a[0] * part};
  return Finish(std::move(s), std::move(results), {Zero(type), Zero(type), Zero(type)});
}

std::optional<ReductionForm> ReductionOf(const StmtNode& block) {
  if (block.init == nullptr || block.body == nullptr) return std::nullopt;
  if (block.body->kind == StmtKind::kStore) return ScalarForm(block);
  if (block.body->kind != StmtKind::kCombine) return std::nullopt;
  ReductionForm form;
  form.combiner = block.body->combiner;
  form.targets = block.body->stmts;
  std::vector<Stmt> inits =
      block.init->kind == StmtKind::kSeq ? block.init->stmts : std::vector<Stmt>{block.init};
  form.neutral = true;
  for (const Stmt& target : form.targets) {
    Expr identity;
    for (const Stmt& init : inits) {
      if (init->kind == StmtKind::kStore && init->mask == nullptr && SamePlace(init, target))
        identity = init->value;
    }
    if (identity == nullptr) return std::nullopt;
    // Declared with the combiner; a value that is read from somewhere is not.
    form.neutral = form.neutral &&
                   (identity->kind == ExprKind::kIntImm || identity->kind == ExprKind::kFloatImm);
    form.identity.push_back(std::move(identity));
  }
  return inits.size() == form.targets.size() ? std::optional(std::move(form)) : std::nullopt;
}

}  // namespace tilewright::ir
