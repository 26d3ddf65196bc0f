#include "compiler/space/field_sums.h"

#include <algorithm>
#include <vector>

#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"
#include "compiler/space/lane_axes.h"

namespace tilewright::space {
namespace {

using ir::Expr;
using ir::StmtNode;

// The description of the first block; `result` stays empty.
std::optional<FieldSums> FieldSumsOf(const StmtNode& block, const target::Machine& machine) {
  if (block.init == nullptr || block.body->kind != ir::StmtKind::kStore) return std::nullopt;
  const ir::Buffer& sums = block.body->buffer;
  if (sums->dtype != ir::kI32 || ExtentOf(block.iters.back().domain.extent) != ir::kDotTerms) {
    return std::nullopt;
  }
  std::vector<Expr> loads;
  ir::VisitExprs(block.body->value, [&](const Expr& e) {
    if (e->kind == ir::ExprKind::kLoad && !schedule::Writes(block, e->buffer)) loads.push_back(e);
    return true;
  });
  if (loads.size() != 2 || loads[0]->buffer->dtype != ir::kI8 ||
      loads[1]->buffer->dtype != ir::kI32) {
    return std::nullopt;
  }
  const auto stride = [&](size_t load, const ir::Var& var) {
    return AccessStride(loads[load]->buffer, loads[load]->args, var);
  };
  FieldSums found{.sums = block.name};
  bool has_parts = false;
  for (size_t i = 0; i < block.iters.size(); ++i) {
    const ir::Var& var = block.iters[i].var;
    const int axis = static_cast<int>(i);
    if (block.iters[i].type != ir::IterType::kReduce) {
      if (stride(0, var) == 0 && stride(1, var) == 1) found.lane_axis = axis;
    } else if (stride(1, var) != 0) {
      found.word_axis = axis;
    } else {
      has_parts = has_parts || i + 1 < block.iters.size();
    }
  }
  if (found.lane_axis < 0 || found.word_axis < 0) return std::nullopt;
  found.block = ExtentOf(block.iters[static_cast<size_t>(found.lane_axis)].domain.extent);
  found.lanes = std::min<int64_t>(found.block, machine.vector_bytes / 4);
  found.intrinsic = has_parts ? ir::kNibbleDots : ir::kByteDots;
  const bool known = ir::IsTensorIntrinsic(found.intrinsic + std::to_string(found.lanes));
  return known && found.block % found.lanes == 0 ? std::optional(found) : std::nullopt;
}

}  // namespace

std::optional<FieldSums> FindFieldSums(const ir::Function& function,
                                       const target::Machine& machine) {
  if (function.body == nullptr) return std::nullopt;
  std::optional<FieldSums> found;
  ir::Buffer sums;
  for (const schedule::BlockSite& site : schedule::BlocksIn(function.body)) {
    if (!found.has_value()) {
      found = FieldSumsOf(*site.block, machine);
      if (found.has_value()) sums = site.block->writes[0].buffer;
    } else if (schedule::Reads(*site.block, sums)) {
      const std::vector<ir::IterVar>& iters = site.block->iters;
      const bool adds_up = site.block->init != nullptr && iters.size() >= 2 &&
                           iters.back().type == ir::IterType::kReduce && found->result.empty();
      if (!adds_up) return std::nullopt;
      found->result = site.block->name;
    }
  }
  return found.has_value() && !found->result.empty() ? found : std::nullopt;
}

}  // namespace tilewright::space
