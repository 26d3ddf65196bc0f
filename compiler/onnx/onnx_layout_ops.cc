// Conversions of operators that repeat, place, mask or reorder elements.
#include <algorithm>
#include <cmath>

#include "compiler/onnx/onnx_composer.h"
#include "compiler/onnx/onnx_sizes.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

constexpr int64_t kMaxCount = int64_t{1} << 28;  // elements of a constant that an operator makes

// What a run expands to: of two sizes of a dimension the one that is not 1; shorter shapes have 1
// in front.
std::vector<op::Dim> FoundExpansion(Composer& c, ValueId x) {
  ValueId wanted = c.Cast(c.Input(1), ir::kI64);
  if (!c.ok()) return {};
  std::vector<op::Dim> from = c.Dims(x);
  const int64_t own = c.Rank(x), count = c.Count(wanted), rank = std::max(count, own);
  if (!c.ok()) return {};
  from.insert(from.begin(), static_cast<size_t>(rank) - from.size(), 1);
  if (count < rank) {
    wanted = c.Concat({c.SizesOf(std::vector<op::Dim>(rank - count, 1)), wanted}, 0);
  }
  std::vector<Composer::SizeBound> bounds(from.size());
  for (size_t d = 0; d < from.size(); ++d) {
    if (from[d] != op::Dim(1)) bounds[d].known = from[d];
  }
  const ValueId keeps = c.Op("equal", {wanted, c.Number(1)});
  return c.FoundShape(c.Op("where", {keeps, c.SizesOf(from), wanted}), bounds);
}

}  // namespace

// Dimensions of 1 are repeated; a 1 in the wanted shape keeps the operand's.
namespace {

// Where a size is an expression: a dimension of 1 takes the wanted one, and 1 is wanted of any.
Result ExpandOpen(Composer& c, ValueId x) {
  TW_ASSIGN(std::vector<op::Dim> shape, c.node().InputDims(1, "the shape"));
  const std::vector<op::Dim> from = c.TypeOf(x).shape;
  if (shape.size() < from.size()) shape.insert(shape.begin(), from.size() - shape.size(), 1);
  for (size_t d = 0; d < from.size(); ++d) {
    op::Dim& to = shape[shape.size() - from.size() + d];
    if (to == op::Dim(1) || from[d] != op::Dim(1)) to = from[d];
  }
  return c.Done(c.Op("expand", {x}, {{"shape", op::ShapeAttr(shape)}}));
}

}  // namespace

Result ImportExpand(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0), sizes = c.Input(1);
  TW_TRY(c.status());
  std::vector<int64_t> shape;
  if (n.IsDynamic(1)) {
    const std::vector<op::Dim> found = FoundExpansion(c, x);
    return c.Done(c.Op("expand", {x}, {{"shape", op::ShapeAttr(found)}}));
  } else if (!c.TypeOf(x).fixed() || !n.importer().ConstantInts(sizes)) {
    return ExpandOpen(c, x);
  } else {
    TW_ASSIGN(shape, n.InputInts(1, "the shape"));
  }
  const std::vector<int64_t> from = c.Shape(x);
  if (shape.size() < from.size()) shape.insert(shape.begin(), from.size() - shape.size(), 1);
  for (size_t d = 0; d < from.size(); ++d) {
    int64_t& to = shape[shape.size() - from.size() + d];
    if (to == 1) to = from[d];
  }
  bool empty = false, fits = true;
  for (size_t d = 0; d < shape.size(); ++d) {
    empty = empty || shape[d] == 0;
    const size_t skip = shape.size() - from.size();
    fits = fits && (d < skip || from[d - skip] == 1 || from[d - skip] == shape[d]);
  }
  if (empty && fits && !n.importer().IsEmpty(x)) {
    return c.Done(c.Empty(c.TypeOf(x).dtype, shape));
  }
  return c.Done(c.Op("expand", {x}, {{"shape", shape}}));
}

namespace {

// Element i of the result is element i modulo the size.
Result TileAtRunTime(Composer& c, ValueId x) {
  const std::vector<op::Dim> from = c.Dims(x);
  const ValueId repeats = c.Cast(c.Input(1), ir::kI64);
  if (c.ok() && c.Count(repeats) != static_cast<int64_t>(from.size())) {
    c.Fail("shape", "expected a number of repeats for each dimension");
  }
  const ValueId sizes = c.Mul(repeats, c.SizesOf(from));
  const std::vector<op::Dim> to =
      c.FoundShape(sizes, std::vector<Composer::SizeBound>(from.size()));
  for (size_t d = 0; c.ok() && d < from.size(); ++d) {
    if (to[d] == from[d]) continue;
    const ValueId at =
        c.Op("mod", {c.Counting(ir::kI64, to[d], 0, 1), c.SizeOf(from[d], ir::kI64)});
    x = c.Op("gather", {x, at}, {{"axis", static_cast<int64_t>(d)}});
  }
  return c.Done(c.Op("identity", {x}));
}

}  // namespace

// Repeated whole, along every dimension; opset 1 has one axis and a number of tiles.
Result ImportTile(NodeReader& n) {
  Composer c(n);
  ValueId x = c.Input(0);
  TW_TRY(c.status());
  const std::vector<op::Dim> shape = c.Dims(x);
  std::vector<op::Dim> repeats(shape.size(), 1);
  if (n.importer().opset() < 6) {
    TW_ASSIGN(const std::vector<int64_t> tiles, n.InputInts(1, "tiles"));
    TW_ASSIGN(const std::vector<int64_t> axis, n.InputInts(2, "axis"));
    if (tiles.size() != 1 || axis.size() != 1 || axis[0] < 0 || axis[0] >= c.Rank(x)) {
      return n.Error("attribute", "expected one number of tiles and one axis, found others");
    }
    repeats[axis[0]] = tiles[0];
  } else if (n.IsDynamic(1)) {
    return TileAtRunTime(c, x);
  } else {
    TW_ASSIGN(repeats, n.InputDims(1, "repeats"));
  }
  std::vector<op::Dim> apart, wide, result;
  for (size_t d = 0; d < shape.size(); ++d) {
    const int64_t count = d < repeats.size() ? repeats[d].constant().value_or(1) : -1;
    if (repeats.size() != shape.size() || count < 0 || count > kMaxCount) {
      return n.Error("attribute",
                     StrCat("expected a number of repeats per dimension of ",
                            op::ToText(c.TypeOf(x)), ", found ", op::DimsText(repeats)));
    }
    if (repeats[d] != op::Dim(1)) apart.push_back(1), wide.push_back(repeats[d]);
    apart.push_back(shape[d]), wide.push_back(shape[d]);
    int64_t size = 0;
    if (__builtin_mul_overflow(count, shape[d].constant().value_or(1), &size)) {
      return n.Error("too_large", StrCat("expected a smaller result, found ", shape[d].ToText(),
                                         " elements repeated ", count, " times"));
    }
    result.push_back(repeats[d] * shape[d]);
  }
  if (std::count(result.begin(), result.end(), op::Dim(0)) > 0) {
    const op::TensorType none(c.TypeOf(x).dtype, result);
    if (none.fixed()) return c.Done(c.Empty(none.dtype, none.sizes()));
    return n.Error("open_size", StrCat("expected a result with elements, found ",
                                       op::DimsText(result), kGiveNumbers));
  }
  if (result == shape) return c.Done(c.Op("identity", {x}));
  return c.Done(c.ReshapeTo(c.BroadcastTo(c.ReshapeTo(x, apart), wide), result));
}

// The elements of matrices on one side of a diagonal, zeros elsewhere.
Result ImportTrilu(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0);
  ValueId k = c.OptionalInput(1);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t upper, n.Int("upper", 1));
  const op::TensorType type = c.TypeOf(x);
  const size_t rank = type.shape.size();
  if (rank < 2) return n.Error("rank", "expected matrices, found " + op::ToText(type));
  k = k == kNone ? c.Scalar(0, ir::kI64) : c.Reshape(k, {});
  const ValueId row = c.Counting(ir::kI64, type.shape[rank - 2], 0, 2);
  const ValueId column = c.Counting(ir::kI64, type.shape[rank - 1], 1, 2);
  const ValueId diagonal = c.Add(row, k);
  const ValueId kept = upper != 0 ? c.Op("greater_equal", {column, diagonal})
                                  : c.Op("less_equal", {column, diagonal});
  return c.Done(c.Op("where", {kept, x, c.Scalar(0, type.dtype)}));
}

Result ImportEyeLike(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t k, n.Int("k", 0));
  op::TensorType type = c.TypeOf(x);
  TW_ASSIGN(type.dtype, ReadType(n, "dtype", type.dtype));
  if (type.shape.size() != 2 || (type.fixed() && type.elements() > kMaxCount)) {
    return n.Error("rank", "expected a matrix, found " + op::ToText(type));
  }
  if (!type.fixed()) {
    const ValueId row = c.Counting(ir::kI64, type.shape[0], 0, 2);
    const ValueId column = c.Counting(ir::kI64, type.shape[1], 1, 2);
    return c.Done(c.Cast(c.Op("equal", {c.Add(row, c.Number(k)), column}), type.dtype));
  }
  std::vector<double> values(static_cast<size_t>(type.elements()), 0);
  const int64_t columns = type.size(1);
  for (int64_t i = 0; i < type.size(0); ++i) {
    if (k >= -i && k < columns - i) values[i * columns + i + k] = 1;
  }
  return c.Done(c.Constant(type.dtype, type.sizes(), std::move(values)));
}

namespace {

// Range from, to and in steps of expressions; nullopt where the operands are not such.
absl::StatusOr<std::optional<ValueId>> OpenRange(Composer& c) {
  NodeReader& n = c.node();
  std::optional<op::Dim> number[3];
  bool open = false;
  for (int i = 0; i < 3; ++i) {
    const ValueId id = c.Input(i);
    TW_TRY(c.status());
    const std::optional<std::vector<op::Dim>> known = n.importer().ConstantDims(id);
    if (known && known->size() == 1) number[i] = (*known)[0];
    open = open || n.importer().IsDims(id);
  }
  const std::optional<ValueId> none;
  if (!open || !number[0] || !number[1] || !number[2]) return none;
  const int64_t step = number[2]->constant().value_or(0);
  const op::Dim span = step > 0 ? *number[1] - *number[0] : *number[0] - *number[1];
  const std::optional<int64_t> least = n.importer().Bound(span, false);
  const int64_t fewest = n.importer().MayBeNothing(span) ? 0 : 1;
  if (step == 0 || step < -kMaxCount || step > kMaxCount || !least || *least < fewest) {
    return n.Error(
        "open_size",
        StrCat("expected a delta that is a number, and at least one number at all sizes, "
               "found ",
               number[0]->ToText(), ", ", number[1]->ToText(), " and ", number[2]->ToText(),
               kGiveNumbers));
  }
  const int64_t by = std::abs(step);
  const op::Dim count = (span + op::Dim(by - 1)).FloorDiv(by);
  const op::Attrs attrs = {
      {"start", op::ShapeAttr({*number[0]})}, {"step", step}, {"shape", op::ShapeAttr({count})}};
  const ir::DType type = c.TypeOf(c.Input(0)).dtype;
  return c.Cast(c.Op("counting", {}, attrs), type);
}

}  // namespace

// start, start + delta, ... below (or above) limit.
namespace {

Result RangeOfSizes(Composer& c) {
  NodeReader& n = c.node();
  TW_ASSIGN(const std::vector<op::Dim> start, n.InputDims(0, "the start"));
  TW_ASSIGN(const std::vector<op::Dim> limit, n.InputDims(1, "the limit"));
  TW_ASSIGN(const std::vector<int64_t> delta, n.InputInts(2, "the delta"));
  if (start.size() != 1 || limit.size() != 1 || delta != std::vector<int64_t>{1}) {
    return n.Error("open_size", "expected single numbers and steps of 1 where sizes are open");
  }
  const ir::DType type = c.TypeOf(c.Input(1)).dtype;
  return c.Done(c.Cast(c.CountingFrom(start[0], limit[0] - start[0]), type));
}

}  // namespace

Result ImportRange(NodeReader& n) {
  Composer c(n);
  TW_ASSIGN(const std::optional<ValueId> open, OpenRange(c));
  if (open) return c.Done(*open);
  ValueId part[3] = {c.Input(0), c.Input(1), c.Input(2)};
  TW_TRY(c.status());
  if (n.importer().IsDims(part[0]) || n.importer().IsDims(part[1])) return RangeOfSizes(c);
  std::optional<double> number[3];
  for (int i = 0; i < 3; ++i) {
    if (c.Count(part[i]) != 1) c.Fail("shape", "expected single numbers, found others");
    TW_TRY(c.status());
    number[i] = n.importer().ConstantScalar(part[i]);
    part[i] = c.Reshape(part[i], {});
  }
  const ir::DType type = c.TypeOf(part[0]).dtype;
  double count = 0;
  if (number[0] && number[1] && number[2]) {
    if (*number[2] == 0) return n.Error("attribute", "expected a delta other than 0, found 0");
    count = std::max(0.0, std::ceil((*number[1] - *number[0]) / *number[2]));
  } else {
    const op::Dim found = c.FoundSize(StepsBetween(c, part[0], part[1], part[2]), 0, {});
    return c.Done(c.Add(c.Mul(c.Counting(type, found, 0, 1), part[2]), part[0]));
  }
  if (!(count <= static_cast<double>(kMaxCount))) {
    return n.Error("too_large", StrCat("expected at most ", kMaxCount, " numbers, found more"));
  }
  const int64_t size = static_cast<int64_t>(count);
  if (size == 0) return c.Done(c.Constant(type, {0}, {}));
  const ValueId steps = c.Counting(type, size, 0, 1);
  return c.Done(c.Add(c.Mul(steps, part[2]), part[0]));
}

// One of two values per class, by comparison of the index with the number of the class.
Result ImportOneHot(NodeReader& n) {
  Composer c(n);
  ValueId indices = c.Input(0);
  const ValueId depth = c.Input(1), values = c.Input(2);
  TW_TRY(c.status());
  const int64_t rank = c.Rank(indices) + 1;
  TW_ASSIGN(const int64_t axis, ReadAxis(n, -1, rank));
  const std::optional<double> classes = n.importer().ConstantScalar(depth);
  const bool fine = !classes || (*classes >= 1 && *classes <= static_cast<double>(kMaxCount));
  if (!fine || c.Shape(values) != std::vector<int64_t>{2}) {
    return n.Error("shape", "expected a positive depth and two values, found others");
  }
  const op::Dim count =
      classes ? op::Dim(static_cast<int64_t>(*classes)) : c.FoundSize(depth, axis, {});
  std::vector<op::Dim> shape = c.Dims(indices);
  shape.insert(shape.begin() + axis, 1);
  indices = c.ReshapeTo(c.Cast(indices, ir::kI64), shape);
  const ValueId zero = c.Scalar(0, ir::kI64);
  indices = c.Op(
      "where", {c.Op("less", {indices, zero}), c.Add(indices, c.SizeOf(count, ir::kI64)), indices});
  const ValueId hot = c.Op("equal", {indices, c.Counting(ir::kI64, count, axis, rank)});
  const ValueId off = c.Reshape(c.Slice(values, 0, 0, 1), {});
  const ValueId on = c.Reshape(c.Slice(values, 0, 1, 1), {});
  return c.Done(c.Op("where", {hot, on, off}));
}

Result ImportSize(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0);
  TW_TRY(c.status());
  const std::optional<op::Dim> elements = op::Dim::Product(c.TypeOf(x).shape);
  if (!elements) return n.Error("open_size", "expected a shape of fewer expressions");
  return n.importer().AddDims(n.output_name(), {ir::kI64, {}}, {*elements});
}

// The first sequence_lens[b] steps of each sequence in reverse order. Time and batch are the first
// two dimensions, in either order: as one dimension, the operator is a gather along it.
Result ImportReverseSequence(NodeReader& n) {
  Composer c(n);
  ValueId x = c.Input(0), lengths = c.Input(1);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t time, n.Int("time_axis", 0));
  TW_ASSIGN(const int64_t batch, n.Int("batch_axis", 1));
  const std::vector<op::Dim> shape = c.Dims(x);
  if (shape.size() < 2 || time + batch != 1 || time * batch != 0 ||
      c.Dims(lengths) != std::vector<op::Dim>{shape[batch]}) {
    return n.Error("attribute", "expected axes 0 and 1 and a length per sequence, found others");
  }
  const op::Dim steps = shape[time], sequences = shape[batch], one = 1;
  const ValueId t = c.Counting(ir::kI64, steps, time, 2);
  const ValueId b = c.Counting(ir::kI64, sequences, batch, 2);
  lengths =
      c.ReshapeTo(c.Cast(lengths, ir::kI64), time == 0 ? std::vector<op::Dim>{one, sequences}
                                                       : std::vector<op::Dim>{sequences, one});
  const ValueId last = c.Sub(lengths, c.Scalar(1, ir::kI64));
  const ValueId from = c.Op("where", {c.Op("less", {t, lengths}), c.Sub(last, t), t});
  const ValueId stride_t = c.SizeOf(time == 0 ? sequences : one, ir::kI64);
  const ValueId stride_b = c.SizeOf(time == 0 ? one : steps, ir::kI64);
  const ValueId flat = c.Add(c.Mul(from, stride_t), c.Mul(b, stride_b));
  std::vector<op::Dim> merged(shape.begin() + 1, shape.end());
  merged[0] = shape[0] * shape[1];
  x = c.Op("gather", {c.ReshapeTo(x, merged), c.ReshapeTo(flat, {merged[0]})},
           {{"axis", int64_t{0}}});
  return c.Done(c.ReshapeTo(x, shape));
}

Result ImportDropout(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0);
  TW_TRY(c.status());
  if (n.HasInput(2)) {
    TW_ASSIGN(ValueId mode, n.Input(2));
    const std::optional<double> training = n.importer().ConstantScalar(mode);
    if (!training || *training != 0) {
      return n.Error("training", "expected inference mode, found training_mode");
    }
  }
  // Nothing is dropped. Before opset 10 the mask has no meaning at inference.
  if (n.HasOutput(1) && n.importer().opset() >= 10) {
    TW_TRY(n.BindOutput(1, c.Op("expand", {c.Scalar(1, ir::kBool)},
                                {{"shape", op::ShapeAttr(c.TypeOf(x).shape)}})));
    TW_TRY(c.status());
  }
  return c.Done(c.Op("identity", {x}));
}

}  // namespace tilewright::graph::onnx
