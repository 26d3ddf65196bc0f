// The linear transforms of Winograd's minimal filtering F(m×m, 3×3), shared by the layouts that a
// convolution may have. Internal to compiler/op. Constants; pure functions.
#pragma once

#include <functional>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/op/tensor_type.h"

namespace tilewright::op {

inline constexpr int kWinogradTaps = 3;

// Rows of Bᵀ (input), G (filter) and Aᵀ (output).
struct WinogradForm {
  int tile;    // outputs along each side, m
  int points;  // products along each side, m + 2
  std::vector<std::vector<double>> input, filter, output;

  Dim Tiles(const Dim& outputs) const { return (outputs + Dim(tile - 1)).FloorDiv(tile); }
  // Products per pair of channels for an image of so many outputs.
  int64_t Products(int64_t height, int64_t width) const {
    return Tiles(height).value() * Tiles(width).value() * points * points;
  }
};
// Points of which one is not ± another round less (Barabasz et al., "Error analysis and improving
// the accuracy of Winograd convolution", 2020); F5 needs that to stay below 5e-6.
const WinogradForm& WinogradF5();  // from 0, 1, -1, 1/2, -1/2, -2 and infinity
const WinogradForm& WinogradF4();  // from the points 0, 1, -1, 2, -2 and infinity
const WinogradForm& WinogradF2();  // from 0, 1, -1 and infinity

// Row `index` of matrix · value: a choice that folds away where the index is known.
ir::Expr WinogradTransform(const std::vector<std::vector<double>>& matrix, const ir::Expr& index,
                           const std::function<ir::Expr(int)>& value);

}  // namespace tilewright::op
