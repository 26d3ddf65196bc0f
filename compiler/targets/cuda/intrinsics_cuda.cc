// Tensor cores (PTX ISA). mma.sync: a warp multiplies fragments of 16 rows and of 8 columns, 32
// bytes of terms at a time, and adds to sums of 32 bits. wgmma: a group of four warps multiplies
// factors in shared memory, 64 rows by 64, 128 or 256 columns. A row of 128 bytes of terms is four
// instructions.
#include <utility>

#include "compiler/targets/intrinsic_table.h"
#include "deploy/support/strings.h"

namespace tilewright::cuda {
namespace {

using support::StrCat;

struct Product {
  const char *name, *a, *b, *sum, *zero;
  int terms;
  const char* feature = nullptr;  // that the target needs in addition
};
constexpr Product kProducts[] = {
    {"f16", "f16", "f16", "f32", "0.0f32", 16},
    {"bf16", "bf16", "bf16", "f32", "0.0f32", 16},
    {"s8s8", "i8", "i8", "i32", "0i32", 32},
    {"u8s8", "u8", "i8", "i32", "0i32", 32},
    // Rounds the factors to 11 bits (away from zero where two values are as near), less than the
    // description says: targets ask for it.
    {"tf32", "f32", "f32", "f32", "0.0f32", 8, "tf32"},
};

constexpr int kWarp = 32, kWarpGroup = 128;

// The row of a product, but for its features and threads.
ir::TensorIntrinsicRow ProductRow(std::string name, const Product& p, int rows, int columns,
                                  int terms, const char* a_scope, const char* b_scope) {
  const std::string c = StrCat("C: ", p.sum, "[", rows, ", ", columns, "] output");
  const auto factor = [&p](std::string_view type, const char* element) {
    return type == p.sum ? element : StrCat(p.sum, "(", element, ")");
  };
  const std::string loops = StrCat("for i in 0..", rows, " { for j in 0..", columns, " { ");
  return {.name = std::move(name),
          .op = ir::TensorOp::kMma,
          .update = StrCat("(", c, ", A: ", p.a, "[", rows, ", ", terms, "] input, B: ", p.b, "[",
                           terms, ", ", columns, "] input) { ", loops, "for k in 0..", terms,
                           " { C[i, j] = C[i, j] + ", factor(p.a, "A[i, k]"), " * ",
                           factor(p.b, "B[k, j]"), "; } } } }"),
          .reset = StrCat("(", c, ") { ", loops, "C[i, j] = ", p.zero, "; } } }"),
          .operands = {{"C", 1, "wmma.acc"}, {"A", 0, a_scope}, {"B", 0, b_scope}}};
}

ir::TensorIntrinsicRow MmaRow(const Product& p) {
  ir::TensorIntrinsicRow row =
      ProductRow(StrCat("cuda.mma.", p.name), p, 16, 8, p.terms, "wmma.a", "wmma.b");
  row.features = {"mma"};
  if (p.feature != nullptr) row.features.emplace_back(p.feature);
  row.threads = kWarp;
  return row;
}

ir::TensorIntrinsicRow WarpGroupRow(const Product& p, int columns) {
  ir::TensorIntrinsicRow row = ProductRow(StrCat("cuda.wgmma.", p.name, ".n", columns), p, 64,
                                          columns, 64, "shared", "shared");
  row.features = {"sm_90a"};
  row.threads = kWarpGroup;
  return row;
}

ir::TensorIntrinsicRow LoadRow(const std::string& fragment, const std::string& type, int rows,
                               int columns) {
  std::vector<std::string> features = {"mma"};
  if (type == "f32") features.emplace_back("tf32");  // rounds, too
  const std::string shape = StrCat(type, "[", rows, ", ", columns, "]");
  return {.name = StrCat("cuda.load_", fragment, ".", type),
          .op = ir::TensorOp::kFragmentLoad,
          .update = StrCat("(F: ", shape, " output, S: ", shape, " input) { for i in 0..", rows,
                           " { for j in 0..", columns, " { F[i, j] = S[i, j]; } } }"),
          .operands = {{"F", 0, StrCat("wmma.", fragment)}, {"S", 0}},
          .features = std::move(features),
          .threads = kWarp};
}

}  // namespace

std::vector<ir::TensorIntrinsicRow> IntrinsicRows() {
  std::vector<ir::TensorIntrinsicRow> rows;
  for (const Product& p : kProducts) {
    rows.push_back(MmaRow(p));
    const bool halves = p.terms == 16;
    for (const int columns : {64, 128, 256}) {
      if (halves) rows.push_back(WarpGroupRow(p, columns));
    }
  }
  for (const auto& [type, terms] :
       {std::pair{"f16", 16}, {"bf16", 16}, {"i8", 32}, {"u8", 32}, {"f32", 8}})
    rows.push_back(LoadRow("a", type, 16, terms));
  for (const auto& [type, terms] : {std::pair{"f16", 16}, {"bf16", 16}, {"i8", 32}, {"f32", 8}})
    rows.push_back(LoadRow("b", type, terms, 8));
  return rows;
}

}  // namespace tilewright::cuda
