// TRANSFORMATIONS
//   simplify (kLoops → kLoops): integer simplification with loop ranges; decided branches, empty
//   and unit loops go. flatten_buffers (kLoops → kLoops): every buffer gets one dimension,
//   row-major:  B[i, j] → B[i * d1 + j] contract_fma (any → same): float a * b + c → fma(a, b, c),
//   where the target has the instruction
#include <algorithm>
#include <optional>

#include "compiler/analysis/simplify.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/passes.h"

namespace tilewright::transform {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

Expr Times(const Expr& a, const Expr& b) {
  if (ir::IsInt(a, 1)) return b;
  if (ir::IsInt(b, 1)) return a;
  return a * b;
}

class Flattener : public ir::Rewriter {
 public:
  Buffer Flat(const Buffer& buffer) {
    if (buffer->shape.size() == 1) return buffer;
    Buffer& flat = map_[buffer.get()];
    if (flat != nullptr) return flat;
    auto node = std::make_shared<ir::BufferNode>(*buffer);
    Expr elements = ir::Int(1, buffer->shape.empty() ? ir::kI64 : buffer->shape[0]->dtype);
    for (size_t d = buffer->shape.size(); d-- > 0;) {
      elements = ir::AlignedStride(*buffer, d, elements);
      elements = Times(elements, buffer->shape[d]);
    }
    node->shape = {elements};
    node->storage_align.reset();
    node->swizzle.reset();
    flat = node;
    kept_.push_back(buffer);
    return flat;
  }

  Expr RewriteExpr(const Expr& e) override {
    Expr r = RewriteChildren(e);
    if (r->kind != ExprKind::kLoad || r->buffer->shape.size() == 1) return r;
    return ir::Load(Flat(r->buffer), {Index(r->buffer, r->args)}, r->mask);
  }
  Stmt RewriteStmt(const Stmt& s) override {
    Stmt r = RewriteChildren(s);
    bool ranked = r->buffer != nullptr && r->buffer->shape.size() != 1;
    if (r->kind == StmtKind::kStore && ranked) {
      return ir::MakeStore(Flat(r->buffer), {Index(r->buffer, r->indices)}, r->value, r->mask);
    }
    if (r->kind == StmtKind::kAlloc && ranked) return ir::MakeAlloc(Flat(r->buffer), r->body);
    return r;
  }

 private:
  // Vectors of a row of this dimension, of `stride` elements, if its rows are turned; else 0.
  static int64_t TurnedVectors(const ir::BufferNode& buffer, size_t dim, const Expr& stride) {
    const std::optional<ir::Swizzle>& swizzle = buffer.swizzle;
    const int64_t* elements = ir::AsInt(stride);
    const bool ours = swizzle.has_value() &&
                      dim + 1 + static_cast<size_t>(swizzle->inside) == buffer.shape.size();
    if (!ours || elements == nullptr || *elements % swizzle->vector != 0) return 0;
    const int64_t vectors = *elements / swizzle->vector;
    return vectors > 1 && (vectors & (vectors - 1)) == 0 ? vectors : 0;
  }
  // Written such that a vector that begins at a whole one keeps its neighbours.
  static Expr Turned(const Expr& column, const Expr& row, int64_t vector, int64_t vectors) {
    const auto number = [&](int64_t value) {
      const Expr n = ir::Int(value);
      return column->dtype.lanes == 1 ? n : ir::Broadcast(n, column->dtype.lanes);
    };
    const Expr place =
        ir::FloorMod(ir::FloorDiv(column, number(vector)) + row, number(vectors)) * number(vector);
    return place + ir::FloorMod(column, number(vector));
  }
  Expr Index(const Buffer& buffer, const std::vector<Expr>& indices) const {
    if (indices.empty()) return ir::Int(0);
    int lanes = 1;
    for (const Expr& i : indices) lanes = std::max<int>(lanes, i->dtype.lanes);
    auto widen = [&](const Expr& e) {
      return e->dtype.lanes == lanes ? e : ir::Broadcast(e, lanes);
    };
    auto to_i64 = [](const Expr& e) { return ir::Cast(ir::kI64.WithLanes(e->dtype.lanes), e); };
    Expr sum;
    Expr stride = ir::Int(1);
    for (size_t d = indices.size(); d-- > 0;) {
      Expr term = widen(to_i64(indices[d]));
      if (const int64_t n = TurnedVectors(*buffer, d, stride); n > 0)
        sum = Turned(sum, term, buffer->swizzle->vector, n);
      stride = ir::AlignedStride(*buffer, d, stride);
      if (!ir::IsInt(stride, 1)) term = term * widen(stride);
      sum = sum == nullptr ? term : term + sum;
      stride = Times(stride, to_i64(buffer->shape[d]));
    }
    return sum;
  }

  ir::BufferMap map_;
  std::vector<Buffer> kept_;  // map_ is keyed by address
};

class FmaContractor : public ir::Rewriter {
 public:
  // A tensor intrinsic's nest stays what its description says.
  Stmt RewriteStmt(const Stmt& s) override {
    return ir::TensorNameOf(*s).empty() ? RewriteChildren(s) : s;
  }
  Expr RewriteExpr(const Expr& e) override {
    Expr r = RewriteChildren(e);
    if (r->kind != ExprKind::kAdd || !r->dtype.is_float() || r->dtype.bits < 32) return r;
    for (int side = 0; side < 2; ++side) {
      const Expr& product = r->args[side];
      if (product->kind == ExprKind::kMul) {
        return ir::Call(ir::Intrinsic::kFma,
                        {product->args[0], product->args[1], r->args[1 - side]});
      }
    }
    return r;
  }
};

}  // namespace

absl::StatusOr<Function> SimplifyFunction(const Function& f, const PassContext&) {
  return analysis::Simplify(f, {.remove_unit_loops = true});
}

absl::StatusOr<Function> FlattenBuffers(const Function& f, const PassContext&) {
  Function result = f;
  Flattener flattener;
  result.body = flattener.RewriteStmt(f.body);
  for (Buffer& b : result.params) b = flattener.Flat(b);
  return result;
}

absl::StatusOr<Function> ContractFma(const Function& f, const PassContext& ctx) {
  if (!ctx.target.machine.Has("fma")) return f;
  Function result = f;
  result.body = FmaContractor().RewriteStmt(f.body);
  return result;
}

}  // namespace tilewright::transform
