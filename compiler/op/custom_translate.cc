#include "compiler/op/custom_translate.h"

#include <algorithm>
#include <utility>

#include "compiler/ir/numeric.h"
#include "compiler/ir/type_rules.h"
#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op::custom {
namespace {

using support::StrCat;
using Kind = Term::Kind;

constexpr size_t kShown = 80;  // characters of an expression that an error shows

absl::Status Wrong(std::string_view reason, const NodeRef& node, std::string_view detail) {
  return OpError("custom", reason, StrCat(support::Quote(Print(node), kShown), ": ", detail));
}

Term Typed(ir::Expr expr) {
  Term term;
  term.expr = std::move(expr);
  return term;
}
Term Whole(int64_t value) {
  Term term;
  term.kind = Kind::kInteger;
  term.integer = value;
  return term;
}
Term Number(double value) {
  Term term;
  term.kind = Kind::kNumber;
  term.number = value;
  return term;
}
double AsDouble(const Term& term) {
  return term.kind == Kind::kInteger ? static_cast<double>(term.integer) : term.number;
}
MaybeSize Constant(int64_t value) { return CheckedSize::Of(Dim(value)); }

// Numbers without types fold; integers wrap as all integers do.
Term Fold(std::string_view symbol, const Term& a, const Term& b) {
  const auto bits = [](int64_t v) { return static_cast<uint64_t>(v); };
  if (a.kind == Kind::kInteger && b.kind == Kind::kInteger && symbol != "/" && symbol != "%") {
    if (symbol == "+") return Whole(static_cast<int64_t>(bits(a.integer) + bits(b.integer)));
    if (symbol == "-") return Whole(static_cast<int64_t>(bits(a.integer) - bits(b.integer)));
    return Whole(static_cast<int64_t>(bits(a.integer) * bits(b.integer)));
  }
  if (a.kind == Kind::kInteger && b.kind == Kind::kInteger) {
    const bool none = b.integer == 0 || b.integer == -1;  // -1: the quotient may not fit
    const int64_t negated = static_cast<int64_t>(0 - bits(a.integer));
    if (none) return Whole(symbol == "/" && b.integer != 0 ? negated : 0);
    int64_t quotient = a.integer / b.integer;
    if (a.integer % b.integer != 0 && (a.integer < 0) != (b.integer < 0)) --quotient;
    return Whole(symbol == "/" ? quotient : a.integer - quotient * b.integer);
  }
  const double x = AsDouble(a), y = AsDouble(b);
  if (symbol == "+") return Number(x + y);
  if (symbol == "-") return Number(x - y);
  return Number(symbol == "*" ? x * y : x / y);
}

bool IsComparison(std::string_view symbol) {
  return symbol == "==" || symbol == "!=" || symbol[0] == '<' || symbol[0] == '>';
}
ir::ExprKind KindOf(std::string_view symbol) {
  for (const ir::ExprKind kind :
       {ir::ExprKind::kAdd, ir::ExprKind::kSub, ir::ExprKind::kMul, ir::ExprKind::kEq,
        ir::ExprKind::kNe, ir::ExprKind::kLt, ir::ExprKind::kLe, ir::ExprKind::kGt,
        ir::ExprKind::kGe, ir::ExprKind::kAnd, ir::ExprKind::kOr}) {
    if (ir::KindText(kind) == symbol) return kind;
  }
  return ir::ExprKind::kDiv;
}
std::optional<ir::Intrinsic> IntrinsicOf(std::string_view word) {
  for (const ir::Intrinsic function :
       {ir::Intrinsic::kExp,       ir::Intrinsic::kLog,    ir::Intrinsic::kSqrt,
        ir::Intrinsic::kTanh,      ir::Intrinsic::kErf,    ir::Intrinsic::kAbs,
        ir::Intrinsic::kFloor,     ir::Intrinsic::kCeil,   ir::Intrinsic::kRoundEven,
        ir::Intrinsic::kPow,       ir::Intrinsic::kSin,    ir::Intrinsic::kCos,
        ir::Intrinsic::kTan,       ir::Intrinsic::kAsin,   ir::Intrinsic::kAcos,
        ir::Intrinsic::kAtan,      ir::Intrinsic::kSinh,   ir::Intrinsic::kCosh,
        ir::Intrinsic::kAsinh,     ir::Intrinsic::kAcosh,  ir::Intrinsic::kAtanh,
        ir::Intrinsic::kExpm1,     ir::Intrinsic::kFmod,   ir::Intrinsic::kBitAnd,
        ir::Intrinsic::kBitOr,     ir::Intrinsic::kBitXor, ir::Intrinsic::kShiftLeft,
        ir::Intrinsic::kShiftRight}) {
    if (ir::IntrinsicText(function) == word) return function;
  }
  return std::nullopt;
}

// Bounds of a sum, a difference or a product by a constant.
void BoundArithmetic(std::string_view symbol, const Term& a, const Term& b, Term* out) {
  if (symbol == "+") {
    out->low = Add(a.low, b.low);
    out->high = Add(a.high, b.high);
  } else if (symbol == "-") {
    out->low = Add(a.low, Negate(b.high));
    out->high = Add(a.high, Negate(b.low));
  } else if (symbol == "*") {
    const bool left = ir::AsInt(a.expr) != nullptr;
    const int64_t* factor = ir::AsInt(left ? a.expr : b.expr);
    if (factor == nullptr) return;
    const Term& other = left ? b : a;
    out->low = Multiply(*factor < 0 ? other.high : other.low, Constant(*factor));
    out->high = Multiply(*factor < 0 ? other.low : other.high, Constant(*factor));
  } else if (const int64_t* divisor = ir::AsInt(b.expr); divisor != nullptr && *divisor > 0) {
    out->low = symbol == "%" ? Constant(0) : FloorDivide(a.low, *divisor);
    out->high = symbol == "%" ? Constant(*divisor - 1) : FloorDivide(a.high, *divisor);
  }
}

}  // namespace

std::optional<ir::DType> TypeOfWord(std::string_view word,
                                    const std::map<std::string, ir::DType>& types, bool wide) {
  const auto variable = types.find(std::string(word));
  if (variable != types.end()) return variable->second;
  ir::DType type;
  if (!ir::ParseType(word, &type) || type.is_vector()) return std::nullopt;
  return wide && type == ir::kF32 ? ir::kF64 : type;
}

absl::StatusOr<ir::Expr> Translator::Element(const NodeRef& node, ir::DType type) {
  TW_ASSIGN(const Term term, Translate(node, type));
  return AsType(node, term, type);
}

absl::StatusOr<ir::Expr> Translator::Element(const NodeRef& node) {
  TW_ASSIGN(Term term, Translate(node, std::nullopt));
  if (term.kind == Kind::kTyped) return std::move(term.expr);
  return Wrong("type", node, "expected a value of a type, found a number; write a cast (f32(0))");
}

absl::StatusOr<ir::Expr> Translator::AsType(const NodeRef& node, const Term& term,
                                            ir::DType type) const {
  if (term.kind == Kind::kTyped) {
    if (term.expr->dtype == type) return term.expr;
    return Wrong("type", node,
                 StrCat("expected ", ir::TypeName(type), ", found ", ir::TypeName(term.expr->dtype),
                        "; write a cast (", ir::TypeName(type), "(...))"));
  }
  if (type.is_float()) return ir::Float(AsDouble(term), type);
  const bool fits = term.kind == Kind::kInteger && type.is_int() &&
                    (type == ir::kI64 ||
                     (term.integer >= ir::MinInt(type) &&
                      (type == ir::kU64 ? term.integer >= 0 : term.integer <= ir::MaxInt(type))));
  if (fits) return ir::Int(term.integer, type);
  return Wrong("type", node,
               StrCat("expected a number that ", ir::TypeName(type), " holds, found another"));
}

absl::Status Translator::Unify(const NodeRef& node, Term* a, Term* b, Hint hint) const {
  if (a->kind == Kind::kTyped && b->kind == Kind::kTyped) {
    if (a->expr->dtype == b->expr->dtype) return absl::OkStatus();
    return Wrong("type", node,
                 StrCat("expected operands of one type, found ", ir::TypeName(a->expr->dtype),
                        " and ", ir::TypeName(b->expr->dtype), "; write a cast (",
                        ir::TypeName(a->expr->dtype), "(...))"));
  }
  if (a->kind != Kind::kTyped && b->kind != Kind::kTyped && !hint) {
    return Wrong("type", node, "expected a value of a type, found numbers; write a cast (f32(0))");
  }
  const ir::DType type = a->kind == Kind::kTyped   ? a->expr->dtype
                         : b->kind == Kind::kTyped ? b->expr->dtype
                                                   : *hint;
  for (Term* term : {a, b}) {
    if (term->kind == Kind::kTyped) continue;
    const bool whole = term->kind == Kind::kInteger;
    TW_ASSIGN(ir::Expr expr, AsType(node, *term, type));
    if (whole) term->low = term->high = Constant(term->integer);
    term->kind = Kind::kTyped;
    term->expr = std::move(expr);
  }
  return absl::OkStatus();
}

absl::StatusOr<Term> Translator::Translate(const NodeRef& node, Hint hint) {
  switch (node->kind) {
    case NodeKind::kInt:
      return Whole(node->integer);
    case NodeKind::kFloat:
      return Number(node->number);
    case NodeKind::kBool:
      return Typed(ir::Bool(node->integer != 0));
    case NodeKind::kName:
      return Name(node);
    case NodeKind::kAccess:
      return Access(node);
    case NodeKind::kOperation:
      return Operation(node, hint);
    case NodeKind::kCall:
      return Call(node, hint);
    case NodeKind::kText:
      return Wrong("type", node,
                   "expected a number, found a text (texts are only compared with "
                   "attributes)");
    default:
      return Wrong("type", node, "expected no reduction here");
  }
}

absl::StatusOr<Term> Translator::Name(const NodeRef& node) const {
  if (const auto axis = axes.find(node->name); axis != axes.end()) {
    Term term = Typed(axis->second.var);
    term.low = Constant(0);
    term.high = Add(CheckedSize::Of(axis->second.extent), Constant(-1));
    return term;
  }
  if (const auto dim = dims.find(node->name); dim != dims.end()) {
    Term term = Typed(size(dim->second));
    term.low = term.high = CheckedSize::Of(dim->second);
    return term;
  }
  if (const auto value = values.find(node->name); value != values.end()) {
    return Typed(value->second);
  }
  return Wrong("name", node,
               "expected an axis, a size or an attribute, found another name (elements of a tensor "
               "are x[...])");
}

absl::StatusOr<Term> Translator::Access(const NodeRef& node) {
  const auto tensor = tensors.find(node->name);
  if (tensor == tensors.end()) {
    return Wrong("name", node, "expected an operand, or a stage before this one");
  }
  const TensorType& type = tensor->second.type;
  std::vector<ir::Expr> index;
  const size_t front = node->leading ? leading.size() : 0;
  if (front + node->args.size() != type.shape.size()) {
    return Wrong("shape", node,
                 StrCat("expected ", type.shape.size(), " positions in ", ToText(type), ", found ",
                        front + node->args.size()));
  }
  for (size_t d = 0; d < front; ++d) {
    if (leading[d].extent != type.shape[d]) {
      return Wrong("shape", node, StrCat("expected the dimensions of `..` in ", ToText(type)));
    }
    index.push_back(leading[d].var);
  }
  for (size_t d = front; d < type.shape.size(); ++d) {
    TW_ASSIGN(ir::Expr at, Position(node->args[d - front], type.shape[d]));
    index.push_back(std::move(at));
  }
  return Typed(tensor->second.read(std::move(index)));
}

// What lies outside is the nearest element: a bound that nothing proves is computed.
absl::StatusOr<ir::Expr> Translator::Position(const NodeRef& node, const Dim& extent) {
  TW_ASSIGN(Term term, Translate(node, ir::kI64));
  const bool number = term.kind == Kind::kInteger;
  if (number) {
    term.expr = ir::Int(term.integer);
    term.low = term.high = Constant(term.integer);
    term.kind = Kind::kTyped;
  }
  if (term.kind != Kind::kTyped || !term.expr->dtype.is_int()) {
    return Wrong("type", node, "expected an integer as a position, found another type");
  }
  ir::Expr at = term.expr->dtype == ir::kI64 ? term.expr : ir::Cast(ir::kI64, term.expr);
  bool from_zero = term.low && SurelyBelow(Dim(-1), term.low->dim);
  bool below = term.high && SurelyBelow(term.high->dim, extent);
  // Of other integer types the value as a position may be another number.
  const auto known = term.expr->dtype == ir::kI64 ? facts_.find(Print(node)) : facts_.end();
  if (known != facts_.end()) {
    from_zero = from_zero || known->second.from_zero;
    below =
        below || std::any_of(known->second.below.begin(), known->second.below.end(),
                             [&](const Dim& d) { return d == extent || SurelyBelow(d, extent); });
  }
  if (!below) at = ir::Min(at, size(extent) - ir::Int(1));
  if (!from_zero) at = ir::Max(at, ir::Int(0));
  return at;
}

absl::StatusOr<Term> Translator::Operation(const NodeRef& node, Hint hint) {
  const std::string& symbol = node->name;
  if (node->args.size() == 1) {
    TW_ASSIGN(Term arg, Translate(node->args[0], symbol == "!" ? Hint(ir::kBool) : hint));
    if (symbol == "!") {
      if (arg.kind == Kind::kTyped && arg.expr->dtype.is_bool()) return Typed(ir::Not(arg.expr));
      return Wrong("type", node, "expected a bool behind !");
    }
    if (arg.kind != Kind::kTyped) {
      return arg.kind == Kind::kInteger ? Fold("-", Whole(0), arg) : Number(-arg.number);
    }
    const ir::DType type = arg.expr->dtype;
    if (type.is_bool()) return Wrong("type", node, "expected a number behind -, found a bool");
    Term result = Typed((type.is_float() ? ir::Float(-0.0, type) : ir::Int(0, type)) - arg.expr);
    result.low = Negate(arg.high);
    result.high = Negate(arg.low);
    return result;
  }
  const bool logic = symbol == "&&" || symbol == "||", comparison = IsComparison(symbol);
  const Hint inner = logic ? Hint(ir::kBool) : comparison ? Hint() : hint;
  TW_ASSIGN(Term a, Translate(node->args[0], inner));
  TW_ASSIGN(Term b, Translate(node->args[1], inner));
  if (a.kind != Kind::kTyped && b.kind != Kind::kTyped && !logic && !comparison) {
    return Fold(symbol, a, b);
  }
  TW_TRY(Unify(node, &a, &b, comparison ? Hint(ir::kF64) : inner));
  const ir::DType type = a.expr->dtype;
  const bool equality = symbol == "==" || symbol == "!=";
  if (logic ? !type.is_bool() : (type.is_bool() && !equality)) {
    return Wrong("type", node,
                 StrCat("expected ", logic ? "bools" : "numbers", ", found ", ir::TypeName(type)));
  }
  Term result;
  if (symbol == "%" && type.is_float()) {
    return Wrong("type", node, "expected integers around %, found floats; write fmod(a, b)");
  }
  if ((symbol == "/" || symbol == "%") && type.is_int()) {
    result = Typed(SafeDivide(symbol == "/" ? ir::ExprKind::kFloorDiv : ir::ExprKind::kFloorMod,
                              a.expr, b.expr));
  } else {
    result = Typed(ir::Binary(KindOf(symbol), a.expr, b.expr));
  }
  if (type == ir::kI64 && !comparison) BoundArithmetic(symbol, a, b, &result);
  return result;
}

absl::StatusOr<Term> Translator::CastTo(ir::DType type, const NodeRef& node) {
  if (node->args.size() != 1) return Wrong("type", node, "expected one argument of a cast");
  TW_ASSIGN(Term arg, Translate(node->args[0], type));
  if (arg.kind == Kind::kNumber && !type.is_float()) {
    return Wrong("type", node, "expected an integer, found a number with a point");
  }
  if (arg.kind != Kind::kTyped) {
    if (type.is_bool()) return Typed(ir::Bool(arg.integer != 0));
    TW_ASSIGN(ir::Expr literal, AsType(node, arg, type));
    Term term = Typed(std::move(literal));
    if (arg.kind == Kind::kInteger && type == ir::kI64)
      term.low = term.high = Constant(arg.integer);
    return term;
  }
  if (arg.expr->dtype == type) return arg;
  return Typed(ir::Cast(type, arg.expr));
}

// Conditions that hold where the chosen side is computed: positions they bound need no bounds.
void Translator::Assume(const NodeRef& condition) {
  if (condition->kind != NodeKind::kOperation || condition->args.size() != 2) return;
  const std::string& symbol = condition->name;
  if (symbol == "&&") {
    Assume(condition->args[0]);
    Assume(condition->args[1]);
    return;
  }
  const bool turned = symbol == ">" || symbol == "<=";  // size > e, 0 <= e
  if (!turned && symbol != "<" && symbol != ">=") return;
  const NodeRef& e = condition->args[turned ? 1 : 0];
  const NodeRef& bound = condition->args[turned ? 0 : 1];
  Facts& facts = facts_[Print(e)];
  if (symbol == ">=" || symbol == "<=") {
    facts.from_zero = facts.from_zero || (bound->kind == NodeKind::kInt && bound->integer >= 0);
    return;
  }
  if (bound->kind == NodeKind::kInt) facts.below.emplace_back(bound->integer);
  if (const auto dim = dims.find(bound->name);
      bound->kind == NodeKind::kName && dim != dims.end()) {
    facts.below.push_back(dim->second);
  }
}

absl::StatusOr<Term> Translator::Choice(const NodeRef& node, Hint hint) {
  if (node->args.size() != 3) {
    return Wrong("type", node, "expected select(condition, then, else)");
  }
  TW_ASSIGN(const Term condition, Translate(node->args[0], ir::kBool));
  if (condition.kind != Kind::kTyped || !condition.expr->dtype.is_bool()) {
    return Wrong("type", node, "expected a bool as the condition of select");
  }
  const std::map<std::string, Facts> outer = facts_;
  Assume(node->args[0]);
  absl::StatusOr<Term> then_value = Translate(node->args[1], hint);
  facts_ = outer;
  TW_TRY(then_value.status());
  TW_ASSIGN(Term else_value, Translate(node->args[2], hint));
  TW_TRY(Unify(node, &*then_value, &else_value, hint));
  return Typed(ir::Select(condition.expr, then_value->expr, else_value.expr));
}

absl::StatusOr<Term> Translator::Call(const NodeRef& node, Hint hint) {
  if (const auto type = TypeOfWord(node->name, types, wide)) return CastTo(*type, node);
  if (node->name == "select") return Choice(node, hint);
  const bool extreme = node->name == "min" || node->name == "max";
  const std::optional<ir::Intrinsic> function = IntrinsicOf(node->name);
  if (!extreme && node->name != "sigmoid" && !function) {
    return Wrong("name", node,
                 "expected a function, a cast or a reduction (sum(k: n, ...)), found another name");
  }
  const size_t arity = extreme ? 2 : function ? ir::IntrinsicArity(*function) : 1;
  if (node->args.size() != arity) {
    return Wrong("type", node, StrCat("expected ", arity, " arguments, found ", node->args.size()));
  }
  std::vector<Term> terms;
  for (const NodeRef& arg : node->args) {
    TW_ASSIGN(Term term, Translate(arg, hint));
    terms.push_back(std::move(term));
  }
  if (terms.size() == 1) terms.push_back(terms[0]);  // unified with itself
  TW_TRY(Unify(node, &terms[0], &terms[1], hint));
  const ir::DType type = terms[0].expr->dtype;
  const bool bits = function && ir::IsIntegerStep(*function);
  const bool numbers = extreme || (function && *function == ir::Intrinsic::kAbs);
  if (type.is_bool() || (bits && !type.is_int()) || (!bits && !numbers && !type.is_float())) {
    return Wrong("type", node,
                 StrCat("expected ",
                        bits      ? "integers"
                        : numbers ? "numbers"
                                  : "floats",
                        ", found ", ir::TypeName(type)));
  }
  const ir::Expr& x = terms[0].expr;
  if (extreme) {
    return Typed(node->name == "min" ? ir::Min(x, terms[1].expr) : ir::Max(x, terms[1].expr));
  }
  if (!function) {  // sigmoid
    const ir::Expr one = ir::Float(1, type);
    return Typed(one / (one + ir::Call(ir::Intrinsic::kExp, {ir::Float(-0.0, type) - x})));
  }
  std::vector<ir::Expr> args = {x};
  if (arity == 2) args.push_back(terms[1].expr);
  return Typed(ir::Call(*function, std::move(args)));
}

}  // namespace tilewright::op::custom
