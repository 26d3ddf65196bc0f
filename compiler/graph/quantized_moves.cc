// What models with QuantizeLinear and DequantizeLinear around every operator do without: values of
// i8 become u8 (products of bytes want the data unsigned), operators that only move values or
// choose among them do so on bytes, a conversion back and forth is none, and bounds that saturation
// implies go away.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "compiler/graph/forward_rewriter.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/ir/numeric.h"
#include "deploy/support/status.h"

namespace tilewright::graph {
namespace {

constexpr double kToUnsigned = 128;

// i8 values that a node quantises and others only dequantise.
absl::Status MakeUnsigned(Graph* g) {
  const std::vector<std::vector<int>> readers = Readers(*g);
  const std::set<ValueId> outputs = OutputSet(*g);
  auto shift = [&](Node* node) -> absl::Status {
    TW_ASSIGN(op::RefTensor zero, ConstantTensor(*g, node->inputs[2]));
    zero.type.dtype = ir::kU8;
    for (double& v : zero.values) v += kToUnsigned;
    node->inputs[2] = AddTensor(g, g->values[node->inputs[2]].name + "_u8", zero);
    return absl::OkStatus();
  };
  for (size_t n = 0; n < g->nodes.size(); ++n) {
    const ValueId y = g->nodes[n].outputs[0];
    if (g->nodes[n].op != "quantize" || g->values[y].type.dtype != ir::kI8) continue;
    bool only = outputs.count(y) == 0 && IsConstant(*g, g->nodes[n].inputs[2]);
    for (int reader : readers[y]) {
      const Node& node = g->nodes[reader];
      only = only && node.op == "dequantize" && node.inputs[0] == y && node.inputs[2] != y &&
             IsConstant(*g, node.inputs[2]);
    }
    if (!only) continue;
    g->values[y].type.dtype = ir::kU8;
    TW_TRY(shift(&g->nodes[n]));
    for (int reader : readers[y]) TW_TRY(shift(&g->nodes[reader]));
  }
  return absl::OkStatus();
}

class QuantizedMover : public ForwardRewriter {
 public:
  using ForwardRewriter::ForwardRewriter;

 private:
  absl::StatusOr<bool> Rewrite(const Node& node) override {
    if (node.op == "quantize") return Quantize(node);
    const bool maximum = node.op == "pool2d" && op::GetString(node.attrs, "kind", "max") == "max";
    const op::OpSpec* spec = op::FindOp(node.op);
    const bool moves = spec != nullptr && spec->moves > 0 && spec->moves >= std::ssize(node.inputs);
    return maximum || moves ? Move(node) : false;
  }

  // Whether both hold the same numbers of one type.
  absl::StatusOr<bool> Equal(ValueId a, ValueId b) const {
    if (a == b) return true;
    if (TypeOf(a).dtype != TypeOf(b).dtype) return false;
    TW_ASSIGN(const auto x, Known(a));
    TW_ASSIGN(const auto y, Known(b));
    return x && y && x->values == y->values &&
           (x->type.shape == y->type.shape || x->values.size() == 1);
  }

  // move(dequantize(x)) → dequantize(move(x)), where one scale and zero point hold for all.
  absl::StatusOr<bool> Move(const Node& node) {
    std::vector<ValueId> bytes;
    const Node* first = nullptr;
    for (ValueId id : node.inputs) {
      const Node* from = Before(id, "dequantize");
      if (from == nullptr || TypeOf(from->inputs[0]).dtype.bytes() != 1) return false;
      if (first == nullptr) first = from;
      for (const int parameter : {1, 2}) {
        TW_ASSIGN(const auto number, KnownNumber(from->inputs[parameter]));
        TW_ASSIGN(const bool same, Equal(first->inputs[parameter], from->inputs[parameter]));
        if (!number || !same) return false;
      }
      bytes.push_back(from->inputs[0]);
    }
    std::vector<ValueId> parameters = {first->inputs[1], first->inputs[2]};
    TW_ASSIGN(const ValueId moved, Emit(node.name + "_bytes", node.op, bytes, node.attrs));
    for (ValueId& id : parameters) {
      TW_ASSIGN(id, AtMostRank(id, TypeOf(moved).shape.size()));
    }
    Define(node, "dequantize", {moved, parameters[0], parameters[1]});
    return true;
  }

  // One number, which broadcasts to a tensor of that rank: [1,1,1] does not to one of rank 2.
  absl::StatusOr<ValueId> AtMostRank(ValueId id, size_t rank) {
    if (TypeOf(id).shape.size() <= rank) return id;
    TW_ASSIGN(auto number, Known(id));
    number->type.shape.clear();
    return AddTensor(&g_, NameOf(id), *number);
  }

  // Whether quantisation saturates where relu or clip would bound: the value below (above) which
  // they change anything becomes the smallest (largest) integer.
  bool Implied(const Node& bound, const op::RefTensor& scale, const op::RefTensor& zero) const {
    const double inf = std::numeric_limits<double>::infinity();
    const bool relu = bound.op == "relu";
    const double low = relu ? 0 : op::GetDouble(bound.attrs, "min", -inf);
    const double high = relu ? inf : op::GetDouble(bound.attrs, "max", inf);
    const ir::DType type = zero.type.dtype;
    for (size_t i = 0; i < std::max(scale.values.size(), zero.values.size()); ++i) {
      const double s = scale.values[scale.values.size() == 1 ? 0 : i];
      const double z = zero.values[zero.values.size() == 1 ? 0 : i];
      if (!(s > 0) || (scale.values.size() > 1 && zero.values.size() > 1 &&
                       scale.type.shape != zero.type.shape)) {
        return false;
      }
      if (std::nearbyint(low / s) + z > static_cast<double>(ir::MinInt(type))) return false;
      if (std::nearbyint(high / s) + z < static_cast<double>(ir::MaxInt(type))) return false;
    }
    return true;
  }

  absl::StatusOr<bool> Quantize(const Node& node) {
    ValueId x = node.inputs[0];
    TW_ASSIGN(const auto scale, Known(node.inputs[1]));
    TW_ASSIGN(const auto zero, Known(node.inputs[2]));
    if (!scale || !zero) return false;
    while (const Node* bound = Before(x)) {
      if ((bound->op != "relu" && bound->op != "clip") || !Implied(*bound, *scale, *zero)) break;
      x = bound->inputs[0];
    }
    if (const Node* from = Before(x, "dequantize")) {
      TW_ASSIGN(const bool scales, Equal(from->inputs[1], node.inputs[1]));
      TW_ASSIGN(const bool zeros, Equal(from->inputs[2], node.inputs[2]));
      if (scales && zeros) {
        Same(node, from->inputs[0]);
        return true;
      }
    }
    if (x == node.inputs[0]) return false;
    Define(node, "quantize", {x, node.inputs[1], node.inputs[2]});
    return true;
  }
};

}  // namespace

absl::StatusOr<Graph> QuantizedMoves(Graph g, const GraphPassContext& ctx) {
  if (ctx.matrix_block == 0) TW_TRY(MakeUnsigned(&g));
  return QuantizedMover(std::move(g), ctx.fold_max_bytes).Run();
}

}  // namespace tilewright::graph
