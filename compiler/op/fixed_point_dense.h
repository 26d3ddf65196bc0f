// Another algorithm of packed_dense, for few rows: products of integers. The activations of a group
// become fixed-point numbers in three limbs of eight bits, whose products with the weights' fields
// are dot products of bytes (the tensor intrinsics generic.dot4_nibbles and generic.dot4_bytes). So
// no weight becomes a float. Pure functions; thread-safe.
//
// It is as exact as floats of 32 bits. A number of a group is off by one last place at most, which
// is 2^-23 of the group's largest: what two roundings of this largest to f32 may cost. All sums of
// products are exact; a group's sum is rounded as it becomes a float. Plain sums of floats round
// each product and each sum: of numbers of one size their error is the larger one
// (tests/unit/fixed_point_dense_test.cc). The result is NaN where a number of the group is NaN or
// infinite, as in plain sums (whose infinity meets that of the zero point).
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/op/op_rows.h"

namespace tilewright::op {

// Sums of so many numbers of 24 bits, and of their limbs' products, fit 32 bits.
inline constexpr int64_t kFixedPointGroup = 256;

// The weights' fields: `bits` wide, `group` of them with one scale and one zero point, which is
// `zero` where there is no operand of them. Operands and result are those of packed_dense, with a
// whole number of blocks of columns. Adds the stages, where r are rows, g groups, and p the fields
// of a byte (the field p of byte t of a group is its element t * fields + p):
// - NAME_peaks [r, g]: the largest magnitude;
// - NAME_steps [r, g]: one last place; NAME_places [r, g]: its inverse;
// - NAME_numbers [r, g, p, t] i32: the activations in last places;
// - NAME_totals [r, g] i32: their sum; NAME_offsets [r, g]: what it stands for, times `zero` if
//   that is the zero point;
// - NAME_limbs [r, g, limb, p, t] i8: number = Σ limb · 256^i;
// - NAME_sums [r, n / 16, g, limb, 16] i32: limbs times fields;
// - NAME [r, n].
// REQUIRES: group <= kFixedPointGroup.
std::vector<ir::Buffer> ComputeFixedPointDense(const ComputeArgs& args, int64_t bits, int64_t group,
                                               double zero);

}  // namespace tilewright::op
