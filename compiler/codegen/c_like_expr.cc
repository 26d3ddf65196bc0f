#include "compiler/codegen/c_like_expr.h"

#include <array>
#include <charconv>
#include <cmath>
#include <numeric>

#include "compiler/codegen/linear_index.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"
#include "deploy/support/strings.h"

namespace tilewright::codegen {
namespace {

using ir::DType;
using ir::Expr;
using ir::ExprKind;
using ir::TypeCode;
using support::StrCat;

// Words that a variable may not be called, in C, C++, OpenCL C, CUDA C and Metal.
constexpr std::string_view kReserved[] = {
    "alignas",  "alignof",    "and",      "auto",      "barrier",     "bool",      "break",
    "case",     "catch",      "char",     "class",     "const",       "constant",  "constexpr",
    "continue", "decltype",   "default",  "delete",    "device",      "do",        "double",
    "else",     "enum",       "exp",      "explicit",  "extern",      "false",     "float",
    "fma",      "for",        "fragment", "friend",    "global",      "goto",      "half",
    "if",       "inline",     "int",      "kernel",    "local",       "log",       "long",
    "max",      "min",        "mutable",  "namespace", "new",         "not",       "operator",
    "or",       "pow",        "private",  "protected", "public",      "read_only", "register",
    "return",   "short",      "signed",   "sizeof",    "sqrt",        "static",    "struct",
    "switch",   "template",   "this",     "thread",    "threadgroup", "throw",     "true",
    "try",      "typedef",    "typename", "uchar",     "uint",        "ulong",     "union",
    "unsigned", "ushort",     "using",    "vertex",    "virtual",     "void",      "volatile",
    "while",    "write_only", "xor"};

int TypeIndex(DType t) {
  int width = t.bits == 8 ? 0 : t.bits == 16 ? 1 : t.bits == 32 ? 2 : 3;
  switch (t.code) {
    case TypeCode::kInt:
      return width;
    case TypeCode::kUInt:
      return 4 + width;
    case TypeCode::kFloat:
      return t.bits == 16 ? 8 : t.bits == 32 ? 9 : 10;
    case TypeCode::kBFloat:
      return 11;
    default:
      return -1;
  }
}

bool IsVectorWidth(int lanes) { return lanes == 2 || lanes == 4 || lanes == 8 || lanes == 16; }

// Functions of floats, of one lane or of vectors.
std::string_view FunctionName(ir::Intrinsic intrinsic) {
  struct Row {
    ir::Intrinsic intrinsic;
    std::string_view text;
  };
  static constexpr Row kRows[] = {
      {ir::Intrinsic::kFma, "fma"},     {ir::Intrinsic::kExp, "exp"},
      {ir::Intrinsic::kLog, "log"},     {ir::Intrinsic::kSqrt, "sqrt"},
      {ir::Intrinsic::kTanh, "tanh"},   {ir::Intrinsic::kErf, "erf"},
      {ir::Intrinsic::kAbs, "fabs"},    {ir::Intrinsic::kFloor, "floor"},
      {ir::Intrinsic::kCeil, "ceil"},   {ir::Intrinsic::kRoundEven, "rint"},
      {ir::Intrinsic::kPow, "pow"},     {ir::Intrinsic::kSin, "sin"},
      {ir::Intrinsic::kCos, "cos"},     {ir::Intrinsic::kTan, "tan"},
      {ir::Intrinsic::kAsin, "asin"},   {ir::Intrinsic::kAcos, "acos"},
      {ir::Intrinsic::kAtan, "atan"},   {ir::Intrinsic::kSinh, "sinh"},
      {ir::Intrinsic::kCosh, "cosh"},   {ir::Intrinsic::kAsinh, "asinh"},
      {ir::Intrinsic::kAcosh, "acosh"}, {ir::Intrinsic::kAtanh, "atanh"},
      {ir::Intrinsic::kExpm1, "expm1"}, {ir::Intrinsic::kFmod, "fmod"},
  };
  for (const Row& row : kRows) {
    if (row.intrinsic == intrinsic) return row.text;
  }
  return "";
}

}  // namespace

std::string Component(int lane) { return StrCat(".s", std::string(1, "0123456789abcdef"[lane])); }

std::string FloatLiteral(double value, bool is_double) {
  std::array<char, 48> digits;
  char* const begin = digits.data();
  char* const last = begin + digits.size();
  const auto written = is_double ? std::to_chars(begin, last, value)
                                 : std::to_chars(begin, last, static_cast<float>(value));
  std::string text(begin, written.ptr);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return is_double ? text : text + "f";
}

void CExpressions::StartKernel(bool narrow) {
  narrow_ = narrow;
  analyzer_ = {};
  registers_.clear();
  names_.clear();
  taken_.clear();
  for (std::string_view word : kReserved) taken_.insert(std::string(word));
  places_.clear();
}

std::string CExpressions::Temporary(std::string_view wanted) {
  std::string base;
  for (char c : wanted) {
    bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    base += word ? c : '_';
  }
  if (base.empty() || (base[0] >= '0' && base[0] <= '9')) base = "v" + base;
  std::string name = base;
  for (int n = 1; !taken_.insert(name).second; ++n) name = StrCat(base, "_", n);
  return name;
}

std::string CExpressions::Declare(const void* symbol, std::string_view wanted) {
  std::string name = Temporary(wanted);
  names_[symbol] = name;
  return name;
}

std::string CExpressions::TypeOf(DType type) {
  DType element = type.Element();
  uses_double_ |= element == ir::kF64;
  uses_half_ |= element == ir::kF16;
  uses_bfloat_ |= element == ir::kBF16;
  if (narrow_ && element == ir::kI64) element = ir::kI32;
  int index = element.is_bool() ? TypeIndex(ir::kI32) : TypeIndex(element);
  std::string text(index < 0 ? "" : dialect_.types[index]);
  if (text.empty()) Fail(StrCat("type ", ir::TypeName(type)));
  if (type.lanes > 1) text += std::to_string(type.lanes);
  return text;
}

std::string CExpressions::MemoryOf(DType type) {
  return type.is_bool() ? std::string(dialect_.types[TypeIndex(ir::kU8)]) : TypeOf(type);
}

std::string CExpressions::Helper(std::string_view name, DType type) {
  std::string full = StrCat("tw_", name, "_", TypeOf(type));
  helpers_.insert(StrCat(name, ":", TypeOf(type)));
  return full;
}

std::string CExpressions::Constant(const Expr& e) {
  DType t = e->dtype;
  if (e->kind == ExprKind::kIntImm) {
    if (t.is_bool()) return e->int_value != 0 ? "1" : "0";
    if (t == ir::kI64 && !narrow_) {
      // The smallest value has no literal.
      if (e->int_value == INT64_MIN) return "(-9223372036854775807L - 1L)";
      std::string text = StrCat(e->int_value, "L");
      return e->int_value < 0 ? StrCat("(", text, ")") : text;
    }
    if (t == ir::kI64 && e->int_value >= 0) return std::to_string(e->int_value);
    bool is_unsigned = t.code == TypeCode::kUInt;
    std::string text = is_unsigned
                           ? StrCat(static_cast<uint64_t>(e->int_value), t.bits == 64 ? "UL" : "U")
                       : t.bits >= 32 && e->int_value == INT32_MIN ? "-2147483647 - 1"
                                                                   : std::to_string(e->int_value);
    return StrCat("((", TypeOf(t), ")(", text, "))");
  }
  double value = e->float_value;
  if (std::isnan(value)) return StrCat("((", TypeOf(t), ")NAN)");
  if (std::isinf(value)) return StrCat("((", TypeOf(t), ")(", value < 0 ? "-" : "", "INFINITY))");
  std::string text = FloatLiteral(value, t.bits == 64);
  if (t.bits == 16) text = StrCat("((", TypeOf(t), ")", text, ")");
  return text[0] == '-' ? StrCat("(", text, ")") : text;
}

// Integers wrap: signed ones through their unsigned type, narrower ones by a cast. Index arithmetic
// of 64 bits does not overflow.
std::string CExpressions::IntBinary(const Expr& e, const std::string& a, const std::string& b) {
  const ExprKind kind = e->kind;
  const DType type = e->args[0]->dtype.Element();
  std::string op(ir::KindText(kind));
  if (kind == ExprKind::kFloorDiv || kind == ExprKind::kFloorMod) {
    const bool plain = type.code == TypeCode::kUInt || (analyzer_.Values(e->args[0]).min >= 0 &&
                                                        analyzer_.Values(e->args[1]).min > 0);
    if (plain) return StrCat("(", a, kind == ExprKind::kFloorDiv ? " / " : " % ", b, ")");
    return StrCat(Helper(kind == ExprKind::kFloorDiv ? "floordiv" : "floormod", type), "(", a, ", ",
                  b, ")");
  }
  bool divides = kind == ExprKind::kDiv || kind == ExprKind::kMod;
  if (type.bits < 32) return StrCat("((", TypeOf(type), ")(", a, " ", op, " ", b, "))");
  if ((type == ir::kI32 || (type == ir::kI64 && ir::HasLoad(e))) && !divides) {
    std::string u = TypeOf({TypeCode::kUInt, type.bits, 1});
    return StrCat("((", TypeOf(type), ")((", u, ")", a, " ", op, " (", u, ")", b, "))");
  }
  return StrCat("(", a, " ", op, " ", b, ")");
}

std::string CExpressions::Binary(const Expr& e, int lane) {
  std::string a = Lane(e->args[0], lane), b = Lane(e->args[1], lane);
  DType operand = e->args[0]->dtype.Element();
  switch (e->kind) {
    case ExprKind::kMin:  // the second operand where one is no number
      return StrCat("(", a, " < ", b, " ? ", a, " : ", b, ")");
    case ExprKind::kMax:
      return StrCat("(", a, " > ", b, " ? ", a, " : ", b, ")");
    default:
      break;
  }
  RefuseBfloat(e);
  bool plain = ir::IsComparison(e->kind) || e->kind == ExprKind::kAnd || e->kind == ExprKind::kOr ||
               operand.is_float();
  if (plain) return StrCat("(", a, " ", ir::KindText(e->kind), " ", b, ")");
  return IntBinary(e, a, b);
}

// bf16 is cast, moved and compared. Arithmetic of f16 rounds each result.
void CExpressions::RefuseBfloat(const Expr& e) {
  if (e->dtype.Element() == ir::kBF16) Fail("arithmetic of bf16");
}

std::string CExpressions::CastTo(DType to, DType from, const std::string& value) {
  if (to.is_bool()) return StrCat("(", value, " != 0)");
  if (from.is_float() && to.is_int()) {
    // Saturating, NaN to 0: OpenCL's own conversion does that.
    return StrCat("convert_", TypeOf(to), "_sat_rtz(", value, ")");
  }
  return StrCat("((", TypeOf(to), ")", value, ")");
}

// Four neighbours of a vector as a vector of their own.
std::string CExpressions::FourLanes(const Expr& e, int first) {
  constexpr int kFour = 4;
  if (e->dtype.lanes == kFour) return *Vector(e);
  if (e->kind == ExprKind::kBroadcast) return *Vector(ir::Broadcast(e->args[0], kFour));
  if (e->kind == ExprKind::kLoad && e->mask == nullptr && Run(e->buffer, e->args[0]).has_value()) {
    const Expr& base = e->args[0]->args[0];
    const Expr at = first == 0 ? base : base + ir::Int(first, base->dtype);
    return *Vector(ir::Load(e->buffer, {ir::Ramp(at, ir::Int(1, base->dtype), kFour)}));
  }
  if (e->kind == ExprKind::kSelect && e->args[0]->dtype.lanes == 1) {
    return StrCat("(", Lane(e->args[0], 0), " ? ", FourLanes(e->args[1], first), " : ",
                  FourLanes(e->args[2], first), ")");
  }
  std::string lanes;
  for (int i = 0; i < kFour; ++i) lanes += (i == 0 ? "" : ", ") + Lane(e, first + i);
  return StrCat("((", TypeOf(e->dtype.WithLanes(kFour)), ")(", lanes, "))");
}

// The four u8 of a word as arguments of a dot product.
std::string CExpressions::BytesText(const std::string& word) {
  const std::string u8 = TypeOf(ir::kU8);
  std::string bytes;
  for (int k = 0; k < 4; ++k) {
    bytes += StrCat(k == 0 ? "" : ", ", "(", u8, ")(", word, " >> ", 8 * k, ")");
  }
  return dialect_.vectors ? StrCat("((", TypeOf(ir::kU8.WithLanes(4)), ")(", bytes, "))") : bytes;
}

// One lane of a dot product: the first operand is shared by all lanes, or has four for each.
std::string CExpressions::Dot4Text(const Expr& e, int lane) {
  uses_dot4_ = true;
  std::string args = Lane(e->args[0], lane);
  for (size_t operand : {1, 2}) {
    const Expr& bytes = e->args[operand];
    if (bytes->dtype.bits == 32) {
      args += ", " + BytesText(Lane(bytes, lane));
      continue;
    }
    const int first = bytes->dtype.lanes == 4 ? 0 : 4 * lane;
    if (dialect_.vectors) {
      args += ", " + FourLanes(bytes, first);
      continue;
    }
    for (int k = 0; k < 4; ++k) args += ", " + Lane(bytes, first + k);
  }
  return StrCat(dialect_.dot4, "(", args, ")");
}

// Products of integers and operations on their bits. C shifts by fewer bits than there are, and
// only unsigned numbers without their sign.
std::string CExpressions::IntegerText(const Expr& e, int lane) {
  const DType type = e->dtype.Element();
  const std::string t = TypeOf(type), u = TypeOf({TypeCode::kUInt, type.bits, 1});
  const std::string a = Lane(e->args[0], lane), b = Lane(e->args[1], lane);
  switch (e->intrinsic) {
    case ir::Intrinsic::kBitAnd:
      return StrCat("((", t, ")(", a, " & ", b, "))");
    case ir::Intrinsic::kBitOr:
      return StrCat("((", t, ")(", a, " | ", b, "))");
    case ir::Intrinsic::kBitXor:
      return StrCat("((", t, ")(", a, " ^ ", b, "))");
    case ir::Intrinsic::kWideningMul:
      return StrCat("((", t, ")((", t, ")", a, " * (", t, ")", b, "))");
    case ir::Intrinsic::kRoundingShiftRight:
      return StrCat(Helper("rounding_shift", type), "(", a, ", ", b, ")");
    default: {
      const bool left = e->intrinsic == ir::Intrinsic::kShiftLeft;
      return StrCat("((", t, ")((", u, ")", b, " < ", static_cast<int>(type.bits), " ? (", u, ")",
                    a, left ? " << " : " >> ", b, " : 0))");
    }
  }
}

std::string CExpressions::CallText(const Expr& e, int lane) {
  if (e->intrinsic == ir::Intrinsic::kDot4 && !dialect_.dot4.empty()) return Dot4Text(e, lane);
  // Functions of 16-bit floats are those of 32 bits, rounded: no language has all of them.
  const bool half = e->dtype.Element() == ir::kF16;
  std::string args;
  for (const Expr& a : e->args)
    args += StrCat(args.empty() ? "" : ", ", half ? "(float)" : "", Lane(a, lane));
  if (e->intrinsic == ir::Intrinsic::kAbs && e->dtype.is_int()) {
    return StrCat("((", TypeOf(e->dtype.Element()), ")", dialect_.function_prefix, "abs(", args,
                  "))");
  }
  RefuseBfloat(e);
  const std::string_view name = FunctionName(e->intrinsic);
  if (!name.empty()) {
    const std::string call = StrCat(dialect_.function_prefix, name, "(", args, ")");
    return half ? StrCat("((", TypeOf(ir::kF16), ")", call, ")") : call;
  }
  if (e->dtype.is_int() && e->args.size() == 2) return IntegerText(e, lane);
  Fail(StrCat("intrinsic ", ir::IntrinsicText(e->intrinsic)));
  return "0";
}

std::string CExpressions::Element(const ir::Buffer& buffer, const Expr& index, int lane) {
  const auto found = registers_.find(buffer.get());
  if (found == registers_.end())
    return StrCat(NameOf(buffer.get()), "[", PlaceOf(buffer.get(), Lane(index, lane)), "]");
  LocalSlot elements;
  ConstantElements(index, &elements);
  const SlotPlan& plan = found->second.plan;
  const SlotPlan::Place place = plan.elements.at(elements[static_cast<size_t>(lane)]);
  const auto slot = static_cast<size_t>(place.slot);
  return StrCat(found->second.names[slot],
                plan.slots[slot].size() == 1 ? "" : Component(place.lane));
}

std::optional<std::vector<std::string>> CExpressions::Promote(const ir::Buffer& buffer,
                                                              const ir::Stmt& body) {
  Registers registers{PlanSlots(buffer, body, /*outlined_loops=*/false), {}};
  bool promotable = registers.plan.promotable && !buffer->dtype.is_bool();
  for (const LocalSlot& slot : registers.plan.slots) {
    const auto lanes = static_cast<int>(slot.size());
    promotable = promotable && (lanes == 1 || (dialect_.vectors && IsVectorWidth(lanes)));
  }
  if (!promotable) return std::nullopt;
  std::vector<std::string> declarations;
  for (const LocalSlot& slot : registers.plan.slots) {
    registers.names.push_back(Temporary(buffer->name));
    declarations.push_back(StrCat(TypeOf(buffer->dtype.WithLanes(static_cast<int>(slot.size()))),
                                  " ", registers.names.back()));
  }
  registers_[buffer.get()] = std::move(registers);
  return declarations;
}

std::optional<std::string> CExpressions::Register(const ir::Buffer& buffer,
                                                  const Expr& index) const {
  const auto found = registers_.find(buffer.get());
  LocalSlot elements;
  if (found == registers_.end() || !ConstantElements(index, &elements)) return std::nullopt;
  const auto slot = static_cast<size_t>(found->second.plan.elements.at(elements[0]).slot);
  if (found->second.plan.slots[slot] != elements) return std::nullopt;
  return found->second.names[slot];
}

std::string CExpressions::Lane(const Expr& e, int lane) {
  if (e->dtype.lanes == 1) lane = 0;
  switch (e->kind) {
    case ExprKind::kVar:
      return NameOf(e.get());
    case ExprKind::kIntImm:
    case ExprKind::kFloatImm:
      return Constant(e);
    case ExprKind::kBroadcast:
      return Lane(e->args[0], 0);
    case ExprKind::kRamp: {
      if (lane == 0) return Lane(e->args[0], 0);
      Expr offset = ir::Binary(ExprKind::kMul, e->args[1], ir::Int(lane, e->args[1]->dtype));
      return Lane(ir::Binary(ExprKind::kAdd, e->args[0], offset), 0);
    }
    case ExprKind::kCast:
      return CastTo(e->dtype.Element(), e->args[0]->dtype.Element(), Lane(e->args[0], lane));
    case ExprKind::kNot:
      return StrCat("(!", Lane(e->args[0], lane), ")");
    case ExprKind::kSelect:
      return StrCat("(", Lane(e->args[0], lane), " ? ", Lane(e->args[1], lane), " : ",
                    Lane(e->args[2], lane), ")");
    case ExprKind::kLoad: {
      if (const auto run = runs_.find(e.get()); run != runs_.end()) {
        const int64_t lanes = run->second.lanes;
        return StrCat(run->second.names[static_cast<size_t>(lane / lanes)], ".v[", lane % lanes,
                      "]");
      }
      std::string value = Element(e->buffer, e->args[0], lane);
      if (e->mask == nullptr) return value;
      return StrCat("(", Lane(e->mask, lane), " ? ", value, " : ((", MemoryOf(e->buffer->dtype),
                    ")0))");
    }
    case ExprKind::kCall:
      return CallText(e, lane);
    default:
      return Binary(e, lane);
  }
}

std::optional<std::string> CExpressions::Run(const ir::Buffer& buffer, const Expr& index) {
  bool run = dialect_.vectors && index->kind == ExprKind::kRamp && ir::IsInt(index->args[1], 1) &&
             IsVectorWidth(index->dtype.lanes) && !buffer->dtype.is_bool() &&
             !registers_.contains(buffer.get());
  if (!run) return std::nullopt;
  return StrCat(NameOf(buffer.get()), " + ", Lane(index->args[0], 0));
}

CExpressions::WideRun CExpressions::WideRunOf(const ir::Buffer& buffer, const Expr& index,
                                              bool read_only) {
  WideRun run;
  const bool shaped = !dialect_.wide.empty() && index->kind == ExprKind::kRamp &&
                      ir::IsInt(index->args[1], 1) && !buffer->dtype.is_bool() &&
                      buffer->scope != ir::Scope::kLocal;
  if (!shaped) return run;
  // Buffers are at multiples of more than that.
  const int64_t lanes = index->dtype.lanes, aligned = AlignedBytes(buffer, index->args[0], lanes);
  run.lanes = aligned / buffer->dtype.bytes();
  if (run.lanes < 2 || aligned < 4) return run;
  uses_wide_ = true;
  run.type = StrCat(dialect_.wide, "<", MemoryOf(buffer->dtype), ", ", run.lanes, ">");
  const std::string_view space =
      buffer->scope == ir::Scope::kShared ? dialect_.shared_space : dialect_.global_space;
  const std::string pointer =
      StrCat("*(", read_only ? "const " : "", space, run.type, "*)(", NameOf(buffer.get()), " + ");
  for (int64_t first = 0; first < lanes; first += run.lanes) {
    const std::string place = Lane(index, static_cast<int>(first));
    run.parts.push_back(StrCat(pointer, PlaceOf(buffer.get(), place), ")"));
  }
  return run;
}

std::string CExpressions::PlaceOf(const ir::BufferNode* buffer, std::string index) const {
  const auto place = places_.find(buffer);
  return place == places_.end() ? index : StrCat(place->second, "(", index, ")");
}

bool CExpressions::IsAtStart(const Expr& index, int64_t columns, int64_t period) const {
  const analysis::Interval rest =
      analyzer_.Values(analyzer_.Normal(ir::FloorMod(index, ir::Int(period, index->dtype))));
  return rest.min >= 0 && rest.max < columns;
}

int64_t CExpressions::AlignedBytes(const ir::Buffer& buffer, const Expr& index,
                                   int64_t stride) const {
  constexpr int64_t kMostBytes = 16;
  const analysis::Congruence base = analyzer_.CongruenceOf(index);
  const int64_t bytes = buffer->dtype.bytes();
  return std::gcd(std::gcd(std::gcd(base.modulus, base.remainder), stride) * bytes, kMostBytes);
}

std::vector<std::string> CExpressions::NameRun(const Expr& load, const WideRun& run) {
  NamedRun& named = runs_[load.get()];
  named.lanes = run.lanes;
  for (size_t i = 0; i < run.parts.size(); ++i) named.names.push_back(Temporary("run"));
  return named.names;
}

bool CExpressions::HasVectors(DType type) const {
  return dialect_.vectors && IsVectorWidth(type.lanes) && !type.is_bool();
}

std::optional<std::string> CExpressions::Vector(const Expr& e) {
  if (!HasVectors(e->dtype)) return std::nullopt;
  if (std::optional<std::string> value = VectorOf(e)) return value;
  std::string lanes;
  for (int i = 0; i < e->dtype.lanes; ++i) lanes += (i == 0 ? "" : ", ") + Lane(e, i);
  return StrCat("((", TypeOf(e->dtype), ")(", lanes, "))");
}

std::optional<std::string> CExpressions::VectorOf(const Expr& e) {
  switch (e->kind) {
    case ExprKind::kBroadcast:
      return StrCat("((", TypeOf(e->dtype), ")(", Lane(e->args[0], 0), "))");
    case ExprKind::kLoad:
      return VectorLoad(e);
    case ExprKind::kSelect: {
      // A condition of one value chooses as it does in C; one of each lane would evaluate both.
      if (e->args[0]->dtype.lanes > 1 && e->args[0]->kind != ExprKind::kBroadcast)
        return std::nullopt;
      return StrCat("(", Lane(e->args[0], 0), " ? ", *Vector(e->args[1]), " : ",
                    *Vector(e->args[2]), ")");
    }
    case ExprKind::kCast:
      return VectorCast(e);
    case ExprKind::kCall:
      return VectorCall(e);
    default:
      return VectorBinary(e);
  }
}

std::optional<std::string> CExpressions::VectorLoad(const Expr& e) {
  if (e->mask != nullptr && e->mask->kind != ExprKind::kBroadcast) return std::nullopt;
  std::optional<std::string> value = Register(e->buffer, e->args[0]);
  if (const auto run = Run(e->buffer, e->args[0]))
    value = StrCat("vload", static_cast<int>(e->dtype.lanes), "(0, ", *run, ")");
  if (!value.has_value() || e->mask == nullptr) return value;
  return StrCat("(", Lane(e->mask, 0), " ? ", *value, " : ((", TypeOf(e->dtype), ")(0)))");
}

std::optional<std::string> CExpressions::VectorBinary(const Expr& e) {
  const DType type = e->dtype.Element();
  const bool is_i32 = type == ir::kI32;
  if (e->args.size() != 2 || (!type.is_float() && !is_i32)) return std::nullopt;
  const auto operand = [&](size_t i) { return *Vector(e->args[i]); };
  switch (e->kind) {
    case ExprKind::kDiv:
      if (is_i32) return std::nullopt;
      [[fallthrough]];
    case ExprKind::kAdd:
    case ExprKind::kSub:
    case ExprKind::kMul: {
      if (!is_i32) return StrCat("(", operand(0), " ", ir::KindText(e->kind), " ", operand(1), ")");
      // Signed integers wrap through their unsigned type.
      const std::string lanes = std::to_string(e->dtype.lanes);
      return StrCat("as_int", lanes, "(as_uint", lanes, "(", operand(0), ") ",
                    ir::KindText(e->kind), " as_uint", lanes, "(", operand(1), "))");
    }
    case ExprKind::kMin:
    case ExprKind::kMax: {  // the second operand where one is no number
      const std::string a = operand(0), b = operand(1);
      return StrCat("select(", b, ", ", a, ", ", a, e->kind == ExprKind::kMin ? " < " : " > ", b,
                    ")");
    }
    default:
      return std::nullopt;
  }
}

// To floats, and to wider integers: all that every lane may be.
std::optional<std::string> CExpressions::VectorCast(const Expr& e) {
  const DType from = e->args[0]->dtype.Element(), to = e->dtype.Element();
  const bool widens = from.is_int() && to.is_int() && from.bits < to.bits;
  if (from.is_bool() || (!to.is_float() && !widens)) return std::nullopt;
  return StrCat("convert_", TypeOf(e->dtype), "(", *Vector(e->args[0]), ")");
}

std::optional<std::string> CExpressions::VectorCall(const Expr& e) {
  const std::string_view name = FunctionName(e->intrinsic);
  if (name.empty() || !e->dtype.is_float()) return std::nullopt;
  std::string args;
  for (const Expr& a : e->args) args += (args.empty() ? "" : ", ") + *Vector(a);
  return StrCat(dialect_.function_prefix, name, "(", args, ")");
}

}  // namespace tilewright::codegen
