// Tensor cores (PTX ISA, mma.sync): a warp multiplies fragments of 16 rows and of 8 columns, 32
// bytes of terms at a time, and adds to sums of 32 bits.
#include "compiler/targets/intrinsic_table.h"
#include "deploy/support/strings.h"

namespace tilewright::cuda {
namespace {

using support::StrCat;

struct Product {
  const char *name, *a, *b, *sum, *zero;
  int terms;
};
constexpr Product kProducts[] = {
    {"f16", "f16", "f16", "f32", "0.0f32", 16},
    {"bf16", "bf16", "bf16", "f32", "0.0f32", 16},
    {"s8s8", "i8", "i8", "i32", "0i32", 32},
    {"u8s8", "u8", "i8", "i32", "0i32", 32},
};

ir::TensorIntrinsicRow MmaRow(const Product& p) {
  return {.name = StrCat("cuda.mma.", p.name),
          .op = ir::TensorOp::kMma,
          .update = StrCat(
              "(C: ", p.sum, "[16, 8] output, A: ", p.a, "[16, ", p.terms, "] input, B: ", p.b, "[",
              p.terms, ", 8] input) {", " for i in 0..16 { for j in 0..8 { for k in 0..", p.terms,
              " { C[i, j] = C[i, j] + ", p.sum, "(A[i, k]) * ", p.sum, "(B[k, j]); } } } }"),
          .reset = StrCat("(C: ", p.sum, "[16, 8] output) { for i in 0..16 { for j in 0..8 {",
                          " C[i, j] = ", p.zero, "; } } }"),
          .operands = {{"C", 1, "wmma.acc"}, {"A", 0, "wmma.a"}, {"B", 0, "wmma.b"}},
          .features = {"mma"}};
}

ir::TensorIntrinsicRow LoadRow(const std::string& fragment, const std::string& type, int rows,
                               int columns) {
  const std::string shape = StrCat(type, "[", rows, ", ", columns, "]");
  return {.name = StrCat("cuda.load_", fragment, ".", type),
          .op = ir::TensorOp::kFragmentLoad,
          .update = StrCat("(F: ", shape, " output, S: ", shape, " input) { for i in 0..", rows,
                           " { for j in 0..", columns, " { F[i, j] = S[i, j]; } } }"),
          .operands = {{"F", 0, StrCat("wmma.", fragment)}, {"S", 0}},
          .features = {"mma"}};
}

}  // namespace

std::vector<ir::TensorIntrinsicRow> IntrinsicRows() {
  std::vector<ir::TensorIntrinsicRow> rows;
  for (const Product& p : kProducts) rows.push_back(MmaRow(p));
  for (const auto& [type, terms] : {std::pair{"f16", 16}, {"bf16", 16}, {"i8", 32}, {"u8", 32}})
    rows.push_back(LoadRow("a", type, 16, terms));
  for (const auto& [type, terms] : {std::pair{"f16", 16}, {"bf16", 16}, {"i8", 32}})
    rows.push_back(LoadRow("b", type, terms, 8));
  return rows;
}

}  // namespace tilewright::cuda
