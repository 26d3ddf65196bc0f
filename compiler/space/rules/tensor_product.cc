#include "compiler/space/rules/tensor_product.h"

#include <optional>
#include <utility>

#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/visit.h"
#include "compiler/space/block_info.h"
#include "compiler/space/dot_product.h"
#include "compiler/space/lane_axes.h"

namespace tilewright::space {
namespace {

std::string LoadOf(const ir::TensorOperand& operand, const ir::Buffer& fragment,
                   const target::Machine& machine) {
  for (const ir::TensorIntrinsic& row : ir::TensorIntrinsics()) {
    if (row.op == ir::TensorOp::kFragmentLoad && HasFeatures(row, machine) &&
        row.operands[0].scope == operand.scope && row.update.params[0]->dtype == fragment->dtype) {
      return row.name;
    }
  }
  return "";
}

std::vector<Fragments> FragmentsOf(ir::DType sum, ir::DType a, ir::DType b,
                                   const target::Machine& machine) {
  std::vector<Fragments> found;
  for (const ir::TensorIntrinsic& row : ir::TensorIntrinsics()) {
    if (row.op != ir::TensorOp::kMma || !HasFeatures(row, machine)) continue;
    const std::vector<ir::Buffer>& params = row.update.params;
    if (params[0]->dtype != sum || params[1]->dtype != a || params[2]->dtype != b) continue;
    found.push_back({.product = row.name,
                     .load_a = LoadOf(row.operands[1], params[1], machine),
                     .load_b = LoadOf(row.operands[2], params[2], machine),
                     .rows = ExtentOf(params[0]->shape[0]),
                     .columns = ExtentOf(params[0]->shape[1]),
                     .terms = ExtentOf(params[1]->shape[1]),
                     .threads = row.threads});
  }
  return found;
}

// The dimension that an iterator alone is the index of; nullopt where it is none, or several.
std::optional<size_t> DimensionOf(const ir::Expr& load, const ir::Var& var) {
  std::optional<size_t> found;
  for (size_t d = 0; d < load->args.size(); ++d) {
    if (!ir::UsesVar(load->args[d], var)) continue;
    if (found.has_value() || load->args[d] != var) return std::nullopt;
    found = d;
  }
  return found;
}

}  // namespace

std::vector<TensorProduct> FindTensorProducts(const ir::StmtNode& block,
                                              const target::Machine& machine) {
  std::vector<size_t> spatial, reduce;
  for (size_t i = 0; i < block.iters.size(); ++i)
    (block.iters[i].type == ir::IterType::kReduce ? reduce : spatial).push_back(i);
  if (reduce.size() != 1 || spatial.size() < 2 || reduce[0] + 1 != block.iters.size() ||
      block.body->kind != ir::StmtKind::kStore) {
    return {};
  }
  TensorProduct p;
  p.terms = reduce[0];
  p.columns = spatial.back();
  p.rows = spatial[spatial.size() - 2];
  std::vector<ir::Expr> loads;
  bool plain = true;
  ir::VisitExprs(block.body->value, [&](const ir::Expr& e) {
    plain = plain && e->kind != ir::ExprKind::kSelect && e->kind != ir::ExprKind::kCall;
    if (e->kind == ir::ExprKind::kLoad && e->buffer != block.body->buffer) loads.push_back(e);
    return true;
  });
  if (!plain || loads.size() != 2 || loads[0]->buffer == loads[1]->buffer) return {};
  const ir::Expr first = loads[0];
  const auto var = [&](size_t iter) { return block.iters[iter].var; };
  if (!DimensionOf(loads[0], var(p.rows)).has_value()) std::swap(loads[0], loads[1]);
  const auto operand = [&](const ir::Expr& load, size_t own, size_t other, Operand* out) {
    const auto matrix = DimensionOf(load, var(own)), terms = DimensionOf(load, var(p.terms));
    const bool other_used = std::any_of(load->args.begin(), load->args.end(),
                                        [&](const auto& i) { return ir::UsesVar(i, var(other)); });
    if (!matrix.has_value() || !terms.has_value() || other_used) return false;
    *out = {load->buffer, *matrix, *terms};
    // Dimensions of one matrix are the last: in front of them are those of a batch.
    return out->inner() + 1 == load->args.size() && out->outer() + 2 == load->args.size();
  };
  if (!operand(loads[0], p.rows, p.columns, &p.a) || !operand(loads[1], p.columns, p.rows, &p.b))
    return {};
  p.a_first = loads[0] == first;
  const auto filled = [&](size_t iter, int64_t part) {
    return 2 * ExtentOf(block.iters[iter].domain.extent) >= part;
  };
  std::vector<TensorProduct> found;
  for (Fragments& f :
       FragmentsOf(block.body->buffer->dtype, p.a.buffer->dtype, p.b.buffer->dtype, machine)) {
    if (!filled(p.rows, f.rows) || !filled(p.columns, f.columns) || !filled(p.terms, f.terms))
      continue;
    p.fragments = std::move(f);
    found.push_back(p);
  }
  return found;
}

}  // namespace tilewright::space
