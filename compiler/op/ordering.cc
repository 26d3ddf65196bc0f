// Operators that order the elements along one axis and give positions, in i64: arg_reduce (of the
// largest or smallest element) and top_k (of the first k in order). Among equals the smaller
// position comes first, or the larger one where attribute `last` says so. NaN counts as the best.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using ir::Expr;
using ir::ExprKind;
using support::StrCat;
using Exprs = std::vector<Expr>;

// The positions along the axis of a shape, as [outer, length, inner].
struct Along {
  int64_t outer = 1, length = 1, inner = 1;
};
Along SplitAt(const std::vector<int64_t>& shape, size_t axis) {
  Along a;
  for (size_t d = 0; d < shape.size(); ++d) {
    (d < axis ? a.outer : d == axis ? a.length : a.inner) *= shape[d];
  }
  return a;
}

size_t AxisOf(std::string_view op, const Attrs& attrs, size_t rank) {
  return static_cast<size_t>(*NormalizeAxis(op, GetInt(attrs, "axis", -1), rank));
}

// Whether `a` comes before `b`, and whether neither does; of values as the reference has them.
template <typename T>
bool Better(T a, T b, bool largest) {
  if (a != a || b != b) return a != a && b == b;
  return largest ? a > b : a < b;
}

// Calls visit(row of exact values, offset of the result's first element, its stride) for every row
// along the axis; rows of the result have `count` elements.
template <typename Visit>
void VisitRows(const RefTensor& x, size_t axis, int64_t count, const Visit& visit) {
  const Along a = SplitAt(x.type.sizes(), axis);
  const bool integers = x.type.dtype.is_int();
  const std::vector<int64_t> exact = integers ? IntegersOf(x) : std::vector<int64_t>{};
  // Patterns of u64 in their order as signed numbers.
  const uint64_t flip = x.type.dtype == ir::kU64 ? uint64_t{1} << 63 : 0;
  std::vector<double> row(a.length);
  std::vector<int64_t> whole(a.length);
  for (int64_t o = 0; o < a.outer; ++o) {
    for (int64_t i = 0; i < a.inner; ++i) {
      for (int64_t k = 0; k < a.length; ++k) {
        const int64_t at = (o * a.length + k) * a.inner + i;
        row[k] = x.values[at];
        if (integers) {
          whole[k] = static_cast<int64_t>(static_cast<uint64_t>(exact[at]) ^ flip);
        }
      }
      const auto better = [&](int64_t p, int64_t q, bool largest) {
        return integers ? Better(whole[p], whole[q], largest) : Better(row[p], row[q], largest);
      };
      visit(better, o * count * a.inner + i, a.inner);
    }
  }
}

// ------------------------------------------------------------ arg_reduce

absl::StatusOr<TensorTypes> InferArg(std::span<const TensorType> inputs, const Attrs& attrs,
                                     DimEqualities*) {
  std::vector<Dim> dims = inputs[0].shape;
  TW_ASSIGN(const int64_t axis,
            NormalizeAxis("arg_reduce", GetInt(attrs, "axis", -1), dims.size()));
  const std::string kind = GetString(attrs, "kind", "max");
  if (kind != "max" && kind != "min") {
    return OpError("arg_reduce", "attribute", StrCat("expected kind max or min, found ", kind));
  }
  dims[axis] = 1;
  if (!KeepsDims(attrs)) dims.erase(dims.begin() + axis);
  return TensorTypes{{ir::kI64, std::move(dims)}};
}

absl::StatusOr<std::vector<ir::Buffer>> BuildArg(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  const ir::Buffer& x = inputs[0];
  const size_t axis = AxisOf("arg_reduce", attrs, x->shape.size());
  const bool max = GetString(attrs, "kind", "max") == "max";
  const bool last = GetInt(attrs, "last", 0) != 0, keep = KeepsDims(attrs);
  const Expr end = SizeExpr(b, types[0].shape[axis] - Dim(1));
  Exprs rows = x->shape;
  rows.erase(rows.begin() + static_cast<int64_t>(axis));
  const ir::Axis k = b.ReduceAxis("k", x->shape[axis]);
  const ir::TupleReduction reduction =
      max ? ir::ArgMax(x->dtype, ir::kI64) : ir::ArgMin(x->dtype, ir::kI64);
  const std::vector<ir::Buffer> best = b.ReduceTuple(
      {name + "_value", name + "_at"}, {x->dtype, ir::kI64}, rows, {}, {k}, reduction,
      [&](const std::vector<ir::Var>& i) {
        Exprs at = VarExprs(i);
        at.insert(at.begin() + static_cast<int64_t>(axis), last ? end - k.var : Expr(k.var));
        Expr value = ir::Load(x, at);
        if (x->dtype.is_float()) {
          const Expr top = ir::Float(max ? INFINITY : -INFINITY, x->dtype);
          value = ir::Select(ir::Binary(ExprKind::kNe, value, value), top, value);
        }
        return Exprs{value, Expr(k.var)};
      });
  return std::vector<ir::Buffer>{b.Compute(name, ir::kI64, ShapeExprs(b, outputs[0].shape), {},
                                           [&](const std::vector<ir::Var>& i) {
                                             Exprs at = VarExprs(i);
                                             if (keep)
                                               at.erase(at.begin() + static_cast<int64_t>(axis));
                                             const Expr found = ir::Load(best[1], at);
                                             return last ? end - found : found;
                                           })};
}

absl::StatusOr<std::vector<RefTensor>> PlainArg(std::span<const RefTensor> inputs,
                                                std::span<const TensorType> outputs,
                                                const Attrs& attrs) {
  const size_t axis = AxisOf("arg_reduce", attrs, inputs[0].type.shape.size());
  const int64_t length = inputs[0].type.size(axis);
  const bool max = GetString(attrs, "kind", "max") == "max", last = GetInt(attrs, "last", 0) != 0;
  RefTensor out{outputs[0], std::vector<double>(outputs[0].elements())};
  VisitRows(inputs[0], axis, 1, [&](const auto& better, int64_t offset, int64_t) {
    int64_t best = 0;
    for (int64_t k = 1; k < length; ++k) {
      if (last ? !better(best, k, max) : better(k, best, max)) best = k;
    }
    out.values[offset] = static_cast<double>(best);
  });
  return std::vector<RefTensor>{std::move(out)};
}

// ------------------------------------------------------------ top_k

absl::StatusOr<TensorTypes> InferTopK(std::span<const TensorType> inputs, const Attrs& attrs,
                                      DimEqualities*) {
  std::vector<Dim> dims = inputs[0].shape;
  TW_ASSIGN(const int64_t axis, NormalizeAxis("top_k", GetInt(attrs, "axis", -1), dims.size()));
  const int64_t k = GetInt(attrs, "k", 0);
  if (k < 1 || SurelyBelow(dims[axis], k)) {
    return OpError("top_k", "attribute",
                   StrCat("expected k in 1 to ", dims[axis].ToText(), ", found ", k));
  }
  dims[axis] = k;
  return TensorTypes{{ir::kI64, std::move(dims)}};
}

// Whether the element `a` at position p comes before `b` at position q.
Expr Precedes(const Expr& a, const Expr& p, const Expr& b, const Expr& q, bool largest) {
  const auto both = [](const Expr& x, const Expr& y) { return x && y; };
  const auto either = [](const Expr& x, const Expr& y) { return ir::Binary(ExprKind::kOr, x, y); };
  Expr better = largest ? b < a : a < b, same = ir::Eq(a, b);
  if (a->dtype.is_float()) {
    const Expr nan_a = ir::Binary(ExprKind::kNe, a, a), nan_b = ir::Binary(ExprKind::kNe, b, b);
    better = either(better, both(nan_a, ir::Not(nan_b)));
    same = either(same, both(nan_a, nan_b));
  }
  return either(better, both(same, p < q));
}

// The rank of every element, then for each rank the position of the element that has it. Ranks are
// i32, which has as many lanes as f32: nobody compares 2^31 elements with each other.
absl::StatusOr<std::vector<ir::Buffer>> BuildTopK(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  const ir::Buffer& x = inputs[0];
  const size_t axis = AxisOf("top_k", attrs, x->shape.size());
  const bool largest = GetInt(attrs, "largest", 1) != 0;
  const ir::Axis other = b.ReduceAxis("j", x->shape[axis]),
                 which = b.ReduceAxis("k", x->shape[axis]);
  const auto place = [](const Expr& position) { return ir::Cast(ir::kI32, position); };
  const ir::Buffer rank =
      b.Reduce(name + "_rank", ir::kI32, x->shape, {}, {other}, ir::Combiner::kSum,
               [&](const std::vector<ir::Var>& i) {
                 const Exprs here = VarExprs(i);
                 Exprs there = here;
                 there[axis] = other.var;
                 return ir::Cast(ir::kI32, Precedes(ir::Load(x, there), place(there[axis]),
                                                    ir::Load(x, here), place(here[axis]), largest));
               });
  const Exprs shape = ShapeExprs(b, outputs[0].shape);
  const ir::Buffer found = b.Reduce(name + "_at", ir::kI32, shape, {}, {which}, ir::Combiner::kSum,
                                    [&](const std::vector<ir::Var>& i) {
                                      Exprs at = VarExprs(i);
                                      const Expr wanted = place(at[axis]);
                                      at[axis] = which.var;
                                      return ir::Select(ir::Eq(ir::Load(rank, at), wanted),
                                                        place(which.var), ir::Int(0, ir::kI32));
                                    });
  return std::vector<ir::Buffer>{
      b.Compute(name, ir::kI64, shape, {}, [&](const std::vector<ir::Var>& i) {
        return ir::Cast(ir::kI64, ir::Load(found, VarExprs(i)));
      })};
}

absl::StatusOr<std::vector<RefTensor>> PlainTopK(std::span<const RefTensor> inputs,
                                                 std::span<const TensorType> outputs,
                                                 const Attrs& attrs) {
  const size_t axis = AxisOf("top_k", attrs, inputs[0].type.shape.size());
  const int64_t count = outputs[0].size(axis);
  const bool largest = GetInt(attrs, "largest", 1) != 0;
  RefTensor out{outputs[0], std::vector<double>(outputs[0].elements())};
  std::vector<int64_t> order(inputs[0].type.size(axis));
  VisitRows(inputs[0], axis, count, [&](const auto& better, int64_t offset, int64_t stride) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t p, int64_t q) { return better(p, q, largest); });
    for (int64_t r = 0; r < count; ++r) {
      out.values[offset + r * stride] = static_cast<double>(order[r]);
    }
  });
  return std::vector<RefTensor>{std::move(out)};
}

double AxisLength(std::string_view op, std::span<const TensorType> inputs, const Attrs& attrs) {
  const TensorType& x = inputs[0];
  return static_cast<double>(x.size(static_cast<int64_t>(AxisOf(op, attrs, x.shape.size()))));
}

}  // namespace

std::vector<OpSpec> OrderingRows() {
  OpSpec arg;
  arg.name = "arg_reduce";
  arg.takes_empty = true;
  arg.onnx = {"ArgMax", "ArgMin"};
  arg.fusion = FusionClass::kReduction;
  arg.types = kNumbers;
  arg.reads_wide = true;
  arg.infer = InferArg;
  arg.compute = BuildArg;
  arg.flops = [](std::span<const TensorType> inputs, std::span<const TensorType>, const Attrs&) {
    return static_cast<double>(inputs[0].elements());
  };
  arg.reference = PlainArg;

  OpSpec top = arg;
  top.name = "top_k";
  top.onnx = {"TopK"};
  top.infer = InferTopK;
  top.compute = BuildTopK;
  top.flops = [](std::span<const TensorType> inputs, std::span<const TensorType> outputs,
                 const Attrs& attrs) {
    return AxisLength("top_k", inputs, attrs) *
           static_cast<double>(inputs[0].elements() + outputs[0].elements());
  };
  top.reference = PlainTopK;
  return {arg, top};
}

}  // namespace tilewright::op
