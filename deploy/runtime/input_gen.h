// Generated inputs: the values that a seed and a distribution determine. The numbers are a
// contract: every machine, compiler and version makes the same bytes, because the expected outputs
// are computed on another machine than the measured device. Pure functions; thread-safe.
//
// Element i of a tensor is made from the 64-bit word w(i) = mix(seed + (i+1)·0x9E3779B97F4A7C15)
// (arithmetic modulo 2^64), mix(z): z = (z ^ z>>30)·0xBF58476D1CE4E5B9,
// z = (z ^ z>>27)·0x94D049BB133111EB, z ^ z>>31. All arithmetic below is in double, rounded once
// per operation (no FMA), then rounded to the element type (ties to even; integers truncate):
//   uniform [a, b)    a + (b - a)·u,  u = (w >> 11)·2^-53; the largest value below b where
//                     rounding to the element type would reach b
//   normal (a, b)     a + b·(s - 6), s = the sum of twelve uniforms in [0, 1) of 16 bits each,
//                     taken from w(3i), w(3i+1), w(3i+2), low 16 bits first: an Irwin–Hall sum,
//                     which needs no libm and so cannot differ between machines
//   int_range [a, b]  a + w mod (b - a + 1)
// bool tensors hold 1 where the drawn value is > (a + b)/2 (uniform), > a (normal), odd
// (int_range).
#ifndef DEPLOY_RUNTIME_INPUT_GEN_H_
#define DEPLOY_RUNTIME_INPUT_GEN_H_

#include <cstdint>

#include "absl/status/status.h"
#include "deploy/module/dtype.h"
#include "deploy/module/manifest.h"

namespace tilewright::runtime {

// Fills `count` elements at `out`. INVALID_ARGUMENT `runtime.input_gen.<reason>` if the range is
// not finite, is empty, or has values that the element type cannot hold.
absl::Status GenerateInput(module::DType dtype, int64_t count,
                           const module::Distribution& distribution, uint64_t seed, void* out);

// Returns what `tilewright run` draws for an input that is not given: uniform [-1, 1) for floats,
// otherwise small non-negative integers.
module::Distribution DefaultDistribution(module::DType dtype);

}  // namespace tilewright::runtime

#endif  // DEPLOY_RUNTIME_INPUT_GEN_H_
