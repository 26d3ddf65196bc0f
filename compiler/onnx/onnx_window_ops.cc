// Conversions of sliding-window operators; padding modes and 1-D forms are resolved here.
#include <algorithm>

#include "compiler/onnx/onnx_composer.h"
#include "compiler/onnx/onnx_volume_ops.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

constexpr int64_t kAttrLimit = int64_t{1} << 24;  // windows, strides, pads beyond are absurd

absl::Status CheckValues(NodeReader& n, std::string_view what, const std::vector<int64_t>& values,
                         size_t count, int64_t low) {
  bool fine = values.size() == count;
  for (int64_t v : values) fine = fine && v >= low && v <= kAttrLimit;
  if (fine) return absl::OkStatus();
  return n.Error("attribute", StrCat("expected ", count, " values of ", what, " in ", low, " to ",
                                     kAttrLimit, ", found [", support::Join(values, ","), "]"));
}

absl::Status RefuseOpen(NodeReader& n) {
  return n.Error("open_size",
                 "expected fixed images where the padding depends on their sizes (auto_pad SAME or "
                 "ceil_mode, with a stride), found open ones; give numbers: --shape NAME=N");
}

}  // namespace

OpenPads::OpenPads(std::vector<op::Dim> shape)
    : shape_(std::move(shape)), pads_(2 * shape_.size(), 0) {}

// As many windows as there are strides that begin inside; what the last one needs is at least the
// window without a stride, which is not negative.
void OpenPads::SetSame(size_t d, int64_t stride, int64_t covered, bool more_in_front) {
  const size_t at = d + 2;
  const op::Dim windows = (shape_[at] + op::Dim(stride - 1)).FloorDiv(stride);
  const op::Dim total = (windows - op::Dim(1)) * op::Dim(stride) + op::Dim(covered) - shape_[at];
  const op::Dim small = total.FloorDiv(2), large = total - small;
  pads_[at] = more_in_front ? large : small;
  pads_[at + shape_.size()] = more_in_front ? small : large;
}

absl::StatusOr<ValueId> OpenPads::Apply(NodeReader& n, ValueId x, double value) const {
  if (std::count(pads_.begin(), pads_.end(), op::Dim(0)) == std::ssize(pads_)) return x;
  return n.importer().Emit("pad", {x}, {{"pads", op::ShapeAttr(pads_)}, {"value", value}},
                           PartName(n, "_padded"));
}

absl::StatusOr<WindowAttrs> ReadWindow(NodeReader& n, const std::vector<int64_t>& input,
                                       std::vector<int64_t> kernel, OpenPads* open) {
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
    // With a stride of 1 the padding is the same for all sizes.
    if (input[d] == kOpenSize && mode != "VALID" && w.strides[d] != 1) {
      if (open == nullptr || covered < w.strides[d]) return RefuseOpen(n);
      open->SetSame(d, w.strides[d], covered, mode == "SAME_LOWER");
      continue;
    }
    const int64_t outputs = (input[d] + w.strides[d] - 1) / w.strides[d];
    int64_t total = std::max<int64_t>(0, (outputs - 1) * w.strides[d] + covered - input[d]);
    if (input[d] == kOpenSize) total = covered - 1;
    if (mode == "VALID") total = 0;
    const int64_t small = total / 2, large = total - total / 2;
    w.pads[d] = mode == "SAME_LOWER" ? large : small;
    w.pads[d + input.size()] = mode == "SAME_LOWER" ? small : large;
  }
  return w;
}

namespace {

// A 1-D operand of a window operator as a 2-D one of height 1, and attributes to match.
void Widen(WindowAttrs* w) {
  w->kernel.insert(w->kernel.begin(), 1);
  w->strides.insert(w->strides.begin(), 1);
  w->dilations.insert(w->dilations.begin(), 1);
  w->pads = {0, w->pads[0], 0, w->pads[1]};
}

absl::StatusOr<std::vector<int64_t>> Spatial(NodeReader& n, ValueId x) {
  const op::TensorType& type = n.importer().TypeOf(x);
  if (type.rank() < 3 || type.rank() > 5) {
    return n.Error("rank",
                   StrCat("expected one to three spatial dimensions, found ", op::ToText(type)));
  }
  std::vector<int64_t> sizes;
  for (size_t d = 2; d < type.shape.size(); ++d) {
    sizes.push_back(type.shape[d].constant().value_or(kOpenSize));
  }
  return sizes;
}

Result Flattened1d(NodeReader& n, ValueId value, bool flat, const std::string& name) {
  if (!flat) return value;
  std::vector<op::Dim> shape = n.importer().TypeOf(value).shape;
  shape.erase(shape.begin() + 2);
  return ReshapedTo(n, value, shape, name);
}

Result Expanded1d(NodeReader& n, ValueId value, bool flat, const char* suffix) {
  if (!flat) return value;
  std::vector<op::Dim> shape = n.importer().TypeOf(value).shape;
  shape.insert(shape.begin() + 2, 1);
  return ReshapedTo(n, value, shape, PartName(n, suffix));
}

}  // namespace

Result EmitConv(NodeReader& n, const std::vector<ValueId>& operands, const std::string& name) {
  ValueId x = operands[0], w = operands[1];
  TW_ASSIGN(const std::vector<int64_t> spatial, Spatial(n, x));
  if (!n.importer().TypeOf(w).fixed()) {
    return n.Error("open_size", StrCat("expected a weight of fixed shape, found ",
                                       op::ToText(n.importer().TypeOf(w))));
  }
  const std::vector<int64_t> weight = n.importer().TypeOf(w).sizes();
  if (weight.size() != spatial.size() + 2) {
    return n.Error("rank", StrCat("expected a weight of rank ", spatial.size() + 2, ", found ",
                                  op::ToText(n.importer().TypeOf(w))));
  }
  OpenPads open(n.importer().TypeOf(x).shape);
  TW_ASSIGN(WindowAttrs window, ReadWindow(n, spatial, {weight.begin() + 2, weight.end()}, &open));
  TW_ASSIGN(x, open.Apply(n, x, 0));
  TW_ASSIGN(const int64_t group, n.Int("group", 1));
  if (spatial.size() == 3) {
    Composer c(n);
    return c.Done(Conv3d(c, x, w, operands.size() > 2 ? operands[2] : kNone, window, group));
  }
  const bool flat = spatial.size() == 1;
  if (flat) Widen(&window);
  TW_ASSIGN(x, Expanded1d(n, x, flat, "_x"));
  TW_ASSIGN(w, Expanded1d(n, w, flat, "_w"));
  std::vector<ValueId> inputs = operands;
  inputs[0] = x;
  inputs[1] = w;
  TW_ASSIGN(ValueId out, n.importer().Emit("conv2d", inputs,
                                           {{"strides", window.strides},
                                            {"pads", window.pads},
                                            {"dilations", window.dilations},
                                            {"groups", group},
                                            {"weight_layout", std::string("OIHW")}},
                                           flat ? PartName(n, "_2d") : name));
  return Flattened1d(n, out, flat, name);
}

Result ImportConv(NodeReader& n) {
  TW_ASSIGN(const ValueId x, n.Input(0));
  TW_ASSIGN(const ValueId w, n.Input(1));
  std::vector<ValueId> operands = {x, w};
  if (n.HasInput(2)) {
    TW_ASSIGN(const ValueId bias, n.Input(2));
    operands.push_back(bias);
  }
  return EmitConv(n, operands, n.output_name());
}

namespace {

// Pads of a transposed convolution that the shape of its result decides. What they cannot take is
// added at the end.
absl::Status PadsFromResult(NodeReader& n, const std::vector<int64_t>& input, WindowAttrs* w,
                            std::vector<int64_t>* extra) {
  TW_ASSIGN(const std::string mode, n.String("auto_pad", "NOTSET"));
  const bool same = mode == "SAME_UPPER" || mode == "SAME_LOWER";
  TW_ASSIGN(std::vector<int64_t> result, n.Ints("output_shape", {}));
  if (mode == "VALID" || (!same && result.empty())) return absl::OkStatus();
  const size_t rank = input.size();
  // The difference that the pads take is the same at all sizes, unless the result has a size of its
  // own.
  const bool open = std::count(input.begin(), input.end(), kOpenSize) > 0;
  if (open && !result.empty()) return RefuseOpen(n);
  if (result.size() == rank + 2) result.erase(result.begin(), result.begin() + 2);
  for (size_t d = result.size(); same && d < rank; ++d) {
    result.push_back(input[d] * w->strides[d]);
  }
  if (!open) TW_TRY(CheckValues(n, "output_shape", result, rank, 1));
  for (size_t d = 0; d < rank; ++d) {
    const int64_t natural =
        w->strides[d] * (input[d] - 1) + (*extra)[d] + w->dilations[d] * (w->kernel[d] - 1) + 1;
    const int64_t total = natural - result[d];
    if (total < 0) (*extra)[d] -= total;
    const int64_t small = std::max<int64_t>(0, total) / 2;
    const int64_t large = std::max<int64_t>(0, total) - small;
    w->pads[d] = mode == "SAME_UPPER" ? small : large;
    w->pads[d + rank] = mode == "SAME_UPPER" ? large : small;
  }
  return absl::OkStatus();
}

}  // namespace

Result ImportConvTranspose(NodeReader& n) {
  Composer c(n);
  ValueId x = c.Input(0), w = c.Input(1);
  const ValueId bias = c.OptionalInput(2);
  TW_TRY(c.status());
  TW_ASSIGN(const std::vector<int64_t> spatial, Spatial(n, x));
  const std::vector<int64_t> weight = c.Shape(w);
  TW_TRY(c.status());
  if (weight.size() != spatial.size() + 2) {
    return n.Error("rank", StrCat("expected a weight of rank ", spatial.size() + 2, ", found ",
                                  op::ToText(c.TypeOf(w))));
  }
  OpenPads of_convolution(c.Dims(x));  // PadsFromResult has other ones
  TW_ASSIGN(WindowAttrs window,
            ReadWindow(n, spatial, {weight.begin() + 2, weight.end()}, &of_convolution));
  TW_ASSIGN(const int64_t group, n.Int("group", 1));
  TW_ASSIGN(std::vector<int64_t> extra,
            n.Ints("output_padding", std::vector<int64_t>(spatial.size(), 0)));
  TW_TRY(CheckValues(n, "output_padding", extra, spatial.size(), 0));
  TW_TRY(PadsFromResult(n, spatial, &window, &extra));
  if (spatial.size() == 3) return c.Done(ConvTranspose3d(c, x, w, bias, window, extra, group));
  const bool flat = spatial.size() == 1;
  if (flat) {
    Widen(&window);
    extra.insert(extra.begin(), 0);
    const std::vector<op::Dim> s = c.TypeOf(x).shape;
    x = c.ReshapeTo(x, {s[0], s[1], op::Dim(1), s[2]});
    w = c.Reshape(w, {weight[0], weight[1], 1, weight[2]});
  }
  std::vector<ValueId> inputs = {x, w};
  if (bias != kNone) inputs.push_back(bias);
  const ValueId y = c.Op("conv2d_transpose", inputs,
                         {{"strides", window.strides},
                          {"pads", window.pads},
                          {"dilations", window.dilations},
                          {"output_padding", extra},
                          {"groups", group}});
  TW_TRY(c.status());
  const std::vector<op::Dim> image = c.TypeOf(y).shape;
  return flat ? c.Done(c.ReshapeTo(y, {image[0], image[1], image[3]})) : c.Done(y);
}

namespace {

// Windows that hang over the end, as far as they begin inside of the padded input.
absl::Status RoundUp(NodeReader& n, const std::vector<int64_t>& spatial, WindowAttrs* w) {
  for (size_t d = 0; d < spatial.size(); ++d) {
    int64_t& end = w->pads[d + spatial.size()];
    const int64_t covered = w->dilations[d] * (w->kernel[d] - 1) + 1;
    if (spatial[d] == kOpenSize) {
      // Rounds up at all sizes. All of these windows begin inside: they are longer than what is
      // beyond the end.
      end += w->strides[d] - 1;
      if (end >= covered) return RefuseOpen(n);
      continue;
    }
    const int64_t room = spatial[d] + w->pads[d] + end - covered;
    if (room < 0) continue;
    const int64_t extra = (w->strides[d] - room % w->strides[d]) % w->strides[d];
    const int64_t last_start = room + extra;
    if (extra > 0 && last_start < spatial[d] + w->pads[d]) end += extra;
  }
  return absl::OkStatus();
}

// `padding` as elements of the operand, which count; what else `w` has does not.
ValueId WithPadding(Composer& c, ValueId x, const std::vector<int64_t>& padding, WindowAttrs* w) {
  const size_t rank = padding.size() / 2;
  std::vector<int64_t> pads(2 * (rank + 2), 0);
  std::copy_n(padding.begin(), rank, pads.begin() + 2);
  std::copy_n(padding.begin() + rank, rank, pads.begin() + rank + 4);
  for (size_t i = 0; i < padding.size(); ++i) w->pads[i] -= padding[i];
  return c.Op("pad", {x}, {{"pads", pads}, {"value", 0.0}});
}

// |x|^p, and its inverse on what is >= 0.
ValueId PowerOf(Composer& c, ValueId x, double p) {
  if (p == 1) return x;
  if (p == 2) return c.Mul(x, x);
  if (p == 0.5) return c.Op("sqrt", {x});
  return c.Op("pow", {x, c.Scalar(p, c.TypeOf(x).dtype)});
}

// Which norm: attribute p, a float in opset 1.
absl::StatusOr<double> ReadNorm(NodeReader& n) {
  const pb::AttributeProto* norm = n.Find("p");
  const double p = norm == nullptr ? 2
                   : norm->has_i() ? static_cast<double>(norm->i())
                                   : static_cast<double>(norm->f());
  if (p >= 1) return p;
  return n.Error("attribute", StrCat("expected p of at least 1, found ", p));
}

}  // namespace

Result ImportPool(NodeReader& n) {
  TW_ASSIGN(const ValueId x, n.Input(0));
  return EmitPool(n, x);
}

Result EmitPool(NodeReader& n, ValueId x) {
  Composer c(n);
  TW_ASSIGN(std::vector<int64_t> spatial, Spatial(n, x));
  // A maximum sees nothing of what is below all else; an average counts the padding.
  const ir::DType dtype = c.TypeOf(x).dtype;
  const bool largest = n.op_type() == "MaxPool" && !n.HasOutput(1);
  OpenPads open(c.Dims(x));
  TW_ASSIGN(WindowAttrs w, ReadWindow(n, spatial, {}, largest ? &open : nullptr));
  if (largest) {
    TW_ASSIGN(x, open.Apply(n, x, Lowest(dtype)));
  }
  TW_ASSIGN(const int64_t ceil_mode, n.Int("ceil_mode", 0));
  TW_ASSIGN(const int64_t include, n.Int("count_include_pad", 0));
  const bool average = n.op_type().ends_with("AveragePool");
  if (n.op_type() == "LpPool") {
    TW_ASSIGN(const double p, ReadNorm(n));
    if (ceil_mode != 0) TW_TRY(RoundUp(n, spatial, &w));
    double count = 1;
    for (int64_t k : w.kernel) count *= static_cast<double>(k);
    const ValueId powers = PowerOf(c, p == 2 ? x : c.Op("abs", {x}), p);
    const ValueId mean = PoolNd(c, powers, "avg", true, w);
    const ValueId sum = c.Mul(mean, c.Scalar(count, c.TypeOf(x).dtype));
    return c.Done(PowerOf(c, sum, 1 / p));
  }
  bool include_pad = average && include != 0;
  const std::vector<int64_t> padding = w.pads;
  if (ceil_mode != 0) TW_TRY(RoundUp(n, spatial, &w));
  if (include_pad && w.pads != padding) {
    // Only the padding counts, not what a window adds beyond it.
    x = WithPadding(c, x, padding, &w);
    include_pad = false;
  }
  if (!average && n.HasOutput(1)) {
    TW_ASSIGN(const int64_t column_major, n.Int("storage_order", 0));
    TW_TRY(n.BindOutput(1, PlacesOfMax(c, x, w, column_major != 0)));
    TW_TRY(c.status());
  }
  return c.Done(PoolNd(c, x, average ? "avg" : "max", include_pad, w));
}

Result ImportGlobalPool(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const size_t rank = n.importer().TypeOf(x).shape.size();
  if (rank < 3) return n.Error("rank", "expected spatial dimensions, found none");
  std::vector<int64_t> axes;
  for (size_t d = 2; d < rank; ++d) axes.push_back(static_cast<int64_t>(d));
  if (n.op_type() == "GlobalLpPool") {
    Composer c(n);
    TW_ASSIGN(const double p, ReadNorm(n));
    const ValueId powers = PowerOf(c, p == 2 ? x : c.Op("abs", {x}), p);
    return c.Done(PowerOf(c, c.Reduce("sum", powers, axes), 1 / p));
  }
  return n.importer().Emit("reduce", {x},
                           {{"kind", std::string(n.op_type() == "GlobalMaxPool" ? "max" : "mean")},
                            {"axes", axes},
                            {"keepdims", int64_t{1}}},
                           n.output_name());
}

namespace {

Result Scalar(NodeReader& n, double value, const char* suffix) {
  op::RefTensor scalar{{ir::kF32, {}}, {op::RoundToType(value, ir::kF32)}};
  return n.importer().Constant(PartName(n, suffix), scalar.type, op::ToBytes(scalar));
}

// base^exponent; by square roots where they do, which processors have instructions for.
Result Power(NodeReader& n, ValueId base, double exponent) {
  Importer& importer = n.importer();
  if (exponent != 0.5 && exponent != 0.75) {
    TW_ASSIGN(const ValueId constant, Scalar(n, exponent, "_beta"));
    return importer.Emit("pow", {base, constant}, {}, PartName(n, "_power"));
  }
  TW_ASSIGN(const ValueId half, importer.Emit("sqrt", {base}, {}, PartName(n, "_half")));
  if (exponent == 0.5) return half;
  TW_ASSIGN(const ValueId quarter, importer.Emit("sqrt", {half}, {}, PartName(n, "_quarter")));
  return importer.Emit("mul", {half, quarter}, {}, PartName(n, "_power"));
}

}  // namespace

// x / (bias + alpha · mean of x² over `size` neighbouring channels, zeros beyond the ends)^beta;
// the mean is a pool over an image whose rows are the channels.
Result ImportLrn(NodeReader& n) {
  Importer& importer = n.importer();
  TW_ASSIGN(const ValueId x, n.Input(0));
  const op::TensorType type = importer.TypeOf(x);
  TW_ASSIGN(const int64_t size, n.Int("size", 0));
  TW_ASSIGN(const double alpha, n.Float("alpha", 1e-4));
  TW_ASSIGN(const double beta, n.Float("beta", 0.75));
  TW_ASSIGN(const double bias, n.Float("bias", 1));
  if (type.shape.size() < 2 || type.dtype != ir::kF32) {
    return n.Error("rank", StrCat("expected floats with channels, found ", op::ToText(type)));
  }
  if (size < 1 || size > kAttrLimit) {
    return n.Error("attribute", StrCat("expected a size in 1 to ", kAttrLimit, ", found ", size));
  }
  op::Dim inner = 1;
  for (size_t d = 2; d < type.shape.size(); ++d) inner = inner * type.shape[d];
  const std::vector<op::Dim> image = {type.shape[0], 1, type.shape[1], inner};
  TW_ASSIGN(ValueId sum, importer.Emit("mul", {x, x}, {}, PartName(n, "_squares")));
  TW_ASSIGN(sum, ReshapedTo(n, sum, image, PartName(n, "_image")));
  const std::vector<int64_t> one = {1, 1};
  TW_ASSIGN(sum, importer.Emit("pool2d", {sum},
                               {{"kind", std::string("avg")},
                                {"kernel", std::vector<int64_t>{size, 1}},
                                {"strides", one},
                                {"pads", std::vector<int64_t>{(size - 1) / 2, 0, size / 2, 0}},
                                {"dilations", one},
                                {"count_include_pad", int64_t{1}}},
                               PartName(n, "_means")));
  TW_ASSIGN(sum, ReshapedTo(n, sum, type.shape, PartName(n, "_windows")));
  TW_ASSIGN(const ValueId factor, Scalar(n, alpha, "_alpha"));
  TW_ASSIGN(const ValueId offset, Scalar(n, bias, "_bias"));
  TW_ASSIGN(sum, importer.Emit("mul", {sum, factor}, {}, PartName(n, "_scaled")));
  TW_ASSIGN(sum, importer.Emit("add", {sum, offset}, {}, PartName(n, "_base")));
  TW_ASSIGN(sum, Power(n, sum, beta));
  return importer.Emit("div", {x, sum}, {}, n.output_name());
}

}  // namespace tilewright::graph::onnx
