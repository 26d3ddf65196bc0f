// TRANSFORMATIONS of lower_tensor_nests (kLoops, flat → same)
//   for j, k { C[c+j] = C[c+j] + i32(A[a+k]) * i32(B[b+4j+k]) } @ tensor dot4
//     → C[ramp(c, 1, L)] = dot4(C[ramp(c, 1, L)], A[ramp(a, 1, 4)], B[ramp(b, 1, 4L)])
//   with i32(A[a+4j+k]), dot4_lanes, → A[ramp(a, 1, 4L)]
//   with f32(A[a+k]) * f32(B[b+2j+k]), k in 0..2, dot2_bf16, → A[ramp(a, 1, 2)], B[ramp(b, 1, 2L)]
//   for j, p, k { C[c+j] = C[c+j] + i32(A[a+t*p+k]) * (W[w+j]>>4p>>8k & 15) } @ dot4_nibbles
//     → C[c…] = dot4(dot4(C[c…], A[ramp(a, 1, 4)], W & 0x0f0f0f0f), A[ramp(a+t, 1, 4)],
//                    W >> 4 & 0x0f0f0f0f), where c… = ramp(c, 1, L) and W = W[ramp(w, 1, L)]
//   with (W[w+j] >> 8k & 255), dot4_bytes, → dot4(C[…], A[…], W)
//   with i32(select(p, A[a+k], 0)) → select(p, A[ramp(a, 1, 4)], broadcast(0, 4))
//   for i, j, g, k { C[c+s*i+j] = C[c+s*i+j] + i32(A[a+t*i+4g+k]) * i32(B[b+u*g+4j+k]) } @ dot_tile
//     → C[squares] = dot_tile(C[squares], A[ramp(a, 1, 8)], A[ramp(a+t, 1, 8)],
//                             B[ramp(b, 1, 4L)], B[ramp(b+u, 1, 4L)])
//   for i, j, k { C[…] = C[…] + A[…] * B[…] } @ tensor fma_tile
//     → for k { for i { C[ramp(…)] = C[ramp(…)] + broadcast(A[…]) * B[ramp(…)] } }
//   a nest that only resets → stores of a broadcast constant
// Vectors have powers of two as lengths; what is left over of a row becomes shorter vectors.
#include <algorithm>

#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/passes.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::transform {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::TensorMatch;
using ir::TensorOperandMatch;
using support::StrCat;

Expr Index(const Expr& base, int lanes) {
  return lanes == 1 ? base : ir::Ramp(base, ir::Int(1), lanes);
}
Expr Spread(const Expr& value, int lanes) {
  return lanes == 1 ? value : ir::Broadcast(value, lanes);
}
Expr Plus(const Expr& base, int64_t offset) { return offset == 0 ? base : base + ir::Int(offset); }
Expr Plus(const Expr& base, const ir::Var& var, int64_t stride) {
  return stride == 0 ? base : base + (stride == 1 ? var : var * ir::Int(stride));
}

// f(first element, lanes) for vectors that cover a row of n elements.
template <typename F>
Stmt OverRow(int64_t n, int64_t max_lanes, const F& f) {
  std::vector<Stmt> stmts;
  for (int64_t at = 0; at < n;) {
    int64_t lanes = max_lanes;
    while (lanes > n - at) lanes /= 2;
    stmts.push_back(f(at, static_cast<int>(lanes)));
    at += lanes;
  }
  return ir::MakeSeq(std::move(stmts));
}

// A factor of dot4: so many neighbours from `offset` on, or what it is where it is not read.
Expr Factor(const TensorOperandMatch& operand, int terms, int64_t offset = 0) {
  if (operand.buffer == nullptr) return Spread(operand.otherwise, terms);
  Expr value = ir::Load(operand.buffer, {Index(Plus(operand.base, offset), terms)});
  if (operand.guard == nullptr) return value;
  return ir::Select(operand.guard, std::move(value), Spread(operand.otherwise, terms));
}

// Words of bytes are a factor as they are; of words of nibbles, the even ones and the odd ones are
// bytes.
Stmt DotOfFields(const TensorMatch& match) {
  const int lanes = static_cast<int>(match.extents[0]);
  const TensorOperandMatch &c = match.operands[0], &a = match.operands[1];
  const Expr words = Factor(match.operands[2], lanes);
  const Expr at = Index(c.base, lanes);
  const auto all = [&](int64_t value) { return Spread(ir::Int(value, ir::kI32), lanes); };
  Expr sum = ir::Load(c.buffer, {at});
  if (match.extents.size() == 2) {
    sum = ir::Call(ir::Intrinsic::kDot4, {sum, Factor(a, 4), words});
  } else {
    for (int part = 0; part < 2; ++part) {
      const Expr shifted =
          part == 0 ? words : ir::Call(ir::Intrinsic::kShiftRight, {words, all(4)});
      sum = ir::Call(ir::Intrinsic::kDot4,
                     {sum, Factor(a, 4, part * (a.buffer == nullptr ? 0 : a.strides[1])),
                      ir::Call(ir::Intrinsic::kBitAnd, {shifted, all(0x0f0f0f0f)})});
    }
  }
  return ir::MakeStore(c.buffer, {at}, std::move(sum));
}

Stmt Dot4(const TensorMatch& match) {
  const int lanes = static_cast<int>(match.extents[0]);
  const TensorOperandMatch &c = match.operands[0], &a = match.operands[1], &b = match.operands[2];
  if (match.intrinsic->update.params[2]->dtype == ir::kI32) return DotOfFields(match);
  Expr at = Index(c.base, lanes);
  const int terms = static_cast<int>(match.extents[1]);
  // A is shared by all lanes, or each has its own.
  const int own = a.buffer == nullptr || a.strides[0] == 0 ? terms : terms * lanes;
  return ir::MakeStore(c.buffer, {at},
                       ir::Call(ir::Intrinsic::kDot4, {ir::Load(c.buffer, {at}), Factor(a, own),
                                                       Factor(b, terms * lanes)}));
}

// Offsets of two rows of so many columns in the order of dot_tile's lanes: in lane 4t + 2i + j the
// element of row i and column 2t + j, which is lane - 2t - 2i.
Expr Squares(int columns, int64_t row_stride) {
  const int lanes = 2 * columns;
  const auto all = [&](int64_t value) { return ir::Broadcast(ir::Int(value), lanes); };
  const Expr lane = ir::Ramp(ir::Int(0), ir::Int(1), lanes);
  const Expr row = ir::FloorMod(ir::FloorDiv(lane, all(2)), all(2));
  return lane - ir::FloorDiv(lane, all(4)) * all(2) + row * all(row_stride - 2);
}

Stmt DotTile(const TensorMatch& match) {
  const int columns = static_cast<int>(match.extents[1]);
  constexpr int kTerms = 8;  // of a row
  const TensorOperandMatch& c = match.operands[0];
  const Expr at = Spread(c.base, 2 * columns) + Squares(columns, c.strides[0]);
  if (match.reset) return ir::MakeStore(c.buffer, {at}, Spread(ir::Zero(ir::kI32), 2 * columns));
  const TensorOperandMatch &a = match.operands[1], &b = match.operands[2];
  const auto load = [](const TensorOperandMatch& operand, int64_t offset, int lanes) {
    return ir::Load(operand.buffer, {Index(Plus(operand.base, offset), lanes)});
  };
  return ir::MakeStore(
      c.buffer, {at},
      ir::Call(ir::Intrinsic::kDotTile,
               {ir::Load(c.buffer, {at}), load(a, 0, kTerms), load(a, a.strides[0], kTerms),
                load(b, 0, 4 * columns), load(b, b.strides[2], 4 * columns)}));
}

Stmt FmaTile(const TensorMatch& match, int64_t max_lanes) {
  const TensorOperandMatch &c = match.operands[0], &a = match.operands[1], &b = match.operands[2];
  ir::Var i = ir::MakeVar("ti"), k = ir::MakeVar("tk");
  Stmt row = OverRow(match.extents[1], max_lanes, [&](int64_t at, int lanes) {
    Expr to = Index(Plus(Plus(c.base, i, c.strides[0]), at), lanes);
    Expr left = ir::Load(a.buffer, {Plus(Plus(a.base, i, a.strides[0]), k, a.strides[2])});
    Expr right = ir::Load(b.buffer, {Index(Plus(Plus(b.base, k, b.strides[2]), at), lanes)});
    return ir::MakeStore(c.buffer, {to}, ir::Load(c.buffer, {to}) + Spread(left, lanes) * right);
  });
  Stmt rows = ir::MakeFor(i, ir::Int(0), ir::Int(match.extents[0]), std::move(row));
  return ir::MakeFor(k, ir::Int(0), ir::Int(match.extents[2]), std::move(rows));
}

// Stores of zero over the written operand: its last loop is dense.
Stmt Reset(const TensorMatch& match, int64_t max_lanes) {
  const TensorOperandMatch& c = match.operands[0];
  size_t last = match.extents.size() - 1;
  ir::Var i = ir::MakeVar("ti");
  Expr base = last == 0 ? c.base : Plus(c.base, i, c.strides[0]);
  Stmt row = OverRow(match.extents[last], max_lanes, [&](int64_t at, int lanes) {
    return ir::MakeStore(c.buffer, {Index(Plus(base, at), lanes)},
                         Spread(ir::Zero(c.buffer->dtype), lanes));
  });
  return last == 0 ? row : ir::MakeFor(i, ir::Int(0), ir::Int(match.extents[0]), std::move(row));
}

class TensorLowering : public ir::Rewriter {
 public:
  explicit TensorLowering(const target::Target& target) : target_(target) {}

  Stmt RewriteStmt(const Stmt& s) override {
    std::string_view name = ir::TensorNameOf(*s);
    if (name.empty()) return RewriteChildren(s);
    auto match = ir::MatchTensor(s, name);
    if (match.ok()) status_.Update(CheckTarget(*match->intrinsic));
    if (!match.ok()) status_.Update(match.status());
    if (!status_.ok() || IsOfThreads(*match->intrinsic)) return s;
    int64_t lanes = std::max<int64_t>(1, target_.machine.vector_bytes / 4);
    if (match->intrinsic->op == ir::TensorOp::kDotTile) return DotTile(*match);
    if (match->reset) return Reset(*match, lanes);
    return match->intrinsic->op == ir::TensorOp::kDot4 ? Dot4(*match) : FmaTile(*match, lanes);
  }
  const absl::Status& status() const { return status_; }

 private:
  // What threads in step do: the code generator has it.
  static bool IsOfThreads(const ir::TensorIntrinsic& row) {
    return row.op == ir::TensorOp::kMma || row.op == ir::TensorOp::kFragmentLoad;
  }

  absl::Status CheckTarget(const ir::TensorIntrinsic& row) const {
    if (row.op != ir::TensorOp::kDot4 && row.op != ir::TensorOp::kDotTile &&
        row.op != ir::TensorOp::kFmaTile && !IsOfThreads(row)) {
      return support::FailedPrecondition(
          "transform.lower_tensor_nests.not_on_cpu",
          StrCat("expected an intrinsic that a CPU implements, found ", row.name));
    }
    for (const std::string& wanted : row.features) {
      if (target_.machine.Has(wanted)) continue;
      return support::FailedPrecondition(
          "transform.lower_tensor_nests.missing_feature",
          StrCat(row.name, ": expected a target with ", wanted, ", found ", target_.ToString()));
    }
    return absl::OkStatus();
  }

  const target::Target& target_;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<Function> LowerTensorNests(const Function& f, const PassContext& ctx) {
  Function result = f;
  TensorLowering lowering(ctx.target);
  result.body = lowering.RewriteStmt(f.body);
  TW_TRY(lowering.status());
  return result;
}

}  // namespace tilewright::transform
