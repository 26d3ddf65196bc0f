// Operators that select, repeat or place elements along axes: concat, slice, gather, pad, expand;
// and counting, which makes positions.
#include <algorithm>
#include <optional>

#include "compiler/ir/numeric.h"
#include "compiler/op/empty.h"
#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;

constexpr int kMaxParts = 4096;

ir::Expr AddConstant(const ir::Expr& e, int64_t value) {
  if (value == 0) return e;
  return value > 0 ? e + ir::Int(value) : e - ir::Int(-value);
}
ir::Expr Minus(ir::FunctionBuilder& b, const ir::Expr& e, const Dim& dim) {
  return dim.is_constant() ? AddConstant(e, -dim.value()) : e - SizeExpr(b, dim);
}

// Values of `out` by a rule that maps each output index to a flat position of an input, or -1.
template <typename Rule>
RefTensor Mapped(const TensorType& type, const Rule& rule) {
  RefTensor out{type, {}};
  out.values.reserve(type.elements());
  const std::vector<int64_t> sizes = type.sizes();
  std::vector<int64_t> index(sizes.size(), 0);
  do {
    out.values.push_back(rule(index));
  } while (NextIndex(sizes, &index));
  return out;
}

int64_t Flat(const std::vector<int64_t>& index, const std::vector<int64_t>& strides) {
  int64_t at = 0;
  for (size_t d = 0; d < index.size(); ++d) at += index[d] * strides[d];
  return at;
}

// ------------------------------------------------------------ concat

absl::StatusOr<TensorTypes> InferConcat(std::span<const TensorType> inputs, const Attrs& attrs,
                                        DimEqualities* equal) {
  TensorType out = inputs[0];
  TW_ASSIGN(const int64_t axis,
            NormalizeAxis("concat", GetInt(attrs, "axis", 0), out.shape.size()));
  for (const TensorType& in : inputs.subspan(1)) {
    std::vector<Dim> like = in.shape;
    if (like.size() == out.shape.size()) like[axis] = out.shape[axis];
    if (!MayEqual(like, out.shape, equal) || in.dtype != out.dtype) {
      return OpError("concat", "shape",
                     StrCat("expected operands that differ in dimension ", axis, " only, found ",
                            ToText(inputs[0]), " and ", ToText(in)));
    }
    out.shape[axis] = out.shape[axis] + in.shape[axis];
  }
  return TensorTypes{out};
}

ir::Expr ConcatElement(const ElementArgs& a) {
  const auto& [b, inputs, input_types, output, index, attrs] = a;
  const size_t axis = *NormalizeAxis("concat", GetInt(attrs, "axis", 0), output.shape.size());
  Dim start = output.shape[axis];
  ir::Expr result;
  for (size_t i = inputs.size(); i-- > 0;) {
    const Dim end = start;
    start = start - input_types[i].shape[axis];
    std::vector<ir::Expr> at = index;
    at[axis] = Minus(b, index[axis], start);
    ir::Expr value = inputs[i](std::move(at));
    result = result == nullptr ? value : ir::Select(index[axis] < SizeExpr(b, end), value, result);
  }
  return result;
}

absl::StatusOr<std::vector<RefTensor>> PlainConcat(std::span<const RefTensor> inputs,
                                                   std::span<const TensorType> outputs,
                                                   const Attrs& attrs) {
  const size_t axis = *NormalizeAxis("concat", GetInt(attrs, "axis", 0), outputs[0].shape.size());
  // Which operand each position along the axis comes from, and where in it.
  std::vector<std::pair<size_t, int64_t>> origin;
  std::vector<std::vector<int64_t>> strides;
  for (size_t i = 0; i < inputs.size(); ++i) {
    strides.push_back(RowMajorStrides(inputs[i].type.sizes()));
    for (int64_t k = 0; k < inputs[i].type.size(axis); ++k) origin.emplace_back(i, k);
  }
  return std::vector<RefTensor>{Mapped(outputs[0], [&](std::vector<int64_t> index) {
    const auto [part, k] = origin[index[axis]];
    index[axis] = k;
    return inputs[part].values[Flat(index, strides[part])];
  })};
}

// ------------------------------------------------------------ slice

// The number of positions start, start + step, … of a dimension: `size`, or all where it is -1.
// Returns nullopt if one of them surely is outside.
std::optional<Dim> SliceSize(const Dim& dim, const Dim& start, int64_t step, const Dim& size) {
  // Products of these are no overflow.
  constexpr int64_t kMost = int64_t{1} << 31;
  const Dim end = dim - Dim(1);
  if (SurelyBelow(start, 0) || SurelyBelow(end, start)) return std::nullopt;
  if (size == Dim(-1) && step >= 1) return (end - start).FloorDiv(step) + Dim(1);
  const bool small = size.constant().value_or(0) <= kMost && step <= kMost && step >= -kMost;
  if (!small && size != Dim(1)) return std::nullopt;
  const Dim last = size == Dim(1) ? start : start + (size - Dim(1)) * Dim(step);
  const bool inside =
      !SurelyBelow(size, 1) && step != 0 && !SurelyBelow(last, 0) && !SurelyBelow(end, last);
  return inside ? std::optional<Dim>(size) : std::nullopt;
}

// Per dimension: output index i reads starts + i * steps.
absl::StatusOr<TensorTypes> InferSlice(std::span<const TensorType> inputs, const Attrs& attrs,
                                       DimEqualities*) {
  const std::vector<Dim>& dims = inputs[0].shape;
  const auto starts = GetDims(attrs, "starts"), sizes = GetDims(attrs, "sizes");
  const auto steps = GetInts(attrs, "steps", {});
  TensorType out{inputs[0].dtype, {}};
  bool valid =
      starts.size() == dims.size() && steps.size() == dims.size() && sizes.size() == dims.size();
  for (size_t d = 0; valid && d < dims.size(); ++d) {
    const std::optional<Dim> size = SliceSize(dims[d], starts[d], steps[d], sizes[d]);
    valid = size.has_value();
    out.shape.push_back(size.value_or(Dim()));
  }
  if (!valid) {
    return OpError(
        "slice", "range",
        StrCat("expected starts, steps and sizes inside of ", ToText(inputs[0]), ", found ",
               DimsText(starts), ", [", support::Join(steps, ","), "], ", DimsText(sizes)));
  }
  return TensorTypes{out};
}

ir::Expr SliceElement(const ElementArgs& a) {
  const auto& [b, inputs, input_types, output, index, attrs] = a;
  const auto starts = GetDims(attrs, "starts");
  const auto steps = GetInts(attrs, "steps", {});
  std::vector<ir::Expr> at;
  for (size_t d = 0; d < index.size(); ++d) {
    ir::Expr scaled = steps[d] == 1 ? index[d] : index[d] * ir::Int(steps[d]);
    at.push_back(starts[d].is_constant() ? AddConstant(scaled, starts[d].value())
                                         : scaled + SizeExpr(b, starts[d]));
  }
  return inputs[0](std::move(at));
}

absl::StatusOr<std::vector<RefTensor>> PlainSlice(std::span<const RefTensor> inputs,
                                                  std::span<const TensorType> outputs,
                                                  const Attrs& attrs) {
  const auto starts = GetInts(attrs, "starts", {}), steps = GetInts(attrs, "steps", {});
  const std::vector<int64_t> strides = RowMajorStrides(inputs[0].type.sizes());
  return std::vector<RefTensor>{Mapped(outputs[0], [&](std::vector<int64_t> index) {
    for (size_t d = 0; d < index.size(); ++d) index[d] = starts[d] + index[d] * steps[d];
    return inputs[0].values[Flat(index, strides)];
  })};
}

// ------------------------------------------------------------ gather

// out[..., i..., ...] = data[..., indices[i...], ...]; negative indices count from the end, others
// outside are clamped, so that no value of an input makes a kernel read outside its buffers.
absl::StatusOr<TensorTypes> InferGather(std::span<const TensorType> inputs, const Attrs& attrs,
                                        DimEqualities*) {
  const TensorType &data = inputs[0], &indices = inputs[1];
  TW_ASSIGN(const int64_t axis,
            NormalizeAxis("gather", GetInt(attrs, "axis", 0), data.shape.size()));
  if (indices.dtype != ir::kI64 && indices.dtype != ir::kI32) {
    return OpError("gather", "type",
                   StrCat("expected indices of i32 or i64, found ", ToText(indices)));
  }
  TensorType out{data.dtype, std::vector<Dim>(data.shape.begin(), data.shape.begin() + axis)};
  out.shape.insert(out.shape.end(), indices.shape.begin(), indices.shape.end());
  out.shape.insert(out.shape.end(), data.shape.begin() + axis + 1, data.shape.end());
  return TensorTypes{out};
}

// An index of a dimension of this size: negative ones count from the end, the rest is clamped. A
// size that is 0 when the module runs gives 0, which is inside of the buffer.
ir::Expr InRange(ir::FunctionBuilder& b, ir::Expr i, const Dim& size) {
  if (i->dtype != ir::kI64) i = ir::Cast(ir::kI64, i);
  i = ir::Select(i < ir::Int(0), i + SizeExpr(b, size), i);
  const ir::Expr last = SizeExpr(b, size - Dim(1));
  if (!size.is_constant()) return ir::Max(ir::Min(i, last), ir::Int(0));
  return ir::Min(ir::Max(i, ir::Int(0)), last);
}

ir::Expr GatherElement(const ElementArgs& a) {
  const auto& [b, inputs, input_types, output, index, attrs] = a;
  const std::vector<Dim>& data = input_types[0].shape;
  const size_t axis = *NormalizeAxis("gather", GetInt(attrs, "axis", 0), data.size());
  const size_t rank = input_types[1].shape.size();
  ir::Expr i = inputs[1]({index.begin() + axis, index.begin() + axis + rank});
  i = InRange(b, i, data[axis]);
  std::vector<ir::Expr> at(index.begin(), index.begin() + axis);
  at.push_back(i);
  at.insert(at.end(), index.begin() + axis + rank, index.end());
  return inputs[0](std::move(at));
}

absl::StatusOr<std::vector<RefTensor>> PlainGather(std::span<const RefTensor> inputs,
                                                   std::span<const TensorType> outputs,
                                                   const Attrs& attrs) {
  const std::vector<int64_t> data = inputs[0].type.sizes();
  const size_t axis = *NormalizeAxis("gather", GetInt(attrs, "axis", 0), data.size());
  const auto strides = RowMajorStrides(data), of_indices = RowMajorStrides(inputs[1].type.sizes());
  const size_t rank = of_indices.size();
  return std::vector<RefTensor>{Mapped(outputs[0], [&](const std::vector<int64_t>& index) {
    const std::vector<int64_t> which(index.begin() + axis, index.begin() + axis + rank);
    int64_t i = ir::CastFloatToInt(inputs[1].values[Flat(which, of_indices)], ir::kI64);
    if (i < 0) i += data[axis];
    std::vector<int64_t> at(index.begin(), index.begin() + axis);
    at.push_back(std::clamp<int64_t>(i, 0, data[axis] - 1));
    at.insert(at.end(), index.begin() + axis + rank, index.end());
    return inputs[0].values[Flat(at, strides)];
  })};
}

// ------------------------------------------------------------ gather_elements

// out[i] = data[i with indices[i] along the axis]; indices as gather has them.
absl::StatusOr<TensorTypes> InferGatherElements(std::span<const TensorType> inputs,
                                                const Attrs& attrs, DimEqualities*) {
  const TensorType &data = inputs[0], &indices = inputs[1];
  TW_ASSIGN(const int64_t axis,
            NormalizeAxis("gather_elements", GetInt(attrs, "axis", 0), data.shape.size()));
  if (indices.dtype != ir::kI64 && indices.dtype != ir::kI32) {
    return OpError("gather_elements", "type",
                   StrCat("expected indices of i32 or i64, found ", ToText(indices)));
  }
  bool inside = indices.shape.size() == data.shape.size();
  for (size_t d = 0; inside && d < data.shape.size(); ++d) {
    inside = static_cast<int64_t>(d) == axis || !SurelyBelow(data.shape[d], indices.shape[d]);
  }
  if (!inside) {
    return OpError("gather_elements", "shape",
                   StrCat("expected indices of the data's rank and no longer than it apart from ",
                          "dimension ", axis, ", found ", ToText(data), " and ", ToText(indices)));
  }
  return TensorTypes{{data.dtype, indices.shape}};
}

ir::Expr GatherElementsElement(const ElementArgs& a) {
  const auto& [b, inputs, input_types, output, index, attrs] = a;
  const std::vector<Dim>& data = input_types[0].shape;
  const size_t axis = *NormalizeAxis("gather_elements", GetInt(attrs, "axis", 0), data.size());
  std::vector<ir::Expr> at = index;
  at[axis] = InRange(b, inputs[1](index), data[axis]);
  return inputs[0](std::move(at));
}

absl::StatusOr<std::vector<RefTensor>> PlainGatherElements(std::span<const RefTensor> inputs,
                                                           std::span<const TensorType> outputs,
                                                           const Attrs& attrs) {
  const std::vector<int64_t> data = inputs[0].type.sizes();
  const size_t axis = *NormalizeAxis("gather_elements", GetInt(attrs, "axis", 0), data.size());
  const auto strides = RowMajorStrides(data), of_indices = RowMajorStrides(inputs[1].type.sizes());
  return std::vector<RefTensor>{Mapped(outputs[0], [&](std::vector<int64_t> index) {
    int64_t i = static_cast<int64_t>(inputs[1].values[Flat(index, of_indices)]);
    if (i < 0) i += data[axis];
    index[axis] = std::clamp<int64_t>(i, 0, data[axis] - 1);
    return inputs[0].values[Flat(index, strides)];
  })};
}

// ------------------------------------------------------------ pad

// pads: begin of every dimension, then end; negative ones crop. They may be expressions.
absl::StatusOr<TensorTypes> InferPad(std::span<const TensorType> inputs, const Attrs& attrs,
                                     DimEqualities*) {
  TensorType out = inputs[0];
  const size_t rank = out.shape.size();
  const std::vector<Dim> pads = GetDims(attrs, "pads");
  const bool sensible = std::all_of(pads.begin(), pads.end(), [](const Dim& pad) {
    return std::abs(pad.constant().value_or(0)) <= kMaxWindowAttr;
  });
  if (pads.size() != 2 * rank || !sensible) {
    return OpError("pad", "attribute",
                   StrCat("expected ", 2 * rank, " pads in ", -kMaxWindowAttr, " to ",
                          kMaxWindowAttr, ", found ", DimsText(pads)));
  }
  for (size_t d = 0; d < rank; ++d) out.shape[d] = out.shape[d] + pads[d] + pads[d + rank];
  return TensorTypes{out};
}

// What stands around the operand, as a number of its type.
double PadValue(const Attrs& attrs, ir::DType type) {
  return RoundToType(GetDouble(attrs, "value", 0), type);
}

ir::Expr PadElement(const ElementArgs& a) {
  const auto& [b, inputs, input_types, output, index, attrs] = a;
  const std::vector<Dim> pads = GetDims(attrs, "pads");
  const std::vector<Dim>& shape = input_types[0].shape;
  const auto crops = [](const Dim& pad) { return pad.is_constant() && pad.value() <= 0; };
  std::vector<ir::Expr> at, inside;
  for (size_t d = 0; d < index.size(); ++d) {
    at.push_back(Minus(b, index[d], pads[d]));
    if (!crops(pads[d])) inside.push_back(at[d] >= ir::Int(0));
    if (!crops(pads[d + index.size()])) inside.push_back(at[d] < SizeExpr(b, shape[d]));
  }
  const double value = PadValue(attrs, output.dtype);
  return Guarded(inside, inputs[0](at),
                 output.dtype.is_float() ? ir::Float(value, output.dtype)
                                         : ir::Int(static_cast<int64_t>(value), output.dtype));
}

absl::StatusOr<std::vector<RefTensor>> PlainPad(std::span<const RefTensor> inputs,
                                                std::span<const TensorType> outputs,
                                                const Attrs& attrs) {
  const std::vector<int64_t> pads = GetInts(attrs, "pads", {});
  const double value = PadValue(attrs, outputs[0].dtype);
  const std::vector<int64_t> shape = inputs[0].type.sizes();
  const std::vector<int64_t> strides = RowMajorStrides(shape);
  return std::vector<RefTensor>{Mapped(outputs[0], [&](std::vector<int64_t> index) {
    for (size_t d = 0; d < index.size(); ++d) {
      index[d] -= pads[d];
      if (index[d] < 0 || index[d] >= shape[d]) return value;
    }
    return inputs[0].values[Flat(index, strides)];
  })};
}

// ------------------------------------------------------------ expand

// The operand in the shape that attribute `shape` gives, as broadcasting repeats it.
absl::StatusOr<TensorTypes> InferExpand(std::span<const TensorType> inputs, const Attrs& attrs,
                                        DimEqualities* equal) {
  const TensorType out{inputs[0].dtype, GetDims(attrs, "shape")};
  std::vector<Dim> common;
  if (!CheckShape(out).ok() || !BroadcastDims(inputs[0].shape, out.shape, equal, &common) ||
      !MayEqual(common, out.shape, equal)) {
    return OpError(
        "expand", "shape",
        StrCat("expected a shape that ", ToText(inputs[0]), " broadcasts to, found ", ToText(out)));
  }
  return TensorTypes{out};
}

ir::Expr ExpandElement(const ElementArgs& a) {
  const auto& [b, inputs, input_types, output, index, attrs] = a;
  return inputs[0](BroadcastIndex(index, input_types[0].shape));
}

absl::StatusOr<std::vector<RefTensor>> PlainExpand(std::span<const RefTensor> inputs,
                                                   std::span<const TensorType> outputs,
                                                   const Attrs&) {
  const std::vector<int64_t> shape = inputs[0].type.sizes();
  const std::vector<int64_t> strides = RowMajorStrides(shape);
  const size_t skip = outputs[0].shape.size() - shape.size();
  return std::vector<RefTensor>{Mapped(outputs[0], [&](const std::vector<int64_t>& index) {
    int64_t at = 0;
    for (size_t d = 0; d < shape.size(); ++d) {
      at += shape[d] == 1 ? 0 : index[skip + d] * strides[d];
    }
    return inputs[0].values[at];
  })};
}

// ------------------------------------------------------------ counting

// start, start + step, ... as many as `shape` says. It has no operand: how sizes become data.
absl::StatusOr<TensorTypes> InferCounting(std::span<const TensorType>, const Attrs& attrs,
                                          DimEqualities*) {
  const std::vector<Dim> shape = GetDims(attrs, "shape"), start = GetDims(attrs, "start");
  const TensorType out{ir::kI64, shape};
  if (shape.size() != 1 || start.size() != 1 || !CheckShape(out).ok()) {
    return OpError("counting", "attribute",
                   StrCat("expected one start and a shape of one dimension, found ",
                          DimsText(start), " and ", DimsText(shape)));
  }
  return TensorTypes{out};
}

ir::Expr CountingElement(const ElementArgs& a) {
  const auto& [b, inputs, input_types, output, index, attrs] = a;
  const int64_t step = GetInt(attrs, "step", 1);
  const Dim start = GetDims(attrs, "start")[0];
  const ir::Expr scaled = step == 1 ? index[0] : index[0] * ir::Int(step);
  return start == Dim(0) ? scaled : scaled + SizeExpr(b, start);
}

absl::StatusOr<std::vector<RefTensor>> PlainCounting(std::span<const RefTensor>,
                                                     std::span<const TensorType> outputs,
                                                     const Attrs& attrs) {
  const int64_t step = GetInt(attrs, "step", 1), start = GetInts(attrs, "start", {0})[0];
  std::vector<int64_t> values;
  for (int64_t i = 0; i < outputs[0].elements(); ++i) values.push_back(start + i * step);
  return std::vector<RefTensor>{FromIntegers(outputs[0], values)};
}

OpSpec Row(std::string_view name) {
  OpSpec spec;
  spec.name = name;
  spec.fusion = FusionClass::kInjective;
  spec.flops = [](std::span<const TensorType>, std::span<const TensorType>, const Attrs&) {
    return 0.0;
  };
  return spec;
}

}  // namespace

std::vector<OpSpec> IndexingRows() {
  OpSpec concat = Row("concat");
  concat.takes_empty = true;
  concat.onnx = {"Concat"};
  concat.max_inputs = kMaxParts;
  concat.infer = InferConcat;
  concat.element = ConcatElement;
  concat.reference = PlainConcat;
  concat.moves = kMaxParts;

  OpSpec slice = Row("slice");
  slice.onnx = {"Slice", "Split"};
  slice.infer = InferSlice;
  slice.sizes_attr = "sizes";
  slice.element = SliceElement;
  slice.reference = PlainSlice;
  slice.moves = 1;

  OpSpec gather = Row("gather");
  gather.takes_empty = true;
  gather.onnx = {"Gather"};
  gather.min_inputs = gather.max_inputs = 2;
  gather.infer = InferGather;
  gather.element = GatherElement;
  gather.reference = PlainGather;
  gather.moves = 1;

  OpSpec gather_elements = Row("gather_elements");
  gather_elements.takes_empty = true;
  gather_elements.onnx = {"GatherElements"};
  gather_elements.min_inputs = gather_elements.max_inputs = 2;
  gather_elements.infer = InferGatherElements;
  gather_elements.element = GatherElementsElement;
  gather_elements.reference = PlainGatherElements;

  OpSpec pad = Row("pad");
  pad.takes_empty = true;
  pad.onnx = {"Pad"};
  pad.infer = InferPad;
  pad.element = PadElement;
  pad.reference = PlainPad;
  pad.of_empty = [](ir::DType type, const Attrs& attrs) -> absl::StatusOr<RefTensor> {
    return RefTensor{{type, {}}, {PadValue(attrs, type)}};
  };

  OpSpec expand = Row("expand");
  expand.takes_empty = true;
  expand.onnx = {"Expand", "Tile"};
  expand.infer = InferExpand;
  expand.sizes_attr = "shape";
  expand.element = ExpandElement;
  expand.reference = PlainExpand;

  // Two operands along the first dimension. Graphs use it for state (compiler/graph/keep_state.h).
  OpSpec append = concat;
  append.name = "append";
  append.onnx = {};
  append.min_inputs = append.max_inputs = 2;
  append.moves = 2;

  OpSpec counting = Row("counting");
  counting.min_inputs = counting.max_inputs = 0;
  counting.onnx = {"Range"};
  counting.infer = InferCounting;
  counting.sizes_attr = "shape";
  counting.element = CountingElement;
  counting.reference = PlainCounting;
  return {append, concat, slice, gather, gather_elements, pad, expand, counting};
}

}  // namespace tilewright::op
