// Products of matrices for reference implementations: the sums of plain loops, to the bit, in the
// order of their indices, but ten times as fast. Pure function; thread-safe.
#pragma once

#include <cstdint>
#include <functional>

namespace tilewright::op {

// Adds to c[i, j] the products a[i, x] * b(x, j), from x = 0 to depth - 1. `a` is row-major [rows,
// depth], `c` row-major [rows, columns]. Calls b once for each of its elements, in any order.
void AddProduct(const double* a, const std::function<double(int64_t x, int64_t j)>& b, int64_t rows,
                int64_t columns, int64_t depth, double* c);

}  // namespace tilewright::op
