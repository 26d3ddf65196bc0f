#include "compiler/driver/tasks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>

#include "compiler/graph/graph_passes.h"
#include "compiler/op/custom_text.h"
#include "compiler/space/dot_product.h"
#include "compiler/targets/kind_table.h"
#include "deploy/module/manifest.h"
#include "deploy/runtime/input_gen.h"
#include "deploy/support/hash.h"
#include "deploy/support/rng.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::driver {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;
using support::StrCat;

std::string ShapeWords(const op::TensorType& type) {
  std::vector<std::string> words;
  for (const op::Dim& dim : type.shape) words.push_back(dim.ToText());
  return words.empty() ? "scalar" : support::Join(words, "x");
}

std::string KernelWords(const Graph& task) {
  for (const Node& node : task.nodes) {
    const op::OpSpec& spec = *op::FindOp(node.op);
    if (!spec.data_layout.empty() && task.values[node.inputs[1]].type.fixed()) {
      const auto layout = op::WeightLayout(spec, node.attrs);
      if (!layout.ok()) return "";
      const std::vector<int64_t> w = task.values[node.inputs[1]].type.sizes();
      const size_t kh = layout->Dimension('H');
      const auto strides = op::GetInts(node.attrs, "strides", {1, 1});
      std::string words = StrCat(" k", w[kh], "x", w[layout->Dimension('W')]);
      if (strides[0] != 1 || strides[1] != 1) {
        words += strides[0] == strides[1] ? StrCat(" s", strides[0])
                                          : StrCat(" s", strides[0], "x", strides[1]);
      }
      const int64_t groups = op::GetInt(node.attrs, "groups", 1);
      return groups == 1 ? words : words + StrCat(" g", groups);
    }
    const std::vector<int64_t> window = op::GetInts(node.attrs, "kernel", {});
    if (!window.empty()) return StrCat(" k", support::Join(window, "x"));
  }
  return "";
}

std::string TaskName(const Graph& task) {
  std::vector<std::string> ops, inputs, outputs;
  for (const Node& node : task.nodes) ops.push_back(node.op);
  for (ValueId id : task.inputs) {
    if (!task.values[id].weight) inputs.push_back(ShapeWords(task.values[id].type));
  }
  for (ValueId id : task.outputs) outputs.push_back(ShapeWords(task.values[id].type));
  return StrCat(support::Join(ops, "_"), " ", support::Join(inputs, ", "), " → ",
                support::Join(outputs, ", "), KernelWords(task));
}

// By the first operand of the task's anchor; tasks without one do floats if they do any.
std::string DataType(const Graph& task) {
  ir::DType type = ir::kF32;
  for (const Node& node : task.nodes) {
    if (node.inputs.empty()) continue;
    type = task.values[node.inputs[0]].type.dtype;
    if (op::FindOp(node.op)->fusion != op::FusionClass::kInjective) break;
    if (type.is_float()) break;
  }
  if (type == ir::kI8 || type == ir::kU8) return "int8";
  const auto name = ModuleDType(type);
  return name.ok() ? std::string(module::DTypeName(*name)) : "";
}

// Letters and digits, with the task's position.
std::string Label(const Task& task, size_t index) {
  std::string word;
  for (const char c : task.name) {
    if (c == ' ') break;
    word += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '-';
  }
  return StrCat("t", index, "-", word);
}

op::Domain DomainOf(const Node& node, size_t operand) {
  const op::OpSpec* spec = op::FindOp(node.op);
  return spec->domain == nullptr ? op::Domain::kAny : spec->domain(operand, node.attrs);
}

// Whether an operator wants positive operands: which operand of the task it gets there from is
// anyone's guess.
bool NeedsPositive(const Graph& task) {
  return std::ranges::any_of(
      task.nodes, [](const Node& node) { return DomainOf(node, 0) == op::Domain::kPositive; });
}

// Of what a task multiplies sums of integers with. Drawn from the operands that bytes get, sums of
// n products are around 20 sqrt(n): in steps of this scale most of them fit into a byte, so that
// what is missing from a sum shows.
module::Distribution ScaleOfSums(double length) {
  const double scale = 2 / std::sqrt(length);
  return {module::Distribution::Kind::kUniform, 0.5 * scale, 1.5 * scale};
}

// The same scale as a whole number over 2^shift.
module::Distribution MultiplierOfSums(double length, int64_t shift) {
  const module::Distribution scale = ScaleOfSums(length);
  const auto whole = [shift](double v) {
    constexpr double kMost = std::numeric_limits<int32_t>::max();
    return std::clamp(std::nearbyint(std::ldexp(v, static_cast<int>(shift))), 1.0, kMost);
  };
  return {module::Distribution::Kind::kIntRange, whole(scale.a), whole(scale.b)};
}

// Whether results are quantised numbers that another order of summation, or a library function, may
// round to the other side.
bool RoundsInexact(const Graph& task) {
  bool rounds = false, inexact = false;
  for (const Node& node : task.nodes) {
    const op::OpSpec* spec = op::FindOp(node.op);
    const bool is_float = task.values[node.outputs[0]].type.dtype.is_float();
    rounds = rounds || (!is_float && DomainOf(node, 1) == op::Domain::kScale);
    inexact = inexact || (is_float && !spec->exact && spec->moves == 0);
  }
  return rounds && inexact;
}

double LongestReduction(const Graph& task) {
  double longest = 1;
  for (const Node& node : task.nodes) {
    const op::OpSpec* spec = op::FindOp(node.op);
    std::vector<op::TensorType> types;
    for (ValueId id : node.inputs) types.push_back(task.values[id].type);
    longest = std::max(longest, op::ReductionLength(*spec, types, node.attrs));
  }
  return longest;
}

constexpr module::Distribution kPositive = {module::Distribution::Kind::kUniform, 0.5, 1.5};

// Of an operand of which not all values make sense to the operators that read it.
std::optional<module::Distribution> NarrowDistribution(const Graph& task, ValueId id) {
  std::optional<module::Distribution> found;
  for (const Node& node : task.nodes) {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] != id) continue;
      switch (DomainOf(node, i)) {
        case op::Domain::kAny:
        case op::Domain::kPositive:
          break;
        case op::Domain::kScale:
          if (task.values[node.inputs[0]].type.dtype == ir::kI32) {
            return ScaleOfSums(LongestReduction(task));
          }
          found = kPositive;
          break;
        case op::Domain::kMultiplier:
          return MultiplierOfSums(LongestReduction(task), op::GetInt(node.attrs, "shift", 0));
        case op::Domain::kWords:
          return module::Distribution{module::Distribution::Kind::kIntRange,
                                      std::numeric_limits<int32_t>::min(),
                                      std::numeric_limits<int32_t>::max()};
      }
    }
  }
  return found;
}

double UnitRoundoff(ir::DType dtype) {
  if (!dtype.is_float()) return 0;
  if (dtype == ir::kF64) return std::ldexp(1, -53);
  if (dtype == ir::kF32) return std::ldexp(1, -24);
  return dtype == ir::kF16 ? std::ldexp(1, -11) : std::ldexp(1, -8);
}

}  // namespace

std::string TaskHash(std::string_view text) { return support::Sha256Hex(text); }

Task DescribeTask(const Graph& task) {
  Task result;
  result.text = graph::CanonicalText(task);
  result.hash = TaskHash(result.text);
  result.name = TaskName(task);
  result.data_type = DataType(task);
  result.open_sizes = graph::IsSymbolic(task);
  if (const auto call = LibraryCallOf(task)) result.library = call->library;
  if (result.open_sizes) return result;
  result.flops = graph::Flops(task);
  for (ValueId id : task.inputs) result.bytes += task.values[id].type.bytes();
  for (ValueId id : task.outputs) result.bytes += task.values[id].type.bytes();
  return result;
}

absl::StatusOr<std::vector<Task>> ExtractTasks(const Graph& fused) {
  const Graph* const graphs[] = {&fused};
  TW_ASSIGN(ModelTasks model, ExtractModelTasks(graphs));
  return std::move(model.tasks);
}

absl::StatusOr<ModelTasks> ExtractModelTasks(std::span<const Graph* const> graphs) {
  ModelTasks model;
  std::map<std::string, size_t> by_hash;
  for (const Graph* fused : graphs) {
    std::vector<int>& of_node = model.of_node.emplace_back();
    for (const Node& node : fused->nodes) {
      of_node.push_back(-1);
      if (graph::IsView(node)) continue;
      if (node.body == nullptr) {
        return support::InvalidArgument(
            "driver.task.not_fused",
            StrCat("expected a graph of fused nodes and views, found node ", node.name, " (",
                   node.op, ")"));
      }
      Task task = DescribeTask(*node.body);
      auto [it, fresh] = by_hash.try_emplace(task.hash, model.tasks.size());
      if (fresh) {
        task.label = Label(task, model.tasks.size());
        model.tasks.push_back(std::move(task));
      } else {
        ++model.tasks[it->second].weight;
      }
      of_node.back() = static_cast<int>(it->second);
      Task& used = model.tasks[it->second];
      used.uses.push_back({used.label, node.name, graph::SourcesOf(*fused, node)});
    }
  }
  return model;
}

absl::StatusOr<Graph> ParseTask(std::string_view text) {
  TW_ASSIGN(Graph task, graph::ParseGraph(text));
  if (graph::CanonicalText(task) != text) {
    return support::InvalidArgument("driver.task.text",
                                    "expected the canonical text of a task, found another form");
  }
  if (task.outputs.size() != 1 || task.nodes.empty()) {
    return support::InvalidArgument("driver.task.text",
                                    StrCat("expected a task with operators and one output, found ",
                                           task.outputs.size(), " outputs"));
  }
  for (const Node& node : task.nodes) {
    if (op::FindOp(node.op) == nullptr) {
      return support::InvalidArgument("driver.task.text",
                                      StrCat("expected plain operators, found ", node.op));
    }
  }
  return task;
}

std::optional<LibraryCall> LibraryCallOf(const Graph& task) {
  if (task.nodes.size() != 1 || !op::FindOp(task.nodes[0].op)->library) return std::nullopt;
  const op::Attrs& attrs = task.nodes[0].attrs;
  const auto parsed = op::custom::Parse(op::GetString(attrs, "definition", ""));
  TW_CHECK(parsed.ok()) << support::StatusText(parsed.status());  // graph::Verify parsed it
  return LibraryCall{(*parsed)[0].library, (*parsed)[0].function,
                     op::GetString(attrs, "attributes", "")};
}

absl::Status RequireFixed(const Graph& task) {
  if (!graph::IsSymbolic(task)) return absl::OkStatus();
  return support::InvalidArgument("driver.task.open_size",
                                  StrCat("expected a task of fixed sizes, found ",
                                         support::Join(graph::SizeVariables(task), ", "), " open"));
}

absl::StatusOr<Task> MakeTask(std::string_view text) {
  TW_ASSIGN(Graph task, ParseTask(text));
  TW_TRY(RequireFixed(task));
  return DescribeTask(task);
}

absl::StatusOr<module::DType> ModuleDType(ir::DType dtype) {
  if (dtype == ir::kF32) return module::DType::kFloat32;
  if (dtype == ir::kF64) return module::DType::kFloat64;
  if (dtype == ir::kF16) return module::DType::kFloat16;
  if (dtype == ir::kBF16) return module::DType::kBFloat16;
  if (dtype == ir::kI8) return module::DType::kInt8;
  if (dtype == ir::kI16) return module::DType::kInt16;
  if (dtype == ir::kI32) return module::DType::kInt32;
  if (dtype == ir::kI64) return module::DType::kInt64;
  if (dtype == ir::kU8) return module::DType::kUInt8;
  if (dtype == ir::kU16) return module::DType::kUInt16;
  if (dtype == ir::kU32) return module::DType::kUInt32;
  if (dtype == ir::kU64) return module::DType::kUInt64;
  if (dtype == ir::kBool) return module::DType::kBool;
  return support::InvalidArgument(
      "driver.task.element_type",
      StrCat("expected an element type that modules have, found ", ir::TypeName(dtype)));
}

graph::GraphPassContext PassContext(const target::Target& target) {
  const target::Machine& machine = target.machine;
  graph::GraphPassContext context;
  context.matrix_block = machine.matrix.block;
  context.channel_block = machine.has_matrix()
                              ? machine.matrix.block
                              : machine.block_vectors * machine.vector_bytes / ir::kF32.bytes();
  context.whole_block = machine.blocks.whole;
  context.filled_part = machine.blocks.filled;
  context.padded_blocks = machine.blocks.padded;
  // Only squares are products to the unit.
  if (machine.has_matrix()) context.enabled = {"block_layouts"};
  if (machine.fragments.half_products > 0) context.half_products = {ir::kF16, ir::kBF16};
  context.rounded_products = machine.is_inexact;
  context.byte_products = machine.fragments.byte_products > 0;
  // Only processors: what moves between a host and a device is whole tensors.
  if (target.kind == target::kProcessors) {
    context.view_alignment = machine.tensor_alignment();
    context.packed_weight_rows = machine.packed_rows.most;
    context.half_weights = {ir::kBF16};
    if (space::HasPairDots(ir::kBF16, machine)) context.half_pairs = {ir::kBF16};
    if (machine.converts_f16) context.half_weights.push_back(ir::kF16);
    if (machine.multiplies_f16) context.half_factors = {ir::kF16};
    context.computed_in_f32 = {ir::kF16};
    if (context.half_pairs.empty()) context.computed_in_f32.push_back(ir::kBF16);
    if (machine.computes_f16) context.half_arithmetic = {ir::kF16};
    context.attention = {
        .rows = machine.attention.vectors * machine.vector_bytes / ir::kF32.bytes(),
        .keys = machine.attention.keys,
        .from_keys = machine.attention.pays_from_keys,
        .few_tokens = machine.attention.tokens_along_heads,
        .half_cost = machine.attention.half_cost};
    context.near_row = machine.near_row();
    context.join_products = true;
  }
  if (machine.has_groups()) {
    context.near_row = machine.near_row();
    context.all_rms_norms = true;
    context.attention = {.rows = machine.attention.group_rows,
                         .keys = machine.attention.keys,
                         .few_tokens = 0,
                         .from_tokens = machine.attention.group_tokens,
                         .shared_bytes = machine.launch.shared_bytes};
  }
  // Products of rounded factors stay with the unit that makes them: attention sums all bits.
  if (machine.has_groups() && machine.is_inexact) context.attention.rows = 0;
  // A matrix unit has no caches.
  context.cold_weights_bytes = machine.has_matrix() ? 0 : machine.l3.all_bytes();
  context.cold_weight_bytes = context.cold_weights_bytes / machine.early_part;
  return context;
}

absl::StatusOr<std::vector<TaskInput>> TaskInputs(const Graph& task, uint64_t seed) {
  TW_TRY(RequireFixed(task));
  const support::Rng rng(seed);
  const bool positive = NeedsPositive(task);
  std::vector<TaskInput> inputs;
  for (size_t i = 0; i < task.inputs.size(); ++i) {
    const graph::Value& value = task.values[task.inputs[i]];
    TW_ASSIGN(const module::DType dtype, ModuleDType(value.type.dtype));
    TaskInput input{value.type, value.weight, value.cold,
                    rng.Split(static_cast<uint64_t>(i)).seed(),
                    runtime::DefaultDistribution(dtype)};
    if (positive && module::IsFloat(dtype)) input.distribution = kPositive;
    input.distribution = NarrowDistribution(task, task.inputs[i]).value_or(input.distribution);
    inputs.push_back(std::move(input));
  }
  return inputs;
}

absl::StatusOr<op::RefTensor> MakeInput(const TaskInput& input) {
  TW_ASSIGN(const module::DType dtype, ModuleDType(input.type.dtype));
  std::string bytes(input.type.bytes(), '\0');
  TW_TRY(runtime::GenerateInput(dtype, input.type.elements(), input.distribution, input.seed,
                                bytes.data()));
  return op::FromBytes(input.type, bytes);
}

absl::StatusOr<TaskCheck> MakeTaskCheck(const Task& task, uint64_t seed) {
  TW_ASSIGN(Graph body, ParseTask(task.text));
  TW_ASSIGN(std::vector<TaskInput> inputs, TaskInputs(body, seed));
  std::vector<op::RefTensor> values;
  for (const TaskInput& input : inputs) {
    TW_ASSIGN(op::RefTensor value, MakeInput(input));
    values.push_back(std::move(value));
  }
  TW_ASSIGN(std::vector<op::RefTensor> outputs, graph::Interpret(body, values));
  TaskCheck check;
  check.seed = seed;
  double roundoff = 0;
  for (const op::RefTensor& output : outputs) {
    check.expected_bytes += op::ToBytes(output);
    roundoff = std::max(roundoff, UnitRoundoff(output.type.dtype));
  }
  // A sum of n products of operands around 1 is off by about n roundoffs when added in any order,
  // and its terms are around 1/4, so that one wrong or missing term stands far outside. The factor
  // covers what follows the sum: epilogues, and library functions good to a few units in the last
  // place.
  check.atol = 8 * roundoff * LongestReduction(body);
  if (roundoff == 0 && RoundsInexact(body)) check.atol = 1;
  check.rtol = roundoff == 0 ? 0 : std::max(1e-5, 64 * roundoff) + check.atol;
  return check;
}

}  // namespace tilewright::driver
