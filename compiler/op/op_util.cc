// Helpers that several operator families share.
#include <algorithm>
#include <utility>

#include "compiler/ir/numeric.h"
#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {

using support::StrCat;

absl::Status OpError(std::string_view op, std::string_view reason, std::string_view detail) {
  return support::InvalidArgument(StrCat("op.", op, ".", reason), detail);
}

OpSpec SpecOf(const ScalarRow& row) {
  OpSpec spec;
  spec.name = row.name;
  if (!row.onnx.empty()) spec.onnx = {row.onnx};
  spec.fusion = FusionClass::kInjective;
  spec.min_inputs = spec.max_inputs = row.inputs;
  spec.types = row.types & kAnyType;
  spec.exact = (row.types & kExact) != 0;
  if ((row.types & kOfPositive) != 0) {
    spec.domain = [](size_t, const Attrs&) { return Domain::kPositive; };
  }
  spec.scalar = row.scalar;
  spec.scalar_reference = row.reference;
  spec.integer_reference = row.integer;
  return spec;
}

bool Below(int64_t a, int64_t b, ir::DType type) {
  return type == ir::kU64 ? static_cast<uint64_t>(a) < static_cast<uint64_t>(b) : a < b;
}

ir::Expr SafeDivide(ir::ExprKind kind, const ir::Expr& a, const ir::Expr& b) {
  const int64_t* divisor = ir::AsInt(b);
  if (divisor != nullptr && *divisor != 0) return ir::Binary(kind, a, b);
  // Without a select: vectors evaluate both sides.
  const ir::Expr zero = ir::Cast(b->dtype, ir::Eq(b, ir::Zero(b->dtype)));
  return ir::Binary(kind, a, b + zero) * (ir::Int(1, b->dtype) - zero);
}

namespace {
template <typename T>
std::vector<T> Strides(const std::vector<T>& shape) {
  std::vector<T> strides(shape.size(), T(1));
  for (size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * shape[d];
  return strides;
}
}  // namespace

std::vector<int64_t> RowMajorStrides(const std::vector<int64_t>& shape) { return Strides(shape); }
std::vector<Dim> RowMajorStrides(const std::vector<Dim>& shape) { return Strides(shape); }

bool MayEqual(const Dim& a, const Dim& b, DimEqualities* equal) {
  if (a == b) return true;
  if (equal == nullptr || (a - b).constant()) return false;
  equal->emplace_back(a, b);
  return true;
}

bool MayEqual(const std::vector<Dim>& a, const std::vector<Dim>& b, DimEqualities* equal) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](const Dim& x, const Dim& y) { return MayEqual(x, y, equal); });
}

bool MayDivide(int64_t groups, const Dim& channels) {
  // 0 channels divide into any number of groups; that times a size must not overflow.
  constexpr int64_t kMaxGroups = int64_t{1} << 28;
  return groups >= 1 && groups <= kMaxGroups && channels.constant().value_or(0) % groups == 0;
}

bool SurelyBelow(const Dim& a, const Dim& b) {
  if (a.constant() && b.constant()) return a.value() < b.value();
  const std::optional<int64_t> gap = (a - b).constant();
  return gap && *gap < 0;
}

absl::Status NotFixed(std::string_view op, std::string_view found) {
  return OpError(op, "symbolic", StrCat("expected a fixed size, found ", found));
}

absl::StatusOr<int64_t> Fixed(std::string_view op, const Dim& dim) {
  if (const auto value = dim.constant()) return *value;
  return NotFixed(op, dim.ToText());
}

bool BroadcastDims(const std::vector<Dim>& a, const std::vector<Dim>& b, DimEqualities* equal,
                   std::vector<Dim>* out) {
  std::vector<Dim> result = a.size() >= b.size() ? a : b;
  const std::vector<Dim>& shorter = a.size() >= b.size() ? b : a;
  const size_t skip = result.size() - shorter.size();
  for (size_t d = 0; d < shorter.size(); ++d) {
    Dim& dim = result[skip + d];
    if (shorter[d] == Dim(1)) continue;
    const bool repeated = dim == Dim(1);
    if (!repeated && !MayEqual(dim, shorter[d], equal)) return false;
    if (repeated || shorter[d].constant()) dim = shorter[d];
  }
  *out = std::move(result);
  return true;
}

absl::StatusOr<TensorType> BroadcastOperands(std::string_view op,
                                             std::span<const TensorType> inputs,
                                             DimEqualities* equal) {
  TensorType out = inputs[0];
  for (const TensorType& input : inputs.subspan(1)) {
    if (!BroadcastDims(out.shape, input.shape, equal, &out.shape)) {
      return OpError(op, "shape",
                     StrCat("expected shapes that broadcast, found ", ToText(inputs[0]), " and ",
                            ToText(input)));
    }
  }
  return out;
}

std::vector<ir::Expr> BroadcastIndex(const std::vector<ir::Expr>& index,
                                     const std::vector<Dim>& from) {
  std::vector<ir::Expr> result;
  const size_t skip = index.size() - from.size();
  for (size_t d = 0; d < from.size(); ++d) {
    result.push_back(from[d] == Dim(1) ? ir::Int(0) : index[skip + d]);
  }
  return result;
}

TensorTypes TypesOf(std::span<const RefTensor> tensors) {
  TensorTypes types;
  for (const RefTensor& tensor : tensors) types.push_back(tensor.type);
  return types;
}

bool NextIndex(const std::vector<int64_t>& shape, std::vector<int64_t>* index) {
  for (size_t d = shape.size(); d-- > 0;) {
    if (++(*index)[d] < shape[d]) return true;
    (*index)[d] = 0;
  }
  return false;
}

absl::StatusOr<std::vector<int64_t>> IntsInRange(std::string_view op, const Attrs& attrs,
                                                 std::string_view name,
                                                 std::vector<int64_t> fallback, size_t n,
                                                 int64_t low, int64_t high) {
  std::vector<int64_t> values = GetInts(attrs, name, std::move(fallback));
  if (values.size() != n) {
    return OpError(op, "attribute",
                   StrCat("expected ", n, " values of ", name, ", found ", values.size()));
  }
  for (int64_t value : values) {
    if (value < low || value > high) {
      return OpError(op, "attribute",
                     StrCat("expected ", name, " in ", low, " to ", high, ", found ", value));
    }
  }
  return values;
}

bool KeepsDims(const Attrs& attrs) { return GetInt(attrs, "keepdims", 1) != 0; }

absl::StatusOr<int64_t> NormalizeAxis(std::string_view op, int64_t axis, size_t rank) {
  const int64_t r = static_cast<int64_t>(rank);
  if (axis < -r || axis >= r) {
    return OpError(op, "axis",
                   StrCat("expected an axis of a tensor of rank ", r, ", found ", axis));
  }
  return axis < 0 ? axis + r : axis;
}

ir::Expr SizeExpr(ir::FunctionBuilder& b, const Dim& dim) {
  return dim.Fold<ir::Expr>(
      [](int64_t number) { return ir::Int(number); },
      [&](const std::string& variable) -> ir::Expr { return b.Size(variable); },
      [](const ir::Expr& numerator, int64_t divisor) {
        return ir::FloorDiv(numerator, ir::Int(divisor));
      });
}

std::vector<ir::Expr> ShapeExprs(ir::FunctionBuilder& b, const std::vector<Dim>& shape) {
  std::vector<ir::Expr> result;
  for (const Dim& dim : shape) result.push_back(SizeExpr(b, dim));
  return result;
}

std::vector<ir::Expr> VarExprs(const std::vector<ir::Var>& vars) {
  return {vars.begin(), vars.end()};
}

Dim Window::OutputSize(const Dim& input) const {
  const int64_t reach = dilation * (kernel - 1) + 1;
  return (input + Dim(pad_begin + pad_end - reach)).FloorDiv(stride) + Dim(1);
}

ir::Expr Window::Position(const ir::Expr& output, const ir::Expr& tap) const {
  ir::Expr position = stride == 1 ? output : output * ir::Int(stride);
  if (kernel > 1) position = position + (dilation == 1 ? tap : tap * ir::Int(dilation));
  return pad_begin == 0 ? position : position - ir::Int(pad_begin);
}

bool Window::EndsInside(const Dim& input, const Dim& output) const {
  const Dim last = (output - Dim(1)) * Dim(stride) + Dim((kernel - 1) * dilation - pad_begin);
  // By the number of windows, the last one ends before input + pad_end.
  return SurelyBelow(last, input) || (pad_end == 0 && output == OutputSize(input));
}

void Window::Guards(ir::FunctionBuilder& b, const ir::Expr& position, const Dim& input,
                    const Dim& output, std::vector<ir::Expr>* conditions) const {
  if (pad_begin > 0) conditions->push_back(position >= ir::Int(0));
  if (!EndsInside(input, output)) conditions->push_back(position < SizeExpr(b, input));
}

absl::StatusOr<std::vector<Window>> WindowsOf(std::string_view op, const Attrs& attrs,
                                              const Dim& rows, const Dim& columns) {
  TW_ASSIGN(const int64_t kh, Fixed(op, rows));
  TW_ASSIGN(const int64_t kw, Fixed(op, columns));
  TW_ASSIGN(auto strides, IntsInRange(op, attrs, "strides", {1, 1}, 2, 1, kMaxWindowAttr));
  TW_ASSIGN(auto pads, IntsInRange(op, attrs, "pads", {0, 0, 0, 0}, 4, 0, kMaxWindowAttr));
  TW_ASSIGN(auto dilations, IntsInRange(op, attrs, "dilations", {1, 1}, 2, 1, kMaxWindowAttr));
  if (kh < 1 || kw < 1 || kh > kMaxWindowAttr || kw > kMaxWindowAttr) {
    return OpError(op, "kernel",
                   StrCat("expected a kernel of 1 to ", kMaxWindowAttr,
                          " in each direction, found ", kh, "x", kw));
  }
  return std::vector<Window>{{kh, strides[0], dilations[0], pads[0], pads[2]},
                             {kw, strides[1], dilations[1], pads[1], pads[3]}};
}

absl::StatusOr<Layout> LayoutAttr(std::string_view op, const Attrs& attrs, std::string_view name,
                                  std::string_view plain) {
  const std::string text = GetString(attrs, name, plain);
  absl::StatusOr<Layout> layout = Layout::Parse(text, plain);
  if (layout.ok()) return layout;
  return OpError(op, "attribute",
                 StrCat("expected a ", name, " of the axes ", plain,
                        ", each once, and behind them blocks with a size, found ", text));
}

absl::StatusOr<int64_t> PadValueOf(std::string_view op, const Attrs& attrs, ir::DType type) {
  const int64_t value = GetInt(attrs, "pad_value", 0);
  const bool byte = type == ir::kU8 || type == ir::kI8;
  if (value == 0 || (byte && value >= ir::MinInt(type) && value <= ir::MaxInt(type))) return value;
  return OpError(
      op, "attribute",
      StrCat("expected a pad_value that bytes hold, found ", value, " for ", ir::TypeName(type)));
}

ir::Buffer PadImage(ir::FunctionBuilder& b, const std::string& name, const ir::Buffer& x,
                    const Padded& h, const Padded& w, int64_t value) {
  if (h.covers() && w.covers()) return x;
  const ir::Expr height = x->shape[2], width = x->shape[3];
  std::vector<ir::Expr> shape = x->shape;
  shape[2] = SizeExpr(b, h.extent);
  shape[3] = SizeExpr(b, w.extent);
  std::vector<std::string> axes = {"n", "ic", "ih", "iw"};
  for (size_t d = 4; d < shape.size(); ++d) axes.push_back(StrCat("ib", d == 4 ? "" : StrCat(d)));
  auto at = [](const ir::Var& j, int64_t begin) {
    if (begin == 0) return ir::Expr(j);
    return begin > 0 ? j - ir::Int(begin) : j + ir::Int(-begin);
  };
  return b.Compute(name + "_pad", x->dtype, shape, axes, [&](const std::vector<ir::Var>& i) {
    std::vector<ir::Expr> index = VarExprs(i);
    index[2] = at(i[2], h.begin);
    index[3] = at(i[3], w.begin);
    std::vector<ir::Expr> inside;
    if (h.begin > 0) inside.push_back(index[2] >= ir::Int(0));
    if (!h.ends_inside) inside.push_back(index[2] < height);
    if (w.begin > 0) inside.push_back(index[3] >= ir::Int(0));
    if (!w.ends_inside) inside.push_back(index[3] < width);
    return Guarded(inside, ir::Load(x, std::move(index)),
                   value == 0 ? ir::Zero(x->dtype) : ir::Int(value, x->dtype));
  });
}

absl::StatusOr<ir::DType> SumType(std::string_view op, const TensorType& x, const TensorType& w) {
  // Products of 16-bit floats are exact in f32.
  const bool half = w.dtype == ir::kF16 || w.dtype == ir::kBF16;
  if (half && (x.dtype == w.dtype || x.dtype == ir::kF32)) return ir::kF32;
  if (x.dtype == w.dtype && (x.dtype.is_float() || x.dtype == ir::kI32)) return x.dtype;
  const bool bytes = (x.dtype == ir::kU8 || x.dtype == ir::kI8) && w.dtype == ir::kI8;
  if (bytes) return ir::kI32;
  return OpError(
      op, "type",
      StrCat("expected floats or i32 of one type, f32 and weights of f16 or bf16, or bytes and "
             "weights of i8, found ",
             ToText(x), " and ", ToText(w)));
}

ir::Expr AsSum(ir::DType sum, const ir::Expr& factor) {
  return factor->dtype == sum ? factor : ir::Cast(sum, factor);
}

Padded PadTo(int64_t begin, const Dim& extent, const Dim& input) {
  const std::optional<int64_t> room = (input + Dim(begin) - extent).constant();
  return {begin, extent, room && *room >= 0};
}

Padded TakePadding(Window* window, const Dim& input, const Dim& output) {
  const bool inside = window->EndsInside(input, output);
  const Dim extent =
      (output - Dim(1)) * Dim(window->stride) + Dim((window->kernel - 1) * window->dilation + 1);
  return {std::exchange(window->pad_begin, 0), extent, inside};
}

ir::Expr Guarded(const std::vector<ir::Expr>& conditions, ir::Expr value, ir::Expr otherwise) {
  if (conditions.empty()) return value;
  ir::Expr all = conditions[0];
  for (size_t i = 1; i < conditions.size(); ++i) all = all && conditions[i];
  return ir::Select(all, value, otherwise);
}

}  // namespace tilewright::op
