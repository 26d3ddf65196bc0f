#include "compiler/op/plain_product.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "deploy/support/rng.h"

namespace tilewright::op {
namespace {

std::vector<double> Drawn(support::Rng* rng, int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(2 * rng->UniformDouble() - 1);
  return values;
}

// Not one bit may differ: expected outputs are named by their digests.
TEST(PlainProduct, SumsAreThoseOfPlainLoopsToTheBit) {
  support::Rng rng(5);
  for (const auto& [rows, columns, depth] :
       std::vector<std::tuple<int64_t, int64_t, int64_t>>{{1, 1, 1},
                                                          {1, 130, 300},
                                                          {4, 8, 256},
                                                          {5, 9, 257},
                                                          {67, 65, 513},
                                                          {3, 7, 1},
                                                          {130, 1, 40},
                                                          {0, 3, 3},
                                                          {3, 3, 0}}) {
    const std::vector<double> a = Drawn(&rng, rows * depth), b = Drawn(&rng, depth * columns);
    std::vector<double> found(rows * columns, 0.25), wanted = found;
    AddProduct(
        a.data(), [&, n = columns](int64_t x, int64_t j) { return b[x * n + j]; }, rows, columns,
        depth, found.data());
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) {
        for (int64_t x = 0; x < depth; ++x) {
          wanted[i * columns + j] += a[i * depth + x] * b[x * columns + j];
        }
      }
    }
    EXPECT_EQ(found, wanted) << rows << " x " << columns << " x " << depth;
  }
}

TEST(PlainProduct, AsksForEachElementOnce) {
  std::vector<int> asked(300 * 70);
  const std::vector<double> a(9 * 300, 1);
  std::vector<double> c(9 * 70, 0);
  AddProduct(
      a.data(),
      [&](int64_t x, int64_t j) {
        ++asked[x * 70 + j];
        return 1.0;
      },
      9, 70, 300, c.data());
  EXPECT_EQ(asked, std::vector<int>(300 * 70, 1));
  EXPECT_EQ(c, std::vector<double>(9 * 70, 300));
}

}  // namespace
}  // namespace tilewright::op
