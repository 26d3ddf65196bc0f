#include "compiler/op/winograd_form.h"

namespace tilewright::op {
namespace {

using ir::Expr;

// Σ_k row[k] · value(k), without what is zero.
Expr Combination(const std::vector<double>& row, const std::function<Expr(int)>& value) {
  Expr sum;
  for (int k = 0; k < static_cast<int>(row.size()); ++k) {
    if (row[k] == 0) continue;
    Expr v = value(k);
    const ir::DType type = v->dtype;
    const bool negative = row[k] < 0;
    const double size = negative ? -row[k] : row[k];
    Expr term = size == 1 ? v : v * ir::Float(size, type);
    if (sum == nullptr) {
      sum = negative ? ir::Zero(type) - term : term;
    } else {
      sum = negative ? sum - term : sum + term;
    }
  }
  return sum;
}

}  // namespace

const WinogradForm& WinogradF5() {
  static const WinogradForm kForm = {5,
                                     7,
                                     {{.5, .25, -2.5, -1.25, 2, 1, 0},
                                      {0, -.5, -.75, 1.75, 3, 1, 0},
                                      {0, .5, -.25, -2.25, 1, 1, 0},
                                      {0, -1, -2.5, 0, 2.5, 1, 0},
                                      {0, 1, -1.5, -2, 1.5, 1, 0},
                                      {0, .25, 0, -1.25, 0, 1, 0},
                                      {0, .5, .25, -2.5, -1.25, 2, 1}},
                                     {{2, 0, 0},
                                      {2. / 9, 2. / 9, 2. / 9},
                                      {2. / 3, -2. / 3, 2. / 3},
                                      {-16. / 15, -8. / 15, -4. / 15},
                                      {-16. / 9, 8. / 9, -4. / 9},
                                      {-2. / 45, 4. / 45, -8. / 45},
                                      {0, 0, 1}},
                                     {{1, 1, 1, 1, 1, 1, 0},
                                      {0, 1, -1, .5, -.5, -2, 0},
                                      {0, 1, 1, .25, .25, 4, 0},
                                      {0, 1, -1, .125, -.125, -8, 0},
                                      {0, 1, 1, .0625, .0625, 16, 1}}};
  return kForm;
}

const WinogradForm& WinogradF4() {
  static const WinogradForm kForm = {
      4,
      6,
      {{4, 0, -5, 0, 1, 0},
       {0, -4, -4, 1, 1, 0},
       {0, 4, -4, -1, 1, 0},
       {0, -2, -1, 2, 1, 0},
       {0, 2, -1, -2, 1, 0},
       {0, 4, 0, -5, 0, 1}},
      {{1. / 4, 0, 0},
       {-1. / 6, -1. / 6, -1. / 6},
       {-1. / 6, 1. / 6, -1. / 6},
       {1. / 24, 1. / 12, 1. / 6},
       {1. / 24, -1. / 12, 1. / 6},
       {0, 0, 1}},
      {{1, 1, 1, 1, 1, 0}, {0, 1, -1, 2, -2, 0}, {0, 1, 1, 4, 4, 0}, {0, 1, -1, 8, -8, 1}}};
  return kForm;
}

const WinogradForm& WinogradF2() {
  static const WinogradForm kForm = {2,
                                     4,
                                     {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}},
                                     {{1, 0, 0}, {.5, .5, .5}, {.5, -.5, .5}, {0, 0, 1}},
                                     {{1, 1, 1, 0}, {0, 1, -1, -1}}};
  return kForm;
}

Expr WinogradTransform(const std::vector<std::vector<double>>& matrix, const Expr& index,
                       const std::function<Expr(int)>& value) {
  Expr result = Combination(matrix.back(), value);
  for (size_t r = matrix.size() - 1; r-- > 0;) {
    result = ir::Select(ir::Eq(index, ir::Int(static_cast<int64_t>(r))),
                        Combination(matrix[r], value), result);
  }
  return result;
}

}  // namespace tilewright::op
