// Task → tensor IR: anchors become blocks through their compute rules; the injective operators
// between and behind them are composed by substitution into the block that needs their value. With
// an operator that is staged (OpSpec), each is a block instead.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "compiler/driver/tasks.h"
#include "compiler/ir/verify.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::driver {
namespace {

using graph::Graph;
using graph::Node;
using graph::ValueId;
using support::StrCat;

// Operations an element expression may grow to; fusion stays far below, hostile text may not.
constexpr int kMaxExpression = 4096;
constexpr size_t kMaxName = 48;
const std::string kDirect = "direct";

class Builder {
 public:
  // Operators that have an algorithm of this name use it.
  Builder(const Graph& task, std::string_view variant)
      : task_(task),
        variant_(variant),
        builder_(FunctionName(task)),
        producer_(task.values.size(), -1),
        size_(task.values.size(), 1) {
    for (size_t n = 0; n < task.nodes.size(); ++n) {
      for (ValueId id : task.nodes[n].outputs) producer_[id] = static_cast<int>(n);
      const op::OpSpec* spec = op::FindOp(task.nodes[n].op);
      staged_ = staged_ || (spec != nullptr && spec->staged);
    }
  }

  absl::StatusOr<ir::Function> Run() {
    // All of them, in the order of their names: who calls the function knows the order.
    for (const std::string& name : graph::SizeVariables(task_)) builder_.Size(name);
    int inputs = 0, weights = 0;
    for (ValueId id : task_.inputs) {
      const graph::Value& value = task_.values[id];
      if (!value.weight && weights > 0) {
        return Bad("order", "expected data inputs before weights, found another order");
      }
      const std::vector<ir::Expr> shape = Shape(value.type);
      buffers_[id] = value.weight
                         ? builder_.Constant(StrCat("w", weights++), value.type.dtype, shape)
                         : builder_.Input(StrCat("x", inputs++), value.type.dtype, shape);
    }
    for (const Node& node : task_.nodes) TW_TRY(AddNode(node));
    TW_ASSIGN(ir::Buffer output, Materialize(task_.outputs[0], "out"));
    if (producer_[task_.outputs[0]] < 0) {
      return Bad("output", "expected an output that an operator computes, found an input");
    }
    ir::Function function = builder_.Finish({output});
    TW_TRY(ir::Verify(function));
    return function;
  }

 private:
  static absl::Status Bad(std::string_view reason, std::string_view detail) {
    return support::InvalidArgument(StrCat("driver.task.", reason), detail);
  }
  static absl::Status TooLarge() {
    return Bad("expression", StrCat("expected at most ", kMaxExpression,
                                    " operations in one expression, found more"));
  }
  // Operations of the expression written out as a tree; shared parts are visited once.
  static double TreeSize(const ir::Expr& root) {
    std::map<const ir::ExprNode*, double> size;
    std::function<double(const ir::Expr&)> count = [&](const ir::Expr& e) {
      auto it = size.find(e.get());
      if (it != size.end()) return it->second;
      double total = 1;
      for (const ir::Expr& arg : e->args) total += count(arg);
      return size[e.get()] = total;
    };
    return count(root);
  }
  static std::string FunctionName(const Graph& task) {
    std::vector<std::string> ops;
    for (const Node& node : task.nodes) ops.push_back(node.op);
    return support::Join(ops, "_").substr(0, kMaxName);
  }
  std::vector<ir::Expr> Shape(const op::TensorType& type) {
    return op::ShapeExprs(builder_, type.shape);
  }

  std::vector<op::TensorType> Types(const std::vector<ValueId>& ids) const {
    std::vector<op::TensorType> types;
    for (ValueId id : ids) types.push_back(task_.values[id].type);
    return types;
  }

  // Anchors are computed where they stand; injective nodes only when someone needs their value.
  absl::Status AddNode(const Node& node) {
    const op::OpSpec* spec = op::FindOp(node.op);
    if (spec == nullptr) return Bad("operator", StrCat("expected an operator, found ", node.op));
    if (spec->fusion == op::FusionClass::kInjective) {
      int64_t total = 1;
      for (ValueId id : node.inputs) total += buffers_.count(id) > 0 ? 1 : size_[id];
      if (total > kMaxExpression) return TooLarge();
      size_[node.outputs[0]] = total;
      if (!staged_ || node.outputs[0] == task_.outputs[0]) return absl::OkStatus();
      return Materialize(node.outputs[0], node.op).status();
    }
    std::vector<ir::Buffer> operands;
    for (ValueId id : node.inputs) {
      TW_ASSIGN(ir::Buffer buffer, Materialize(id, StrCat("arg", id)));
      operands.push_back(std::move(buffer));
    }
    const std::vector<std::string> known = op::VariantsOf(*spec, Types(node.inputs), node.attrs);
    const bool has = std::find(known.begin(), known.end(), variant_) != known.end();
    TW_ASSIGN(std::vector<ir::Buffer> results,
              op::ComputeVariant(*spec, has ? variant_ : kDirect,
                                 {builder_, node.op, operands, Types(node.inputs),
                                  Types(node.outputs), node.attrs}));
    for (size_t i = 0; i < results.size(); ++i) buffers_[node.outputs[i]] = results[i];
    return absl::OkStatus();
  }

  // The buffer that holds a value: computes it in a block of its own where there is none yet.
  absl::StatusOr<ir::Buffer> Materialize(ValueId id, const std::string& name) {
    auto it = buffers_.find(id);
    if (it != buffers_.end()) return it->second;
    const op::TensorType& type = task_.values[id].type;
    double operations = 0;
    ir::Buffer buffer =
        builder_.Compute(name, type.dtype, Shape(type), {}, [&](const std::vector<ir::Var>& vars) {
          ir::Expr value = Element(id, {vars.begin(), vars.end()});
          operations = TreeSize(value);
          return operations > kMaxExpression ? ir::Zero(type.dtype) : value;
        });
    if (operations > kMaxExpression) return TooLarge();
    buffers_[id] = buffer;
    return buffer;
  }

  ir::Expr Element(ValueId id, std::vector<ir::Expr> index) {
    auto it = buffers_.find(id);
    if (it != buffers_.end()) return ir::Load(it->second, std::move(index));
    const graph::Value& value = task_.values[id];
    if (value.constant != nullptr) return Literal(value, index);
    const Node& node = task_.nodes[producer_[id]];
    std::vector<op::ElementReader> readers;
    for (ValueId input : node.inputs) {
      readers.push_back(
          [this, input](std::vector<ir::Expr> at) { return Element(input, std::move(at)); });
    }
    return op::Element(*op::FindOp(node.op),
                       {builder_, readers, Types(node.inputs), value.type, index, node.attrs});
  }

  // One element: a literal. More (hand-written tasks only): a choice by position.
  static ir::Expr Literal(const graph::Value& value, const std::vector<ir::Expr>& index) {
    absl::StatusOr<op::RefTensor> tensor = op::FromBytes(value.type, value.constant->view());
    TW_CHECK(tensor.ok()) << support::StatusText(tensor.status());
    const ir::DType type = value.type.dtype;
    // As doubles, integers of 64 bits would not be exact.
    const bool whole = !type.is_float() && !type.is_bool();
    const std::vector<int64_t> integers = whole ? op::IntegersOf(*tensor) : std::vector<int64_t>();
    const auto literal = [&](size_t i) {
      if (whole) return ir::Int(integers[i], type);
      const double v = tensor->values[i];
      return type.is_bool() ? ir::Bool(v != 0) : ir::Float(v, type);
    };
    ir::Expr flat = ir::Int(0);
    const std::vector<int64_t> sizes = value.type.sizes();
    int64_t stride = 1;
    for (size_t d = index.size(); d-- > 0; stride *= sizes[d]) {
      flat = flat + index[d] * ir::Int(stride);
    }
    ir::Expr result = literal(tensor->values.size() - 1);
    for (size_t i = tensor->values.size() - 1; i-- > 0;) {
      result = ir::Select(ir::Eq(flat, ir::Int(static_cast<int64_t>(i))), literal(i), result);
    }
    return result;
  }

  const Graph& task_;
  const std::string variant_;
  ir::FunctionBuilder builder_;
  bool staged_ = false;  // every operator is a block
  std::vector<int> producer_;
  std::vector<int64_t> size_;  // operations of the expression of each value
  std::map<ValueId, ir::Buffer> buffers_;
};

}  // namespace

absl::StatusOr<ir::Function> TaskFunction(const Graph& task) {
  return Builder(task, kDirect).Run();
}

absl::StatusOr<std::vector<schedule::Variant>> TaskVariants(const Graph& task) {
  TW_ASSIGN(ir::Function direct, TaskFunction(task));
  std::vector<schedule::Variant> variants = {{kDirect, std::move(direct)}};
  for (const auto& [name, factor] : VariantTolerances(task)) {
    TW_ASSIGN(ir::Function function, Builder(task, name).Run());
    variants.push_back({name, std::move(function), factor});
  }
  return variants;
}

absl::StatusOr<std::vector<schedule::Variant>> TaskVariants(std::string_view task_text) {
  TW_ASSIGN(Graph task, ParseTask(task_text));
  TW_TRY(RequireFixed(task));
  return TaskVariants(task);
}

std::map<std::string, double> VariantTolerances(const Graph& task) {
  std::map<std::string, double> factors;
  for (const Node& node : task.nodes) {
    const op::OpSpec* spec = op::FindOp(node.op);
    std::vector<op::TensorType> types;
    for (ValueId id : node.inputs) types.push_back(task.values[id].type);
    for (const op::OpVariant& variant : spec->variants) {
      if (!variant.applies(types, node.attrs)) continue;
      double& factor = factors.try_emplace(std::string(variant.name), 1).first->second;
      factor = std::max(factor, variant.tolerance_factor);
    }
  }
  return factors;
}

// Terms are around 1/4, each factor is off by 2^-12 of it on average, up or down: errors of a sum
// grow as the root of the number of its terms. Eight times that is far from a missing term.
double RoundedProductError(const Graph& task, const target::Machine& machine) {
  if (!machine.is_inexact) return 0;
  double longest = 0;
  for (const Node& node : task.nodes) {
    const op::OpSpec& spec = *op::FindOp(node.op);
    if (spec.fusion != op::FusionClass::kComplexOutFusable || node.inputs.size() < 2) continue;
    std::vector<op::TensorType> types;
    for (ValueId id : node.inputs) types.push_back(task.values[id].type);
    if (types[0].dtype == ir::kF32 && types[1].dtype == ir::kF32)
      longest = std::max(longest, op::ReductionLength(spec, types, node.attrs));
  }
  return 8 * std::ldexp(1, -12) * std::sqrt(longest);
}

absl::StatusOr<ir::Function> TaskFunction(std::string_view task_text) {
  TW_ASSIGN(Graph task, ParseTask(task_text));
  return TaskFunction(task);
}

}  // namespace tilewright::driver
