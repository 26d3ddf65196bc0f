#include "compiler/schedule/quasi_affine.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"

namespace tilewright::schedule {
namespace {

using ir::Expr;
using ir::ExprKind;

int64_t Saturate(__int128 value) {
  if (value >= kUnboundedIndex) return kUnboundedIndex;
  if (value <= -kUnboundedIndex) return -kUnboundedIndex;
  return static_cast<int64_t>(value);
}

int64_t FloorDivInt(int64_t a, int64_t b) {
  int64_t q = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? q - 1 : q;
}
int64_t FloorModInt(int64_t a, int64_t b) { return a - FloorDivInt(a, b) * b; }

// Bounds at infinity stay there.
int64_t FloorDivBound(int64_t a, int64_t b) {
  return std::abs(a) >= kUnboundedIndex ? a : FloorDivInt(a, b);
}

IndexRange Scale(IndexRange r, int64_t factor) {
  auto times = [&](int64_t end) {
    if (factor == 0) return int64_t{0};
    if (std::abs(end) >= kUnboundedIndex) return factor > 0 ? end : -end;
    return Saturate(static_cast<__int128>(end) * factor);
  };
  IndexRange s{times(r.lo), times(r.hi)};
  if (factor < 0) std::swap(s.lo, s.hi);
  return s;
}

int64_t AddBound(int64_t a, int64_t b, int64_t unbounded) {
  if (a == unbounded || b == unbounded) return unbounded;
  return Saturate(static_cast<__int128>(a) + b);
}

IndexRange Plus(IndexRange a, IndexRange b) {
  return {AddBound(a.lo, b.lo, -kUnboundedIndex), AddBound(a.hi, b.hi, kUnboundedIndex)};
}

bool SameAtom(const Expr& a, const Expr& b) {
  if (a == b) return true;
  if (a->kind != b->kind || a->kind == ExprKind::kVar) return false;
  return ir::StructuralEqual(a, b);
}

void AddTerm(AffineSum* sum, const AffineTerm& term, int64_t factor) {
  for (size_t i = 0; i < sum->terms.size(); ++i) {
    AffineTerm& t = sum->terms[i];
    if (!SameAtom(t.atom, term.atom)) continue;
    t.coeff += term.coeff * factor;
    if (t.coeff == 0) sum->terms.erase(sum->terms.begin() + static_cast<std::ptrdiff_t>(i));
    return;
  }
  sum->terms.push_back({term.atom, term.coeff * factor, term.range});
}

// Small enough that sums and products of a few such numbers cannot overflow.
bool Small(int64_t value) { return std::abs(value) < (int64_t{1} << 31); }

// The divisor and the dividend of floordiv/floormod by a positive constant.
bool IsDivision(const Expr& e, ExprKind kind, int64_t* divisor) {
  if (e->kind != kind) return false;
  const int64_t* d = ir::AsInt(e->args[1]);
  if (d == nullptr || *d <= 0) return false;
  *divisor = *d;
  return true;
}

// floordiv(x, c) * c*k + floormod(x, c) * k  ->  x * k.
void RejoinDivisions(AffineSum* sum, const AffineContext& context) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const AffineTerm& mod : sum->terms) {
      int64_t m = 0;
      if (!IsDivision(mod.atom, ExprKind::kFloorMod, &m)) continue;
      for (const AffineTerm& div : sum->terms) {
        int64_t d = 0;
        if (!IsDivision(div.atom, ExprKind::kFloorDiv, &d)) continue;
        if (d != m || div.coeff != mod.coeff * m) continue;
        if (!SameAtom(div.atom->args[0], mod.atom->args[0])) continue;
        AffineTerm old_div = div, old_mod = mod;
        AddTerm(sum, old_div, -1);
        AddTerm(sum, old_mod, -1);
        AddScaled(sum, context.Normalize(old_div.atom->args[0]), old_mod.coeff);
        changed = true;
        break;
      }
      if (changed) break;
    }
  }
}

void SortTerms(AffineSum* sum) {
  if (sum->terms.size() < 2) return;
  std::stable_sort(sum->terms.begin(), sum->terms.end(),
                   [](const AffineTerm& a, const AffineTerm& b) {
                     return std::abs(a.coeff) > std::abs(b.coeff);
                   });
}

bool IsCompare(ExprKind kind) { return kind >= ExprKind::kEq && kind <= ExprKind::kGe; }

// lhs - rhs of a comparison as `difference < 0` (kLt), `== 0` (kEq) or `!= 0` (kNe).
AffineSum Difference(const AffineContext& context, const Expr& e, ExprKind* kind) {
  bool swap = e->kind == ExprKind::kGt || e->kind == ExprKind::kGe;
  AffineSum d = context.Normalize(e->args[swap ? 1 : 0]);
  AddScaled(&d, context.Normalize(e->args[swap ? 0 : 1]), -1);
  SortTerms(&d);
  if (e->kind == ExprKind::kLe || e->kind == ExprKind::kGe) d.constant -= 1;
  *kind = e->kind == ExprKind::kEq || e->kind == ExprKind::kNe ? e->kind : ExprKind::kLt;
  return d;
}

// Comparisons of scalar signed integers are the ones understood here.
bool IsIndexCompare(const Expr& e) {
  return IsCompare(e->kind) && !e->dtype.is_vector() &&
         e->args[0]->dtype.code == ir::TypeCode::kInt;
}

}  // namespace

void AddScaled(AffineSum* into, const AffineSum& other, int64_t factor) {
  into->constant += other.constant * factor;
  for (const AffineTerm& t : other.terms) AddTerm(into, t, factor);
}

bool SameSum(const AffineSum& a, const AffineSum& b) {
  if (a.constant != b.constant || a.terms.size() != b.terms.size()) return false;
  for (const AffineTerm& t : a.terms) {
    bool found = std::any_of(b.terms.begin(), b.terms.end(), [&](const AffineTerm& o) {
      return o.coeff == t.coeff && SameAtom(o.atom, t.atom);
    });
    if (!found) return false;
  }
  return true;
}

bool Mentions(const AffineSum& sum, const ir::Var& var) {
  return std::any_of(sum.terms.begin(), sum.terms.end(),
                     [&](const AffineTerm& t) { return ir::UsesVar(t.atom, var); });
}

Expr ToExpr(const AffineSum& sum) {
  Expr result;
  auto magnitude = [&](const AffineTerm& t) {
    int64_t c = std::abs(t.coeff);
    return c == 1 ? t.atom : t.atom * ir::Int(c, sum.dtype);
  };
  for (const AffineTerm& t : sum.terms) {
    if (t.coeff < 0) continue;
    result = result == nullptr ? magnitude(t) : result + magnitude(t);
  }
  int64_t constant = sum.constant;
  if (result == nullptr) {
    result = ir::Int(constant, sum.dtype);
    constant = 0;
  }
  for (const AffineTerm& t : sum.terms) {
    if (t.coeff < 0) result = result - magnitude(t);
  }
  if (constant > 0) result = result + ir::Int(constant, sum.dtype);
  if (constant < 0) result = result - ir::Int(-constant, sum.dtype);
  return result;
}

std::vector<Expr> Conjuncts(const Expr& predicate) {
  std::vector<Expr> parts;
  if (predicate == nullptr) return parts;
  if (predicate->kind != ExprKind::kAnd) return {predicate};
  for (const Expr& side : predicate->args) {
    std::vector<Expr> inner = Conjuncts(side);
    parts.insert(parts.end(), inner.begin(), inner.end());
  }
  return parts;
}

Expr Conjunction(const std::vector<Expr>& parts) {
  Expr result;
  for (const Expr& p : parts) result = result == nullptr ? p : result && p;
  return result;
}

// ------------------------------------------------------------------------------------
// AffineContext

void AffineContext::SetRange(const ir::Var& var, const ir::Range& range) {
  IndexRange min = RangeOf(range.min), extent = RangeOf(range.extent);
  SetRange(var, IndexRange{min.lo, AddBound(AddBound(min.hi, extent.hi, kUnboundedIndex), -1,
                                            kUnboundedIndex)});
}

void AffineContext::SetRange(const ir::Var& var, IndexRange range) {
  for (auto& [known, r] : ranges_) {
    if (known == var) {
      r = range;
      return;
    }
  }
  ranges_.emplace_back(var, range);
}

void AffineContext::Define(const ir::Var& var, const Expr& value) {
  definitions_.emplace_back(var, Normalize(value));
}

IndexRange AffineContext::RangeOfVar(const ir::ExprNode* var) const {
  for (const auto& [known, range] : ranges_) {
    if (known.get() == var) return range;
  }
  return {};
}

IndexRange AffineContext::RangeOf(const AffineSum& sum) const {
  IndexRange r{sum.constant, sum.constant};
  for (const AffineTerm& t : sum.terms) r = Plus(r, Scale(t.range, t.coeff));
  return r;
}

AffineSum AffineContext::Atom(const Expr& e, IndexRange range) const {
  AffineSum sum;
  sum.dtype = e->dtype;
  if (range.lo == range.hi) {
    sum.constant = range.lo;
  } else {
    sum.terms.push_back({e, 1, range});
  }
  return sum;
}

// Anything that has no form of its own stays as it is, with definitions replaced inside.
AffineSum AffineContext::Opaque(const Expr& e) const {
  IndexRange range;
  Expr atom = e;
  if (e->kind == ExprKind::kMin || e->kind == ExprKind::kMax) {
    AffineSum a = Normalize(e->args[0]), b = Normalize(e->args[1]);
    IndexRange ra = RangeOf(a), rb = RangeOf(b);
    bool is_min = e->kind == ExprKind::kMin;
    if (ra.hi <= rb.lo) return is_min ? a : b;
    if (rb.hi <= ra.lo) return is_min ? b : a;
    range = is_min ? IndexRange{std::min(ra.lo, rb.lo), std::min(ra.hi, rb.hi)}
                   : IndexRange{std::max(ra.lo, rb.lo), std::max(ra.hi, rb.hi)};
    atom = is_min ? ir::Min(ToExpr(a), ToExpr(b)) : ir::Max(ToExpr(a), ToExpr(b));
  } else if (!definitions_.empty()) {
    ir::VarMap map;
    for (const auto& [var, value] : definitions_) map[var.get()] = ToExpr(value);
    atom = ir::Substitute(e, map);
  }
  return Atom(atom, range);
}

// value = factor * high + low with low in [0, factor): the part that a division by a multiple of
// `factor` does not see. The largest such factor of `divisor`; 1 when there is none.
AffineContext::Factored AffineContext::Factor(AffineSum value, int64_t divisor) const {
  SortTerms(&value);
  int64_t g = divisor;
  for (size_t k = 1; k <= value.terms.size() && g > 1; ++k) {
    g = std::gcd(g, value.terms[k - 1].coeff);
    Factored f{g, {}, {}};
    f.high.dtype = f.low.dtype = value.dtype;
    f.high.constant = FloorDivInt(value.constant, g);
    f.low.constant = FloorModInt(value.constant, g);
    for (const AffineTerm& t : value.terms) {
      if (t.coeff % g == 0) {
        f.high.terms.push_back({t.atom, t.coeff / g, t.range});
      } else {
        f.low.terms.push_back(t);
      }
    }
    IndexRange r = RangeOf(f.low);
    if (g > 1 && r.lo >= 0 && r.hi < g) return f;
  }
  Factored whole{1, std::move(value), {}};
  whole.low.dtype = whole.high.dtype;
  return whole;
}

AffineSum AffineContext::NormalizeDiv(AffineSum value, int64_t divisor) const {
  AffineSum whole;  // what leaves the division
  whole.dtype = value.dtype;
  AffineSum rest;
  rest.dtype = value.dtype;
  for (AffineTerm& t : value.terms) {
    if (t.coeff % divisor == 0) {
      whole.terms.push_back({t.atom, t.coeff / divisor, t.range});
    } else {
      rest.terms.push_back(std::move(t));
    }
  }
  rest.constant = FloorModInt(value.constant, divisor);
  whole.constant = FloorDivInt(value.constant, divisor);
  IndexRange r = RangeOf(rest);
  if (r.bounded() && FloorDivInt(r.lo, divisor) == FloorDivInt(r.hi, divisor)) {
    whole.constant += FloorDivInt(r.lo, divisor);
    return whole;
  }
  auto [g, high, low] = Factor(std::move(rest), divisor);
  rest = std::move(high);
  divisor /= g;
  // floordiv(floordiv(x, a), b) = floordiv(x, a * b).
  int64_t inner = 0;
  if (rest.terms.size() == 1 && rest.constant == 0 && rest.terms[0].coeff == 1 &&
      IsDivision(rest.terms[0].atom, ExprKind::kFloorDiv, &inner) && Small(inner) &&
      Small(divisor)) {
    AffineSum merged = NormalizeDiv(Normalize(rest.terms[0].atom->args[0]), inner * divisor);
    AddScaled(&whole, merged, 1);
    return whole;
  }
  r = RangeOf(rest);
  IndexRange quotient{FloorDivBound(r.lo, divisor), FloorDivBound(r.hi, divisor)};
  SortTerms(&rest);
  Expr atom = ir::FloorDiv(ToExpr(rest), ir::Int(divisor, rest.dtype));
  AddScaled(&whole, Atom(atom, quotient), 1);
  return whole;
}

AffineSum AffineContext::NormalizeMod(AffineSum value, int64_t divisor) const {
  IndexRange whole = RangeOf(value);
  if (whole.bounded() && FloorDivInt(whole.lo, divisor) == FloorDivInt(whole.hi, divisor)) {
    value.constant -= FloorDivInt(whole.lo, divisor) * divisor;
    return value;
  }
  AffineSum rest;
  rest.dtype = value.dtype;
  for (AffineTerm& t : value.terms) {
    // Other coefficients stay: the quotient of the same value has the same operand.
    if (t.coeff % divisor != 0) rest.terms.push_back(std::move(t));
  }
  rest.constant = FloorModInt(value.constant, divisor);
  IndexRange r = RangeOf(rest);
  if (r.bounded() && FloorDivInt(r.lo, divisor) == FloorDivInt(r.hi, divisor)) {
    rest.constant -= FloorDivInt(r.lo, divisor) * divisor;
    return rest;
  }
  auto [g, scaled, result] = Factor(std::move(rest), divisor);
  divisor /= g;
  SortTerms(&scaled);
  Expr atom = ir::FloorMod(ToExpr(scaled), ir::Int(divisor, rest.dtype));
  AddScaled(&result, Atom(atom, {0, divisor - 1}), g);
  return result;
}

AffineSum AffineContext::Normalize(const Expr& e) const {
  switch (e->kind) {
    case ExprKind::kVar:
      for (const auto& [var, value] : definitions_) {
        if (var == e) return value;
      }
      return Atom(e, RangeOfVar(e.get()));
    case ExprKind::kIntImm: {
      AffineSum sum;
      sum.dtype = e->dtype;
      sum.constant = e->int_value;
      return sum;
    }
    case ExprKind::kAdd:
    case ExprKind::kSub: {
      if (e->dtype.code != ir::TypeCode::kInt) return Opaque(e);
      AffineSum sum = Normalize(e->args[0]);
      AddScaled(&sum, Normalize(e->args[1]), e->kind == ExprKind::kAdd ? 1 : -1);
      RejoinDivisions(&sum, *this);
      SortTerms(&sum);
      return sum;
    }
    case ExprKind::kMul: {
      const int64_t* right = ir::AsInt(e->args[1]);
      const int64_t* factor = right != nullptr ? right : ir::AsInt(e->args[0]);
      if (factor == nullptr || !Small(*factor) || *factor == 0) return Opaque(e);
      AffineSum value = Normalize(e->args[right != nullptr ? 0 : 1]);
      bool safe =
          Small(value.constant) && std::all_of(value.terms.begin(), value.terms.end(),
                                               [](const AffineTerm& t) { return Small(t.coeff); });
      if (!safe) return Opaque(e);
      AffineSum sum;
      sum.dtype = e->dtype;
      AddScaled(&sum, value, *factor);
      return sum;
    }
    case ExprKind::kFloorDiv:
    case ExprKind::kFloorMod: {
      int64_t divisor = 0;
      if (!IsDivision(e, e->kind, &divisor)) return Opaque(e);
      AffineSum value = Normalize(e->args[0]);
      AffineSum sum = e->kind == ExprKind::kFloorDiv ? NormalizeDiv(std::move(value), divisor)
                                                     : NormalizeMod(std::move(value), divisor);
      SortTerms(&sum);
      return sum;
    }
    default:
      return Opaque(e);
  }
}

Expr AffineContext::Simplify(const Expr& e) const { return ToExpr(Normalize(e)); }

int AffineContext::Decide(const Expr& e) const {
  if (e->kind == ExprKind::kIntImm) return e->int_value != 0 ? 1 : -1;
  if (e->kind == ExprKind::kAnd) {
    int a = Decide(e->args[0]), b = Decide(e->args[1]);
    return a < 0 || b < 0 ? -1 : std::min(a, b);
  }
  if (!IsIndexCompare(e)) return 0;
  ExprKind kind;
  IndexRange r = RangeOf(Difference(*this, e, &kind));
  if (kind == ExprKind::kLt) return r.hi < 0 ? 1 : r.lo >= 0 ? -1 : 0;
  int equal = r.lo == 0 && r.hi == 0 ? 1 : r.lo > 0 || r.hi < 0 ? -1 : 0;
  return kind == ExprKind::kEq ? equal : -equal;
}

Expr AffineContext::SimplifyConjunct(const Expr& e) const {
  if (!IsIndexCompare(e)) {
    if (definitions_.empty()) return e;
    ir::VarMap map;
    for (const auto& [var, value] : definitions_) map[var.get()] = ToExpr(value);
    return ir::Substitute(e, map);
  }
  ExprKind kind;
  AffineSum d = Difference(*this, e, &kind);
  AffineSum left, right;
  left.dtype = right.dtype = d.dtype;
  for (const AffineTerm& t : d.terms) {
    AffineSum& side = t.coeff > 0 ? left : right;
    side.terms.push_back({t.atom, std::abs(t.coeff), t.range});
  }
  if (left.terms.empty() && d.constant > 0) {
    left.constant = d.constant;  // 3 < i, not 0 < i - 3
  } else {
    right.constant = -d.constant;
  }
  return ir::Binary(kind, ToExpr(left), ToExpr(right));
}

Expr AffineContext::SimplifyPredicate(const Expr& predicate) const {
  std::vector<Expr> kept;
  for (const Expr& part : Conjuncts(predicate)) {
    if (Decide(part) > 0) continue;
    Expr simple = SimplifyConjunct(part);
    bool known = std::any_of(kept.begin(), kept.end(),
                             [&](const Expr& k) { return ir::StructuralEqual(k, simple); });
    if (!known) kept.push_back(std::move(simple));
  }
  return Conjunction(kept);
}

}  // namespace tilewright::schedule
