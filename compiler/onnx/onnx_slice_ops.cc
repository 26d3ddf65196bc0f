// Conversions of operators that take parts of a tensor (Slice, Split, Gather) or set something
// around it (Pad).
#include <algorithm>

#include "compiler/onnx/onnx_composer.h"
#include "compiler/onnx/onnx_sizes.h"
#include "compiler/onnx/onnx_spacing.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {

using support::StrCat;

namespace {

constexpr int64_t kMaxPad = int64_t{1} << 24;
constexpr int64_t kMaxSplit = int64_t{1} << 40;  // of one part: sums do not overflow

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

// One number for dimension d: that of the entry whose axis is d, or `absent`.
ValueId AtAxis(Composer& c, ValueId axes, ValueId numbers, int64_t d, double absent) {
  if (!c.ok()) return kNone;
  const Importer& importer = c.node().importer();
  if (const auto known_axes = importer.ConstantInts(axes)) {
    const auto at = std::ranges::find(*known_axes, d) - known_axes->begin();
    if (at == static_cast<std::ptrdiff_t>(known_axes->size())) return c.Scalar(absent, ir::kI64);
    const auto known = importer.ConstantInts(numbers);
    return known ? c.Integers({}, {known->at(static_cast<size_t>(at))})
                 : c.Reshape(c.Slice(numbers, 0, at, 1), {});
  }
  const ValueId mine = c.Op("equal", {axes, c.Scalar(static_cast<double>(d), ir::kI64)});
  const ValueId base = c.Scalar(absent, ir::kI64);
  const ValueId chosen = c.Op("where", {mine, c.Sub(numbers, base), c.Scalar(0, ir::kI64)});
  return c.Add(c.Reduce("sum", chosen, {0}, false), base);
}

// The axes of a node's entries, from 0 on: the operand's numbers, or the first `count` dimensions.
ValueId AxesOperand(Composer& c, int input, int64_t count, int64_t rank) {
  if (!c.node().HasInput(input)) {
    return c.Counting(ir::kI64, count, 0, 1);
  }
  const ValueId axes = c.Cast(c.Input(input), ir::kI64);
  return c.Op("where", {c.Op("less", {axes, c.Scalar(0, ir::kI64)}),
                        c.Add(axes, c.Scalar(static_cast<double>(rank), ir::kI64)), axes});
}

// The dimensions that an operand of axes certainly does not name.
std::vector<bool> NamesNot(NodeReader& n, int input, int64_t count, int64_t rank) {
  std::vector<bool> names_not(static_cast<size_t>(rank), n.IsDynamic(input) ? false : true);
  if (n.IsDynamic(input)) return names_not;
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < count; ++d) axes.push_back(d);
  if (n.HasInput(input)) {
    const absl::StatusOr<ValueId> id = n.Input(input);
    axes = (id.ok() ? n.importer().ConstantInts(*id) : std::nullopt).value_or(axes);
  }
  for (const int64_t axis : axes) {
    const int64_t d = axis < 0 ? axis + rank : axis;
    if (d >= 0 && d < rank) names_not[static_cast<size_t>(d)] = false;
  }
  return names_not;
}

// Operands that are only known when the model runs: along each dimension a gather at
// start + i * step.
Result SliceAtRunTime(NodeReader& n) {
  Composer c(n);
  ValueId x = c.Input(0);
  const ValueId starts = c.Cast(c.Input(1), ir::kI64);
  // The largest numbers mean "to the end"; sums with them must not overflow.
  constexpr int64_t kFar = int64_t{1} << 62;
  ValueId ends = c.Cast(c.Input(2), ir::kI64);
  TW_TRY(c.status());
  if (auto known = n.importer().ConstantInts(ends)) {
    for (int64_t& end : *known) end = std::clamp(end, -kFar, kFar);
    ends = c.Integers({static_cast<int64_t>(known->size())}, *known);
  } else {
    ends = c.Op("max", {c.Op("min", {ends, c.Number(kFar)}), c.Number(-kFar)});
  }
  TW_TRY(c.status());
  const std::vector<op::Dim> shape = c.Dims(x);
  const int64_t rank = c.Rank(x), count = c.Count(starts);
  TW_TRY(c.status());
  const ValueId axes = AxesOperand(c, 3, count, rank);
  const ValueId steps = n.HasInput(4)
                            ? c.Cast(c.Input(4), ir::kI64)
                            : c.Constant(ir::kI64, {count}, std::vector<double>(count, 1));
  const std::vector<bool> whole = NamesNot(n, 3, count, rank);
  std::vector<ValueId> counts, first, strides;
  std::vector<Composer::SizeBound> bounds;
  for (int64_t d = 0; d < rank; ++d) {
    // What no entry names is taken whole; an entry may also take a whole dimension backwards.
    const ValueId size = c.SizeOf(shape[d], ir::kI64), last = c.Sub(size, c.Number(1));
    const ValueId step = AtAxis(c, axes, steps, d, 1);
    const ValueId backwards = c.Op("less", {step, c.Number(0)});
    const auto from_zero = [&](ValueId at, int64_t low, ValueId high) {
      at = c.Op("where", {c.Op("less", {at, c.Number(0)}), c.Add(at, size), at});
      return c.Op("min", {c.Op("max", {at, c.Number(low)}), high});
    };
    const auto clamped = [&](ValueId at) {
      return c.Op("where", {backwards, from_zero(at, -1, last), from_zero(at, 0, size)});
    };
    const ValueId start = clamped(AtAxis(c, axes, starts, d, 0));
    const ValueId to_end = AtAxis(c, axes, ends, d, kFar);
    const auto known_end = c.ok() ? n.importer().ConstantInts(to_end) : std::nullopt;
    const ValueId end =
        clamped(known_end ? (known_end->at(0) == kFar ? size : to_end)
                          : c.Op("where", {c.Op("equal", {to_end, c.Number(kFar)}), size, to_end}));
    counts.push_back(c.Reshape(StepsBetween(c, start, end, step), {1}));
    first.push_back(start);
    strides.push_back(step);
    bounds.push_back({{}, c.Most(shape[d])});
    if (whole[static_cast<size_t>(d)]) bounds.back().known = shape[d];
  }
  const std::vector<op::Dim> to = c.FoundShape(c.Concat(std::move(counts), 0), bounds);
  for (int64_t d = 0; c.ok() && d < rank; ++d) {
    if (whole[static_cast<size_t>(d)]) continue;
    const ValueId at = c.Add(c.Mul(c.Counting(ir::kI64, to[d], 0, 1), strides[d]), first[d]);
    x = c.Op("gather", {x, at}, {{"axis", d}});
  }
  return c.Done(c.Op("identity", {x}));
}

// One end of a slice where the dimension or the end is an expression: at all sizes in the ranges of
// the variables it counts from the same side, and is inside or outside.
absl::StatusOr<op::Dim> OpenEnd(NodeReader& n, op::Dim end, const op::Dim& size) {
  const Importer& importer = n.importer();
  const std::optional<int64_t> most = importer.Bound(end, true);
  if (most && *most < 0) end = size + end;
  // The largest integer means "to the end": its difference from a size might leave the range.
  const auto at_least = [&](const op::Dim& a, const op::Dim& b) {
    if (a.is_constant()) {
      const std::optional<int64_t> limit = importer.Bound(b, true);
      return limit && *limit <= a.value();
    }
    const std::optional<int64_t> gap = importer.Bound(a - b, false);
    return gap && *gap >= 0;
  };
  if (at_least(end, size)) return size;
  const bool positive = at_least(end, 0);
  if (positive && at_least(size, end)) return end;
  if (at_least(op::Dim(0), end) && most && *most < 0) return op::Dim(0);
  return n.Error("open_size",
                 StrCat("expected an end that is inside of the dimension, or outside, at all sizes "
                        "in their ranges, found ",
                        end.ToText(), " of ", size.ToText(), kGiveNumbers));
}

// A slice along an open dimension, or from or to a place that is an expression.
Result OpenSlice(NodeReader& n, ValueId x, int64_t axis, const op::Dim& start, const op::Dim& end,
                 int64_t step, const std::string& name) {
  const op::Dim size = n.importer().TypeOf(x).shape[axis];
  const op::Dim one(1);
  if (step == -1 && start.constant().value_or(0) == -1 && end.constant().value_or(0) < -kMaxPad) {
    return Sliced(n, x, axis, size - one, -1, size, name);  // the whole dimension, turned round
  }
  if (step < 1) {
    return n.Error("open_size", StrCat("expected steps from 1 on along an open dimension, or the "
                                       "whole of it in steps of -1, found steps of ",
                                       step, kGiveNumbers));
  }
  TW_ASSIGN(const op::Dim from, OpenEnd(n, start, size));
  TW_ASSIGN(const op::Dim to, OpenEnd(n, end, size));
  // All of it may be nothing, as the operand is then.
  if (step == 1 && from == op::Dim(0) && to == size) {
    return n.importer().Emit("identity", {x}, {}, name);
  }
  const std::optional<int64_t> least = n.importer().Bound(to - from, false);
  if (!least || *least < 0 || (*least == 0 && to != from)) {
    return n.Error("open_size", StrCat("expected a slice with elements at all sizes, found ",
                                       from.ToText(), " to ", to.ToText(), kGiveNumbers));
  }
  return Sliced(n, x, axis, from, step, (to - from + op::Dim(step - 1)).FloorDiv(step), name);
}

}  // namespace

Result ImportSlice(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  for (int i = 1; i < 5; ++i) {
    if (n.IsDynamic(i)) return SliceAtRunTime(n);
  }
  const std::vector<op::Dim> shape = n.importer().TypeOf(x).shape;
  const bool attributes = n.importer().opset() < 10;
  std::vector<op::Dim> starts, ends;
  std::vector<int64_t> axes, steps;
  if (attributes) {
    TW_ASSIGN(const std::vector<int64_t> from, n.Ints("starts", {}));
    TW_ASSIGN(const std::vector<int64_t> to, n.Ints("ends", {}));
    starts.assign(from.begin(), from.end());
    ends.assign(to.begin(), to.end());
    TW_ASSIGN(axes, n.Ints("axes", {}));
  } else {
    TW_ASSIGN(starts, n.InputDims(1, "starts"));
    TW_ASSIGN(ends, n.InputDims(2, "ends"));
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
    const std::string part = PartName(n, StrCat("_axis", axis));
    if (!shape[axis].is_constant() || !starts[i].is_constant() || !ends[i].is_constant()) {
      const Result sliced = OpenSlice(n, x, axis, starts[i], ends[i], steps[i], part);
      // Where a run has to decide how much there is.
      const bool open = support::Slug(sliced.status()) == "graph.onnx.open_size";
      if (open && !attributes) return SliceAtRunTime(n);
      TW_ASSIGN(x, sliced);
      continue;
    }
    const Extent e = ClampSlice(starts[i].value(), ends[i].value(), steps[i], shape[axis].value());
    TW_ASSIGN(x, Sliced(n, x, axis, e.start, e.count == 1 ? 1 : e.step, e.count, part));
  }
  return n.importer().Emit("identity", {x}, {}, n.output_name());
}

namespace {

// The sizes of the parts that Split makes: given, or equal but for the last one.
absl::StatusOr<std::vector<op::Dim>> PartsOf(NodeReader& n, const op::Dim& along, int64_t axis) {
  std::vector<op::Dim> sizes;
  if (n.IsDynamic(1)) {
    Composer c(n);
    // The last part is what the others leave, so that no part reaches beyond the dimension.
    const ValueId given = c.Cast(c.Input(1), ir::kI64);
    op::Dim left = along;
    for (int i = 0; i + 1 < n.num_outputs(); ++i) {
      sizes.push_back(c.FoundSize(c.Slice(given, 0, i, 1), axis, c.Most(along), i));
      left = left - sizes.back();
    }
    sizes.push_back(left);
    c.ExpectDims(given, sizes, n.label());
    TW_TRY(c.status());
  } else if (n.HasInput(1)) {
    TW_ASSIGN(sizes, n.InputDims(1, "split"));
  } else {
    TW_ASSIGN(const std::vector<int64_t> given, n.Ints("split", {}));
    sizes.assign(given.begin(), given.end());
  }
  if (!sizes.empty()) return sizes;
  const int64_t parts = n.num_outputs();
  const op::Dim each = (along + op::Dim(parts - 1)).FloorDiv(parts);
  sizes.assign(parts, each);
  sizes.back() = along - each * op::Dim(parts - 1);
  return sizes;
}

}  // namespace

Result ImportSplit(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  const op::TensorType type = n.importer().TypeOf(x);
  TW_ASSIGN(const int64_t axis, ReadAxis(n, 0, type.rank()));
  const op::Dim along = type.shape[axis];
  TW_ASSIGN(const std::vector<op::Dim> sizes, PartsOf(n, along, axis));
  const auto bad = [&] {
    return n.Error("split", StrCat("expected parts that make up ", along.ToText(), ", found ",
                                   op::DimsText(sizes)));
  };
  op::Dim at = 0;
  for (const op::Dim& size : sizes) {
    at = at + size;
    if (size.is_constant() && (size.value() < 0 || size.value() > kMaxSplit)) return bad();
    const std::optional<int64_t> least = n.importer().Bound(size, false);
    if (size.is_constant() || (least && *least > 0) || n.IsDynamic(1)) continue;
    return n.Error("open_size", StrCat("expected parts with elements at all sizes, found ",
                                       op::DimsText(sizes), kGiveNumbers));
  }
  if (along.is_constant() && at.is_constant() && at != along) return bad();
  if (at != along && !n.IsDynamic(1)) {
    return n.Error("open_size", StrCat("expected parts that make up ", along.ToText(), ", found ",
                                       op::DimsText(sizes), kGiveNumbers));
  }
  if (static_cast<int>(sizes.size()) != n.num_outputs()) {
    return n.Error("split", "expected a part per output, found other counts");
  }
  ValueId first = -1;
  at = 0;
  for (int i = 0; i < n.num_outputs(); ++i) {
    TW_ASSIGN(ValueId part, Sliced(n, x, axis, at, 1, sizes[i], n.output_name(i)));
    at = at + sizes[i];
    if (i == 0) first = part;
    if (i > 0) TW_TRY(n.BindOutput(i, part));
  }
  return first;
}

namespace {

// More positions may stand for numbers that were left out (onnx_strip_weights.cc).
constexpr size_t kMaxSpacedPositions = 64;

}  // namespace

// Exporters write x[:, 0] and x[..., 1:3] as constant positions, too: slices, which may be views.
Result ImportGather(NodeReader& n) {
  TW_ASSIGN(ValueId x, n.Input(0));
  TW_ASSIGN(ValueId indices, n.Input(1));
  const std::vector<op::Dim> shape = n.importer().TypeOf(x).shape;
  TW_ASSIGN(const int64_t axis, ReadAxis(n, 0, static_cast<int64_t>(shape.size())));
  const auto known = n.importer().ConstantInts(indices);
  const std::optional<int64_t> size = shape[axis].constant();
  const bool few = known && known->size() <= kMaxSpacedPositions;
  const auto at = few && size ? EvenlySpaced(*known, *size) : std::nullopt;
  const op::TensorType& positions = n.importer().TypeOf(indices);
  const bool integers = positions.dtype == ir::kI64 || positions.dtype == ir::kI32;
  if (at && integers && n.importer().ValueOf(x).constant == nullptr) {
    std::vector<op::Dim> result = positions.shape;
    result.insert(result.begin(), shape.begin(), shape.begin() + axis);
    result.insert(result.end(), shape.begin() + axis + 1, shape.end());
    TW_ASSIGN(
        x, Sliced(n, x, axis, at->start, at->step, std::ssize(*known), PartName(n, "_positions")));
    return ReshapedTo(n, x, result, n.output_name());
  }
  return n.importer().Emit("gather", {x, indices}, {{"axis", axis}}, n.output_name());
}

namespace {

// Position i - begin of a dimension, brought into it as the mode says. Reflections do not repeat
// the edge; both modes go on beyond one period.
ValueId Inside(Composer& c, ValueId at, const op::Dim& size, const std::string& mode) {
  const ValueId zero = c.Scalar(0, ir::kI64), one = c.Scalar(1, ir::kI64);
  const ValueId last = c.SizeOf(size - op::Dim(1), ir::kI64);
  if (mode == "edge" || mode == "constant") return c.Op("min", {c.Op("max", {at, zero}), last});
  const ValueId period =
      mode == "wrap" ? c.SizeOf(size, ir::kI64) : c.Op("max", {one, c.Add(last, last)});
  const ValueId length = c.Cast(period, ir::kF64);
  const ValueId real = c.Cast(at, ir::kF64);
  const ValueId turns = c.Op("floor", {c.Div(real, length)});
  const ValueId in_period = c.Cast(c.Sub(real, c.Mul(turns, length)), ir::kI64);
  if (mode == "wrap") return in_period;
  const ValueId back = c.Sub(period, in_period);
  return c.Op("min", {in_period, back});
}

// Along each dimension a gather at i - begin. `begins` is known at run time only, or constant.
Result PadByGather(NodeReader& n, const std::string& mode, const std::vector<ValueId>& begins,
                   const std::vector<op::Dim>& shape) {
  Composer c(n);
  ValueId x = c.Input(0), outside = kNone;
  const std::vector<op::Dim> from = c.Dims(x);
  for (size_t d = 0; c.ok() && d < from.size(); ++d) {
    if (shape[d] == from[d] && n.importer().ConstantScalar(begins[d]) == 0) continue;
    const ValueId at = c.Sub(c.Counting(ir::kI64, shape[d], 0, 1), begins[d]);
    x = c.Op("gather", {x, Inside(c, at, from[d], mode)}, {{"axis", static_cast<int64_t>(d)}});
    if (mode != "constant") continue;
    std::vector<op::Dim> along(from.size(), 1);
    along[d] = shape[d];
    const ValueId beyond = c.Op("or", {c.Op("less", {at, c.Scalar(0, ir::kI64)}),
                                       c.Op("greater_equal", {at, c.SizeOf(from[d], ir::kI64)})});
    const ValueId flags = c.ReshapeTo(beyond, along);
    outside = outside == kNone ? flags : c.Op("or", {outside, flags});
  }
  if (outside == kNone) return c.Done(c.Op("identity", {x}));
  const ValueId fill = n.HasInput(2) ? c.Reshape(c.Input(2), {}) : c.Scalar(0, c.TypeOf(x).dtype);
  return c.Done(c.Op("where", {outside, fill, x}));
}

Result PadAtRunTime(NodeReader& n, const std::string& mode) {
  Composer c(n);
  const ValueId x = c.Input(0), pads = c.Input(1);
  TW_TRY(c.status());
  const int64_t rank = c.Rank(x), count = c.Count(pads) / 2;
  TW_TRY(c.status());
  const std::vector<op::Dim> shape = c.Dims(x);
  const std::vector<bool> kept = NamesNot(n, 3, count, rank);
  const ValueId axes = AxesOperand(c, 3, count, rank);
  const ValueId begin = c.Slice(c.Cast(pads, ir::kI64), 0, 0, count);
  const ValueId end = c.Slice(c.Cast(pads, ir::kI64), 0, count, count);
  std::vector<ValueId> begins, sizes;
  std::vector<Composer::SizeBound> bounds(shape.size());
  for (int64_t d = 0; d < rank; ++d) {
    begins.push_back(AtAxis(c, axes, begin, d, 0));
    const ValueId padding = c.Add(begins.back(), AtAxis(c, axes, end, d, 0));
    sizes.push_back(c.Reshape(c.Add(padding, c.SizeOf(shape[d], ir::kI64)), {1}));
    if (kept[static_cast<size_t>(d)]) bounds[static_cast<size_t>(d)].known = shape[d];
  }
  const std::vector<op::Dim> to = c.FoundShape(c.Concat(std::move(sizes), 0), bounds);
  TW_TRY(c.status());
  return PadByGather(n, mode, begins, to);
}

}  // namespace

Result ImportPad(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0);
  TW_TRY(c.status());
  const op::TensorType type = c.TypeOf(x);
  const int64_t rank = c.Rank(x);
  TW_ASSIGN(const std::string mode, n.String("mode", "constant"));
  if (mode != "constant" && mode != "reflect" && mode != "edge" && mode != "wrap") {
    return n.Error("attribute", StrCat("expected a known mode, found ", support::Quote(mode)));
  }
  if (n.IsDynamic(1) || n.IsDynamic(3)) return PadAtRunTime(n, mode);
  std::vector<op::Dim> given;
  std::vector<int64_t> axes;
  double value = 0;
  bool dynamic_value = false;
  if (n.importer().opset() < 11) {
    TW_ASSIGN(const std::vector<int64_t> pads,
              n.Ints(n.importer().opset() < 2 ? "paddings" : "pads", {}));
    given.assign(pads.begin(), pads.end());
    TW_ASSIGN(value, n.Float("value", 0));
  } else {
    TW_ASSIGN(given, n.InputDims(1, "pads"));
    if (n.HasInput(2)) {
      TW_ASSIGN(ValueId fill, n.Input(2));
      std::optional<double> scalar = n.importer().ConstantScalar(fill);
      dynamic_value = !scalar;
      value = scalar.value_or(0);
    }
    if (n.HasInput(3)) {
      TW_ASSIGN(axes, n.InputInts(3, "axes"));
    }
  }
  if (axes.empty() && !n.HasInput(3)) {
    for (int64_t d = 0; d < rank; ++d) axes.push_back(d);
  }
  if (given.size() != 2 * axes.size()) {
    return n.Error("attribute",
                   StrCat("expected ", 2 * axes.size(), " pads, found ", given.size()));
  }
  std::vector<op::Dim> pads(2 * static_cast<size_t>(rank), 0), shape = type.shape;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t d = axes[i] < 0 ? axes[i] + rank : axes[i];
    const op::Dim begin = given[i], end = given[i + axes.size()];
    const auto sensible = [](const op::Dim& pad) {
      const int64_t number = pad.constant().value_or(0);
      return number >= -kMaxPad && number <= kMaxPad;
    };
    if (d < 0 || d >= rank || !sensible(begin) || !sensible(end)) {
      return n.Error("attribute", "expected axes of the operand and pads of sensible size");
    }
    pads[d] = begin;
    pads[d + rank] = end;
    shape[d] = type.shape[d] + begin + end;
    if (shape[d].constant().value_or(0) < 0) {
      return n.Error("attribute", StrCat("expected pads that leave a size of 0 at least, found ",
                                         shape[d].ToText(), " in dimension ", d));
    }
  }
  if (std::count(shape.begin(), shape.end(), op::Dim(0)) > 0) {
    const op::TensorType none(type.dtype, shape);
    if (none.fixed()) return c.Done(c.Empty(type.dtype, none.sizes()));
    return n.Error("open_size", StrCat("expected pads that leave elements, found ",
                                       op::DimsText(pads), kGiveNumbers));
  }
  if (mode == "constant" && !dynamic_value) {
    return n.importer().Emit("pad", {x}, {{"pads", op::ShapeAttr(pads)}, {"value", value}},
                             n.output_name());
  }
  std::vector<ValueId> begins;
  for (int64_t d = 0; d < rank; ++d) begins.push_back(c.SizeOf(pads[d], ir::kI64));
  TW_TRY(c.status());
  return PadByGather(n, mode, begins, shape);
}

}  // namespace tilewright::graph::onnx
