// Values of a function of a SPIR-V module in its making, so that formulas read like those of C:
// floats of 32 or 64 bits, integers of 32 bits, bools. For the functions of spirv_math.h only.
#pragma once

#include <limits>

#include "compiler/targets/vulkan/spirv_code.h"

namespace tilewright::vulkan {

struct Value {
  SpirvCode* code;
  Id id;
  int bits = 32;  // of its floats
};

inline Id FloatType(Value v) { return v.code->module().Float(v.bits); }
inline Id IntType(Value v) { return v.code->module().Int(32); }
inline Id BoolType(Value v) { return v.code->module().Bool(); }
inline Value F(Value like, double value) {
  return {like.code, like.code->module().FloatConstant(like.bits, value), like.bits};
}
inline Value I(Value like, int32_t value) {
  return {like.code, like.code->module().IntConstant(32, value), like.bits};
}
inline Value FloatOp(spv::Op op, Value a, Value b) {
  return {a.code, a.code->Op(op, FloatType(a), {a.id, b.id}), a.bits};
}
inline Value IntOp(spv::Op op, Value a, Value b) {
  return {a.code, a.code->Op(op, IntType(a), {a.id, b.id}), a.bits};
}
inline Value Test(spv::Op op, Value a, Value b) {
  return {a.code, a.code->Op(op, BoolType(a), {a.id, b.id}), a.bits};
}
inline Value MathOp(GLSLstd450 function, Value a) {
  return {a.code, a.code->Math(function, FloatType(a), {a.id}), a.bits};
}
inline Value operator+(Value a, Value b) { return FloatOp(spv::Op::OpFAdd, a, b); }
inline Value operator-(Value a, Value b) { return FloatOp(spv::Op::OpFSub, a, b); }
inline Value operator*(Value a, Value b) { return FloatOp(spv::Op::OpFMul, a, b); }
inline Value operator/(Value a, Value b) { return FloatOp(spv::Op::OpFDiv, a, b); }
inline Value operator<(Value a, Value b) { return Test(spv::Op::OpFOrdLessThan, a, b); }
inline Value operator>(Value a, Value b) { return Test(spv::Op::OpFOrdGreaterThan, a, b); }
inline Value operator==(Value a, Value b) { return Test(spv::Op::OpFOrdEqual, a, b); }
inline Value operator&&(Value a, Value b) { return Test(spv::Op::OpLogicalAnd, a, b); }
inline Value operator||(Value a, Value b) { return Test(spv::Op::OpLogicalOr, a, b); }
inline Value Select(Value condition, Value a, Value b) {
  return {a.code, a.code->Op(spv::Op::OpSelect, FloatType(a), {condition.id, a.id, b.id}), a.bits};
}
inline Value Bits(Value x) {
  return {x.code, x.code->Op(spv::Op::OpBitcast, IntType(x), {x.id}), x.bits};
}
inline Value FromBits(Value x) {
  return {x.code, x.code->Op(spv::Op::OpBitcast, FloatType(x), {x.id}), x.bits};
}
inline Value ToInt(Value x) {
  return {x.code, x.code->Op(spv::Op::OpConvertFToS, IntType(x), {x.id}), x.bits};
}
inline Value ToFloat(Value x) {
  return {x.code, x.code->Op(spv::Op::OpConvertSToF, FloatType(x), {x.id}), x.bits};
}
inline Value Abs(Value x) { return MathOp(GLSLstd450FAbs, x); }
inline Value Sqrt(Value x) { return MathOp(GLSLstd450Sqrt, x); }
inline Value RoundEven(Value x) { return MathOp(GLSLstd450RoundEven, x); }
inline Value MulAdd(Value a, Value b, Value c) {
  return {a.code, a.code->Math(GLSLstd450Fma, FloatType(a), {a.id, b.id, c.id}), a.bits};
}
inline Value IsNoNumber(Value x) { return Test(spv::Op::OpFUnordNotEqual, x, x); }
inline Value Not(Value condition) {
  return {condition.code,
          condition.code->Op(spv::Op::OpLogicalNot, BoolType(condition), {condition.id}),
          condition.bits};
}
inline Value NoNumber(Value like) { return F(like, std::numeric_limits<double>::quiet_NaN()); }

}  // namespace tilewright::vulkan
