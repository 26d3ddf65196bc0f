// Operators that move elements: reshape and bitcast (views in a compiled graph), transpose, and
// inference-time batch normalisation, which is a broadcast over channels.
#include <algorithm>
#include <cmath>
#include <optional>

#include "compiler/op/empty.h"
#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

// ------------------------------------------------------------ reshape

// num / over, of whole numbers; `over` is 0 where it would be too large.
struct Ratio {
  Dim num;
  int64_t over = 1;
};
int64_t Denominator(int64_t a, int64_t b) {
  constexpr int64_t kMost = 1 << 20;
  return a > 0 && b > 0 && a <= kMost && b <= kMost / a ? a * b : 0;
}
Ratio operator+(const Ratio& a, const Ratio& b) {
  return {a.num * Dim(b.over) + b.num * Dim(a.over), Denominator(a.over, b.over)};
}
Ratio operator*(const Ratio& a, const Ratio& b) {
  return {a.num * b.num, Denominator(a.over, b.over)};
}

// What an expression is at the sizes where none of its quotients has a rest.
Ratio WithoutRests(const Dim& dim) {
  return dim.Fold<Ratio>(
      [](int64_t number) { return Ratio{number, 1}; },
      [](const std::string& variable) { return Ratio{Dim::Variable(variable), 1}; },
      [](const Ratio& numerator, int64_t divisor) {
        return Ratio{numerator.num, Denominator(numerator.over, divisor)};
      });
}

// total / part, where that is an expression: at all sizes, or at those where quotients have no
// rest. 2 * (N / 2) elements in rows of N are one row, and N is even.
std::optional<Dim> Rows(const Dim& total, const Dim& part) {
  if (const std::optional<Dim> rows = total.DivideExactly(part)) return rows;
  const Ratio all = WithoutRests(total), each = WithoutRests(part);
  if (all.over == 0 || each.over == 0) return std::nullopt;
  return (all.num * Dim(each.over)).DivideExactly(each.num * Dim(all.over));
}

// What makes a shape as large as another one; its sizes that both have need no division.
std::optional<Dim> WhatFollows(std::vector<Dim> from, std::vector<Dim> shape) {
  std::erase_if(shape, [&](const Dim& size) {
    const auto same = size.is_constant() ? from.end() : std::find(from.begin(), from.end(), size);
    if (same == from.end()) return false;
    from.erase(same);
    return true;
  });
  const std::optional<Dim> total = Dim::Product(from), wanted = Dim::Product(shape);
  return total && wanted ? Rows(*total, *wanted) : std::nullopt;
}

absl::StatusOr<TensorTypes> InferReshape(std::span<const TensorType> inputs, const Attrs& attrs,
                                         DimEqualities* equal) {
  TensorType out{inputs[0].dtype, GetDims(attrs, "shape")};
  TensorType shape = out;
  const auto follows = std::find(shape.shape.begin(), shape.shape.end(), Dim(-1));
  if (follows != shape.shape.end()) *follows = 1;
  const std::optional<Dim> total = Dim::Product(inputs[0].shape);
  const std::optional<Dim> wanted = Dim::Product(shape.shape);
  if (!total || !wanted) return NotFixed("reshape", ToText(inputs[0]));
  bool fits = CheckShape(shape).ok();
  if (fits && follows != shape.shape.end()) {
    const std::optional<Dim> rest = WhatFollows(inputs[0].shape, shape.shape);
    if (!rest && !total->constant()) return NotFixed("reshape", total->ToText());
    fits = rest.has_value() && MayEqual(*total, *rest * *wanted, equal);
    if (fits) out.shape[follows - shape.shape.begin()] = *rest;
  } else if (fits) {
    fits = MayEqual(*total, *wanted, equal);
  }
  if (!fits) {
    return OpError(
        "reshape", "shape",
        StrCat("expected a shape of ", total->ToText(), " elements, found ", ToText(out)));
  }
  return TensorTypes{out};
}

ir::Expr ReshapeElement(const ElementArgs& a) {
  const auto& [b, inputs, input_types, output, index, attrs] = a;
  const Dim one(1);
  ir::Expr flat = ir::Int(0);
  const std::vector<Dim> strides = RowMajorStrides(output.shape);
  for (size_t d = 0; d < index.size(); ++d) {
    if (output.shape[d] == one) continue;
    ir::Expr term = strides[d] == one ? index[d] : index[d] * SizeExpr(b, strides[d]);
    flat = ir::IsInt(flat, 0) ? term : flat + term;
  }
  const std::vector<Dim>& shape = input_types[0].shape;
  const std::vector<Dim> from = RowMajorStrides(shape);
  bool outermost = true;  // only dimensions of 1 are outside of this one
  std::vector<ir::Expr> at;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == one) {
      at.push_back(ir::Int(0));
      continue;
    }
    ir::Expr i = from[d] == one ? flat : ir::FloorDiv(flat, SizeExpr(b, from[d]));
    at.push_back(outermost ? i : ir::FloorMod(i, SizeExpr(b, shape[d])));
    outermost = false;
  }
  return inputs[0](std::move(at));
}

absl::StatusOr<std::vector<RefTensor>> PlainReshape(std::span<const RefTensor> inputs,
                                                    std::span<const TensorType> outputs,
                                                    const Attrs&) {
  return std::vector<RefTensor>{{outputs[0], inputs[0].values}};
}

// ------------------------------------------------------------ transpose

absl::StatusOr<TensorTypes> InferTranspose(std::span<const TensorType> inputs, const Attrs& attrs,
                                           DimEqualities*) {
  const std::vector<int64_t> perm = GetInts(attrs, "perm", {});
  const size_t rank = inputs[0].shape.size();
  std::vector<bool> seen(rank, false);
  bool valid = perm.size() == rank;
  TensorType out{inputs[0].dtype, {}};
  for (size_t d = 0; valid && d < rank; ++d) {
    valid = perm[d] >= 0 && perm[d] < static_cast<int64_t>(rank) && !seen[perm[d]];
    if (!valid) break;
    seen[perm[d]] = true;
    out.shape.push_back(inputs[0].shape[perm[d]]);
  }
  if (!valid) {
    return OpError("transpose", "perm",
                   StrCat("expected a permutation of ", rank, " dimensions, found [",
                          support::Join(perm, ","), "]"));
  }
  return TensorTypes{out};
}

ir::Expr TransposeElement(const ElementArgs& a) {
  const auto& [b, inputs, input_types, output, index, attrs] = a;
  const std::vector<int64_t> perm = GetInts(attrs, "perm", {});
  std::vector<ir::Expr> at(index.size());
  for (size_t d = 0; d < perm.size(); ++d) at[perm[d]] = index[d];
  return inputs[0](std::move(at));
}

absl::StatusOr<std::vector<RefTensor>> PlainTranspose(std::span<const RefTensor> inputs,
                                                      std::span<const TensorType> outputs,
                                                      const Attrs& attrs) {
  const std::vector<int64_t> perm = GetInts(attrs, "perm", {});
  const std::vector<int64_t> strides = RowMajorStrides(inputs[0].type.sizes());
  const std::vector<int64_t> sizes = outputs[0].sizes();
  std::vector<int64_t> index(perm.size(), 0);
  RefTensor out{outputs[0], {}};
  do {
    int64_t at = 0;
    for (size_t d = 0; d < perm.size(); ++d) at += index[d] * strides[perm[d]];
    out.values.push_back(inputs[0].values[at]);
  } while (NextIndex(sizes, &index));
  return std::vector<RefTensor>{std::move(out)};
}

// ------------------------------------------------------------ batch_norm

// Operands: x [n,c,...], scale, bias, mean, variance [c].
absl::StatusOr<TensorTypes> InferBatchNorm(std::span<const TensorType> inputs, const Attrs&,
                                           DimEqualities* equal) {
  const TensorType& x = inputs[0];
  if (x.shape.size() < 2) {
    return OpError("batch_norm", "shape",
                   StrCat("expected data of rank 2 or more, found ", ToText(x)));
  }
  for (const TensorType& in : inputs.subspan(1)) {
    if (!MayEqual(in.shape, {x.shape[1]}, equal) || in.dtype != x.dtype) {
      return OpError(
          "batch_norm", "shape",
          StrCat("expected parameters of ", DimsText({x.shape[1]}), ", found ", ToText(in)));
    }
  }
  return TensorTypes{x};
}

ir::Expr BatchNormElement(const ElementArgs& a) {
  const auto& [b, inputs, input_types, output, index, attrs] = a;
  const ir::DType dtype = input_types[0].dtype;
  const std::vector<ir::Expr> c = {index[1]};
  const ir::Expr epsilon = ir::Float(GetDouble(attrs, "epsilon", 1e-5), dtype);
  ir::Expr deviation = ir::Call(ir::Intrinsic::kSqrt, {inputs[4](c) + epsilon});
  return (inputs[0](index) - inputs[3](c)) * (inputs[1](c) / deviation) + inputs[2](c);
}

absl::StatusOr<std::vector<RefTensor>> PlainBatchNorm(std::span<const RefTensor> inputs,
                                                      std::span<const TensorType> outputs,
                                                      const Attrs& attrs) {
  const double epsilon = GetDouble(attrs, "epsilon", 1e-5);
  RefTensor out{outputs[0], inputs[0].values};
  const int64_t inner = RowMajorStrides(outputs[0].sizes())[1], channels = outputs[0].size(1);
  for (size_t i = 0; i < out.values.size(); ++i) {
    const int64_t c = static_cast<int64_t>(i) / inner % channels;
    out.values[i] = (out.values[i] - inputs[3].values[c]) /
                        std::sqrt(inputs[4].values[c] + epsilon) * inputs[1].values[c] +
                    inputs[2].values[c];
  }
  return std::vector<RefTensor>{std::move(out)};
}

// ------------------------------------------------------------ bitcast

absl::StatusOr<TensorTypes> InferBitcast(std::span<const TensorType> inputs, const Attrs& attrs,
                                         DimEqualities*) {
  const std::string name = GetString(attrs, "dtype", "");
  const ir::DType from = inputs[0].dtype;
  TensorType out = inputs[0];
  const bool known = ir::ParseType(name, &out.dtype) && out.dtype.lanes == 1;
  if (!known || out.dtype.bits != from.bits || out.dtype.is_bool() || from.is_bool()) {
    return OpError("bitcast", "attribute",
                   StrCat("expected as dtype a type of numbers of ", from.bits, " bits, for ",
                          ToText(inputs[0]), ", found '", name, "'"));
  }
  return TensorTypes{out};
}

absl::StatusOr<std::vector<RefTensor>> PlainBitcast(std::span<const RefTensor> inputs,
                                                    std::span<const TensorType> outputs,
                                                    const Attrs&) {
  TW_ASSIGN(RefTensor out, FromBytes(outputs[0], ToBytes(inputs[0])));
  return std::vector<RefTensor>{std::move(out)};
}

OpSpec Injective(std::string_view name, std::vector<std::string_view> onnx) {
  OpSpec spec;
  spec.name = name;
  spec.onnx = std::move(onnx);
  spec.fusion = FusionClass::kInjective;
  spec.takes_empty = true;
  return spec;
}

double NoFlops(std::span<const TensorType>, std::span<const TensorType>, const Attrs&) { return 0; }

}  // namespace

std::vector<OpSpec> ShapeRows() {
  OpSpec reshape = Injective("reshape", {"Reshape", "Flatten", "Squeeze", "Unsqueeze"});
  reshape.infer = InferReshape;
  reshape.sizes_attr = "shape";
  reshape.element = ReshapeElement;
  reshape.flops = NoFlops;
  reshape.reference = PlainReshape;
  reshape.moves = 1;
  reshape.alias = true;

  OpSpec bitcast = Injective("bitcast", {"BitCast"});
  bitcast.fusion = FusionClass::kOpaque;  // no kernel has an instruction for it
  bitcast.infer = InferBitcast;
  bitcast.flops = NoFlops;
  bitcast.reference = PlainBitcast;
  bitcast.reads_wide = true;
  bitcast.alias = true;

  OpSpec transpose = Injective("transpose", {"Transpose"});
  transpose.infer = InferTranspose;
  transpose.element = TransposeElement;
  transpose.flops = NoFlops;
  transpose.reference = PlainTranspose;
  transpose.moves = 1;

  OpSpec batch_norm = Injective("batch_norm", {"BatchNormalization"});
  batch_norm.min_inputs = batch_norm.max_inputs = 5;
  batch_norm.types = kFloats;
  batch_norm.infer = InferBatchNorm;
  batch_norm.element = BatchNormElement;
  batch_norm.flops = [](std::span<const TensorType>, std::span<const TensorType> outputs,
                        const Attrs&) { return 2.0 * static_cast<double>(outputs[0].elements()); };
  batch_norm.reference = PlainBatchNorm;
  batch_norm.domain = [](size_t, const Attrs&) { return Domain::kPositive; };
  return {reshape, bitcast, transpose, batch_norm};
}

}  // namespace tilewright::op
