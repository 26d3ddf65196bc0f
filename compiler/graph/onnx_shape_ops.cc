// Conversions of operators that move, select or name elements.
#include <algorithm>

#include "compiler/graph/onnx_conversions.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {

using support::StrCat;

Result ImportReshape(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const op::TensorType type = n.importer().TypeOf(x);
  std::vector<int64_t> shape;
  if (n.importer().opset() < 5) {
    TW_ASSIGN(shape, n.Ints("shape", {}));
  } else {
    TW_ASSIGN(shape, n.InputInts(1, "the new shape"));
  }
  TW_ASSIGN(const int64_t allow_zero, n.Int("allowzero", 0));
  int64_t known = 1, inferred = -1;
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0 && allow_zero == 0 && d < type.shape.size()) shape[d] = type.shape[d];
    if (shape[d] == -1 && inferred < 0) {
      inferred = static_cast<int64_t>(d);
    } else if (shape[d] < 1 || __builtin_mul_overflow(known, shape[d], &known)) {
      return n.Error("shape", StrCat("expected a shape of ", type.elements(), " elements, found [",
                                     support::Join(shape, ","), "]"));
    }
  }
  if (inferred >= 0) shape[inferred] = type.elements() / known;
  return Reshaped(n, x, shape, n.output_name());
}

Result ImportFlatten(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const std::vector<int64_t> shape = n.importer().TypeOf(x).shape;
  TW_ASSIGN(int64_t axis, n.Int("axis", 1));
  const int64_t rank = static_cast<int64_t>(shape.size());
  if (axis < -rank || axis > rank) {
    return n.Error("attribute", StrCat("expected axis in ", -rank, " to ", rank, ", found ", axis));
  }
  if (axis < 0) axis += rank;
  int64_t outer = 1, inner = 1;
  for (int64_t d = 0; d < rank; ++d) (d < axis ? outer : inner) *= shape[d];
  return Reshaped(n, x, {outer, inner}, n.output_name());
}

Result ImportSqueeze(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const std::vector<int64_t> shape = n.importer().TypeOf(x).shape;
  TW_ASSIGN(const std::vector<int64_t> axes, ReadAxes(n, 1, static_cast<int64_t>(shape.size())));
  std::vector<int64_t> result;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool listed = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(d));
    if (listed && shape[d] != 1) {
      return n.Error("axes", StrCat("expected a dimension of 1 at axis ", d, ", found ", shape[d]));
    }
    if (!(listed || (axes.empty() && shape[d] == 1))) result.push_back(shape[d]);
  }
  return Reshaped(n, x, result, n.output_name());
}

Result ImportUnsqueeze(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const std::vector<int64_t> shape = n.importer().TypeOf(x).shape;
  size_t count = n.HasInput(1) ? 0 : n.Find("axes") == nullptr ? 0 : n.Find("axes")->ints_size();
  if (n.HasInput(1)) {
    TW_ASSIGN(const std::vector<int64_t> raw, n.InputInts(1, "axes"));
    count = raw.size();
  }
  const int64_t rank = static_cast<int64_t>(shape.size() + count);
  if (rank > 16) return n.Error("axes", StrCat("expected rank 16 at most, found ", rank));
  TW_ASSIGN(const std::vector<int64_t> axes, ReadAxes(n, 1, rank));
  std::vector<int64_t> result;
  size_t from = 0;
  for (int64_t d = 0; d < rank; ++d) {
    result.push_back(std::binary_search(axes.begin(), axes.end(), d) ? 1 : shape[from++]);
  }
  return Reshaped(n, x, result, n.output_name());
}

Result ImportTranspose(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const size_t rank = n.importer().TypeOf(x).shape.size();
  std::vector<int64_t> reversed;
  for (size_t d = rank; d-- > 0;) reversed.push_back(static_cast<int64_t>(d));
  TW_ASSIGN(std::vector<int64_t> perm, n.Ints("perm", reversed));
  return n.importer().Emit("transpose", {x}, {{"perm", perm}}, n.output_name());
}

Result ImportConstant(NodeReader& n) {
  Importer& importer = n.importer();
  if (const pb::AttributeProto* value = n.Find("value")) {
    TW_ASSIGN(HostConstant tensor, ReadTensor(value->t(), importer.max_bytes()));
    if (tensor.empty) return n.Error("empty_tensor", "expected at least one element, found none");
    return importer.Constant(n.output_name(), tensor.type, tensor.bytes);
  }
  op::RefTensor tensor;
  auto fill = [&](ir::DType dtype, const auto& values, bool scalar) {
    tensor.type.dtype = dtype;
    if (!scalar) tensor.type.shape = {static_cast<int64_t>(values.size())};
    tensor.values.assign(values.begin(), values.end());
  };
  if (const auto* f = n.Find("value_float")) {
    fill(ir::kF32, std::vector<float>{f->f()}, true);
  } else if (const auto* i = n.Find("value_int")) {
    fill(ir::kI64, std::vector<int64_t>{i->i()}, true);
  } else if (const auto* fs = n.Find("value_floats")) {
    fill(ir::kF32, fs->floats(), false);
  } else if (const auto* is = n.Find("value_ints")) {
    fill(ir::kI64, is->ints(), false);
  } else {
    return n.Error("attribute", "expected a tensor or numbers as value, found another form");
  }
  if (tensor.values.empty()) return n.Error("empty_tensor", "expected values, found none");
  return importer.Constant(n.output_name(), tensor.type, op::ToBytes(tensor));
}

Result ImportConstantOfShape(NodeReader& n) {
  Importer& importer = n.importer();
  TW_ASSIGN(const std::vector<int64_t> shape, n.InputInts(0, "shape"));
  HostConstant element{{ir::kF32, {}}, false, std::string(4, '\0')};
  if (const pb::AttributeProto* value = n.Find("value")) {
    TW_ASSIGN(element, ReadTensor(value->t(), importer.max_bytes()));
  }
  const int64_t width = element.type.dtype.bytes();
  if (element.empty || static_cast<int64_t>(element.bytes.size()) != width) {
    return n.Error("attribute", "expected one element as value, found another number of them");
  }
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0) return n.Error("shape", StrCat("expected sizes >= 0, found ", size));
    if (size == 0) return n.Error("empty_tensor", "expected at least one element, found none");
    if (count > importer.max_bytes() / width / size) {
      return n.Error("too_large",
                     StrCat("expected at most ", importer.max_bytes(), " bytes, found a shape [",
                            support::Join(shape, ","), "]"));
    }
    count *= size;
  }
  std::string bytes;
  bytes.reserve(static_cast<size_t>(count * width));
  for (int64_t i = 0; i < count; ++i) bytes += element.bytes;
  return importer.Constant(n.output_name(), {element.type.dtype, shape}, bytes);
}

Result ImportShape(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const std::vector<int64_t> shape = n.importer().TypeOf(x).shape;
  const int64_t rank = static_cast<int64_t>(shape.size());
  TW_ASSIGN(int64_t start, n.Int("start", 0));
  TW_ASSIGN(int64_t end, n.Int("end", rank));
  start = std::clamp(start < 0 ? start + rank : start, int64_t{0}, rank);
  end = std::clamp(end < 0 ? end + rank : end, int64_t{0}, rank);
  if (start >= end) return n.Error("empty_tensor", "expected a shape with dimensions, found none");
  op::RefTensor result{{ir::kI64, {end - start}}, {}};
  for (int64_t d = start; d < end; ++d) result.values.push_back(static_cast<double>(shape[d]));
  return n.importer().Constant(n.output_name(), result.type, op::ToBytes(result));
}

// Data operands beyond the first few are possible only where an operator is variadic.
Result ImportConcat(NodeReader& n) {
  std::vector<ValueId> parts;
  for (int i = 0; i < n.num_inputs(); ++i) {
    TW_ASSIGN(ValueId id, n.Input(i));
    parts.push_back(id);
  }
  if (parts.empty()) return n.Error("inputs", "expected operands, found none");
  TW_ASSIGN(const int64_t axis,
            ReadAxis(n, 1, static_cast<int64_t>(n.importer().TypeOf(parts[0]).shape.size())));
  return n.importer().Emit("concat", parts, {{"axis", axis}}, n.output_name());
}

// One dimension of a slice as ONNX writes it: clamped, so that start + i * step is always inside.
struct Extent {
  int64_t start, step, count;
};
Extent ClampSlice(int64_t start, int64_t end, int64_t step, int64_t size) {
  if (start < 0) start = start < -size ? (step > 0 ? 0 : -1) : start + size;
  if (end < 0) end = end < -size ? -1 : end + size;
  if (step > 0) {
    start = std::clamp<int64_t>(start, 0, size);
    end = std::clamp<int64_t>(end, 0, size);
    return {start, step, end > start ? (end - start - 1) / step + 1 : 0};
  }
  start = std::clamp<int64_t>(start, -1, size - 1);
  end = std::clamp<int64_t>(end, -1, size - 1);
  return {start, step, start > end ? (start - end - 1) / -step + 1 : 0};
}

Result ImportSlice(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const std::vector<int64_t> shape = n.importer().TypeOf(x).shape;
  const bool attributes = n.importer().opset() < 10;
  std::vector<int64_t> starts, ends, axes, steps;
  if (attributes) {
    TW_ASSIGN(starts, n.Ints("starts", {}));
    TW_ASSIGN(ends, n.Ints("ends", {}));
    TW_ASSIGN(axes, n.Ints("axes", {}));
  } else {
    TW_ASSIGN(starts, n.InputInts(1, "starts"));
    TW_ASSIGN(ends, n.InputInts(2, "ends"));
    if (n.HasInput(3)) {
      TW_ASSIGN(axes, n.InputInts(3, "axes"));
    }
    if (n.HasInput(4)) {
      TW_ASSIGN(steps, n.InputInts(4, "steps"));
    }
  }
  if (axes.empty()) {
    for (size_t i = 0; i < starts.size(); ++i) axes.push_back(static_cast<int64_t>(i));
  }
  if (steps.empty()) steps.assign(starts.size(), 1);
  if (ends.size() != starts.size() || axes.size() != starts.size() ||
      steps.size() != starts.size()) {
    return n.Error("inputs", "expected as many starts as ends, axes and steps, found other counts");
  }
  const int64_t rank = static_cast<int64_t>(shape.size());
  for (size_t i = 0; i < starts.size(); ++i) {
    const int64_t axis = axes[i] < 0 ? axes[i] + rank : axes[i];
    if (axis < 0 || axis >= rank || steps[i] == 0 || steps[i] == INT64_MIN) {
      return n.Error("axes", "expected axes of the operand and steps other than 0, found others");
    }
    const Extent e = ClampSlice(starts[i], ends[i], steps[i], shape[axis]);
    if (e.count == 0) return n.Error("empty_tensor", "expected at least one element, found none");
    TW_ASSIGN(x, Sliced(n, x, axis, e.start, e.count == 1 ? 1 : e.step, e.count,
                        PartName(n, StrCat("_axis", axis))));
  }
  return n.importer().Emit("identity", {x}, {}, n.output_name());
}

Result ImportSplit(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const std::vector<int64_t> shape = n.importer().TypeOf(x).shape;
  TW_ASSIGN(const int64_t axis, ReadAxis(n, 0, static_cast<int64_t>(shape.size())));
  std::vector<int64_t> sizes;
  if (n.HasInput(1)) {
    TW_ASSIGN(sizes, n.InputInts(1, "split"));
  } else {
    TW_ASSIGN(sizes, n.Ints("split", {}));
  }
  if (sizes.empty()) {
    const int64_t parts = n.num_outputs();
    const int64_t each = (shape[axis] + parts - 1) / parts;
    sizes.assign(parts, each);
    sizes.back() = shape[axis] - each * (parts - 1);
  }
  int64_t at = 0;
  for (int64_t size : sizes) {
    if (size < 1 || size > shape[axis] - at) {
      return n.Error("split", StrCat("expected parts that make up ", shape[axis], ", found [",
                                     support::Join(sizes, ","), "]"));
    }
    at += size;
  }
  if (at != shape[axis] || static_cast<int>(sizes.size()) != n.num_outputs()) {
    return n.Error("split", "expected a part per output, found other counts");
  }
  ValueId first = -1;
  at = 0;
  for (int i = 0; i < n.num_outputs(); ++i) {
    TW_ASSIGN(ValueId part, Sliced(n, x, axis, at, 1, sizes[i], n.output_name(i)));
    at += sizes[i];
    if (i == 0) first = part;
    if (i > 0) TW_TRY(n.BindOutput(i, part));
  }
  return first;
}

Result ImportGather(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  TW_ASSIGN(ValueId indices, n.Input(1));
  TW_ASSIGN(const int64_t axis,
            ReadAxis(n, 0, static_cast<int64_t>(n.importer().TypeOf(x).shape.size())));
  return n.importer().Emit("gather", {x, indices}, {{"axis", axis}}, n.output_name());
}

Result ImportPad(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const int64_t rank = static_cast<int64_t>(n.importer().TypeOf(x).shape.size());
  TW_ASSIGN(const std::string mode, n.String("mode", "constant"));
  if (mode != "constant" || n.HasInput(3)) {
    return n.Error("attribute",
                   StrCat("expected mode constant for all axes, found ", support::Quote(mode)));
  }
  std::vector<int64_t> pads;
  double value = 0;
  if (n.importer().opset() < 11) {
    TW_ASSIGN(pads, n.Ints("pads", {}));
    TW_ASSIGN(value, n.Float("value", 0));
  } else {
    TW_ASSIGN(pads, n.InputInts(1, "pads"));
    if (n.HasInput(2)) {
      TW_ASSIGN(ValueId fill, n.Input(2));
      std::optional<double> scalar = n.importer().ConstantScalar(fill);
      if (!scalar) return n.Error("dynamic", "expected a constant pad value, found another");
      value = *scalar;
    }
  }
  if (static_cast<int64_t>(pads.size()) != 2 * rank) {
    return n.Error("attribute", StrCat("expected ", 2 * rank, " pads, found ", pads.size()));
  }
  return n.importer().Emit("pad", {x}, {{"pads", pads}, {"value", value}}, n.output_name());
}

}  // namespace tilewright::graph::onnx
