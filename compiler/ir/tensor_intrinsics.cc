// The table of tensor intrinsics: the rows of the targets, and those that every processor has.
#include "compiler/ir/tensor_intrinsics.h"

#include <algorithm>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/visit.h"
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

TensorIntrinsic Made(const TensorIntrinsicRow& row) {
  return {row.name,
          row.op,
          Parsed("update", row.update),
          Parsed("reset", row.reset),
          row.operands,
          row.features,
          row.max_extent,
          row.threads};
}

constexpr char kFmaTile[] =
    "(m: size, n: size, k: size, C: f32[m, n] output, A: f32[m, k] input, B: f32[k, n] input) {"
    " for i in 0..m { for j in 0..n { for l in 0..k {"
    " C[i, j] = C[i, j] + A[i, l] * B[l, j]; } } } }";
constexpr char kFmaTileReset[] =
    "(m: size, n: size, C: f32[m, n] output) {"
    " for i in 0..m { for j in 0..n { C[i, j] = 0.0f32; } } }";

std::vector<TensorIntrinsic> MakeTable() {
  std::vector<TensorIntrinsicRow> rows = TargetIntrinsicRows();
  for (const auto& dots :
       {Dot4Rows("generic.dot4.", "u8", /*shared=*/true, {}),
        Dot4Rows("generic.dot4_s8.", "i8", /*shared=*/true, {}),
        Dot4Rows("generic.dot4_lanes.", "u8", /*shared=*/false, {}), Dot4FieldRows(kNibbleDots, 4),
        Dot4FieldRows(kByteDots, 8), PairRows(kPairDots, {})}) {
    rows.insert(rows.end(), dots.begin(), dots.end());
  }
  rows.push_back({.name = "generic.fma_tile",
                  .op = TensorOp::kFmaTile,
                  .update = kFmaTile,
                  .reset = kFmaTileReset,
                  .operands = {{"C", 1}, {"A", 0}, {"B", 1}},
                  .max_extent = 64});
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a.name < b.name; });
  std::vector<TensorIntrinsic> table;
  table.reserve(rows.size());
  for (const TensorIntrinsicRow& row : rows) table.push_back(Made(row));
  return table;
}

}  // namespace

std::vector<TensorIntrinsicRow> Dot4FieldRows(const std::string& prefix, int bits) {
  const bool nibbles = bits == 4;
  const std::string_view word = nibbles ? "shift_right(W[j], i32(p * 4))" : "W[j]";
  std::vector<TensorIntrinsicRow> rows;
  for (int lanes : {4, 8, 16}) {
    rows.push_back({.name = StrCat(prefix, lanes),
                    .op = TensorOp::kDot4,
                    .update = StrCat(
                        "(C: i32[", lanes, "] output, A: i8", nibbles ? "[2, 4]" : "[4]",
                        " input, W: i32[", lanes, "] input) { for j in 0..", lanes, " {",
                        nibbles ? " for p in 0..2 {" : "", " for k in 0..4 { C[j] = C[j] + i32(A[",
                        nibbles ? "p, k" : "k", "]) * bit_and(shift_right(", word,
                        ", i32(k * 8)), ", (1 << bits) - 1, "i32); } }", nibbles ? " } }" : " }"),
                    .reset = StrCat("(C: i32[", lanes, "] output) { for j in 0..", lanes,
                                    " { C[j] = 0i32; } }"),
                    .operands = {{"C", 1}, {"A", 1}, {"W", 1}}});
  }
  return rows;
}

std::vector<TensorIntrinsicRow> Dot4Rows(const std::string& prefix, const std::string& a,
                                         bool shared, const std::vector<std::string>& features) {
  std::vector<TensorIntrinsicRow> rows;
  for (int lanes : {4, 8, 16}) {
    const std::string shape = shared ? "[4]" : StrCat("[", lanes, ", 4]");
    rows.push_back({.name = StrCat(prefix, lanes),
                    .op = TensorOp::kDot4,
                    .update = StrCat("(C: i32[", lanes, "] output, A: ", a, shape, " input, B: i8[",
                                     lanes, ", 4] input) { for j in 0..", lanes,
                                     " { for k in 0..4 {", " C[j] = C[j] + i32(A[",
                                     shared ? "k" : "j, k", "]) * i32(B[j, k]); } } }"),
                    .reset = StrCat("(C: i32[", lanes, "] output) { for j in 0..", lanes,
                                    " { C[j] = 0i32; } }"),
                    .operands = {{"C", 1}, {"A", shared ? 1 : 2}, {"B", 2}},
                    .features = features});
  }
  return rows;
}

std::vector<TensorIntrinsicRow> PairRows(const std::string& prefix,
                                         const std::vector<std::string>& features) {
  std::vector<TensorIntrinsicRow> rows;
  for (int lanes : {4, 8, 16}) {
    rows.push_back(
        {.name = StrCat(prefix, lanes),
         .op = TensorOp::kDot4,
         .update = StrCat("(C: f32[", lanes, "] output, A: bf16[2] input, B: bf16[", lanes,
                          ", 2] input) { for j in 0..", lanes,
                          " { for k in 0..2 { C[j] = C[j] + f32(A[k]) * f32(B[j, k]);", " } } }"),
         .reset =
             StrCat("(C: f32[", lanes, "] output) { for j in 0..", lanes, " { C[j] = 0.0f32; } }"),
         .operands = {{"C", 1}, {"A", 1}, {"B", 2}},
         .features = features});
  }
  return rows;
}

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

bool IsFragmentScope(Scope scope) { return EngineOf(scope) == "wmma"; }

bool TouchesFragments(const Stmt& s) {
  bool found = false;
  VisitStmts(s, [&](const Stmt& part) {
    found = found || (part->kind == StmtKind::kStore && IsFragmentScope(part->buffer->scope));
    return !found;
  });
  VisitExprsIn(s, [&](const Expr& e) {
    found = found || (e->kind == ExprKind::kLoad && IsFragmentScope(e->buffer->scope));
    return !found;
  });
  return found;
}

namespace {
bool AreMarkedLoops(const Stmt& s, const char* key) {
  const auto is_serial = [](const Stmt& loop) {
    return loop->kind == StmtKind::kFor && loop->for_kind == ForKind::kSerial;
  };
  return is_serial(s) && s->annotations.contains(key) && is_serial(s->body);
}
}  // namespace

bool IsBulkCopy(const Stmt& s) {
  if (!AreMarkedLoops(s, kBulkCopyKey) || s->body->body->kind != StmtKind::kStore) return false;
  const StmtNode& store = *s->body->body;
  return store.mask == nullptr && store.buffer->scope == Scope::kShared &&
         store.value->kind == ExprKind::kLoad && store.value->mask == nullptr &&
         store.value->dtype.lanes == 1 && store.value->buffer->scope == Scope::kGlobal;
}

bool IsFragmentMap(const Stmt& s) {
  if (!AreMarkedLoops(s, kFragmentKey)) return false;
  bool has_loop = false;
  VisitStmts(s->body->body, [&](const Stmt& part) {
    has_loop = has_loop || part->kind == StmtKind::kFor;
    return !has_loop;
  });
  return !has_loop && TouchesFragments(s);
}

int FragmentThreads(const StmtNode& loop) {
  std::string_view name = TensorNameOf(loop);
  if (name.ends_with(kResetSuffix)) name.remove_suffix(std::string_view(kResetSuffix).size());
  const auto rows = TensorIntrinsics();
  const auto row = std::ranges::lower_bound(rows, name, {}, &TensorIntrinsic::name);
  return row != rows.end() && row->name == name ? row->threads : 1;
}

bool IsTensorNest(const Stmt& s) {
  const StmtNode* at = s.get();
  while (at->kind == StmtKind::kFor && TensorNameOf(*at).empty()) at = at->body.get();
  return at->kind == StmtKind::kFor;
}

}  // namespace tilewright::ir
