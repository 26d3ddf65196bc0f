// The table of tensor intrinsics. A row's descriptions are texts of the tensor IR.
#include "compiler/ir/tensor_intrinsics.h"

#include <algorithm>

#include "compiler/ir/ir_text.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::ir {
namespace {

using support::StrCat;

// `text` is all of a function but its name and stage: "(parameters) { body }".
Function Parsed(const std::string& name, std::string_view text) {
  if (text.empty()) return {};
  size_t body = text.find('{');
  auto function =
      ParseFunction(StrCat("fn ", name, text.substr(0, body), " stage=loops ", text.substr(body)));
  TW_CHECK(function.ok()) << "tensor intrinsic " << name << ": " << function.status().ToString();
  return *std::move(function);
}

struct Row {
  std::string name;
  TensorOp op;
  std::string update, reset = {};
  std::vector<TensorOperand> operands;
  std::vector<std::string> features = {};
  int64_t max_extent = 0;
};

void Add(const Row& row, std::vector<TensorIntrinsic>* table) {
  table->push_back({row.name, row.op, Parsed("update", row.update), Parsed("reset", row.reset),
                    row.operands, row.features, row.max_extent});
}

// C[j] += Σ_k A[k] * B[j,k] over groups of four: A is shared by all lanes, or A[j,k] is each one's
// own. 32 bits hold four products of 8-bit numbers exactly; the sum wraps like any i32.
void AddDot4(const std::string& prefix, const std::string& a, bool shared,
             const std::vector<std::string>& features, std::vector<TensorIntrinsic>* table) {
  for (int lanes : {4, 8, 16}) {
    const std::string shape = shared ? "[4]" : StrCat("[", lanes, ", 4]");
    Add({.name = StrCat(prefix, lanes),
         .op = TensorOp::kDot4,
         .update =
             StrCat("(C: i32[", lanes, "] output, A: ", a, shape, " input, B: i8[", lanes,
                    ", 4] input) { for j in 0..", lanes, " { for k in 0..4 {",
                    " C[j] = C[j] + i32(A[", shared ? "k" : "j, k", "]) * i32(B[j, k]); } } }"),
         .reset =
             StrCat("(C: i32[", lanes, "] output) { for j in 0..", lanes, " { C[j] = 0i32; } }"),
         .operands = {{"C", 1}, {"A", shared ? 1 : 2}, {"B", 2}},
         .features = features},
        table);
  }
}

constexpr char kFmaTile[] =
    "(m: size, n: size, k: size, C: f32[m, n] output, A: f32[m, k] input, B: f32[k, n] input) {"
    " for i in 0..m { for j in 0..n { for l in 0..k {"
    " C[i, j] = C[i, j] + A[i, l] * B[l, j]; } } } }";
constexpr char kFmaTileReset[] =
    "(m: size, n: size, C: f32[m, n] output) {"
    " for i in 0..m { for j in 0..n { C[i, j] = 0.0f32; } } }";

// One vector times one 16 x 16 matrix of the accelerator, [out][in].
constexpr char kVtaGemm[] =
    "(C: i32[16] output, A: i8[16] input, B: i8[16, 16] input) {"
    " for o in 0..16 { for i in 0..16 { C[o] = C[o] + i32(A[i]) * i32(B[o, i]); } } }";
constexpr char kVtaGemmReset[] = "(C: i32[16] output) { for o in 0..16 { C[o] = 0i32; } }";

// D[l] = f(S[l], T[l]), and with a constant in place of T.
void AddVtaAlu(const std::string& name, const std::string& with_tensor,
               const std::string& with_constant, std::vector<TensorIntrinsic>* table) {
  const TensorOperand d{"D", 1, "vta.acc"}, s{"S", 1, "vta.acc"}, t{"T", 1, "vta.acc"};
  if (!with_tensor.empty()) {
    Add({.name = StrCat("vta.alu.", name),
         .op = TensorOp::kVtaAlu,
         .update = StrCat("(D: i32[16] output, S: i32[16] input, T: i32[16] input)"
                          " { for l in 0..16 { D[l] = ",
                          with_tensor, "; } }"),
         .reset = {},
         .operands = {d, s, t}},
        table);
  }
  Add({.name = StrCat("vta.alu.", name, ".imm"),
       .op = TensorOp::kVtaAlu,
       .update = StrCat("(imm: size, D: i32[16] output, S: i32[16] input)"
                        " { for l in 0..16 { D[l] = ",
                        with_constant, "; } }"),
       .reset = {},
       .operands = {d, s}},
      table);
}

// A block of elements moved between DRAM and a memory: `type[16]` or, of weights, `type[16, 16]`,
// in rows of rows or in one row.
void AddVtaTransfer(const std::string& name, const std::string& from_type,
                    const std::string& to_type, const std::string& from_scope,
                    const std::string& to_scope, std::vector<TensorIntrinsic>* table) {
  const bool matrix = to_scope == "vta.wgt";
  const std::string element = matrix ? ", 16, 16]" : ", 16]", lanes = matrix ? ", m, l]" : ", l]";
  for (bool two : {true, false}) {
    const std::string shape = (two ? "[ny, nx" : "[nx") + element;
    const std::string value = (two ? "S[y, x" : "S[x") + lanes;
    std::string body = StrCat("D", value.substr(1), " = ",
                              from_type == to_type ? value : StrCat(to_type, "(", value, ")"), ";");
    for (const char* loop : {"l in 0..16", "m in 0..16", "x in 0..nx", "y in 0..ny"}) {
      if ((loop[0] == 'm' && !matrix) || (loop[0] == 'y' && !two)) continue;
      body = StrCat("for ", loop, " { ", body, " }");
    }
    Add({.name = name,
         .op = from_scope == "global" ? TensorOp::kVtaLoad : TensorOp::kVtaStore,
         .update = StrCat(two ? "(ny: size, nx" : "(nx", ": size, D: ", to_type, shape,
                          " output, S: ", from_type, shape, " input) { ", body, " }"),
         .operands = {{"D", matrix ? 2 : 1, to_scope}, {"S", matrix ? 2 : 1, from_scope}},
         .max_extent = 4096},
        table);
  }
}

void AddVta(std::vector<TensorIntrinsic>* table) {
  Add({.name = "vta.gemm",
       .op = TensorOp::kVtaGemm,
       .update = kVtaGemm,
       .reset = kVtaGemmReset,
       .operands = {{"C", 1, "vta.acc"}, {"A", 1, "vta.inp"}, {"B", 2, "vta.wgt"}}},
      table);
  AddVtaAlu("add", "S[l] + T[l]", "S[l] + i32(imm)", table);
  AddVtaAlu("max", "max(S[l], T[l])", "max(S[l], i32(imm))", table);
  AddVtaAlu("min", "min(S[l], T[l])", "min(S[l], i32(imm))", table);
  AddVtaAlu("mul", "S[l] * T[l]", "S[l] * i32(imm)", table);
  // The constant is a power of two: an arithmetic shift.
  AddVtaAlu("shr", "", "floordiv(S[l], i32(imm))", table);
  AddVtaTransfer("vta.load.acc", "i32", "i32", "global", "vta.acc", table);
  AddVtaTransfer("vta.load.inp", "i8", "i8", "global", "vta.inp", table);
  AddVtaTransfer("vta.load.wgt", "i8", "i8", "global", "vta.wgt", table);
  AddVtaTransfer("vta.store", "i32", "i8", "vta.acc", "global", table);
}

std::vector<TensorIntrinsic> MakeTable() {
  std::vector<TensorIntrinsic> table;
  AddDot4("generic.dot4.", "u8", /*shared=*/true, {}, &table);
  AddDot4("generic.dot4_s8.", "i8", /*shared=*/true, {}, &table);
  AddDot4("generic.dot4_lanes.", "u8", /*shared=*/false, {}, &table);
  AddDot4("x86.vpdpbusd.", "u8", /*shared=*/true, {"avx512vnni"}, &table);
  Add({.name = "generic.fma_tile",
       .op = TensorOp::kFmaTile,
       .update = kFmaTile,
       .reset = kFmaTileReset,
       .operands = {{"C", 1}, {"A", 0}, {"B", 1}},
       .max_extent = 64},
      &table);
  AddVta(&table);
  std::stable_sort(table.begin(), table.end(),
                   [](const auto& a, const auto& b) { return a.name < b.name; });
  return table;
}

}  // namespace

std::span<const TensorIntrinsic> TensorIntrinsics() {
  static const std::vector<TensorIntrinsic>* const kTable =
      new std::vector<TensorIntrinsic>(MakeTable());
  return *kTable;
}

bool IsTensorIntrinsic(std::string_view name) {
  for (const TensorIntrinsic& row : TensorIntrinsics()) {
    if (row.name == name) return true;
  }
  return false;
}

std::string_view TensorNameOf(const StmtNode& loop) {
  if (loop.kind != StmtKind::kFor) return {};
  auto it = loop.annotations.find(kTensorKey);
  if (it == loop.annotations.end()) return {};
  const std::string* name = std::get_if<std::string>(&it->second);
  return name == nullptr ? std::string_view() : std::string_view(*name);
}

bool IsTensorNest(const Stmt& s) {
  const StmtNode* at = s.get();
  while (at->kind == StmtKind::kFor && TensorNameOf(*at).empty()) at = at->body.get();
  return at->kind == StmtKind::kFor;
}

}  // namespace tilewright::ir
