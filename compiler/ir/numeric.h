// Scalar arithmetic of the tensor IR, exactly as ir.h pins it: constant folding, the simplifier and
// the interpreter all call these functions, so the semantics exist once. Pure functions;
// thread-safe.
#pragma once

#include <cstdint>

#include "compiler/ir/ir.h"

namespace tilewright::ir {

// The value of `v` after wrapping to the width and signedness of `t` (an integer or bool type). u64
// keeps its bit pattern.
int64_t WrapInt(int64_t v, DType t);
// `v` rounded half to even to the float type `t`; NaNs become the one canonical quiet NaN.
double RoundFloat(double v, DType t);

int64_t FloorDivInt(int64_t a, int64_t b);  // b != 0
int64_t FloorModInt(int64_t a, int64_t b);  // b != 0

// Binary operators on scalars of element type `t`. False when the result is undefined (division by
// zero). Comparisons give 0 or 1. And/Or expect bools.
bool EvalIntBinary(ExprKind kind, DType t, int64_t a, int64_t b, int64_t* out);
bool EvalFloatArith(ExprKind kind, DType t, double a, double b,
                    double* out);                                     // Add Sub Mul Div Min Max
bool EvalFloatCompare(ExprKind kind, double a, double b, bool* out);  // Eq .. Ge

// A pure intrinsic (not prefetch) on floats of type `t`; unused operands are ignored. fma rounds
// once; transcendental functions are computed in double and rounded.
double EvalFloatIntrinsic(Intrinsic intrinsic, DType t, double a, double b, double c);

// A pure intrinsic on integers of type `t` (abs, and those that only integers have).
int64_t EvalIntIntrinsic(Intrinsic intrinsic, DType t, int64_t a, int64_t b);

// Casts between scalar types. Integers and bools travel in *i, floats in *d.
int64_t CastFloatToInt(double v, DType to);  // saturates, NaN -> 0
int64_t CastIntToInt(int64_t v, DType to);   // wraps; to bool: v != 0
double CastIntToFloat(int64_t v, DType from, DType to);

int64_t MinInt(DType t);  // smallest and largest value of an integer type
int64_t MaxInt(DType t);

// Half and brain float storage.
uint16_t FloatToHalf(double v);
double HalfToFloat(uint16_t bits);
uint16_t FloatToBfloat(double v);
double BfloatToFloat(uint16_t bits);

}  // namespace tilewright::ir
