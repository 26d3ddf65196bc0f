// Reductions over axes (one row, attribute `kind`), and softmax as two reductions and a division.
#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/ir/numeric.h"
#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

enum class Kind { kMean, kSum, kMax, kMin, kProd };

absl::StatusOr<Kind> KindOf(const Attrs& attrs) {
  const std::string kind = GetString(attrs, "kind", "sum");
  if (kind == "mean") return Kind::kMean;
  if (kind == "sum") return Kind::kSum;
  if (kind == "max") return Kind::kMax;
  if (kind == "min") return Kind::kMin;
  if (kind == "prod") return Kind::kProd;
  return OpError("reduce", "attribute",
                 StrCat("expected kind mean, sum, max, min or prod, found ", kind));
}

// Which dimensions the reduction removes: attribute `axes`, all where it is empty.
absl::StatusOr<std::vector<bool>> ReducedDims(size_t rank, const Attrs& attrs) {
  const std::vector<int64_t> axes = GetInts(attrs, "axes", {});
  std::vector<bool> reduced(rank, axes.empty());
  for (int64_t axis : axes) {
    TW_ASSIGN(const int64_t d, NormalizeAxis("reduce", axis, rank));
    if (reduced[d]) {
      return OpError("reduce", "axis", StrCat("expected each axis once, found ", axis, " twice"));
    }
    reduced[d] = true;
  }
  return reduced;
}

absl::StatusOr<TensorTypes> InferReduce(std::span<const TensorType> inputs, const Attrs& attrs,
                                        DimEqualities*) {
  const std::vector<Dim>& dims = inputs[0].shape;
  TW_ASSIGN(const Kind kind, KindOf(attrs));
  if (kind == Kind::kMean && !inputs[0].dtype.is_float()) {
    return OpError("reduce", "type", StrCat("expected floats, found ", ToText(inputs[0])));
  }
  TW_ASSIGN(const std::vector<bool> reduced, ReducedDims(dims.size(), attrs));
  const bool keep = KeepsDims(attrs);
  TensorType out{inputs[0].dtype, {}};
  for (size_t d = 0; d < dims.size(); ++d) {
    if (!reduced[d]) out.shape.push_back(dims[d]);
    if (reduced[d] && keep) out.shape.emplace_back(1);
  }
  return TensorTypes{out};
}

ir::Combiner CombinerOf(Kind kind) {
  switch (kind) {
    case Kind::kMax:
      return ir::Combiner::kMax;
    case Kind::kMin:
      return ir::Combiner::kMin;
    case Kind::kProd:
      return ir::Combiner::kProd;
    default:
      return ir::Combiner::kSum;
  }
}

absl::StatusOr<std::vector<ir::Buffer>> BuildReduce(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  const ir::Buffer& x = inputs[0];
  const size_t rank = x->shape.size();
  TW_ASSIGN(const Kind kind, KindOf(attrs));
  TW_ASSIGN(const std::vector<bool> reduced, ReducedDims(rank, attrs));
  const bool keep = KeepsDims(attrs);
  std::vector<ir::Axis> axes;
  Dim count(1);
  for (size_t d = 0; d < rank; ++d) {
    if (!reduced[d]) continue;
    axes.push_back(b.ReduceAxis(StrCat("r", d), x->shape[d]));
    count = count * types[0].shape[d];
  }
  const ir::DType dtype = outputs[0].dtype;
  const std::vector<ir::Expr> shape = ShapeExprs(b, outputs[0].shape);
  auto value = [&](const std::vector<ir::Var>& i) {
    std::vector<ir::Expr> at;
    size_t out_dim = 0, axis = 0;
    for (size_t d = 0; d < rank; ++d) {
      at.push_back(reduced[d] ? axes[axis++].var : i[out_dim]);
      if (!reduced[d] || keep) ++out_dim;
    }
    return ir::Load(x, at);
  };
  const bool mean = kind == Kind::kMean;
  ir::Buffer total =
      b.Reduce(mean ? name + "_sum" : name, dtype, shape, {}, axes, CombinerOf(kind), value);
  if (!mean) return std::vector<ir::Buffer>{total};
  return std::vector<ir::Buffer>{
      b.Compute(name, dtype, shape, {}, [&](const std::vector<ir::Var>& i) {
        const ir::Expr divisor = count.is_constant()
                                     ? ir::Float(static_cast<double>(count.value()), dtype)
                                     : ir::Cast(dtype, SizeExpr(b, count));
        return ir::Load(total, VarExprs(i)) / divisor;
      })};
}

double Combine(Kind kind, double a, double b) {
  switch (kind) {
    case Kind::kMax:
      return a > b ? a : b;
    case Kind::kMin:
      return a < b ? a : b;
    case Kind::kProd:
      return a * b;
    default:
      return a + b;
  }
}

int64_t CombineInts(Kind kind, int64_t a, int64_t b, ir::DType type) {
  const uint64_t ua = static_cast<uint64_t>(a), ub = static_cast<uint64_t>(b);
  const bool below = type == ir::kU64 ? ua < ub : a < b;
  if (kind == Kind::kMax) return below ? b : a;
  if (kind == Kind::kMin) return below ? a : b;
  return static_cast<int64_t>(kind == Kind::kProd ? ua * ub : ua + ub);  // wraps
}

double Identity(Kind kind) {
  if (kind == Kind::kMax) return -std::numeric_limits<double>::infinity();
  if (kind == Kind::kMin) return std::numeric_limits<double>::infinity();
  return kind == Kind::kProd ? 1 : 0;
}

absl::StatusOr<std::vector<RefTensor>> PlainReduce(std::span<const RefTensor> inputs,
                                                   std::span<const TensorType> outputs,
                                                   const Attrs& attrs) {
  const RefTensor& x = inputs[0];
  TW_ASSIGN(const Kind kind, KindOf(attrs));
  TW_ASSIGN(const std::vector<bool> reduced, ReducedDims(x.type.shape.size(), attrs));
  // Stride of each input dimension in the output, 0 where it is reduced.
  const std::vector<int64_t> sizes = x.type.sizes();
  std::vector<int64_t> strides(sizes.size(), 0);
  int64_t stride = 1;
  for (size_t d = strides.size(); d-- > 0;) {
    if (reduced[d]) continue;
    strides[d] = stride;
    stride *= x.type.size(d);
  }
  const bool whole = x.type.dtype.is_int();
  std::vector<int64_t> sums(whole ? outputs[0].elements() : 0), integers;
  std::vector<bool> started(sums.size(), false);
  if (whole) integers = IntegersOf(x);
  RefTensor out{outputs[0], std::vector<double>(outputs[0].elements(), Identity(kind))};
  std::vector<int64_t> index(strides.size(), 0);
  size_t at = 0;
  do {
    int64_t to = 0;
    for (size_t d = 0; d < index.size(); ++d) to += index[d] * strides[d];
    if (whole) {
      const int64_t value = integers[at];
      sums[to] = started[to] ? CombineInts(kind, sums[to], value, x.type.dtype) : value;
      started[to] = true;
    } else {
      out.values[to] = Combine(kind, out.values[to], x.values[at]);
    }
    ++at;
  } while (NextIndex(sizes, &index));
  if (whole) return std::vector<RefTensor>{FromIntegers(outputs[0], sums)};
  if (kind == Kind::kMean) {
    const double count =
        static_cast<double>(x.values.size()) / static_cast<double>(out.values.size());
    for (double& value : out.values) value /= count;
  }
  return std::vector<RefTensor>{std::move(out)};
}

double ReduceFlops(std::span<const TensorType> inputs, std::span<const TensorType>, const Attrs&) {
  return static_cast<double>(inputs[0].elements());
}

double ReduceLength(std::span<const TensorType> inputs, const Attrs& attrs) {
  absl::StatusOr<std::vector<bool>> reduced = ReducedDims(inputs[0].shape.size(), attrs);
  double length = 1;
  for (size_t d = 0; reduced.ok() && d < reduced->size(); ++d) {
    if ((*reduced)[d]) length *= static_cast<double>(inputs[0].size(d));
  }
  return length;
}

// ------------------------------------------------------------ softmax

absl::StatusOr<TensorTypes> InferSoftmax(std::span<const TensorType> inputs, const Attrs& attrs,
                                         DimEqualities*) {
  TW_TRY(NormalizeAxis("softmax", GetInt(attrs, "axis", -1), inputs[0].shape.size()).status());
  return TensorTypes{inputs[0]};
}

// exp(x - max of its row) / sum of those; each exponential is computed once and kept.
absl::StatusOr<std::vector<ir::Buffer>> BuildSoftmax(const ComputeArgs& a) {
  const auto& [b, name, inputs, types, outputs, attrs] = a;
  const ir::Buffer& x = inputs[0];
  const ir::DType dtype = outputs[0].dtype;
  TW_ASSIGN(const int64_t axis,
            NormalizeAxis("softmax", GetInt(attrs, "axis", -1), x->shape.size()));
  std::vector<ir::Expr> row_shape = x->shape;
  row_shape.erase(row_shape.begin() + axis);
  auto row_of = [axis](std::vector<ir::Expr> index) {
    index.erase(index.begin() + axis);
    return index;
  };
  auto with = [axis](const std::vector<ir::Var>& row, const ir::Expr& along) {
    std::vector<ir::Expr> index = VarExprs(row);
    index.insert(index.begin() + axis, along);
    return index;
  };
  const ir::Axis over_max = b.ReduceAxis("k", x->shape[axis]);
  const ir::Buffer max =
      b.Reduce(name + "_max", dtype, row_shape, {}, {over_max}, ir::Combiner::kMax,
               [&](const std::vector<ir::Var>& i) { return ir::Load(x, with(i, over_max.var)); });
  const ir::Buffer exps =
      b.Compute(name + "_exp", dtype, x->shape, {}, [&](const std::vector<ir::Var>& i) {
        const std::vector<ir::Expr> at = VarExprs(i);
        return ir::Call(ir::Intrinsic::kExp, {ir::Load(x, at) - ir::Load(max, row_of(at))});
      });
  const ir::Axis over_sum = b.ReduceAxis("k", x->shape[axis]);
  const ir::Buffer sum = b.Reduce(
      name + "_sum", dtype, row_shape, {}, {over_sum}, ir::Combiner::kSum,
      [&](const std::vector<ir::Var>& i) { return ir::Load(exps, with(i, over_sum.var)); });
  return std::vector<ir::Buffer>{
      b.Compute(name, dtype, x->shape, {}, [&](const std::vector<ir::Var>& i) {
        const std::vector<ir::Expr> at = VarExprs(i);
        // One division a row, not one an element.
        return ir::Load(exps, at) * (ir::Float(1, dtype) / ir::Load(sum, row_of(at)));
      })};
}

absl::StatusOr<std::vector<RefTensor>> PlainSoftmax(std::span<const RefTensor> inputs,
                                                    std::span<const TensorType>,
                                                    const Attrs& attrs) {
  const RefTensor& x = inputs[0];
  const std::vector<int64_t> shape = x.type.sizes();
  TW_ASSIGN(const int64_t axis, NormalizeAxis("softmax", GetInt(attrs, "axis", -1), shape.size()));
  const int64_t length = shape[axis], stride = RowMajorStrides(shape)[axis];
  RefTensor out = x;
  for (int64_t start = 0; start < static_cast<int64_t>(x.values.size()); ++start) {
    if (start / stride % length != 0) continue;
    double max = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t k = 0; k < length; ++k) max = std::max(max, x.values[start + k * stride]);
    for (int64_t k = 0; k < length; ++k) sum += std::exp(x.values[start + k * stride] - max);
    for (int64_t k = 0; k < length; ++k) {
      out.values[start + k * stride] = std::exp(x.values[start + k * stride] - max) / sum;
    }
  }
  return std::vector<RefTensor>{std::move(out)};
}

double SoftmaxFlops(std::span<const TensorType> inputs, std::span<const TensorType>, const Attrs&) {
  return 5.0 * static_cast<double>(inputs[0].elements());
}

// The largest of no integers is the smallest that the type has.
absl::StatusOr<RefTensor> OfEmpty(ir::DType type, const Attrs& attrs) {
  TW_ASSIGN(const Kind kind, KindOf(attrs));
  if (!type.is_int()) {
    const double mean = std::numeric_limits<double>::quiet_NaN();
    return RefTensor{{type, {}}, {kind == Kind::kMean ? mean : Identity(kind)}};
  }
  const int64_t identity = kind == Kind::kMax   ? ir::MinInt(type)
                           : kind == Kind::kMin ? ir::MaxInt(type)
                                                : static_cast<int64_t>(Identity(kind));
  return FromIntegers({type, {}}, {identity});
}

}  // namespace

std::vector<OpSpec> ReductionRows() {
  OpSpec reduce;
  reduce.name = "reduce";
  reduce.takes_empty = true;
  reduce.onnx = {"ReduceMean", "ReduceSum",         "ReduceMax",    "ReduceMin",
                 "ReduceProd", "GlobalAveragePool", "GlobalMaxPool"};
  reduce.fusion = FusionClass::kReduction;
  reduce.types = kNumbers;  // but means: floats only
  reduce.reads_wide = true;
  reduce.infer = InferReduce;
  reduce.compute = BuildReduce;
  reduce.flops = ReduceFlops;
  reduce.reduction_length = ReduceLength;
  reduce.reference = PlainReduce;
  reduce.of_empty = OfEmpty;

  OpSpec softmax;
  softmax.name = "softmax";
  softmax.takes_empty = true;
  softmax.onnx = {"Softmax"};
  softmax.fusion = FusionClass::kReduction;
  softmax.types = kFloats;
  softmax.infer = InferSoftmax;
  softmax.compute = BuildSoftmax;
  softmax.flops = SoftmaxFlops;
  softmax.reduction_length = [](std::span<const TensorType> inputs, const Attrs& attrs) {
    auto axis = NormalizeAxis("softmax", GetInt(attrs, "axis", -1), inputs[0].shape.size());
    return axis.ok() ? static_cast<double>(inputs[0].size(*axis)) : 1;
  };
  softmax.reference = PlainSoftmax;
  return {reduce, softmax};
}

}  // namespace tilewright::op
