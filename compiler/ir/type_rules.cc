#include "compiler/ir/type_rules.h"

#include <algorithm>

namespace tilewright::ir {
namespace {

std::string Mismatch(std::string_view what, std::string_view expected, std::string_view found) {
  std::string text(what);
  return text.append(": expected ").append(expected).append(", found ").append(found);
}

std::string IndicesError(const Buffer& buffer, const std::vector<Expr>& indices, const Expr& mask) {
  // Flat accesses have one index whatever the rank; the verifier knows the stage and checks the
  // count.
  if (indices.size() != buffer->shape.size() && indices.size() != 1) {
    return Mismatch("indices of " + buffer->name, std::to_string(buffer->shape.size()),
                    std::to_string(indices.size()));
  }
  int lanes = LanesOf(indices);
  for (const Expr& i : indices) {
    if (i == nullptr) return "null index of " + buffer->name;
    if (!i->dtype.is_int())
      return Mismatch("index of " + buffer->name, "an integer", TypeName(i->dtype));
    if (i->dtype.lanes != 1 && i->dtype.lanes != lanes) {
      return Mismatch("index of " + buffer->name, std::to_string(lanes) + " lanes",
                      TypeName(i->dtype));
    }
  }
  if (mask != nullptr && mask->dtype != kBool.WithLanes(lanes)) {
    return Mismatch("mask of " + buffer->name, TypeName(kBool.WithLanes(lanes)),
                    TypeName(mask->dtype));
  }
  return "";
}

std::string BinaryError(const ExprNode& n) {
  DType a = n.args[0]->dtype, b = n.args[1]->dtype;
  std::string what = "operands of " + std::string(KindText(n.kind));
  if (a != b) return Mismatch(what, TypeName(a), TypeName(b));
  bool logical = n.kind == ExprKind::kAnd || n.kind == ExprKind::kOr;
  bool integral =
      n.kind == ExprKind::kMod || n.kind == ExprKind::kFloorDiv || n.kind == ExprKind::kFloorMod;
  bool equality = n.kind == ExprKind::kEq || n.kind == ExprKind::kNe;
  if (logical && !a.is_bool()) return Mismatch(what, "bool", TypeName(a));
  if (integral && !a.is_int()) return Mismatch(what, "an integer", TypeName(a));
  if (!logical && !equality && a.is_bool()) return Mismatch(what, "a number", TypeName(a));
  DType result = IsComparison(n.kind) ? kBool.WithLanes(a.lanes) : a;
  if (n.dtype != result)
    return Mismatch("type of " + std::string(KindText(n.kind)), TypeName(result),
                    TypeName(n.dtype));
  return "";
}

// dot4: i32 lanes, and four 8-bit numbers for each (or four for all); or words of four. Or f32
// lanes, and two bf16 for each (or two for all).
std::string Dot4Error(const ExprNode& n) {
  DType c = n.args[0]->dtype, a = n.args[1]->dtype, b = n.args[2]->dtype;
  int lanes = c.lanes;
  if (a.Element() == kBF16) {
    if (c != kF32.WithLanes(lanes) || lanes < 2 || n.dtype != c)
      return Mismatch("accumulator of dot4", "lanes of f32", TypeName(c));
    if (a.lanes != 2 && a.lanes != 2 * lanes)
      return Mismatch("first factor of dot4", "bf16x2 or bf16x" + std::to_string(2 * lanes),
                      TypeName(a));
    return b == kBF16.WithLanes(2 * lanes)
               ? ""
               : Mismatch("second factor of dot4", "bf16x" + std::to_string(2 * lanes),
                          TypeName(b));
  }
  if (c != kI32.WithLanes(lanes) || lanes < 2 || n.dtype != c)
    return Mismatch("accumulator of dot4", "lanes of i32", TypeName(c));
  auto narrow = [](DType t) { return t.is_int() && t.bits == 8; };
  if (!narrow(a) || (a.lanes != 4 && a.lanes != 4 * lanes))
    return Mismatch("first factor of dot4", "8-bit integers x4 or x" + std::to_string(4 * lanes),
                    TypeName(a));
  if (b != c && (!narrow(b) || b.lanes != 4 * lanes))
    return Mismatch("second factor of dot4",
                    "8-bit integers x" + std::to_string(4 * lanes) + " or " + TypeName(c),
                    TypeName(b));
  return "";
}

// dot_tile: two rows of i32 lanes; eight 8-bit numbers for each row, twice four for each column.
std::string DotTileError(const ExprNode& n) {
  const DType c = n.args[0]->dtype;
  const int columns = c.lanes / 2;
  if (c != kI32.WithLanes(c.lanes) || c.lanes % 4 != 0 || n.dtype != c)
    return Mismatch("accumulator of dot_tile", "i32 in squares of four lanes", TypeName(c));
  for (size_t i = 1; i < n.args.size(); ++i) {
    const DType t = n.args[i]->dtype;
    const int lanes = i < 3 ? 8 : 4 * columns;
    const bool alike = t == n.args[i < 3 ? 1 : 3]->dtype;
    if (!t.is_int() || t.bits != 8 || t.lanes != lanes || !alike)
      return Mismatch("factor of dot_tile", "8-bit integers x" + std::to_string(lanes),
                      TypeName(t));
  }
  return "";
}

std::string WideningMulError(const ExprNode& n) {
  const DType a = n.args[0]->dtype;
  if (!a.is_int() || a.bits > 32)
    return Mismatch("arguments of widening_mul", "integers of up to 32 bits", TypeName(a));
  if (n.args[1]->dtype != a)
    return Mismatch("arguments of widening_mul", TypeName(a), TypeName(n.args[1]->dtype));
  const DType wide = CallType(n.intrinsic, a);
  return n.dtype == wide ? "" : Mismatch("type of widening_mul", TypeName(wide), TypeName(n.dtype));
}

std::string CallError(const ExprNode& n) {
  if (n.intrinsic == Intrinsic::kNone) return "call without an intrinsic";
  std::string name(IntrinsicText(n.intrinsic));
  if (static_cast<int>(n.args.size()) != IntrinsicArity(n.intrinsic)) {
    return Mismatch("arguments of " + name, std::to_string(IntrinsicArity(n.intrinsic)),
                    std::to_string(n.args.size()));
  }
  if (n.intrinsic == Intrinsic::kPrefetch) {
    if (n.args[0]->kind != ExprKind::kLoad) return "argument of prefetch: expected a load";
    return n.dtype == n.args[0]->dtype ? "" : "type of prefetch: expected that of its load";
  }
  if (n.intrinsic == Intrinsic::kDot4) return Dot4Error(n);
  if (n.intrinsic == Intrinsic::kDotTile) return DotTileError(n);
  if (n.intrinsic == Intrinsic::kWideningMul) return WideningMulError(n);
  for (const Expr& a : n.args) {
    if (a->dtype != n.dtype)
      return Mismatch("arguments of " + name, TypeName(n.dtype), TypeName(a->dtype));
  }
  const bool integer = IsIntegerStep(n.intrinsic);
  if (integer && !n.dtype.is_int())
    return Mismatch("arguments of " + name, "an integer", TypeName(n.dtype));
  if (n.intrinsic == Intrinsic::kRoundingShiftRight && n.dtype.code != TypeCode::kInt)
    return Mismatch("arguments of " + name, "a signed integer", TypeName(n.dtype));
  bool ok = integer || n.dtype.is_float() || (n.intrinsic == Intrinsic::kAbs && n.dtype.is_int());
  return ok ? "" : Mismatch("arguments of " + name, "a float", TypeName(n.dtype));
}

std::string SelectError(const ExprNode& n) {
  DType c = n.args[0]->dtype, t = n.args[1]->dtype, e = n.args[2]->dtype;
  if (t != e) return Mismatch("branches of select", TypeName(t), TypeName(e));
  if (n.dtype != t) return Mismatch("type of select", TypeName(t), TypeName(n.dtype));
  // A scalar condition chooses whole vectors.
  if (!c.is_bool() || (c.lanes != 1 && c.lanes != t.lanes)) {
    return Mismatch("condition of select", TypeName(kBool.WithLanes(t.lanes)), TypeName(c));
  }
  return "";
}

std::string VectorError(const ExprNode& n) {
  std::string what(KindText(n.kind));
  DType base = n.args[0]->dtype;
  if (base.is_vector()) return Mismatch("operand of " + what, "a scalar", TypeName(base));
  if (n.dtype.lanes < 2 || n.dtype.Element() != base)
    return Mismatch("type of " + what, "lanes of " + TypeName(base), TypeName(n.dtype));
  if (n.kind == ExprKind::kRamp) {
    if (!base.is_int()) return Mismatch("operand of ramp", "an integer", TypeName(base));
    if (n.args[1]->dtype != base)
      return Mismatch("stride of ramp", TypeName(base), TypeName(n.args[1]->dtype));
  }
  return "";
}

constexpr int kArity[] = {
#define TW_EXPR(Kind, text, arity) arity,
#include "compiler/ir/nodes.def"
};

}  // namespace

bool IsBinary(ExprKind kind) { return kind >= ExprKind::kAdd && kind <= ExprKind::kOr; }
bool IsComparison(ExprKind kind) { return kind >= ExprKind::kEq && kind <= ExprKind::kGe; }

std::string_view KindText(ExprKind kind) {
  static constexpr std::string_view kText[] = {
#define TW_EXPR(Kind, text, arity) text,
#include "compiler/ir/nodes.def"
  };
  return kText[static_cast<int>(kind)];
}

std::string_view IntrinsicText(Intrinsic intrinsic) {
  static constexpr std::string_view kText[] = {
#define TW_INTRINSIC(Name, text, arity) text,
#include "compiler/ir/nodes.def"
      "none"};
  return kText[static_cast<int>(intrinsic)];
}

bool IsIntegerStep(Intrinsic intrinsic) {
  return intrinsic >= Intrinsic::kBitAnd && intrinsic <= Intrinsic::kRoundingShiftRight;
}

bool IsMathCall(const ExprNode& e) {
  return e.kind == ExprKind::kCall && !IsIntegerStep(e.intrinsic);
}

DType CallType(Intrinsic intrinsic, DType first) {
  if (intrinsic == Intrinsic::kWideningMul) first.bits = static_cast<uint8_t>(2 * first.bits);
  return first;
}

int IntrinsicArity(Intrinsic intrinsic) {
  static constexpr int kIntrinsicArity[] = {
#define TW_INTRINSIC(Name, text, arity) arity,
#include "compiler/ir/nodes.def"
      0};
  return kIntrinsicArity[static_cast<int>(intrinsic)];
}

int LanesOf(const std::vector<Expr>& indices) {
  int lanes = 1;
  for (const Expr& i : indices) lanes = std::max<int>(lanes, i == nullptr ? 1 : i->dtype.lanes);
  return lanes;
}

std::string TypeErrorOf(const ExprNode& n) {
  int arity = kArity[static_cast<int>(n.kind)];
  if (arity >= 0 && static_cast<int>(n.args.size()) != arity) {
    return Mismatch("operands of " + std::string(KindText(n.kind)), std::to_string(arity),
                    std::to_string(n.args.size()));
  }
  for (const Expr& a : n.args) {
    if (a == nullptr) return "null operand of " + std::string(KindText(n.kind));
  }
  switch (n.kind) {
    case ExprKind::kVar:
      return "";
    case ExprKind::kIntImm:
      return n.dtype.is_vector() || n.dtype.is_float()
                 ? Mismatch("integer constant", "a scalar integer type", TypeName(n.dtype))
                 : "";
    case ExprKind::kFloatImm:
      return n.dtype.is_vector() || !n.dtype.is_float()
                 ? Mismatch("float constant", "a scalar float type", TypeName(n.dtype))
                 : "";
    case ExprKind::kCast:
      return n.args[0]->dtype.lanes == n.dtype.lanes
                 ? ""
                 : Mismatch("cast", std::to_string(n.dtype.lanes) + " lanes",
                            TypeName(n.args[0]->dtype));
    case ExprKind::kNot:
      return n.dtype.is_bool() && n.args[0]->dtype == n.dtype
                 ? ""
                 : Mismatch("operand of !", "bool", TypeName(n.args[0]->dtype));
    case ExprKind::kSelect:
      return SelectError(n);
    case ExprKind::kLoad: {
      if (n.buffer == nullptr) return "load of a null buffer";
      std::string error = IndicesError(n.buffer, n.args, n.mask);
      if (!error.empty()) return error;
      DType expected = n.buffer->dtype.WithLanes(LanesOf(n.args));
      return n.dtype == expected ? ""
                                 : Mismatch("type of load of " + n.buffer->name, TypeName(expected),
                                            TypeName(n.dtype));
    }
    case ExprKind::kRamp:
    case ExprKind::kBroadcast:
      return VectorError(n);
    case ExprKind::kCall:
      return CallError(n);
    default:
      return BinaryError(n);
  }
}

std::string StoreErrorOf(const StmtNode& s) {
  if (s.buffer == nullptr || s.value == nullptr) return "store without a buffer or a value";
  std::string error = IndicesError(s.buffer, s.indices, s.mask);
  if (!error.empty()) return error;
  DType expected = s.buffer->dtype.WithLanes(LanesOf(s.indices));
  return s.value->dtype == expected ? ""
                                    : Mismatch("value stored to " + s.buffer->name,
                                               TypeName(expected), TypeName(s.value->dtype));
}

std::string CombineErrorOf(const StmtNode& s) {
  if (s.combiner == nullptr) return "combine without a combiner";
  const TupleCombiner& c = *s.combiner;
  size_t n = s.stmts.size();
  if (n == 0 || c.lhs.size() != n || c.rhs.size() != n || c.results.size() != n) {
    return Mismatch("combine", "as many elements as variables and results",
                    std::to_string(n) + ", " + std::to_string(c.lhs.size()) + ", " +
                        std::to_string(c.rhs.size()) + " and " + std::to_string(c.results.size()));
  }
  for (size_t i = 0; i < n; ++i) {
    const Stmt& store = s.stmts[i];
    if (store == nullptr || store->kind != StmtKind::kStore || store->mask != nullptr)
      return "combine: expected a plain store for each element";
    std::string error = StoreErrorOf(*store);
    if (!error.empty()) return error;
    if (store->value->dtype.is_vector()) return "combine: expected scalars, found vectors";
    for (size_t k = 0; k < i; ++k) {
      if (s.stmts[k]->buffer == store->buffer)
        return "combine: expected different buffers, found " + store->buffer->name + " twice";
    }
    for (const Expr& e : {c.lhs[i], c.rhs[i], c.results[i]}) {
      if (e == nullptr) return "combine: null variable or result";
      if (e->dtype != store->value->dtype) {
        return Mismatch("combiner of " + store->buffer->name, TypeName(store->value->dtype),
                        TypeName(e->dtype));
      }
    }
  }
  return "";
}

}  // namespace tilewright::ir
