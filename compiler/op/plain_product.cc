#include "compiler/op/plain_product.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace tilewright::op {
namespace {

// What a register holds on every machine that this is built for.
using Two = double __attribute__((vector_size(16)));

// A tile of c is in registers, a block of b in the second-level cache.
constexpr int64_t kRows = 4, kColumns = 4, kDepth = 256, kPanel = 64;

using Rows = std::array<const double*, kRows>;

// Adds products to a tile of c, whose rows are `stride` apart. `b` has kColumns values for each x.
void AddTile(const Rows& a, const double* b, int64_t depth, int64_t stride, double* c) {
  Two s[kRows][2];
  for (int64_t r = 0; r < kRows; ++r) std::memcpy(s[r], c + r * stride, sizeof(s[r]));
  // Named variables stay in registers at every level of optimisation.
  Two s00 = s[0][0], s01 = s[0][1], s10 = s[1][0], s11 = s[1][1];
  Two s20 = s[2][0], s21 = s[2][1], s30 = s[3][0], s31 = s[3][1];
  const double *a0 = a[0], *a1 = a[1], *a2 = a[2], *a3 = a[3];
  for (int64_t x = 0; x < depth; ++x) {
    Two b0, b1;
    std::memcpy(&b0, b + x * kColumns, sizeof(b0));
    std::memcpy(&b1, b + x * kColumns + 2, sizeof(b1));
    s00 += a0[x] * b0;
    s01 += a0[x] * b1;
    s10 += a1[x] * b0;
    s11 += a1[x] * b1;
    s20 += a2[x] * b0;
    s21 += a2[x] * b1;
    s30 += a3[x] * b0;
    s31 += a3[x] * b1;
  }
  const Two sums[kRows][2] = {{s00, s01}, {s10, s11}, {s20, s21}, {s30, s31}};
  for (int64_t r = 0; r < kRows; ++r) std::memcpy(c + r * stride, sums[r], sizeof(sums[r]));
}

// The same for a tile at the edge, of which `rows` and `columns` are inside.
void AddEdge(const Rows& a, const double* b, int64_t depth, int64_t stride, int64_t rows,
             int64_t columns, double* c) {
  double tile[kRows * kColumns] = {};
  for (int64_t r = 0; r < rows; ++r) std::copy_n(c + r * stride, columns, tile + r * kColumns);
  AddTile(a, b, depth, kColumns, tile);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(tile + r * kColumns, columns, c + r * stride);
}

}  // namespace

void AddProduct(const double* a, const std::function<double(int64_t, int64_t)>& b, int64_t rows,
                int64_t columns, int64_t depth, double* c) {
  std::vector<double> packed(kDepth * kPanel);
  for (int64_t x0 = 0; x0 < depth; x0 += kDepth) {
    const int64_t xs = std::min(kDepth, depth - x0);
    for (int64_t j0 = 0; j0 < columns; j0 += kPanel) {
      const int64_t js = std::min(kPanel, columns - j0);
      std::fill(packed.begin(), packed.end(), 0);
      for (int64_t x = 0; x < xs; ++x) {
        for (int64_t j = 0; j < js; ++j) {
          const int64_t tile = j / kColumns;
          packed[(tile * xs + x) * kColumns + j % kColumns] = b(x0 + x, j0 + j);
        }
      }
      for (int64_t i = 0; i < rows; i += kRows) {
        Rows from;
        for (int64_t r = 0; r < kRows; ++r) from[r] = a + std::min(i + r, rows - 1) * depth + x0;
        for (int64_t j = 0; j < js; j += kColumns) {
          const double* tile = packed.data() + j * xs;
          double* to = c + i * columns + j0 + j;
          if (i + kRows <= rows && j + kColumns <= js) {
            AddTile(from, tile, xs, columns, to);
          } else {
            AddEdge(from, tile, xs, columns, std::min(kRows, rows - i), std::min(kColumns, js - j),
                    to);
          }
        }
      }
    }
  }
}

}  // namespace tilewright::op
