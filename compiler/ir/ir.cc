#include "compiler/ir/ir.h"

#include <charconv>
#include <utility>

#include "compiler/ir/numeric.h"
#include "compiler/ir/type_rules.h"
#include "deploy/support/status.h"

namespace tilewright::ir {
namespace {

Expr Make(ExprNode node) { return std::make_shared<const ExprNode>(std::move(node)); }

Expr MakeChecked(ExprNode node) {
  std::string error = TypeErrorOf(node);
  TW_CHECK(error.empty()) << "ir expression: " << error;
  return Make(std::move(node));
}

bool IsImm(const Expr& e) { return e->kind == ExprKind::kIntImm || e->kind == ExprKind::kFloatImm; }

// The folded constant, or null when the operation has no value (division by zero stays in the
// program).
Expr FoldBinary(ExprKind kind, const Expr& a, const Expr& b) {
  DType t = a->dtype;
  if (t.is_float()) {
    double r = 0;
    if (EvalFloatArith(kind, t, a->float_value, b->float_value, &r)) return Float(r, t);
    bool c = false;
    if (EvalFloatCompare(kind, a->float_value, b->float_value, &c)) return Bool(c);
    return nullptr;
  }
  int64_t r = 0;
  if (!EvalIntBinary(kind, t, a->int_value, b->int_value, &r)) return nullptr;
  return IsComparison(kind) ? Bool(r != 0) : Int(r, t);
}

Expr FoldCast(DType to, const Expr& a) {
  DType from = a->dtype;
  if (from.is_float()) {
    if (to.is_float()) return Float(RoundFloat(a->float_value, to), to);
    return Int(CastFloatToInt(a->float_value, to), to);
  }
  if (to.is_float()) return Float(CastIntToFloat(a->int_value, from, to), to);
  return Int(CastIntToInt(a->int_value, to), to);
}

}  // namespace

// ------------------------------------------------------------------------------------------------
// types

std::string TypeName(DType type) {
  std::string text;
  switch (type.code) {
    case TypeCode::kInt:
      text = "i" + std::to_string(type.bits);
      break;
    case TypeCode::kUInt:
      text = "u" + std::to_string(type.bits);
      break;
    case TypeCode::kFloat:
      text = "f" + std::to_string(type.bits);
      break;
    case TypeCode::kBFloat:
      text = "bf" + std::to_string(type.bits);
      break;
    case TypeCode::kBool:
      text = "bool";
      break;
  }
  if (type.lanes > 1) text += "x" + std::to_string(type.lanes);
  return text;
}

bool ParseType(std::string_view text, DType* type) {
  struct Row {
    std::string_view name;
    DType type;
  };
  static constexpr Row kRows[] = {
      {"bf16", {TypeCode::kBFloat, 16, 1}}, {"bool", {TypeCode::kBool, 1, 1}},
      {"f16", {TypeCode::kFloat, 16, 1}},   {"f32", {TypeCode::kFloat, 32, 1}},
      {"f64", {TypeCode::kFloat, 64, 1}},   {"i16", {TypeCode::kInt, 16, 1}},
      {"i32", {TypeCode::kInt, 32, 1}},     {"i64", {TypeCode::kInt, 64, 1}},
      {"i8", {TypeCode::kInt, 8, 1}},       {"u16", {TypeCode::kUInt, 16, 1}},
      {"u32", {TypeCode::kUInt, 32, 1}},    {"u64", {TypeCode::kUInt, 64, 1}},
      {"u8", {TypeCode::kUInt, 8, 1}},
  };
  std::string_view base = text.substr(0, text.find('x'));
  for (const Row& row : kRows) {
    if (row.name != base) continue;
    *type = row.type;
    if (base.size() == text.size()) return true;
    std::string_view lanes = text.substr(base.size() + 1);
    if (lanes.empty() || lanes.front() == '0') return false;
    unsigned n = 0;
    auto [end, error] = std::from_chars(lanes.data(), lanes.data() + lanes.size(), n);
    if (error != std::errc() || end != lanes.data() + lanes.size() || n < 2 || n > 65535)
      return false;
    type->lanes = static_cast<uint16_t>(n);
    return true;
  }
  return false;
}

std::string_view EngineOf(Scope scope) {
  static constexpr std::string_view kEngines[] = {
#define TW_SCOPE(Name, text, engine, rank) engine,
#include "compiler/ir/scopes.def"
  };
  return kEngines[static_cast<int>(scope)];
}

StorageRank StorageRankOf(Scope scope) {
  static constexpr StorageRank kRanks[] = {
#define TW_SCOPE(Name, text, engine, rank) StorageRank::rank,
#include "compiler/ir/scopes.def"
  };
  return kRanks[static_cast<int>(scope)];
}

// ------------------------------------------------------------------------------------------------
// expressions

Var MakeVar(std::string name, DType dtype) {
  ExprNode node{.kind = ExprKind::kVar, .dtype = dtype};
  node.name = std::move(name);
  return Make(std::move(node));
}

Expr Int(int64_t value, DType dtype) {
  TW_CHECK(dtype.is_int() || dtype.is_bool()) << "integer constant of type " << TypeName(dtype);
  if (dtype.is_vector()) return Broadcast(Int(value, dtype.Element()), dtype.lanes);
  ExprNode node{.kind = ExprKind::kIntImm, .dtype = dtype};
  node.int_value = WrapInt(value, dtype);
  return Make(std::move(node));
}

Expr Bool(bool value) { return Int(value, kBool); }

Expr Float(double value, DType dtype) {
  TW_CHECK(dtype.is_float()) << "float constant of type " << TypeName(dtype);
  if (dtype.is_vector()) return Broadcast(Float(value, dtype.Element()), dtype.lanes);
  ExprNode node{.kind = ExprKind::kFloatImm, .dtype = dtype};
  node.float_value = RoundFloat(value, dtype);
  return Make(std::move(node));
}

Expr Binary(ExprKind kind, Expr a, Expr b) {
  TW_CHECK(IsBinary(kind)) << "not a binary operator: " << static_cast<int>(kind);
  TW_CHECK(a != nullptr && b != nullptr) << "binary operator on a null operand";
  ExprNode node{.kind = kind,
                .dtype = IsComparison(kind) ? kBool.WithLanes(a->dtype.lanes) : a->dtype};
  bool foldable = IsImm(a) && IsImm(b) && a->dtype == b->dtype;
  node.args = {std::move(a), std::move(b)};
  Expr e = MakeChecked(std::move(node));
  if (foldable) {
    if (Expr folded = FoldBinary(kind, e->args[0], e->args[1]); folded != nullptr) return folded;
  }
  return e;
}

Expr Not(Expr a) {
  if (a->kind == ExprKind::kIntImm && a->dtype.is_bool()) return Bool(a->int_value == 0);
  ExprNode node{.kind = ExprKind::kNot, .dtype = a->dtype};
  node.args = {std::move(a)};
  return MakeChecked(std::move(node));
}

Expr Cast(DType dtype, Expr a) {
  if (a->dtype == dtype) return a;
  if (IsImm(a) && !dtype.is_vector()) return FoldCast(dtype, a);
  ExprNode node{.kind = ExprKind::kCast, .dtype = dtype};
  node.args = {std::move(a)};
  return MakeChecked(std::move(node));
}

Expr Select(Expr cond, Expr then_value, Expr else_value) {
  ExprNode node{.kind = ExprKind::kSelect, .dtype = then_value->dtype};
  node.args = {std::move(cond), std::move(then_value), std::move(else_value)};
  return MakeChecked(std::move(node));
}

Expr Load(Buffer buffer, std::vector<Expr> indices, Expr mask) {
  TW_CHECK(buffer != nullptr) << "load of a null buffer";
  ExprNode node{.kind = ExprKind::kLoad, .dtype = buffer->dtype.WithLanes(LanesOf(indices))};
  node.args = std::move(indices);
  node.buffer = std::move(buffer);
  node.mask = std::move(mask);
  return MakeChecked(std::move(node));
}

Expr Ramp(Expr base, Expr stride, int lanes) {
  ExprNode node{.kind = ExprKind::kRamp, .dtype = base->dtype.WithLanes(lanes)};
  node.args = {std::move(base), std::move(stride)};
  return MakeChecked(std::move(node));
}

Expr Broadcast(Expr value, int lanes) {
  if (lanes == 1) return value;
  ExprNode node{.kind = ExprKind::kBroadcast, .dtype = value->dtype.WithLanes(lanes)};
  node.args = {std::move(value)};
  return MakeChecked(std::move(node));
}

Expr Call(Intrinsic intrinsic, std::vector<Expr> args) {
  TW_CHECK(!args.empty()) << "intrinsic without arguments";
  ExprNode node{.kind = ExprKind::kCall, .dtype = CallType(intrinsic, args[0]->dtype)};
  node.args = std::move(args);
  node.intrinsic = intrinsic;
  return MakeChecked(std::move(node));
}

Expr Zero(DType dtype) { return dtype.is_float() ? Float(0, dtype) : Int(0, dtype); }
Expr FloorDiv(Expr a, Expr b) { return Binary(ExprKind::kFloorDiv, std::move(a), std::move(b)); }
Expr FloorMod(Expr a, Expr b) { return Binary(ExprKind::kFloorMod, std::move(a), std::move(b)); }
Expr Min(Expr a, Expr b) { return Binary(ExprKind::kMin, std::move(a), std::move(b)); }
Expr Max(Expr a, Expr b) { return Binary(ExprKind::kMax, std::move(a), std::move(b)); }
Expr operator+(Expr a, Expr b) { return Binary(ExprKind::kAdd, std::move(a), std::move(b)); }
Expr operator-(Expr a, Expr b) { return Binary(ExprKind::kSub, std::move(a), std::move(b)); }
Expr operator*(Expr a, Expr b) { return Binary(ExprKind::kMul, std::move(a), std::move(b)); }
Expr operator/(Expr a, Expr b) { return Binary(ExprKind::kDiv, std::move(a), std::move(b)); }
Expr operator<(Expr a, Expr b) { return Binary(ExprKind::kLt, std::move(a), std::move(b)); }
Expr operator<=(Expr a, Expr b) { return Binary(ExprKind::kLe, std::move(a), std::move(b)); }
Expr operator>=(Expr a, Expr b) { return Binary(ExprKind::kGe, std::move(a), std::move(b)); }
Expr operator&&(Expr a, Expr b) { return Binary(ExprKind::kAnd, std::move(a), std::move(b)); }
Expr Eq(Expr a, Expr b) { return Binary(ExprKind::kEq, std::move(a), std::move(b)); }

Buffer MakeBuffer(std::string name, DType dtype, std::vector<Expr> shape, Role role, Scope scope) {
  TW_CHECK(!dtype.is_vector()) << "buffer " << name << ": element type " << TypeName(dtype)
                               << " has lanes";
  auto node = std::make_shared<BufferNode>();
  node->name = std::move(name);
  node->dtype = dtype;
  node->shape = std::move(shape);
  node->role = role;
  node->scope = scope;
  return node;
}

namespace {
bool AlignsStrideOf(const BufferNode& buffer, size_t dim) {
  const std::optional<StorageAlign>& align = buffer.storage_align;
  return align && dim + 1 + static_cast<size_t>(align->inside) == buffer.shape.size();
}
}  // namespace

int64_t AlignedStride(const BufferNode& buffer, size_t dim, int64_t stride) {
  if (!AlignsStrideOf(buffer, dim)) return stride;
  return stride + FloorModInt(buffer.storage_align->offset - stride, buffer.storage_align->factor);
}
Expr AlignedStride(const BufferNode& buffer, size_t dim, const Expr& stride) {
  if (!AlignsStrideOf(buffer, dim)) return stride;
  const auto& [inside, factor, offset] = *buffer.storage_align;
  const DType type = stride->dtype;
  return FloorDiv(stride + Int(factor - 1 - offset, type), Int(factor, type)) * Int(factor, type) +
         Int(offset, type);
}

const int64_t* AsInt(const Expr& e) {
  return e != nullptr && e->kind == ExprKind::kIntImm ? &e->int_value : nullptr;
}

bool IsInt(const Expr& e, int64_t value) {
  const int64_t* v = AsInt(e);
  return v != nullptr && *v == value;
}

// ------------------------------------------------------------------------------------------------
// statements

namespace {
Stmt MakeStmt(StmtNode node) { return std::make_shared<const StmtNode>(std::move(node)); }
}  // namespace

Stmt MakeFor(Var var, Expr min, Expr extent, Stmt body, ForKind kind, Annotations annotations) {
  TW_CHECK(var->kind == ExprKind::kVar && body != nullptr) << "malformed loop";
  TW_CHECK(min->dtype == var->dtype && extent->dtype == var->dtype)
      << "loop " << var->name << " of type " << TypeName(var->dtype) << " over a range of "
      << TypeName(min->dtype) << ", " << TypeName(extent->dtype);
  StmtNode node{.kind = StmtKind::kFor};
  node.var = std::move(var);
  node.range = {std::move(min), std::move(extent)};
  node.for_kind = kind;
  node.annotations = std::move(annotations);
  node.body = std::move(body);
  return MakeStmt(std::move(node));
}

Stmt MakeStore(Buffer buffer, std::vector<Expr> indices, Expr value, Expr mask) {
  StmtNode node{.kind = StmtKind::kStore};
  node.buffer = std::move(buffer);
  node.indices = std::move(indices);
  node.value = std::move(value);
  node.mask = std::move(mask);
  std::string error = StoreErrorOf(node);
  TW_CHECK(error.empty()) << "ir store: " << error;
  return MakeStmt(std::move(node));
}

Stmt MakeSeq(std::vector<Stmt> stmts) {
  if (stmts.size() == 1) return stmts[0];
  StmtNode node{.kind = StmtKind::kSeq};
  for (Stmt& s : stmts) {
    TW_CHECK(s != nullptr) << "null statement in a sequence";
    if (s->kind == StmtKind::kSeq) {
      node.stmts.insert(node.stmts.end(), s->stmts.begin(), s->stmts.end());
    } else {
      node.stmts.push_back(std::move(s));
    }
  }
  if (node.stmts.size() == 1) return node.stmts[0];
  return MakeStmt(std::move(node));
}

Stmt MakeIf(Expr condition, Stmt then_body, Stmt else_body) {
  TW_CHECK(condition->dtype == kBool) << "if condition of type " << TypeName(condition->dtype);
  TW_CHECK(then_body != nullptr) << "if without a body";
  StmtNode node{.kind = StmtKind::kIf};
  node.condition = std::move(condition);
  node.body = std::move(then_body);
  node.else_body = std::move(else_body);
  return MakeStmt(std::move(node));
}

Stmt MakeLet(Var var, Expr value, Stmt body) {
  TW_CHECK(var->kind == ExprKind::kVar && var->dtype == value->dtype && body != nullptr)
      << "malformed let";
  StmtNode node{.kind = StmtKind::kLet};
  node.var = std::move(var);
  node.value = std::move(value);
  node.body = std::move(body);
  return MakeStmt(std::move(node));
}

Stmt MakeAlloc(Buffer buffer, Stmt body) {
  TW_CHECK(buffer != nullptr && body != nullptr) << "malformed alloc";
  StmtNode node{.kind = StmtKind::kAlloc};
  node.buffer = std::move(buffer);
  node.body = std::move(body);
  return MakeStmt(std::move(node));
}

Stmt MakeEvaluate(Expr value) {
  StmtNode node{.kind = StmtKind::kEvaluate};
  node.value = std::move(value);
  return MakeStmt(std::move(node));
}

Stmt MakeAsync(Stmt body) {
  TW_CHECK(body != nullptr) << "async without a body";
  StmtNode node{.kind = StmtKind::kAsync};
  node.body = std::move(body);
  return MakeStmt(std::move(node));
}

Stmt MakeSync(SyncKind kind, int64_t pending) {
  TW_CHECK(pending >= 0 && (pending == 0 || kind == SyncKind::kWait)) << "malformed sync";
  StmtNode node{.kind = StmtKind::kSync};
  node.sync = kind;
  node.pending = pending;
  return MakeStmt(std::move(node));
}

Stmt MakeCombine(std::shared_ptr<const TupleCombiner> combiner, std::vector<Stmt> stores) {
  StmtNode node{.kind = StmtKind::kCombine};
  node.combiner = std::move(combiner);
  node.stmts = std::move(stores);
  std::string error = CombineErrorOf(node);
  TW_CHECK(error.empty()) << "ir combine: " << error;
  return MakeStmt(std::move(node));
}

Stmt MakeBlock(StmtNode block) {
  block.kind = StmtKind::kBlock;
  TW_CHECK(block.body != nullptr) << "block " << block.name << " without a body";
  return MakeStmt(std::move(block));
}

}  // namespace tilewright::ir
