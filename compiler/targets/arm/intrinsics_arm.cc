// Matrix products of bytes (the feature i8mm): two rows of data times four columns of weights. The
// weights lie as dot products of four read them: two groups of four terms each. An instruction
// multiplies two rows by two columns, eight terms at a time: twice the products of a dot product.
#include "compiler/targets/intrinsic_table.h"
#include "deploy/support/strings.h"

namespace tilewright::arm {

std::vector<ir::TensorIntrinsicRow> IntrinsicRows() {
  std::vector<ir::TensorIntrinsicRow> rows;
  for (const auto& [name, data] : {std::pair{"arm.smmla", "i8"}, {"arm.usmmla", "u8"}}) {
    rows.push_back({.name = name,
                    .op = ir::TensorOp::kDotTile,
                    .update = support::StrCat(
                        "(C: i32[2, 4] output, A: ", data,
                        "[2, 2, 4] input, B: i8[2, 4, 4] input) {"
                        " for i in 0..2 { for j in 0..4 { for g in 0..2 { for k in 0..4 {"
                        " C[i, j] = C[i, j] + i32(A[i, g, k]) * i32(B[g, j, k]); } } } } }"),
                    .reset = "(C: i32[2, 4] output) {"
                             " for i in 0..2 { for j in 0..4 { C[i, j] = 0i32; } } }",
                    .operands = {{"C", 1}, {"A", 2}, {"B", 2}},
                    .features = {"i8mm"}});
  }
  // It adds both products first, takes numbers below the normal ones for 0, and rounds to odd: its
  // error is up to twice as large as that of rounding to the nearest.
  for (ir::TensorIntrinsicRow& row : ir::PairRows("arm.bfdot.", {"bf16"}))
    rows.push_back(std::move(row));
  return rows;
}

}  // namespace tilewright::arm
