#include "compiler/targets/vulkan/spirv_expr.h"

#include "compiler/codegen/linear_index.h"
#include "compiler/ir/buffer_bytes.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"
#include "deploy/support/strings.h"

namespace tilewright::vulkan {
namespace {

using ir::DType;
using ir::Expr;
using ir::ExprKind;
using support::StrCat;

bool IsSameInAllLanes(const Expr& condition) {
  return condition->dtype.lanes == 1 || condition->kind == ExprKind::kBroadcast;
}

bool IsSigned(DType type) { return type.code == ir::TypeCode::kInt; }

}  // namespace

int SpirvExpr::BitsOf(DType type) const {
  return narrow_ && type.Element() == ir::kI64 ? 32 : type.bits;
}

Id SpirvExpr::TypeOf(DType type) {
  if (type.is_bool()) return module_.Bool();
  if (type.is_int()) return module_.Int(BitsOf(type));
  if (type.code == ir::TypeCode::kBFloat) Fail(StrCat("type ", ir::TypeName(type)));
  return module_.Float(type.bits);
}

Id SpirvExpr::MemoryTypeOf(DType type, spv::StorageClass storage) {
  if (type.is_bool() && storage == spv::StorageClass::StorageBuffer) return module_.Int(8);
  return TypeOf(type);
}

Id SpirvExpr::Constant(DType type, int64_t value) {
  if (type.is_bool()) return module_.BoolConstant(value != 0);
  if (type.is_int()) return module_.IntConstant(BitsOf(type), value);
  return module_.FloatConstant(type.bits, static_cast<double>(value));
}

Id SpirvExpr::Immediate(const Expr& e) {
  if (e->kind == ExprKind::kIntImm) return Constant(e->dtype.Element(), e->int_value);
  TypeOf(e->dtype);
  return module_.FloatConstant(e->dtype.bits, e->float_value);
}

Id SpirvExpr::Ramp(const Expr& e, int lane) {
  const Id base = Lane(e->args[0], 0);
  if (lane == 0) return base;
  const Expr offset = ir::Binary(ExprKind::kMul, e->args[1], ir::Int(lane, e->args[1]->dtype));
  return code_.Op(spv::Op::OpIAdd, TypeOf(e->dtype), {base, Lane(offset, 0)});
}

Id SpirvExpr::Guarded(const Expr& e, int lane, Id guard, bool of_all) {
  if (!ir::HasLoad(e)) return Lane(e, lane);
  const Id outer = guard_;
  const bool outer_same = same_guard_;
  guard_ = outer == 0 ? guard : code_.Op(spv::Op::OpLogicalAnd, module_.Bool(), {outer, guard});
  same_guard_ = outer_same && of_all;
  const Id value = Lane(e, lane);
  guard_ = outer;
  same_guard_ = outer_same;
  return value;
}

Id SpirvExpr::Lane(const Expr& e, int lane) {
  if (e->dtype.lanes == 1) lane = 0;
  switch (e->kind) {
    case ExprKind::kVar:
      return vars_.at(e.get());
    case ExprKind::kIntImm:
    case ExprKind::kFloatImm:
      return Immediate(e);
    case ExprKind::kBroadcast:
      return Lane(e->args[0], 0);
    case ExprKind::kRamp:
      return Ramp(e, lane);
    case ExprKind::kCast:
      return Cast(e->dtype.Element(), e->args[0]->dtype.Element(), Lane(e->args[0], lane));
    case ExprKind::kNot:
      return Not(Lane(e->args[0], lane));
    case ExprKind::kSelect: {
      const Id condition = Lane(e->args[0], lane);
      const bool of_all = IsSameInAllLanes(e->args[0]);
      const Id yes = Guarded(e->args[1], lane, condition, of_all);
      const Id no = ir::HasLoad(e->args[2]) ? Guarded(e->args[2], lane, Not(condition), of_all)
                                            : Lane(e->args[2], lane);
      return Select(TypeOf(e->dtype), condition, yes, no);
    }
    case ExprKind::kLoad: {
      if (e->mask == nullptr) return LoadElement(e->buffer, e->args[0], lane);
      const Id mask = Lane(e->mask, lane);
      const Expr plain = ir::Load(e->buffer, e->args);
      const Id value = Guarded(plain, lane, mask, IsSameInAllLanes(e->mask));
      return Select(TypeOf(e->dtype), mask, value, Constant(e->dtype.Element(), 0));
    }
    case ExprKind::kCall:
      return Intrinsic(e, lane);
    default:
      return Binary(e, lane);
  }
}

// An index as 32 bits: no buffer has more than 2^32 bytes. The first element where the guard says
// no.
Id SpirvExpr::IndexOf(const Expr& index, int lane) {
  const Id word = module_.Int(32);
  Id at = Lane(index, lane);
  if (BitsOf(index->dtype) == 64) at = code_.Op(spv::Op::OpUConvert, word, {at});
  return guard_ == 0 ? at : Select(word, guard_, at, module_.IntConstant(32, 0));
}

bool SpirvExpr::IsWide(const ir::Buffer& buffer, const Expr& index) const {
  const Place& place = places_.at(buffer.get());
  const bool shaped =
      place.storage == spv::StorageClass::StorageBuffer && same_guard_ &&
      index->kind == ExprKind::kRamp && ir::IsInt(index->args[1], 1) &&
      index->dtype.lanes % kWide == 0 && !buffer->dtype.is_bool() && buffer->dtype.bits <= 32 &&
      ir::ConstantBytes(*buffer).value_or(0) >= index->dtype.lanes * buffer->dtype.bytes();
  if (!shaped) return false;
  const analysis::Congruence base = analyzer_.CongruenceOf(index->args[0]);
  return base.modulus % kWide == 0 && base.remainder % kWide == 0;
}

Id SpirvExpr::WidePointer(const ir::Buffer& buffer, const Expr& index, int number, Id* type) {
  Place& place = places_.at(buffer.get());
  const Id word = module_.Int(32), zero = module_.IntConstant(32, 0);
  *type = module_.Vector(TypeOf(buffer->dtype), kWide);
  if (place.wide == 0) {
    const int64_t bytes = *ir::ConstantBytes(*buffer), width = kWide * buffer->dtype.bytes();
    place.wide = module_.Buffer(*type, static_cast<int>(width), bytes / width, place.binding,
                                place.use, StrCat(buffer->name, "_wide"));
    for (Id variable : {place.variable, place.wide})
      module_.Decorate(variable, spv::Decoration::Aliased);
  }
  // Behind the first vector, where the guard says no, are others of the run: the buffer has them.
  Id at = code_.Op(spv::Op::OpShiftRightLogical, word,
                   {IndexOf(index->args[0], 0), module_.IntConstant(32, 2)});
  if (number > 0) at = code_.Op(spv::Op::OpIAdd, word, {at, module_.IntConstant(32, number)});
  return code_.Op(spv::Op::OpAccessChain, module_.Pointer(spv::StorageClass::StorageBuffer, *type),
                  {place.wide, zero, at});
}

bool SpirvExpr::StoreRun(const ir::Buffer& buffer, const Expr& index, const Words& values) {
  if (!IsWide(buffer, index)) return false;
  for (size_t i = 0; i < values.size(); i += kWide) {
    Id type = 0;
    const Id pointer = WidePointer(buffer, index, static_cast<int>(i) / kWide, &type);
    const auto first = values.begin() + static_cast<int64_t>(i);
    const Id value = code_.Op(spv::Op::OpCompositeConstruct, type, Words(first, first + kWide));
    code_.Store(pointer, value, places_.at(buffer.get()).variable);
  }
  return true;
}

SpirvExpr::Element SpirvExpr::ElementAt(const ir::Buffer& buffer, const Expr& index, int lane) {
  const Place& place = places_.at(buffer.get());
  if (!place.elements.empty()) {
    std::vector<int64_t> elements;
    codegen::ConstantElements(index, &elements);
    const Id element = place.elements.at(elements[static_cast<size_t>(lane)]);
    return {element, element, &place};
  }
  const Id at = IndexOf(index, lane), zero = module_.IntConstant(32, 0);
  Words operands = {place.variable};
  if (place.storage == spv::StorageClass::StorageBuffer) operands.push_back(zero);
  operands.push_back(at);
  const Id type = module_.Pointer(place.storage, MemoryTypeOf(buffer->dtype, place.storage));
  return {code_.Op(spv::Op::OpAccessChain, type, operands), place.variable, &place};
}

Id SpirvExpr::LoadElement(const ir::Buffer& buffer, const Expr& index, int lane) {
  if (IsWide(buffer, index)) {
    Id type = 0;
    const Id pointer = WidePointer(buffer, index, lane / kWide, &type);
    const Place& whole = places_.at(buffer.get());
    const Id vector = code_.Load(type, pointer, whole.variable, whole.constant);
    return code_.Component(TypeOf(buffer->dtype), vector, static_cast<uint32_t>(lane % kWide));
  }
  const Element element = ElementAt(buffer, index, lane);
  const Place& place = *element.place;
  const Id value = code_.Load(MemoryTypeOf(buffer->dtype, place.storage), element.pointer,
                              element.root, place.constant);
  if (!buffer->dtype.is_bool() || place.storage != spv::StorageClass::StorageBuffer) return value;
  return code_.Op(spv::Op::OpINotEqual, module_.Bool(), {value, module_.IntConstant(8, 0)});
}

void SpirvExpr::Store(const ir::Buffer& buffer, const Expr& index, int lane, Id value) {
  const Element element = ElementAt(buffer, index, lane);
  if (buffer->dtype.is_bool() && element.place->storage == spv::StorageClass::StorageBuffer)
    value = Select(module_.Int(8), value, module_.IntConstant(8, 1), module_.IntConstant(8, 0));
  code_.Store(element.pointer, value, element.root);
}

void SpirvExpr::StoreIf(const ir::Buffer& buffer, const Expr& index, int lane, Id value,
                        Id condition) {
  const Id old = LoadElement(buffer, index, lane);
  Store(buffer, index, lane, Select(TypeOf(buffer->dtype), condition, value, old));
}

Id SpirvExpr::Compare(ExprKind kind, DType type, Id a, Id b) {
  struct Row {
    ExprKind kind;
    spv::Op of_signed, of_unsigned, of_floats, of_bools;
  };
  static constexpr Row kRows[] = {
      {ExprKind::kEq, spv::Op::OpIEqual, spv::Op::OpIEqual, spv::Op::OpFOrdEqual,
       spv::Op::OpLogicalEqual},
      {ExprKind::kNe, spv::Op::OpINotEqual, spv::Op::OpINotEqual, spv::Op::OpFUnordNotEqual,
       spv::Op::OpLogicalNotEqual},
      {ExprKind::kLt, spv::Op::OpSLessThan, spv::Op::OpULessThan, spv::Op::OpFOrdLessThan,
       spv::Op::OpNop},
      {ExprKind::kLe, spv::Op::OpSLessThanEqual, spv::Op::OpULessThanEqual,
       spv::Op::OpFOrdLessThanEqual, spv::Op::OpNop},
      {ExprKind::kGt, spv::Op::OpSGreaterThan, spv::Op::OpUGreaterThan, spv::Op::OpFOrdGreaterThan,
       spv::Op::OpNop},
      {ExprKind::kGe, spv::Op::OpSGreaterThanEqual, spv::Op::OpUGreaterThanEqual,
       spv::Op::OpFOrdGreaterThanEqual, spv::Op::OpNop},
  };
  for (const Row& row : kRows) {
    if (row.kind != kind) continue;
    const spv::Op op = type.is_bool()    ? row.of_bools
                       : type.is_float() ? row.of_floats
                       : IsSigned(type)  ? row.of_signed
                                         : row.of_unsigned;
    if (op == spv::Op::OpNop) break;
    return code_.Op(op, module_.Bool(), {a, b});
  }
  Fail(StrCat("comparison ", ir::KindText(kind), " of ", ir::TypeName(type)));
  return module_.BoolConstant(false);
}

// Divisions that truncate or floor. Vulkan's remainders are undefined for negative numbers, its
// quotients are not.
Id SpirvExpr::Divided(const Expr& e, Id a, Id b) {
  const DType type = e->args[0]->dtype.Element();
  const Id id = TypeOf(type);
  const bool quotient = e->kind == ExprKind::kDiv || e->kind == ExprKind::kFloorDiv;
  const bool plain = !IsSigned(type) || (analyzer_.Values(e->args[0]).min >= 0 &&
                                         analyzer_.Values(e->args[1]).min > 0);
  if (plain) return code_.Op(quotient ? spv::Op::OpUDiv : spv::Op::OpUMod, id, {a, b});
  const Id zero = Constant(type, 0);
  const Id q = code_.Op(spv::Op::OpSDiv, id, {a, b});
  const Id r = code_.Op(spv::Op::OpISub, id, {a, code_.Op(spv::Op::OpIMul, id, {q, b})});
  if (e->kind == ExprKind::kDiv) return q;
  if (e->kind == ExprKind::kMod) return r;
  // A rest whose sign is not the divisor's: the quotient is one too large.
  const Id bits = code_.Op(spv::Op::OpBitwiseXor, id, {r, b});
  const Id differs = code_.Op(spv::Op::OpSLessThan, module_.Bool(), {bits, zero});
  const Id rest = code_.Op(spv::Op::OpINotEqual, module_.Bool(), {r, zero});
  const Id wrong = code_.Op(spv::Op::OpLogicalAnd, module_.Bool(), {rest, differs});
  if (quotient) {
    return Select(id, wrong, code_.Op(spv::Op::OpISub, id, {q, Constant(type, 1)}), q);
  }
  return Select(id, wrong, code_.Op(spv::Op::OpIAdd, id, {r, b}), r);
}

Id SpirvExpr::IntBinary(const Expr& e, Id a, Id b) {
  const Id type = TypeOf(e->dtype);
  switch (e->kind) {
    case ExprKind::kAdd:
      return code_.Op(spv::Op::OpIAdd, type, {a, b});
    case ExprKind::kSub:
      return code_.Op(spv::Op::OpISub, type, {a, b});
    case ExprKind::kMul:
      return code_.Op(spv::Op::OpIMul, type, {a, b});
    default:
      return Divided(e, a, b);
  }
}

Id SpirvExpr::Binary(const Expr& e, int lane) {
  const Id a = Lane(e->args[0], lane), b = Lane(e->args[1], lane);
  const DType operand = e->args[0]->dtype.Element();
  const Id type = TypeOf(e->dtype);
  if (ir::IsComparison(e->kind)) return Compare(e->kind, operand, a, b);
  switch (e->kind) {
    case ExprKind::kAnd:
      return code_.Op(spv::Op::OpLogicalAnd, type, {a, b});
    case ExprKind::kOr:
      return code_.Op(spv::Op::OpLogicalOr, type, {a, b});
    case ExprKind::kMin:  // the second operand where one is no number
      return Select(type, Compare(ExprKind::kLt, operand, a, b), a, b);
    case ExprKind::kMax:
      return Select(type, Compare(ExprKind::kGt, operand, a, b), a, b);
    default:
      break;
  }
  if (!operand.is_float()) return IntBinary(e, a, b);
  switch (e->kind) {
    case ExprKind::kAdd:
      return code_.Op(spv::Op::OpFAdd, type, {a, b});
    case ExprKind::kSub:
      return code_.Op(spv::Op::OpFSub, type, {a, b});
    case ExprKind::kMul:
      return code_.Op(spv::Op::OpFMul, type, {a, b});
    case ExprKind::kDiv:
      return code_.Op(spv::Op::OpFDiv, type, {a, b});
    default:
      Fail(StrCat("operation ", ir::KindText(e->kind), " of ", ir::TypeName(operand)));
      return a;
  }
}

}  // namespace tilewright::vulkan
