#include "compiler/driver/task_versions.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "compiler/ir/bind_sizes.h"
#include "compiler/ir/visit.h"
#include "compiler/op/attention.h"
#include "compiler/op/packed_dense.h"
#include "compiler/space/default_schedule.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::driver {
namespace {

struct Rows {
  ir::Expr count;
  int64_t most = 0;
  space::Choices choices = {};
};

// Of all dimensions but the last.
ir::Expr RowsOf(const std::vector<ir::Expr>& shape) {
  ir::Expr count = shape.size() > 1 ? shape[0] : ir::Int(1);
  for (size_t d = 1; d + 1 < shape.size(); ++d) count = count * shape[d];
  return count;
}

bool IsForManyRows(const schedule::Variant& variant) {
  return variant.name == op::kUnpackFirst || variant.name == op::kQueryLanes;
}

// When an algorithm for many rows computes: from more than `most` on. Nothing where the variant is
// no such algorithm. `few` is the name of the algorithm for few rows.
std::optional<Rows> ManyRowsOf(const graph::Graph& task, const schedule::Variant& variant,
                               std::string_view few, const target::Machine& machine) {
  if (!IsForManyRows(variant)) return std::nullopt;
  const std::vector<ir::Expr>& shape = variant.function.params[0]->shape;
  if (variant.name == op::kUnpackFirst) {
    const target::PackedRows& packed = machine.packed_rows;
    Rows many{RowsOf(shape), few == op::kFixedPoint ? packed.in_fixed_point : packed.in_registers};
    // A panel of floats stays in the cache while the rows pass by; all of them would not.
    many.choices[std::string(op::kUnpackedWeights)].place = 1;
    return many;
  }
  for (const graph::Node& node : task.nodes) {
    if (node.op != op::kAttentionOp) continue;
    return Rows{shape[op::TokenAxis(node.attrs)], machine.attention.tokens_along_heads};
  }
  return std::nullopt;
}

// The rows of a dense layer with large weights, where their number is open.
std::optional<ir::Expr> RowsOfLargeLayer(const graph::Graph& task, const ir::Function& function,
                                         const target::Machine& machine) {
  for (const graph::Node& node : task.nodes) {
    const op::OpSpec& spec = *op::FindOp(node.op);
    const bool is_layer = spec.fusion == op::FusionClass::kComplexOutFusable &&
                          !spec.weight_layout.empty() && spec.data_layout.empty();
    if (!is_layer) continue;
    const auto data = std::ranges::find(task.inputs, node.inputs[0]);
    const op::TensorType& weights = task.values[node.inputs[1]].type;
    if (data == task.inputs.end() || !weights.fixed()) return std::nullopt;
    if (static_cast<double>(weights.bytes()) < machine.l2.ReachableBytes(1)) return std::nullopt;
    const std::vector<ir::Expr>& shape =
        function.params[static_cast<size_t>(data - task.inputs.begin())]->shape;
    ir::Expr count = RowsOf(shape);
    if (ir::AsInt(count) != nullptr) return std::nullopt;
    return count;
  }
  return std::nullopt;
}

// Steps of one function, whichever of the task's algorithms it is.
absl::StatusOr<ir::Function> Replay(const ir::Function& function, const std::string& steps) {
  return schedule::Replay(std::vector<schedule::Variant>{{"direct", function}}, steps);
}

// The default schedule of so few rows, where it is one of an open number, too.
std::optional<TaskVersion> FewRows(const graph::Graph& task, const schedule::Variant& variant,
                                   const target::Target& target) {
  const ir::Function& function = variant.function;
  const auto count = RowsOfLargeLayer(task, function, target.machine);
  if (!count) return std::nullopt;
  const int64_t most = target.machine.few_rows;
  std::map<std::string, int64_t> sizes;
  for (const ir::Var& size : function.size_params) {
    if (ir::UsesVar(*count, size)) sizes[size->name] = sizes.empty() ? most : 1;
  }
  TaskVersion few{.name = "few_rows", .count = *count, .most = most, .few = true};
  few.steps = schedule::ToText(space::DefaultSchedule(ir::BindSizes(function, sizes), target));
  absl::StatusOr<ir::Function> scheduled = Replay(function, few.steps);
  if (!scheduled.ok()) return std::nullopt;
  few.scheduled = *std::move(scheduled);
  return few;
}

// An algorithm for sizes that are far from the typical ones.
TaskVersion VersionOf(std::span<const schedule::Variant> variants,
                      const space::AlgorithmAtSizes& at) {
  const schedule::Variant& variant = variants[at.variant];
  TaskVersion version{
      .name = support::StrCat(variant.name, "_", at.larger ? "over" : "to", "_", at.bound),
      .scheduled = at.scheduled,
      .steps = at.steps,
      .count = ir::Int(1),
      .most = at.bound,
      .few = !at.larger};
  for (const ir::Var& size : at.scheduled.size_params) version.count = version.count * size;
  return version;
}

}  // namespace

bool HasAlgorithmsByRows(std::span<const schedule::Variant> variants) {
  return std::ranges::any_of(variants, IsForManyRows);
}

absl::StatusOr<std::vector<TaskVersion>> TaskVersions(const graph::Graph& task,
                                                      std::span<const schedule::Variant> variants,
                                                      const target::Target& target,
                                                      const space::SizeSpan& span,
                                                      const ir::Function& scheduled, bool given) {
  std::vector<TaskVersion> versions;
  if (!graph::IsSymbolic(task)) return versions;
  const schedule::Variant& main = variants[space::DefaultVariant(variants, target)];
  for (const schedule::Variant& variant : variants) {
    const std::optional<Rows> many = ManyRowsOf(task, variant, main.name, target.machine);
    if (!many || given) continue;
    const std::string steps =
        schedule::ToText(space::DefaultSchedule(variant.function, target, many->choices));
    TW_ASSIGN(ir::Function other, Replay(variant.function, steps));
    versions.push_back({variant.name, std::move(other), steps, many->count, many->most});
  }
  if (auto few = FewRows(task, main, target)) versions.push_back(*std::move(few));
  if (!versions.empty() || HasAlgorithmsByRows(variants)) return versions;
  TW_ASSIGN(const std::vector<space::AlgorithmAtSizes> algorithms,
            space::AlgorithmsBySize(variants, target, span, scheduled));
  for (const space::AlgorithmAtSizes& at : algorithms) versions.push_back(VersionOf(variants, at));
  return versions;
}

ir::Expr TaskVersion::ConditionFor(const ir::Function& function) const {
  ir::VarMap own;
  for (size_t i = 0; i < scheduled.size_params.size(); ++i)
    own[scheduled.size_params[i].get()] = function.size_params[i];
  const ir::Expr of_call = ir::Substitute(count, own);
  return few ? of_call <= ir::Int(most) : ir::Int(most) < of_call;
}

}  // namespace tilewright::driver
