// The instructions of the accelerator (vta/isa), as descriptions of what they do to its memories.
#include "compiler/targets/intrinsic_table.h"
#include "deploy/support/strings.h"
#include "vta/isa/config.h"

namespace tilewright::vta {
namespace {

using ir::TensorIntrinsicRow;
using ir::TensorOp;
using ir::TensorOperand;
using support::StrCat;

// `#` becomes the number of lanes: descriptions are written once for all block sizes.
std::string ForBlock(std::string text, int64_t block) {
  for (size_t at = 0; (at = text.find('#', at)) != std::string::npos;)
    text.replace(at, 1, std::to_string(block));
  return text;
}

// One vector times one matrix of the accelerator, [out][in].
constexpr char kVtaGemm[] =
    "(C: i32[#] output, A: i8[#] input, B: i8[#, #] input) {"
    " for o in 0..# { for i in 0..# { C[o] = C[o] + i32(A[i]) * i32(B[o, i]); } } }";
constexpr char kVtaGemmReset[] = "(C: i32[#] output) { for o in 0..# { C[o] = 0i32; } }";

// Bytes as sums: the product with an identity matrix, which the code generator adds.
constexpr char kVtaWiden[] =
    "(D: i32[#] output, S: i8[#] input) { for l in 0..# { D[l] = i32(S[l]); } }";

// A maximum of several: an operation in place.
constexpr char kVtaMaxInto[] =
    "(C: i32[#] output, A: i32[#] input) { for l in 0..# { C[l] = max(C[l], A[l]); } }";
constexpr char kVtaMaxReset[] = "(C: i32[#] output) { for l in 0..# { C[l] = -2147483648i32; } }";

// D[l] = f(S[l], T[l]), and with a constant in place of T.
void AddVtaAlu(const std::string& name, const std::string& with_tensor,
               const std::string& with_constant, std::vector<TensorIntrinsicRow>* rows) {
  const TensorOperand d{"D", 1, "vta.acc"}, s{"S", 1, "vta.acc"}, t{"T", 1, "vta.acc"};
  if (!with_tensor.empty()) {
    rows->push_back({.name = StrCat("vta.alu.", name),
                     .op = TensorOp::kAlu,
                     .update = StrCat("(D: i32[#] output, S: i32[#] input, T: i32[#] input)"
                                      " { for l in 0..# { D[l] = ",
                                      with_tensor, "; } }"),
                     .reset = {},
                     .operands = {d, s, t}});
  }
  rows->push_back({.name = StrCat("vta.alu.", name, ".imm"),
                   .op = TensorOp::kAlu,
                   .update = StrCat("(imm: size, D: i32[#] output, S: i32[#] input)"
                                    " { for l in 0..# { D[l] = ",
                                    with_constant, "; } }"),
                   .reset = {},
                   .operands = {d, s}});
}

// D[l] = S[l] * T[l] / 2^shift, rounded to the nearest integer with halves up, and cut to 8 bits.
constexpr char kVtaRequantise[] =
    "(shift: size, D: i32[#] output, S: i32[#] input, T: i32[#] input) {"
    " for l in 0..# { D[l] = i32(max(min("
    "rounding_shift_right(widening_mul(S[l], T[l]), shift), 127i64), -128i64)); } }";

// Elements moved between DRAM and a memory: `type[#]` or, of weights, `type[#, #]`. One of them, a
// row, or rows of rows; the code generator joins what loops around it move.
void AddVtaTransfer(const std::string& name, const std::string& from_type,
                    const std::string& to_type, const std::string& from_scope,
                    const std::string& to_scope, std::vector<TensorIntrinsicRow>* rows) {
  const bool matrix = to_scope == "vta.wgt";
  const std::string element = matrix ? "#, #]" : "#]", lanes = matrix ? "m, l]" : "l]";
  struct Form {
    std::string sizes, shape, index;
  };
  for (const Form& form : {Form{"ny: size, nx: size, ", "[ny, nx, ", "[y, x, "},
                           Form{"nx: size, ", "[nx, ", "[x, "}, Form{"", "[", "["}}) {
    const std::string shape = form.shape + element, index = form.index + lanes;
    const std::string value = "S" + index;
    std::string body = StrCat("D", index, " = ",
                              from_type == to_type ? value : StrCat(to_type, "(", value, ")"), ";");
    for (const char* loop : {"l in 0..#", "m in 0..#", "x in 0..nx", "y in 0..ny"}) {
      const bool there =
          loop[0] == 'l' || (loop[0] == 'm' ? matrix : index.find(loop[0]) < index.size());
      if (there) body = StrCat("for ", loop, " { ", body, " }");
    }
    rows->push_back(
        {.name = name,
         .op = from_scope == "global" ? TensorOp::kLoad : TensorOp::kStore,
         .update = StrCat("(", form.sizes, "D: ", to_type, shape, " output, S: ", from_type, shape,
                          " input) { ", body, " }"),
         .operands = {{"D", matrix ? 2 : 1, to_scope}, {"S", matrix ? 2 : 1, from_scope}},
         .max_extent = 4096});
  }
}

std::vector<TensorIntrinsicRow> RowsOfAnyBlock() {
  std::vector<TensorIntrinsicRow> rows;
  rows.push_back({.name = "vta.gemm",
                  .op = TensorOp::kGemm,
                  .update = kVtaGemm,
                  .reset = kVtaGemmReset,
                  .operands = {{"C", 1, "vta.acc"}, {"A", 1, "vta.inp"}, {"B", 2, "vta.wgt"}}});
  rows.push_back({.name = "vta.widen",
                  .op = TensorOp::kAlu,
                  .update = kVtaWiden,
                  .operands = {{"D", 1, "vta.acc"}, {"S", 1, "vta.inp"}}});
  AddVtaAlu("add", "S[l] + T[l]", "S[l] + i32(imm)", &rows);
  AddVtaAlu("max", "max(S[l], T[l])", "max(S[l], i32(imm))", &rows);
  rows.push_back({.name = "vta.alu.max.into",
                  .op = TensorOp::kAlu,
                  .update = kVtaMaxInto,
                  .reset = kVtaMaxReset,
                  .operands = {{"C", 1, "vta.acc"}, {"A", 1, "vta.acc"}}});
  AddVtaAlu("min", "min(S[l], T[l])", "min(S[l], i32(imm))", &rows);
  AddVtaAlu("mul", "S[l] * T[l]", "S[l] * i32(imm)", &rows);
  // The constant is a power of two: an arithmetic shift.
  AddVtaAlu("shr", "", "floordiv(S[l], i32(imm))", &rows);
  rows.push_back({.name = "vta.alu.requantise",
                  .op = TensorOp::kAlu,
                  .update = kVtaRequantise,
                  .operands = {{"D", 1, "vta.acc"}, {"S", 1, "vta.acc"}, {"T", 1, "vta.acc"}}});
  AddVtaTransfer("vta.load.acc", "i32", "i32", "global", "vta.acc", &rows);
  AddVtaTransfer("vta.load.inp", "i8", "i8", "global", "vta.inp", &rows);
  AddVtaTransfer("vta.load.wgt", "i8", "i8", "global", "vta.wgt", &rows);
  AddVtaTransfer("vta.store", "i32", "i8", "vta.acc", "global", &rows);
  return rows;
}

}  // namespace

std::vector<TensorIntrinsicRow> IntrinsicRows() {
  std::vector<TensorIntrinsicRow> rows;
  for (int64_t block : BlockSizes()) {
    for (TensorIntrinsicRow& row : RowsOfAnyBlock()) {
      row.update = ForBlock(std::move(row.update), block);
      row.reset = ForBlock(std::move(row.reset), block);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace tilewright::vta
