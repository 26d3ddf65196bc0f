// Converts float16 (IEEE binary16) and bfloat16, as bit patterns, to and from double, with one
// rounding (ties to even). Pure functions; exact on every machine.
#ifndef DEPLOY_RUNTIME_HALF_FLOAT_H_
#define DEPLOY_RUNTIME_HALF_FLOAT_H_

#include <cstdint>

namespace tilewright::runtime {

double HalfToDouble(uint16_t bits);
double BFloat16ToDouble(uint16_t bits);
// A value beyond the largest finite one becomes infinity. NaN stays NaN (quiet).
uint16_t DoubleToHalf(double value);
uint16_t DoubleToBFloat16(double value);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_HALF_FLOAT_H_
