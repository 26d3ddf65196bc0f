// Conversions of operators that give tensors another shape, or make tensors of shapes.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/onnx/onnx_composer.h"
#include "compiler/onnx/onnx_sizes.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {

using support::StrCat;

namespace {
// The sizes that are certain although only a run knows all of the operand: those of its elements
// that are known, and the one that is left where all others are.
std::vector<std::optional<op::Dim>> CertainSizes(Composer& c, ValueId wanted, bool copies,
                                                 const std::vector<op::Dim>& from) {
  const Importer& importer = c.node().importer();
  std::vector<std::optional<op::Dim>> certain(static_cast<size_t>(c.Count(wanted)));
  std::optional<op::Dim> others = op::Dim(1);
  size_t unknown = 0, left = 0;
  for (size_t d = 0; d < certain.size(); ++d) {
    std::optional<op::Dim> size = importer.KnownElement(wanted, static_cast<int64_t>(d));
    if (size && *size == op::Dim(0) && copies && d < from.size()) size = from[d];
    const bool counts = size && importer.Bound(*size, /*largest=*/false).value_or(0) > 0;
    if (counts) {
      certain[d] = size;
      if (others) others = op::Dim::Product(std::vector<op::Dim>{*others, *size});
    } else {
      ++unknown;
      left = d;
    }
  }
  const std::optional<op::Dim> all = op::Dim::Product(from);
  if (unknown == 1 && all && others) certain[left] = all->DivideExactly(*others);
  return certain;
}

// What the operand of sizes asks for; where it asks for what is left, that follows from the others.
Result ReshapeAtRunTime(NodeReader& n, ValueId x) {
  Composer c(n);
  TW_ASSIGN(const int64_t allow_zero, n.Int("allowzero", 0));
  ValueId wanted = c.Cast(c.Input(1), ir::kI64);
  TW_TRY(c.status());
  if (c.Rank(wanted) != 1)
    return n.Error("shape", "expected a list of sizes, found another operand");
  const std::vector<op::Dim> from = c.Dims(x);
  const auto rank = static_cast<size_t>(c.Count(wanted));
  TW_TRY(c.status());
  const auto certain = CertainSizes(c, wanted, allow_zero == 0, from);
  if (allow_zero == 0) {
    std::vector<op::Dim> copied = from;
    copied.resize(rank, -2);  // no dimension to copy
    wanted = c.Op("where", {c.Op("equal", {wanted, c.Number(0)}), c.SizesOf(copied), wanted});
  }
  const op::Dim elements = c.Elements(x);
  const ValueId left = c.Op("equal", {wanted, c.Number(-1)});
  const ValueId others = c.Reduce("prod", c.Op("where", {left, c.Number(1), wanted}), {0});
  const ValueId rest = c.Div(c.SizeOf(elements, ir::kI64), c.Op("max", {others, c.Number(1)}));
  wanted = c.Op("where", {left, rest, wanted});
  // One size in all is the number of elements; of more, none is larger than that, unless one is 0.
  std::optional<int64_t> most = c.Most(elements);
  if (most == 0) most.reset();
  std::vector<Composer::SizeBound> bounds(rank, {{}, most});
  for (size_t d = 0; d < rank; ++d) bounds[d].known = certain[d];
  const std::vector<op::Dim> shape = c.FoundShape(wanted, bounds);
  TW_TRY(c.status());
  if (n.importer().IsEmpty(x) && !std::ranges::all_of(shape, &op::Dim::is_constant)) {
    return n.Error("dynamic", "expected a constant shape for a tensor without elements");
  }
  return ReshapedTo(n, x, shape, n.output_name());
}

Result SqueezeAtRunTime(NodeReader& n, ValueId x, const std::vector<int64_t>& stated) {
  Composer c(n);
  const std::vector<int64_t> shape = c.Shape(x);
  ExpectKept(c, NamedDimensions(c, 1, static_cast<int64_t>(shape.size())), shape, stated);
  TW_TRY(c.status());
  return Reshaped(n, x, stated, n.output_name());
}

// Of what is not new, each has the size of the operand's dimension that as many come before.
Result UnsqueezeAtRunTime(NodeReader& n, ValueId x, const std::vector<int64_t>& stated) {
  Composer c(n);
  std::vector<int64_t> shape = c.Shape(x);
  const auto rank = static_cast<int64_t>(shape.size()), all = static_cast<int64_t>(stated.size());
  const ValueId added = NamedDimensions(c, 1, all);
  shape.push_back(0);  // there is none for more places than dimensions
  const ValueId place = Cumulative(c, "sum", c.Sub(c.Number(1), added), 0, true, false);
  const ValueId size = c.Op(
      "gather", {c.SizesOf({shape.begin(), shape.end()}), c.Op("min", {place, c.Number(rank)})},
      {{"axis", int64_t{0}}});
  c.ExpectSizes(c.Op("where", {c.Op("equal", {added, c.Number(1)}), c.Number(1), size}), stated);
  c.ExpectSizes(c.Reduce("sum", added, {0}), {all - rank});
  TW_TRY(c.status());
  return Reshaped(n, x, stated, n.output_name());
}
}  // namespace

Result ImportReshape(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const op::TensorType type = n.importer().TypeOf(x);
  std::vector<op::Dim> shape;
  if (n.importer().opset() < 5) {
    TW_ASSIGN(const std::vector<int64_t> sizes, n.Ints("shape", {}));
    shape.assign(sizes.begin(), sizes.end());
  } else if (n.IsDynamic(1)) {
    return ReshapeAtRunTime(n, x);
  } else {
    TW_ASSIGN(shape, n.InputDims(1, "the new shape"));
  }
  TW_ASSIGN(const int64_t allow_zero, n.Int("allowzero", 0));
  int64_t known = 1, inferred = -1;  // the product of the numbers; the place of a -1
  bool open = !type.fixed();
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool copied = shape[d] == op::Dim(0) && allow_zero == 0;
    if (copied && d < type.shape.size()) shape[d] = type.shape[d];
    open = open || !shape[d].is_constant();
    if (!shape[d].is_constant()) continue;
    const int64_t size = shape[d].value();
    if (size == -1 && inferred < 0) {
      inferred = static_cast<int64_t>(d);
    } else if (size < 0 || (copied && d >= type.shape.size()) ||
               __builtin_mul_overflow(known, size, &known)) {
      return n.Error("shape", StrCat("expected a shape for ", op::ToText(type), ", found ",
                                     op::DimsText(shape)));
    }
  }
  if (inferred >= 0 && known == 0) {
    return n.Error("shape",
                   StrCat("expected sizes other than 0 next to one that is computed, found ",
                          op::DimsText(shape)));
  }
  // With expressions, the type rule finds what is left.
  if (inferred >= 0 && !open) shape[inferred] = type.elements() / known;
  return ReshapedTo(n, x, shape, n.output_name());
}

Result ImportFlatten(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const std::vector<op::Dim> shape = n.importer().TypeOf(x).shape;
  TW_ASSIGN(int64_t axis, n.Int("axis", 1));
  const int64_t rank = static_cast<int64_t>(shape.size());
  if (axis < -rank || axis > rank) {
    return n.Error("attribute", StrCat("expected axis in ", -rank, " to ", rank, ", found ", axis));
  }
  if (axis < 0) axis += rank;
  op::Dim outer = 1, inner = 1;
  for (int64_t d = 0; d < rank; ++d) {
    op::Dim& side = d < axis ? outer : inner;
    side = side * shape[d];
  }
  return ReshapedTo(n, x, {outer, inner}, n.output_name());
}

Result ImportSqueeze(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  if (n.IsDynamic(1) && n.StatedShape()) return SqueezeAtRunTime(n, x, *n.StatedShape());
  const std::vector<op::Dim> shape = n.importer().TypeOf(x).shape;
  const op::Dim one(1);
  TW_ASSIGN(const std::vector<int64_t> axes, ReadAxes(n, 1, static_cast<int64_t>(shape.size())));
  std::vector<op::Dim> result;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool listed = std::binary_search(axes.begin(), axes.end(), static_cast<int64_t>(d));
    if (listed && shape[d] != one) {
      return n.Error(
          "axes", StrCat("expected a dimension of 1 at axis ", d, ", found ", shape[d].ToText()));
    }
    if (!(listed || (axes.empty() && shape[d] == one))) result.push_back(shape[d]);
  }
  return ReshapedTo(n, x, result, n.output_name());
}

Result ImportUnsqueeze(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  if (n.IsDynamic(1) && n.StatedShape()) return UnsqueezeAtRunTime(n, x, *n.StatedShape());
  const std::vector<op::Dim> shape = n.importer().TypeOf(x).shape;
  size_t count = n.HasInput(1) ? 0 : n.Find("axes") == nullptr ? 0 : n.Find("axes")->ints_size();
  if (n.HasInput(1)) {
    TW_ASSIGN(const std::vector<int64_t> raw, n.InputInts(1, "axes"));
    count = raw.size();
  }
  const int64_t rank = static_cast<int64_t>(shape.size() + count);
  if (rank > 16) return n.Error("axes", StrCat("expected rank 16 at most, found ", rank));
  TW_ASSIGN(const std::vector<int64_t> axes, ReadAxes(n, 1, rank));
  std::vector<op::Dim> result;
  size_t from = 0;
  for (int64_t d = 0; d < rank; ++d) {
    result.push_back(std::binary_search(axes.begin(), axes.end(), d) ? op::Dim(1) : shape[from++]);
  }
  return ReshapedTo(n, x, result, n.output_name());
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
    return importer.TensorConstant(value->t(), n.output_name());
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
  return importer.Constant(n.output_name(), tensor.type, op::ToBytes(tensor));
}

namespace {

// The element that ConstantOfShape repeats.
absl::StatusOr<HostConstant> FillOf(NodeReader& n) {
  HostConstant element{{ir::kF32, {}}, std::string(4, '\0')};
  if (const pb::AttributeProto* value = n.Find("value")) {
    TW_ASSIGN(element, ReadTensor(value->t(), n.importer().max_bytes()));
  }
  if (static_cast<int64_t>(element.bytes.size()) != element.type.dtype.bytes()) {
    return n.Error("attribute", "expected one element as value, found another number of them");
  }
  return element;
}

Result FilledOpen(NodeReader& n, const std::vector<op::Dim>& shape) {
  TW_ASSIGN(const HostConstant element, FillOf(n));
  const ValueId one =
      n.importer().Constant(PartName(n, "_element"), {element.type.dtype, {}}, element.bytes);
  return n.importer().Emit("expand", {one}, {{"shape", op::ShapeAttr(shape)}}, n.output_name());
}

}  // namespace

Result ImportConstantOfShape(NodeReader& n) {
  Importer& importer = n.importer();
  std::vector<int64_t> shape;
  TW_ASSIGN(const ValueId sizes, n.Input(0));
  if (importer.IsDims(sizes)) return FilledOpen(n, *importer.ConstantDims(sizes));
  if (n.IsDynamic(0)) {
    Composer c(n);
    std::vector<Composer::SizeBound> bounds(static_cast<size_t>(c.Count(sizes)));
    const std::vector<op::Dim> found = c.FoundShape(sizes, bounds);
    TW_TRY(c.status());
    if (!std::ranges::all_of(found, &op::Dim::is_constant)) return FilledOpen(n, found);
    for (const op::Dim& size : found) shape.push_back(size.value());
  } else {
    TW_ASSIGN(shape, n.InputInts(0, "shape"));
  }
  TW_ASSIGN(const HostConstant element, FillOf(n));
  const int64_t width = element.type.dtype.bytes();
  int64_t count = 1;
  for (const int64_t size : shape) {
    if (size < 0) return n.Error("shape", StrCat("expected sizes >= 0, found ", size));
    if (size > 0 && count > importer.max_bytes() / width / size) {
      return n.Error("too_large",
                     StrCat("expected at most ", importer.max_bytes(), " bytes, found a shape [",
                            support::Join(shape, ","), "]"));
    }
    count *= size;
  }
  const auto all = static_cast<size_t>(count * width);
  std::string bytes = count == 0 ? "" : element.bytes;
  bytes.reserve(all);
  while (bytes.size() < all) bytes.append(bytes, 0, all - bytes.size());
  return importer.Constant(n.output_name(), {element.type.dtype, shape}, std::move(bytes));
}

Result ImportShape(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const std::vector<op::Dim> shape = n.importer().TypeOf(x).shape;
  const int64_t rank = static_cast<int64_t>(shape.size());
  TW_ASSIGN(int64_t start, n.Int("start", 0));
  TW_ASSIGN(int64_t end, n.Int("end", rank));
  start = std::clamp(start < 0 ? start + rank : start, int64_t{0}, rank);
  end = std::clamp(end < 0 ? end + rank : end, int64_t{0}, rank);
  end = std::max(start, end);
  return n.importer().AddDims(n.output_name(), {ir::kI64, {end - start}},
                              {shape.begin() + start, shape.begin() + end});
}

// Data operands beyond the first few are possible only where an operator is variadic.
Result ImportConcat(NodeReader& n) {
  std::vector<ValueId> parts, empty;
  for (int i = 0; i < n.num_inputs(); ++i) {
    TW_ASSIGN(ValueId id, n.Input(i));
    (n.importer().IsEmpty(id) ? empty : parts).push_back(id);
  }
  // Old exporters write a list without elements next to tensors of another rank.
  if (parts.empty()) parts = std::move(empty);
  if (parts.empty()) return n.Error("inputs", "expected operands, found none");
  TW_ASSIGN(const int64_t axis,
            ReadAxis(n, 1, static_cast<int64_t>(n.importer().TypeOf(parts[0]).shape.size())));
  return n.importer().Emit("concat", parts, {{"axis", axis}}, n.output_name());
}

}  // namespace tilewright::graph::onnx
