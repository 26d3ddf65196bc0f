#include "compiler/op/symbolic.h"

#include <algorithm>

#include "compiler/op/op_rows.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::op {
namespace {

using support::StrCat;
using Ints = std::vector<int64_t>;
using Inputs = std::span<const SymbolicType>;
using Result = absl::StatusOr<std::vector<Dim>>;

absl::Status Bad(std::string_view op, std::string_view detail) {
  return OpError(op, "symbolic", detail);
}

// The one value both have; collects what only some sizes fulfil.
absl::Status Equal(std::string_view op, const Dim& a, const Dim& b, DimEqualities* equal) {
  if (a == b) return absl::OkStatus();
  if ((a - b).constant()) {
    return Bad(op, StrCat("expected equal dimensions, found ", a.ToText(), " and ", b.ToText()));
  }
  equal->emplace_back(a, b);
  return absl::OkStatus();
}

Result Broadcast(std::string_view op, const std::vector<Dim>& a, const std::vector<Dim>& b,
                 DimEqualities* equal) {
  const std::vector<Dim>&longer = a.size() >= b.size() ? a : b,
        &shorter = a.size() >= b.size() ? b : a;
  std::vector<Dim> result = longer;
  const size_t skip = longer.size() - shorter.size();
  for (size_t d = 0; d < shorter.size(); ++d) {
    if (shorter[d] == Dim(1)) continue;
    if (result[skip + d] == Dim(1)) {
      result[skip + d] = shorter[d];
      continue;
    }
    TW_TRY(Equal(op, result[skip + d], shorter[d], equal));
    if (shorter[d].constant()) result[skip + d] = shorter[d];
  }
  return result;
}

absl::StatusOr<int64_t> Fixed(std::string_view op, const Dim& dim) {
  if (const auto value = dim.constant()) return *value;
  return Bad(op, StrCat("expected fixed weights, found a dimension ", dim.ToText()));
}

Dim Product(const std::vector<Dim>& dims) {
  Dim product(1);
  for (const Dim& dim : dims) product = product * dim;
  return product;
}

Dim WindowSize(const Window& w, const Dim& input) {
  const int64_t reach = (w.kernel - 1) * w.dilation + 1;
  return (input + Dim(w.pad_begin + w.pad_end - reach)).FloorDiv(w.stride) + Dim(1);
}

// ---- rules, one per operator

Result Same(Inputs in, const Attrs&, DimEqualities*) { return in[0].dims; }

Result Reduce(Inputs in, const Attrs& attrs, DimEqualities*) {
  const size_t rank = in[0].dims.size();
  const Ints axes = GetInts(attrs, "axes", {});
  std::vector<bool> reduced(rank, axes.empty());
  for (int64_t axis : axes) {
    TW_ASSIGN(axis, NormalizeAxis("reduce", axis, rank));
    reduced[axis] = true;
  }
  std::vector<Dim> result;
  for (size_t d = 0; d < rank; ++d) {
    if (!reduced[d]) {
      result.push_back(in[0].dims[d]);
    } else if (KeepsDims(attrs)) {
      result.emplace_back(1);
    }
  }
  return result;
}

Result Transpose(Inputs in, const Attrs& attrs, DimEqualities*) {
  std::vector<Dim> result;
  const Ints perm = GetInts(attrs, "perm", {});
  if (perm.size() != in[0].dims.size()) return Bad("transpose", "expected a permutation");
  for (int64_t d : perm) {
    if (d < 0 || d >= static_cast<int64_t>(perm.size())) {
      return Bad("transpose", "expected a permutation");
    }
    result.push_back(in[0].dims[d]);
  }
  return result;
}

Result Reshape(Inputs in, const Attrs& attrs, DimEqualities* equal) {
  std::vector<Dim> result;
  Dim known(1);
  int inferred = -1;
  for (int64_t dim : GetInts(attrs, "shape", {})) {
    if (dim == -1 && inferred >= 0) return Bad("reshape", "expected one -1, found several");
    if (dim == -1) inferred = static_cast<int>(result.size());
    if (dim != -1) known = known * Dim(dim);
    result.emplace_back(dim);
  }
  const Dim total = Product(in[0].dims);
  if (inferred < 0) {
    TW_TRY(Equal("reshape", total, known, equal));
    return result;
  }
  const std::optional<Dim> rest = total.DivideExactly(known);
  if (!rest) {
    return Bad("reshape", StrCat("expected ", known.ToText(), " to divide ", total.ToText()));
  }
  result[inferred] = *rest;
  return result;
}

Result Concat(Inputs in, const Attrs& attrs, DimEqualities* equal) {
  std::vector<Dim> result = in[0].dims;
  TW_ASSIGN(const int64_t axis, NormalizeAxis("concat", GetInt(attrs, "axis", 0), result.size()));
  for (const SymbolicType& part : in.subspan(1)) {
    if (part.dims.size() != result.size()) return Bad("concat", "expected operands of one rank");
    for (size_t d = 0; d < result.size(); ++d) {
      if (static_cast<int64_t>(d) == axis) {
        result[d] = result[d] + part.dims[d];
      } else {
        TW_TRY(Equal("concat", result[d], part.dims[d], equal));
      }
    }
  }
  return result;
}

Result Slice(Inputs in, const Attrs& attrs, DimEqualities*) {
  const Ints starts = GetInts(attrs, "starts", {}), steps = GetInts(attrs, "steps", {}),
             sizes = GetInts(attrs, "sizes", {});
  const size_t rank = in[0].dims.size();
  if (starts.size() != rank || steps.size() != rank || sizes.size() != rank) {
    return Bad("slice", "expected starts, steps and sizes for every dimension");
  }
  std::vector<Dim> result;
  for (size_t d = 0; d < rank; ++d) {
    const Dim& dim = in[0].dims[d];
    if (sizes[d] != -1) {
      result.emplace_back(sizes[d]);
    } else if (steps[d] >= 1) {  // to the end
      result.push_back((dim + Dim(steps[d] - 1 - starts[d])).FloorDiv(steps[d]));
    } else {
      return Bad("slice", "expected a positive step where the size follows, found another");
    }
  }
  return result;
}

Result Gather(Inputs in, const Attrs& attrs, DimEqualities*) {
  std::vector<Dim> result = in[0].dims;
  TW_ASSIGN(const int64_t axis, NormalizeAxis("gather", GetInt(attrs, "axis", 0), result.size()));
  result.erase(result.begin() + axis);
  result.insert(result.begin() + axis, in[1].dims.begin(), in[1].dims.end());
  return result;
}

Result Pad(Inputs in, const Attrs& attrs, DimEqualities*) {
  std::vector<Dim> result = in[0].dims;
  const Ints pads = GetInts(attrs, "pads", {});
  if (pads.size() != 2 * result.size()) return Bad("pad", "expected pads for every dimension");
  for (size_t d = 0; d < result.size(); ++d) {
    result[d] = result[d] + Dim(pads[d] + pads[d + result.size()]);
  }
  return result;
}

Result Dense(Inputs in, const Attrs& attrs, DimEqualities* equal) {
  const std::string layout = GetString(attrs, "weight_layout", "NK");
  if (layout != "NK" && layout != "KN") return Bad("dense", "expected weights not laid out yet");
  const bool kn = layout == "KN";
  if (in[0].dims.empty() || in[1].dims.size() != 2) return Bad("dense", "expected a matrix");
  std::vector<Dim> result = in[0].dims;
  TW_TRY(Equal("dense", result.back(), in[1].dims[kn ? 0 : 1], equal));
  result.back() = in[1].dims[kn ? 1 : 0];
  return result;
}

Result Matmul(Inputs in, const Attrs&, DimEqualities* equal) {
  const std::vector<Dim>&a = in[0].dims, &b = in[1].dims;
  if (a.size() < 2 || b.size() < 2) return Bad("matmul", "expected matrices");
  TW_TRY(Equal("matmul", a.back(), b[b.size() - 2], equal));
  TW_ASSIGN(std::vector<Dim> result,
            Broadcast("matmul", {a.begin(), a.end() - 2}, {b.begin(), b.end() - 2}, equal));
  result.push_back(a[a.size() - 2]);
  result.push_back(b.back());
  return result;
}

Result Conv(Inputs in, const Attrs& attrs, DimEqualities* equal) {
  const std::vector<Dim>&x = in[0].dims, &w = in[1].dims;
  if (x.size() != 4 || w.size() != 4) return Bad("conv2d", "expected operands of rank 4");
  const bool ihwo = GetString(attrs, "weight_layout", "OIHW") == "IHWO";
  TW_ASSIGN(const int64_t kh, Fixed("conv2d", w[ihwo ? 1 : 2]));
  TW_ASSIGN(const int64_t kw, Fixed("conv2d", w[ihwo ? 2 : 3]));
  TW_ASSIGN(const std::vector<Window> windows, WindowsOf("conv2d", attrs, kh, kw));
  TW_TRY(Equal("conv2d", x[1], w[ihwo ? 0 : 1] * Dim(GetInt(attrs, "groups", 1)), equal));
  return std::vector<Dim>{x[0], w[ihwo ? 3 : 0], WindowSize(windows[0], x[2]),
                          WindowSize(windows[1], x[3])};
}

Result ConvTranspose(Inputs in, const Attrs& attrs, DimEqualities* equal) {
  constexpr std::string_view kOp = "conv2d_transpose";
  const std::vector<Dim>&x = in[0].dims, &w = in[1].dims;
  if (x.size() != 4 || w.size() != 4) return Bad(kOp, "expected operands of rank 4");
  const bool ihwo = GetString(attrs, "weight_layout", "IOHW") == "IHWO";
  TW_ASSIGN(const int64_t kh, Fixed(kOp, w[ihwo ? 1 : 2]));
  TW_ASSIGN(const int64_t kw, Fixed(kOp, w[ihwo ? 2 : 3]));
  TW_ASSIGN(const std::vector<Window> windows, WindowsOf(kOp, attrs, kh, kw));
  TW_ASSIGN(const Ints extra,
            IntsInRange(kOp, attrs, "output_padding", {0, 0}, 2, 0, kMaxWindowAttr));
  TW_TRY(Equal(kOp, x[1], w[0], equal));
  auto size = [](const Dim& input, const Window& v, int64_t more) {
    return (input - Dim(1)) * Dim(v.stride) +
           Dim((v.kernel - 1) * v.dilation + 1 + more - v.pad_begin - v.pad_end);
  };
  return std::vector<Dim>{x[0], w[ihwo ? 3 : 1] * Dim(GetInt(attrs, "groups", 1)),
                          size(x[2], windows[0], extra[0]), size(x[3], windows[1], extra[1])};
}

Result Pool(Inputs in, const Attrs& attrs, DimEqualities*) {
  std::vector<Dim> result = in[0].dims;
  if (result.size() != 4 && result.size() != 5) {
    return Bad("pool2d", "expected an operand of rank 4 or 5");
  }
  TW_ASSIGN(const Ints kernel, IntsInRange("pool2d", attrs, "kernel", {}, 2, 1, kMaxWindowAttr));
  TW_ASSIGN(const std::vector<Window> windows, WindowsOf("pool2d", attrs, kernel[0], kernel[1]));
  for (int d : {0, 1}) result[2 + d] = WindowSize(windows[d], result[2 + d]);
  return result;
}

struct Rule {
  std::string_view op;
  Result (*infer)(Inputs, const Attrs&, DimEqualities*);
};
constexpr Rule kRules[] = {
    {"batch_norm", Same}, {"concat", Concat},
    {"conv2d", Conv},     {"conv2d_transpose", ConvTranspose},
    {"dense", Dense},     {"gather", Gather},
    {"matmul", Matmul},   {"pad", Pad},
    {"pool2d", Pool},     {"reduce", Reduce},
    {"reshape", Reshape}, {"slice", Slice},
    {"softmax", Same},    {"transpose", Transpose},
};

// Of an elementwise operator: the row's own rule, asked with single numbers, which all shapes
// allow.
absl::StatusOr<ir::DType> ElementType(const OpSpec& spec, Inputs inputs, const Attrs& attrs) {
  std::vector<TensorType> numbers;
  for (const SymbolicType& in : inputs) numbers.push_back({in.dtype, {}});
  TW_ASSIGN(const std::vector<TensorType> results, InferTypes(spec, numbers, attrs));
  return results[0].dtype;
}

// Of all others: the first operand's, but where bytes are summed up.
ir::DType ResultType(const OpSpec& spec, Inputs inputs) {
  const bool sums = spec.name == "conv2d" || spec.name == "dense" || spec.name == "matmul";
  return sums && inputs[0].dtype.bytes() == 1 ? ir::kI32 : inputs[0].dtype;
}

}  // namespace

SymbolicType Symbolic(const TensorType& type) {
  return {type.dtype, {type.shape.begin(), type.shape.end()}};
}

absl::StatusOr<std::vector<SymbolicType>> InferSymbolic(const OpSpec& spec, Inputs inputs,
                                                        const Attrs& attrs, DimEqualities* equal) {
  const int count = static_cast<int>(inputs.size());
  if (count < spec.min_inputs || count > spec.max_inputs) {
    return Bad(spec.name, StrCat("expected another number of inputs, found ", count));
  }
  if (spec.elementwise()) {
    std::vector<Dim> dims = inputs[0].dims;
    for (const SymbolicType& in : inputs.subspan(1)) {
      TW_ASSIGN(dims, Broadcast(spec.name, dims, in.dims, equal));
    }
    TW_ASSIGN(const ir::DType type, ElementType(spec, inputs, attrs));
    return std::vector<SymbolicType>{{type, std::move(dims)}};
  }
  for (const Rule& rule : kRules) {
    if (rule.op != spec.name) continue;
    TW_ASSIGN(std::vector<Dim> dims, rule.infer(inputs, attrs, equal));
    return std::vector<SymbolicType>{{ResultType(spec, inputs), std::move(dims)}};
  }
  return Bad(spec.name, "expected fixed shapes: the operator has no rule for expressions");
}

Attrs SpecializeAttrs(const OpSpec& spec, const Attrs& attrs, const TensorType& result) {
  const std::string key = spec.name == "reshape" ? "shape" : spec.name == "slice" ? "sizes" : "";
  auto it = attrs.find(key);
  if (it == attrs.end() || !std::holds_alternative<Ints>(it->second)) return attrs;
  Attrs fixed = attrs;
  Ints& sizes = std::get<Ints>(fixed[key]);
  for (size_t d = 0; d < sizes.size() && d < result.shape.size(); ++d) {
    if (sizes[d] == -1) sizes[d] = result.shape[d];
  }
  return fixed;
}

}  // namespace tilewright::op
