// ONNX operators → rows of the operator table. What ONNX lets a model say in several ways
// (attributes or inputs, padding modes, old broadcasting) becomes one explicit form here.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/graph/onnx_importer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;
using Result = absl::StatusOr<ValueId>;

constexpr int64_t kAttrLimit = int64_t{1} << 24;  // windows, strides, pads beyond are absurd

std::string Name(NodeReader& n, std::string_view suffix) { return StrCat(n.output_name(), suffix); }

Result Reshaped(NodeReader& n, ValueId x, std::vector<int64_t> shape, const std::string& name) {
  return n.importer().Emit("reshape", {x}, {{"shape", std::move(shape)}}, name);
}

// ------------------------------------------------------------------------------------------
// elementwise

Result Elementwise(NodeReader& n) {
  const op::OpSpec* spec = nullptr;
  for (const op::OpSpec& row : op::Operators()) {
    if (row.elementwise() && row.onnx[0] == n.op_type()) spec = &row;
  }
  TW_CHECK(spec != nullptr) << n.op_type();
  if (n.importer().opset() < 7 && spec->max_inputs == 2) {
    TW_ASSIGN(const int64_t broadcast, n.Int("broadcast", 0));
    if (broadcast != 0 && n.Find("axis") != nullptr) {
      return n.Error("broadcast", "expected NumPy broadcasting, found the axis form of opset 6");
    }
  }
  std::vector<ValueId> inputs;
  for (int i = 0; i < spec->max_inputs; ++i) {
    TW_ASSIGN(ValueId id, n.Input(i));
    inputs.push_back(id);
  }
  op::Attrs attrs;
  for (const char* name : {"alpha", "beta"}) {
    if (n.Find(name) == nullptr) continue;
    TW_ASSIGN(attrs[name], n.Float(name, 0));
  }
  TW_ASSIGN(const std::string approximate, n.String("approximate", "none"));
  if (approximate != "none") {
    return n.Error("attribute", StrCat("expected approximate=none, found ", approximate));
  }
  if (spec->name == "prelu") {
    // ONNX aligns the slope of rank 1 with the channels.
    const auto &x = n.importer().TypeOf(inputs[0]), &slope = n.importer().TypeOf(inputs[1]);
    if (slope.shape.size() == 1 && x.shape.size() > 2 && slope.shape[0] == x.shape[1]) {
      std::vector<int64_t> shape(x.shape.size() - 1, 1);
      shape[0] = x.shape[1];
      TW_ASSIGN(inputs[1], Reshaped(n, inputs[1], shape, Name(n, "_slope")));
    }
  }
  return n.importer().Emit(spec->name, inputs, attrs, n.output_name());
}

// Sum, Max, Min of any number of operands: a chain.
Result Variadic(NodeReader& n) {
  const std::string row = n.op_type() == "Sum" ? "add" : n.op_type() == "Max" ? "max" : "min";
  TW_ASSIGN(ValueId value, n.Input(0));
  if (n.num_inputs() == 1) return n.importer().Emit("identity", {value}, {}, n.output_name());
  for (int i = 1; i < n.num_inputs(); ++i) {
    TW_ASSIGN(ValueId next, n.Input(i));
    const bool last = i + 1 == n.num_inputs();
    TW_ASSIGN(value, n.importer().Emit(row, {value, next}, {},
                                       last ? n.output_name() : Name(n, StrCat("_part", i))));
  }
  return value;
}

// One bound of a clip: constant ones become attributes, others max or min.
absl::Status ClipBound(NodeReader& n, int input, const char* attribute, op::Attrs* attrs,
                       std::optional<ValueId>* dynamic) {
  if (n.importer().opset() < 11) {
    if (n.Find(attribute) == nullptr) return absl::OkStatus();
    TW_ASSIGN((*attrs)[attribute], n.Float(attribute, 0));
    return absl::OkStatus();
  }
  if (!n.HasInput(input)) return absl::OkStatus();
  TW_ASSIGN(ValueId id, n.Input(input));
  std::optional<double> value = n.importer().ConstantScalar(id);
  if (value) (*attrs)[attribute] = *value;
  if (!value) *dynamic = id;
  return absl::OkStatus();
}

Result Clip(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  op::Attrs attrs;
  std::optional<ValueId> low, high;
  TW_TRY(ClipBound(n, 1, "min", &attrs, &low));
  TW_TRY(ClipBound(n, 2, "max", &attrs, &high));
  if (low) {
    TW_ASSIGN(x, n.importer().Emit("max", {*low, x}, {}, Name(n, "_low")));
  }
  if (high) {
    TW_ASSIGN(x, n.importer().Emit("min", {*high, x}, {}, Name(n, "_high")));
  }
  return n.importer().Emit("clip", {x}, attrs, n.output_name());
}

Result Identity(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  if (n.op_type() == "Dropout" && n.HasInput(2)) {
    TW_ASSIGN(ValueId mode, n.Input(2));
    std::optional<double> training = n.importer().ConstantScalar(mode);
    if (!training || *training != 0) {
      return n.Error("training", "expected inference mode, found training_mode");
    }
  }
  return n.importer().Emit("identity", {x}, {}, n.output_name());
}

// ------------------------------------------------------------------------------------------
// windows

struct WindowAttrs {
  std::vector<int64_t> kernel, strides, pads, dilations;  // pads: begin then end
};

absl::Status CheckValues(NodeReader& n, std::string_view what, const std::vector<int64_t>& values,
                         size_t count, int64_t low) {
  bool fine = values.size() == count;
  for (int64_t v : values) fine = fine && v >= low && v <= kAttrLimit;
  if (fine) return absl::OkStatus();
  return n.Error("attribute", StrCat("expected ", count, " values of ", what, " in ", low, " to ",
                                     kAttrLimit, ", found [", support::Join(values, ","), "]"));
}

// Attributes of a 2-D window operator over an input of spatial size `input`, with padding modes
// resolved.
absl::StatusOr<WindowAttrs> ReadWindow(NodeReader& n, const std::vector<int64_t>& input,
                                       std::vector<int64_t> kernel) {
  WindowAttrs w;
  TW_ASSIGN(w.kernel, n.Ints("kernel_shape", kernel));
  TW_ASSIGN(w.strides, n.Ints("strides", std::vector<int64_t>(input.size(), 1)));
  TW_ASSIGN(w.dilations, n.Ints("dilations", std::vector<int64_t>(input.size(), 1)));
  TW_ASSIGN(w.pads, n.Ints("pads", std::vector<int64_t>(2 * input.size(), 0)));
  TW_TRY(CheckValues(n, "kernel_shape", w.kernel, input.size(), 1));
  TW_TRY(CheckValues(n, "strides", w.strides, input.size(), 1));
  TW_TRY(CheckValues(n, "dilations", w.dilations, input.size(), 1));
  TW_TRY(CheckValues(n, "pads", w.pads, 2 * input.size(), 0));
  if (!kernel.empty() && w.kernel != kernel) {
    return n.Error("attribute",
                   StrCat("expected kernel_shape [", support::Join(kernel, ","),
                          "] as the weight has, found [", support::Join(w.kernel, ","), "]"));
  }
  TW_ASSIGN(const std::string mode, n.String("auto_pad", "NOTSET"));
  if (mode == "NOTSET" || mode.empty()) return w;
  if (mode != "VALID" && mode != "SAME_UPPER" && mode != "SAME_LOWER") {
    return n.Error("attribute", StrCat("expected a known auto_pad, found ", support::Quote(mode)));
  }
  for (size_t d = 0; d < input.size(); ++d) {
    const int64_t covered = w.dilations[d] * (w.kernel[d] - 1) + 1;
    const int64_t outputs = (input[d] + w.strides[d] - 1) / w.strides[d];
    int64_t total = std::max<int64_t>(0, (outputs - 1) * w.strides[d] + covered - input[d]);
    if (mode == "VALID") total = 0;
    const int64_t small = total / 2, large = total - total / 2;
    w.pads[d] = mode == "SAME_LOWER" ? large : small;
    w.pads[d + input.size()] = mode == "SAME_LOWER" ? small : large;
  }
  return w;
}

// A 1-D operand of a window operator as a 2-D one of height 1, and attributes to match.
void Widen(WindowAttrs* w) {
  w->kernel.insert(w->kernel.begin(), 1);
  w->strides.insert(w->strides.begin(), 1);
  w->dilations.insert(w->dilations.begin(), 1);
  w->pads = {0, w->pads[0], 0, w->pads[1]};
}

absl::StatusOr<std::vector<int64_t>> Spatial(NodeReader& n, ValueId x) {
  const auto& shape = n.importer().TypeOf(x).shape;
  if (shape.size() != 3 && shape.size() != 4) {
    return n.Error("rank", StrCat("expected one or two spatial dimensions, found ",
                                  op::ToText(n.importer().TypeOf(x))));
  }
  return std::vector<int64_t>(shape.begin() + 2, shape.end());
}

Result Flattened1d(NodeReader& n, ValueId value, bool flat) {
  if (!flat) return value;
  std::vector<int64_t> shape = n.importer().TypeOf(value).shape;
  shape.erase(shape.begin() + 2);
  return Reshaped(n, value, shape, n.output_name());
}

Result Expanded1d(NodeReader& n, ValueId value, bool flat, const char* suffix) {
  if (!flat) return value;
  std::vector<int64_t> shape = n.importer().TypeOf(value).shape;
  shape.insert(shape.begin() + 2, 1);
  return Reshaped(n, value, shape, Name(n, suffix));
}

Result Conv(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  TW_ASSIGN(ValueId w, n.Input(1));
  TW_ASSIGN(const std::vector<int64_t> spatial, Spatial(n, x));
  const auto& weight = n.importer().TypeOf(w).shape;
  if (weight.size() != spatial.size() + 2) {
    return n.Error("rank", StrCat("expected a weight of rank ", spatial.size() + 2, ", found ",
                                  op::ToText(n.importer().TypeOf(w))));
  }
  TW_ASSIGN(WindowAttrs window, ReadWindow(n, spatial, {weight.begin() + 2, weight.end()}));
  TW_ASSIGN(const int64_t group, n.Int("group", 1));
  const bool flat = spatial.size() == 1;
  if (flat) Widen(&window);
  TW_ASSIGN(x, Expanded1d(n, x, flat, "_x"));
  TW_ASSIGN(w, Expanded1d(n, w, flat, "_w"));
  std::vector<ValueId> inputs = {x, w};
  if (n.HasInput(2)) {
    TW_ASSIGN(ValueId bias, n.Input(2));
    inputs.push_back(bias);
  }
  TW_ASSIGN(ValueId out, n.importer().Emit("conv2d", inputs,
                                           {{"strides", window.strides},
                                            {"pads", window.pads},
                                            {"dilations", window.dilations},
                                            {"groups", group},
                                            {"weight_layout", std::string("OIHW")}},
                                           flat ? Name(n, "_2d") : n.output_name()));
  return Flattened1d(n, out, flat);
}

Result Pool(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  TW_ASSIGN(const std::vector<int64_t> spatial, Spatial(n, x));
  TW_ASSIGN(WindowAttrs w, ReadWindow(n, spatial, {}));
  TW_ASSIGN(const int64_t ceil_mode, n.Int("ceil_mode", 0));
  TW_ASSIGN(const int64_t include_pad, n.Int("count_include_pad", 0));
  const bool average = n.op_type() == "AveragePool";
  if (ceil_mode != 0 && average && include_pad != 0) {
    return n.Error("attribute", "expected ceil_mode without count_include_pad, found both");
  }
  for (size_t d = 0; ceil_mode != 0 && d < spatial.size(); ++d) {
    // The last window may hang over the end, but must begin inside the padded input.
    int64_t& end = w.pads[d + spatial.size()];
    const int64_t covered = w.dilations[d] * (w.kernel[d] - 1) + 1;
    const int64_t room = spatial[d] + w.pads[d] + end - covered;
    if (room < 0) continue;
    const int64_t extra = (w.strides[d] - room % w.strides[d]) % w.strides[d];
    const int64_t last_start = room + extra;
    if (extra > 0 && last_start < spatial[d] + w.pads[d]) end += extra;
  }
  const bool flat = spatial.size() == 1;
  if (flat) Widen(&w);
  TW_ASSIGN(x, Expanded1d(n, x, flat, "_x"));
  op::Attrs attrs = {{"kind", std::string(average ? "avg" : "max")},
                     {"kernel", w.kernel},
                     {"strides", w.strides},
                     {"pads", w.pads},
                     {"dilations", w.dilations}};
  if (average) attrs["count_include_pad"] = include_pad;
  TW_ASSIGN(ValueId out,
            n.importer().Emit("pool2d", {x}, attrs, flat ? Name(n, "_2d") : n.output_name()));
  return Flattened1d(n, out, flat);
}

Result GlobalPool(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const size_t rank = n.importer().TypeOf(x).shape.size();
  if (rank < 3) return n.Error("rank", "expected spatial dimensions, found none");
  std::vector<int64_t> axes;
  for (size_t d = 2; d < rank; ++d) axes.push_back(static_cast<int64_t>(d));
  return n.importer().Emit("reduce", {x},
                           {{"kind", std::string(n.op_type() == "GlobalMaxPool" ? "max" : "mean")},
                            {"axes", axes},
                            {"keepdims", int64_t{1}}},
                           n.output_name());
}

// ------------------------------------------------------------------------------------------
// contractions

// A constant scaled by `factor`, or a multiplication where the value is not known.
Result Scaled(NodeReader& n, ValueId value, double factor, const char* suffix) {
  if (factor == 1) return value;
  const op::TensorType type = n.importer().TypeOf(value);
  if (n.importer().ValueOf(value).constant != nullptr) {
    TW_ASSIGN(op::RefTensor tensor,
              op::FromBytes(type, n.importer().ValueOf(value).constant->view()));
    for (double& v : tensor.values) v = op::RoundToType(v * factor, type.dtype);
    return n.importer().Constant(Name(n, suffix), type, op::ToBytes(tensor));
  }
  op::RefTensor scalar{{type.dtype, {}}, {op::RoundToType(factor, type.dtype)}};
  const ValueId constant =
      n.importer().Constant(Name(n, StrCat(suffix, "_factor")), scalar.type, op::ToBytes(scalar));
  return n.importer().Emit("mul", {value, constant}, {}, Name(n, suffix));
}

Result Gemm(NodeReader& n) {
  TW_ASSIGN(ValueId a, n.Input(0));
  TW_ASSIGN(ValueId b, n.Input(1));
  TW_ASSIGN(const int64_t trans_a, n.Int("transA", 0));
  TW_ASSIGN(const int64_t trans_b, n.Int("transB", 0));
  TW_ASSIGN(const double alpha, n.Float("alpha", 1));
  TW_ASSIGN(const double beta, n.Float("beta", 1));
  if (n.importer().TypeOf(a).shape.size() != 2 || n.importer().TypeOf(b).shape.size() != 2) {
    return n.Error("rank", "expected two matrices, found other ranks");
  }
  if (trans_a != 0) {
    TW_ASSIGN(a, n.importer().Emit("transpose", {a}, {{"perm", std::vector<int64_t>{1, 0}}},
                                   Name(n, "_a")));
  }
  const bool has_c = n.HasInput(2) && beta != 0;
  // alpha belongs to the product: to the weight where that is a constant.
  const bool scale_b = n.importer().ValueOf(b).constant != nullptr;
  if (scale_b) {
    TW_ASSIGN(b, Scaled(n, b, alpha, "_b"));
  }
  const bool last = !has_c && (scale_b || alpha == 1);
  TW_ASSIGN(ValueId out,
            n.importer().Emit("dense", {a, b},
                              {{"weight_layout", std::string(trans_b != 0 ? "NK" : "KN")}},
                              last ? n.output_name() : Name(n, "_product")));
  if (!scale_b) {
    TW_ASSIGN(out, Scaled(n, out, alpha, "_alpha"));
  }
  if (!has_c) return out;
  TW_ASSIGN(ValueId c, n.Input(2));
  TW_ASSIGN(c, Scaled(n, c, beta, "_c"));
  const op::TensorType product = n.importer().TypeOf(out);
  TW_ASSIGN(ValueId sum, n.importer().Emit("add", {out, c}, {}, n.output_name()));
  if (n.importer().TypeOf(sum) != product) {
    return n.Error("shape", StrCat("expected C to broadcast to ", op::ToText(product), ", found ",
                                   op::ToText(n.importer().TypeOf(c))));
  }
  return sum;
}

Result MatMul(NodeReader& n) {
  TW_ASSIGN(ValueId a, n.Input(0));
  TW_ASSIGN(ValueId b, n.Input(1));
  std::vector<int64_t> sa = n.importer().TypeOf(a).shape, sb = n.importer().TypeOf(b).shape;
  if (sa.empty() || sb.empty()) return n.Error("rank", "expected matrices, found a scalar");
  const bool row = sa.size() == 1, col = sb.size() == 1;
  if (row) {
    TW_ASSIGN(a, Reshaped(n, a, {1, sa[0]}, Name(n, "_a")));
  }
  if (col) {
    TW_ASSIGN(b, Reshaped(n, b, {sb[0], 1}, Name(n, "_b")));
  }
  const std::string name = row || col ? Name(n, "_2d") : n.output_name();
  Result out =
      n.importer().TypeOf(b).shape.size() == 2
          ? n.importer().Emit("dense", {a, b}, {{"weight_layout", std::string("KN")}}, name)
          : n.importer().Emit("matmul", {a, b}, {}, name);
  if (!out.ok() || (!row && !col)) return out;
  std::vector<int64_t> shape = n.importer().TypeOf(*out).shape;
  if (col) shape.pop_back();
  if (row) shape.erase(shape.end() - (col ? 1 : 2));
  return Reshaped(n, *out, shape, n.output_name());
}

// ------------------------------------------------------------------------------------------ shapes

Result Reshape(NodeReader& n) {
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

Result Flatten(NodeReader& n) {
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

// Axes of Squeeze, Unsqueeze and the reductions: an attribute, later an input.
absl::StatusOr<std::vector<int64_t>> Axes(NodeReader& n, int input, int64_t rank) {
  std::vector<int64_t> axes;
  if (n.HasInput(input)) {
    TW_ASSIGN(axes, n.InputInts(input, "axes"));
  } else {
    TW_ASSIGN(axes, n.Ints("axes", {}));
  }
  for (int64_t& axis : axes) {
    if (axis < -rank || axis >= rank) {
      return n.Error("axes",
                     StrCat("expected axes in ", -rank, " to ", rank - 1, ", found ", axis));
    }
    if (axis < 0) axis += rank;
  }
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end()) {
    return n.Error("axes", "expected each axis once, found one twice");
  }
  return axes;
}

Result Squeeze(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const std::vector<int64_t> shape = n.importer().TypeOf(x).shape;
  TW_ASSIGN(const std::vector<int64_t> axes, Axes(n, 1, static_cast<int64_t>(shape.size())));
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

Result Unsqueeze(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const std::vector<int64_t> shape = n.importer().TypeOf(x).shape;
  size_t count = n.HasInput(1) ? 0 : n.Find("axes") == nullptr ? 0 : n.Find("axes")->ints_size();
  if (n.HasInput(1)) {
    TW_ASSIGN(const std::vector<int64_t> raw, n.InputInts(1, "axes"));
    count = raw.size();
  }
  const int64_t rank = static_cast<int64_t>(shape.size() + count);
  if (rank > 16) return n.Error("axes", StrCat("expected rank 16 at most, found ", rank));
  TW_ASSIGN(const std::vector<int64_t> axes, Axes(n, 1, rank));
  std::vector<int64_t> result;
  size_t from = 0;
  for (int64_t d = 0; d < rank; ++d) {
    result.push_back(std::binary_search(axes.begin(), axes.end(), d) ? 1 : shape[from++]);
  }
  return Reshaped(n, x, result, n.output_name());
}

Result Transpose(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const size_t rank = n.importer().TypeOf(x).shape.size();
  std::vector<int64_t> reversed;
  for (size_t d = rank; d-- > 0;) reversed.push_back(static_cast<int64_t>(d));
  TW_ASSIGN(std::vector<int64_t> perm, n.Ints("perm", reversed));
  return n.importer().Emit("transpose", {x}, {{"perm", perm}}, n.output_name());
}

Result ConstantNode(NodeReader& n) {
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

Result ShapeOf(NodeReader& n) {
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

// ------------------------------------------------------------------------------------------ the
// rest

Result BatchNorm(NodeReader& n) {
  std::vector<ValueId> inputs;
  for (int i = 0; i < 5; ++i) {
    TW_ASSIGN(ValueId id, n.Input(i));
    inputs.push_back(id);
  }
  TW_ASSIGN(const double epsilon, n.Float("epsilon", 1e-5));
  TW_ASSIGN(const int64_t training, n.Int("training_mode", 0));
  TW_ASSIGN(const int64_t spatial, n.Int("spatial", 1));
  if (training != 0 || spatial != 1) {
    return n.Error("attribute", "expected spatial inference mode, found another");
  }
  return n.importer().Emit("batch_norm", inputs, {{"epsilon", epsilon}}, n.output_name());
}

Result Softmax(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const std::vector<int64_t> shape = n.importer().TypeOf(x).shape;
  const int64_t rank = static_cast<int64_t>(shape.size());
  const bool rows =
      n.importer().opset() < 13;  // older versions normalise all that follows the axis
  TW_ASSIGN(int64_t axis, n.Int("axis", rows ? 1 : -1));
  if (axis < -rank || axis >= rank) {
    return n.Error("attribute", StrCat("expected an axis of rank ", rank, ", found ", axis));
  }
  if (axis < 0) axis += rank;
  if (!rows || axis == rank - 1) {
    return n.importer().Emit("softmax", {x}, {{"axis", axis}}, n.output_name());
  }
  int64_t outer = 1, inner = 1;
  for (int64_t d = 0; d < rank; ++d) (d < axis ? outer : inner) *= shape[d];
  TW_ASSIGN(x, Reshaped(n, x, {outer, inner}, Name(n, "_rows")));
  TW_ASSIGN(x, n.importer().Emit("softmax", {x}, {{"axis", int64_t{1}}}, Name(n, "_softmax")));
  return Reshaped(n, x, shape, n.output_name());
}

Result Reduce(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const int64_t rank = static_cast<int64_t>(n.importer().TypeOf(x).shape.size());
  TW_ASSIGN(const std::vector<int64_t> axes, Axes(n, 1, rank));
  TW_ASSIGN(const int64_t keepdims, n.Int("keepdims", 1));
  TW_ASSIGN(const int64_t noop, n.Int("noop_with_empty_axes", 0));
  if (axes.empty() && noop != 0) {
    return n.importer().Emit("identity", {x}, {}, n.output_name());
  }
  std::string kind = support::ToLower(n.op_type().substr(6));  // ReduceMean → mean
  return n.importer().Emit("reduce", {x}, {{"kind", kind}, {"axes", axes}, {"keepdims", keepdims}},
                           n.output_name());
}

constexpr Conversion kConversions[] = {
    {"Abs", Elementwise},
    {"Add", Elementwise},
    {"AveragePool", Pool},
    {"BatchNormalization", BatchNorm},
    {"Ceil", Elementwise},
    {"Clip", Clip},
    {"Constant", ConstantNode},
    {"Conv", Conv},
    {"Div", Elementwise},
    {"Dropout", Identity},
    {"Elu", Elementwise},
    {"Erf", Elementwise},
    {"Exp", Elementwise},
    {"Flatten", Flatten},
    {"Floor", Elementwise},
    {"Gelu", Elementwise},
    {"Gemm", Gemm},
    {"GlobalAveragePool", GlobalPool},
    {"GlobalMaxPool", GlobalPool},
    {"HardSigmoid", Elementwise},
    {"HardSwish", Elementwise},
    {"Identity", Identity},
    {"LeakyRelu", Elementwise},
    {"Log", Elementwise},
    {"MatMul", MatMul},
    {"Max", Variadic},
    {"MaxPool", Pool},
    {"Min", Variadic},
    {"Mul", Elementwise},
    {"Neg", Elementwise},
    {"PRelu", Elementwise},
    {"Pow", Elementwise},
    {"Reciprocal", Elementwise},
    {"ReduceMax", Reduce},
    {"ReduceMean", Reduce},
    {"ReduceMin", Reduce},
    {"ReduceProd", Reduce},
    {"ReduceSum", Reduce},
    {"Relu", Elementwise},
    {"Reshape", Reshape},
    {"Round", Elementwise},
    {"Shape", ShapeOf},
    {"Sigmoid", Elementwise},
    {"Softmax", Softmax},
    {"Softplus", Elementwise},
    {"Sqrt", Elementwise},
    {"Squeeze", Squeeze},
    {"Sub", Elementwise},
    {"Sum", Variadic},
    {"Tanh", Elementwise},
    {"Transpose", Transpose},
    {"Unsqueeze", Unsqueeze},
};

}  // namespace

const Conversion* FindConversion(std::string_view onnx_op) {
  for (const Conversion& row : kConversions) {
    if (row.onnx == onnx_op) return &row;
  }
  return nullptr;
}

}  // namespace tilewright::graph::onnx
