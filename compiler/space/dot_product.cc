#include "compiler/space/dot_product.h"

#include <algorithm>
#include <vector>

#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"
#include "compiler/space/lane_axes.h"

namespace tilewright::space {

using ir::Expr;
using ir::StmtNode;

namespace {

const char* ByteDots(ir::DType data) {
  return data == ir::kU8 ? "generic.dot4." : "generic.dot4_s8.";
}

// The load that is cast to i32; null if the expression is another one.
Expr WidenedLoad(const Expr& e) {
  const bool widens = e->kind == ir::ExprKind::kCast && e->dtype == ir::kI32 &&
                      e->args[0]->kind == ir::ExprKind::kLoad && e->args[0]->mask == nullptr;
  return widens ? e->args[0] : nullptr;
}

}  // namespace

std::optional<DotProduct> FindDotProduct(const StmtNode& block) {
  if (block.iters.empty() || block.body->kind != ir::StmtKind::kStore) return std::nullopt;
  const ir::IterVar& last = block.iters.back();
  const ir::Buffer& sums = block.body->buffer;
  const bool pairs = sums->dtype == ir::kF32;
  const int64_t terms = pairs ? ir::kPairTerms : ir::kDotTerms;
  if (last.type != ir::IterType::kReduce || ExtentOf(last.domain.extent) != terms ||
      (sums->dtype != ir::kI32 && !pairs)) {
    return std::nullopt;
  }
  std::vector<Expr> loads;
  bool guarded = false;  // each row may lie outside or not
  ir::VisitExprs(block.body->value, [&](const Expr& e) {
    guarded = guarded || e->kind == ir::ExprKind::kSelect;
    if (e->kind == ir::ExprKind::kLoad && !schedule::Writes(block, e->buffer)) loads.push_back(e);
    return true;
  });
  if (loads.size() != 2 || loads[1]->buffer->dtype != (pairs ? ir::kBF16 : ir::kI8)) {
    return std::nullopt;
  }
  const ir::DType data = loads[0]->buffer->dtype;
  const bool fits = pairs ? data == ir::kBF16 : data == ir::kU8 || data == ir::kI8;
  auto stride = [](const Expr& load, const ir::Var& var) {
    return AccessStride(load->buffer, load->args, var);
  };
  if (!fits || stride(loads[0], last.var) != 1 || stride(loads[1], last.var) != 1) {
    return std::nullopt;
  }
  DotProduct dot{.data = data, .intrinsic = pairs ? ir::kPairDots : ByteDots(data)};
  for (size_t i = 0; i < block.iters.size(); ++i) {
    const ir::Var& var = block.iters[i].var;
    if (block.iters[i].type == ir::IterType::kReduce) {
      if (stride(loads[0], var) == terms) dot.group_axis = static_cast<int>(i);
      continue;
    }
    if (block.iters[i].type != ir::IterType::kSpatial) continue;
    const std::optional<int64_t> rows = stride(loads[0], var);
    if (!guarded && rows.value_or(0) > 0 && stride(loads[1], var) == 0) {
      dot.row_axes.push_back(static_cast<int>(i));
    }
    if (rows != 0) continue;
    const std::optional<int64_t> weights = stride(loads[1], var);
    if (weights == terms && AccessStride(sums, block.body->indices, var) == 1) {
      dot.lane_axis = static_cast<int>(i);
    } else if (weights.has_value() && *weights > terms &&
               ExtentOf(block.iters[i].domain.extent) > 1) {
      dot.block_axis = static_cast<int>(i);
    }
  }
  return dot.lane_axis < 0 ? std::nullopt : std::optional(dot);
}

std::optional<DotProduct> FindByteDots(const StmtNode& block) {
  std::optional<DotProduct> dot = FindDotProduct(block);
  return dot.has_value() && dot->data.is_float() ? std::nullopt : dot;
}

std::optional<ByteRows> FindByteRows(const StmtNode& block) {
  if (block.iters.size() < 2 || block.body->kind != ir::StmtKind::kStore) return std::nullopt;
  const ir::IterVar &terms = block.iters.back(), &columns = block.iters[block.iters.size() - 2];
  const bool iterates = terms.type == ir::IterType::kReduce &&
                        columns.type == ir::IterType::kSpatial &&
                        ExtentOf(terms.domain.extent) % ir::kDotTerms == 0;
  const Expr& sum = block.body->value;
  if (!iterates || sum->kind != ir::ExprKind::kAdd || sum->dtype != ir::kI32 ||
      sum->args[0]->kind != ir::ExprKind::kLoad || sum->args[0]->buffer != block.body->buffer ||
      sum->args[1]->kind != ir::ExprKind::kMul) {
    return std::nullopt;
  }
  const Expr a = WidenedLoad(sum->args[1]->args[0]), b = WidenedLoad(sum->args[1]->args[1]);
  if (a == nullptr || b == nullptr) return std::nullopt;
  const ir::Buffer& weights = b->buffer;
  const ir::DType data = a->buffer->dtype;
  const bool bytes = (data == ir::kU8 || data == ir::kI8) && weights->dtype == ir::kI8;
  const bool rows = weights->role == ir::Role::kConstant && b->args.size() == 2 &&
                    b->args[0] == columns.var && b->args[1] == terms.var;
  if (!bytes || !rows || AccessStride(a->buffer, a->args, terms.var) != 1 ||
      AccessStride(a->buffer, a->args, columns.var) != 0 ||
      AccessStride(block.body->buffer, block.body->indices, columns.var) != 1) {
    return std::nullopt;
  }
  return ByteRows{ExtentOf(columns.domain.extent), weights, ByteDots(data)};
}

bool HasPairDots(ir::DType type, const target::Machine& machine) {
  return std::any_of(ir::TensorIntrinsics().begin(), ir::TensorIntrinsics().end(),
                     [&](const ir::TensorIntrinsic& row) {
                       return row.op == ir::TensorOp::kDot4 && !row.features.empty() &&
                              row.update.params[1]->dtype == type && HasFeatures(row, machine);
                     });
}

bool HasFeatures(const ir::TensorIntrinsic& row, const target::Machine& machine) {
  return std::all_of(row.features.begin(), row.features.end(),
                     [&](const std::string& feature) { return machine.Has(feature); });
}

std::optional<DotTile> FindDotTile(const DotProduct& dot, const target::Machine& machine) {
  for (const ir::TensorIntrinsic& row : ir::TensorIntrinsics()) {
    if (row.op != ir::TensorOp::kDotTile) continue;
    const ir::Buffer &sums = row.update.params[0], &data = row.update.params[1];
    if (!HasFeatures(row, machine) || data->dtype != dot.data) continue;
    return DotTile{.intrinsic = row.name,
                   .rows = ExtentOf(sums->shape[0]),
                   .columns = ExtentOf(sums->shape[1]),
                   .groups = ExtentOf(data->shape[1])};
  }
  return std::nullopt;
}

}  // namespace tilewright::space
