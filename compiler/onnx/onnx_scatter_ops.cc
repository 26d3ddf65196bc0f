// Gathers and scatters by computed indices. A scatter asks for each element of the result which
// updates meet it: a reduction over the updates, with no store at a computed place. Indices outside
// of the data meet nothing; a gather clamps them.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "compiler/onnx/onnx_composer.h"
#include "compiler/onnx/onnx_spacing.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using op::Dim;
using support::StrCat;

using Shape = std::vector<Dim>;

// Indices of a dimension of this size: negative ones count from the end.
ValueId FromFront(Composer& c, ValueId indices, const Dim& size) {
  return c.Op("where", {c.Op("less", {indices, c.Number(0)}),
                        c.Add(indices, c.SizeOf(size, ir::kI64)), indices});
}

Dim Product(const Shape& shape, size_t from, size_t to) {
  Dim product = 1;
  for (size_t d = from; d < to; ++d) product = product * shape[d];
  return product;
}

// Tuples of indices (the last dimension) as positions in the dimensions `first` on of `data`, as
// if those were one. Tuples outside of the data give `outside`.
ValueId FlatPositions(Composer& c, ValueId indices, const Shape& data, size_t first,
                      int64_t outside) {
  Shape shape = c.Dims(indices);
  const int64_t tuple = shape.back().value(), axis = static_cast<int64_t>(shape.size()) - 1;
  shape.pop_back();
  const Shape place = shape;
  ValueId flat = kNone, beyond = kNone;
  for (int64_t k = 0; k < tuple; ++k) {
    const Dim size = data[first + k];
    ValueId i = c.ReshapeTo(c.Slice(indices, axis, k, 1), place);
    i = FromFront(c, i, size);
    const ValueId bad = c.Op("or", {c.Op("less", {i, c.Number(0)}),
                                    c.Op("greater_equal", {i, c.SizeOf(size, ir::kI64)})});
    const ValueId term = c.Mul(i, c.SizeOf(Product(data, first + k + 1, first + tuple), ir::kI64));
    flat = k == 0 ? term : c.Add(flat, term);
    beyond = k == 0 ? bad : c.Op("or", {beyond, bad});
  }
  return c.Op("where", {beyond, c.Number(outside), flat});
}

// How duplicates combine, and what changes nothing.
struct Reduction {
  std::string name, kind, row;
  double neutral = 0;
};

double Extreme(ir::DType type, bool largest) {
  if (type.is_float()) return largest ? HUGE_VAL : -HUGE_VAL;
  if (type.code == ir::TypeCode::kUInt) return largest ? std::ldexp(1, type.bits) - 1 : 0;
  return largest ? std::ldexp(1, type.bits - 1) - 1 : -std::ldexp(1, type.bits - 1);
}

absl::StatusOr<Reduction> ReadReduction(NodeReader& n, ir::DType type) {
  Reduction r;
  TW_ASSIGN(r.name, n.String("reduction", "none"));
  if (r.name == "none") return r;
  if (r.name == "add") return Reduction{r.name, "sum", "add", 0};
  if (r.name == "mul") return Reduction{r.name, "prod", "mul", 1};
  if (r.name == "max") return Reduction{r.name, "max", "max", Extreme(type, false)};
  if (r.name == "min") return Reduction{r.name, "min", "min", Extreme(type, true)};
  return n.Error("attribute",
                 "expected reduction none, add, mul, max or min, found " + support::Quote(r.name));
}

// Scatters along the second of three dimensions: data [o, a, i], updates [o, u, i], and their
// positions along a, [o, u, i], where o and i may also be 1.
ValueId ScatterAlong(Composer& c, ValueId data, ValueId positions, ValueId updates,
                     const Reduction& r) {
  if (!c.ok()) return kNone;
  const Shape d = c.Dims(data), p = c.Dims(positions), u = c.Dims(updates);
  const ValueId place = c.ReshapeTo(positions, {p[0], 1, p[1], p[2]});
  const ValueId meets = c.Op("equal", {place, c.Counting(ir::kI64, d[1], 1, 4)});
  if (r.name == "none") {
    // The last update wins.
    const ValueId numbers = c.Counting(ir::kI64, p[1], 2, 4);
    ValueId last = c.Reduce("max", c.Op("where", {meets, numbers, c.Number(-1)}), {2}, false);
    last = c.BroadcastTo(last, {u[0], d[1], u[2]});
    const ValueId hit = c.Op("greater_equal", {last, c.Number(0)});
    const ValueId chosen = c.Op("gather_elements", {updates, last}, {{"axis", int64_t{1}}});
    return c.Op("where", {hit, chosen, data});
  }
  const ValueId parts = c.Op("where", {meets, c.ReshapeTo(updates, {u[0], 1, u[1], u[2]}),
                                       c.Scalar(r.neutral, c.TypeOf(data).dtype)});
  return c.Op(r.row, {data, c.Reduce(r.kind, parts, {2}, false)});
}

// Indices as [o, u, i], where u is their size along the axis. Exporters repeat an index of slices
// up to the shape of the updates: o and i are 1 where nothing else was there before.
ValueId IndicesAround(Composer& c, ValueId indices, int64_t axis) {
  const Shape full = c.Dims(indices);
  const ValueId before = c.node().importer().BeforeExpand(indices);
  const Shape small = c.Dims(before);
  const auto ones = [&](int64_t from, int64_t to) {
    return std::all_of(small.begin() + from, small.begin() + to,
                       [](const Dim& dim) { return dim == Dim(1); });
  };
  const int64_t rank = c.Rank(indices);
  const bool outer = ones(0, axis), inner = ones(axis + 1, rank);
  Shape shape = full;
  if (small[axis] == full[axis] && outer) std::fill_n(shape.begin(), axis, Dim(1));
  if (small[axis] == full[axis] && inner) std::fill(shape.begin() + axis + 1, shape.end(), Dim(1));
  const ValueId part = shape == full ? indices : c.BroadcastTo(before, shape);
  return c.ReshapeTo(part, {Product(shape, 0, axis), full[axis], Product(shape, axis + 1, rank)});
}

absl::Status RefuseBool(NodeReader& n, const op::TensorType& type, const Reduction& r) {
  if (!type.dtype.is_bool() || r.name == "none") return absl::OkStatus();
  return n.Error("type", "expected numbers to reduce, found " + op::ToText(type));
}

// Where constant indices begin that follow each other: as exporters write the assignment to a
// part, x[1:] = y.
std::optional<int64_t> FirstOfRun(Composer& c, ValueId indices, const Dim& size) {
  const std::optional<std::vector<int64_t>> known = c.node().importer().ConstantInts(indices);
  if (!known || !size.is_constant() || c.Rank(indices) != 2) return std::nullopt;
  const std::optional<Spacing> run = EvenlySpaced(*known, size.value());
  return run && run->step == 1 ? std::optional(run->start) : std::nullopt;
}

// The tensor with these rows in place of its own, from number `first` on.
ValueId WithRows(Composer& c, ValueId data, int64_t first, ValueId rows) {
  const int64_t size = c.FixedSize(data, 0), end = first + c.FixedSize(rows, 0);
  std::vector<ValueId> parts;
  if (first > 0) parts.push_back(c.Slice(data, 0, 0, first));
  parts.push_back(rows);
  if (end < size) parts.push_back(c.Slice(data, 0, end, size - end));
  return parts.size() == 1 ? c.Op("identity", {rows}) : c.Concat(std::move(parts), 0);
}

// Whether two sizes are not equal; what open ones are is settled with the graph.
bool Differ(const Dim& a, const Dim& b) { return (a - b).constant().value_or(0) != 0; }
bool MayBeEqual(const Shape& a, const Shape& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), std::not_fn(Differ));
}

}  // namespace

Result ImportGatherElements(NodeReader& n) {
  Composer c(n);
  const ValueId data = c.Input(0), indices = c.Input(1);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t axis, ReadAxis(n, 0, c.Rank(data)));
  return c.Done(c.Op("gather_elements", {data, indices}, {{"axis", axis}}));
}

Result ImportGatherNd(NodeReader& n) {
  Composer c(n);
  ValueId data = c.Input(0);
  const ValueId indices = c.Cast(c.Input(1), ir::kI64);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t batch_dims, n.Int("batch_dims", 0));
  const Shape from = c.Dims(data), which = c.Dims(indices);
  const int64_t rank = c.Rank(data), depth = c.Rank(indices);
  const int64_t tuple = depth >= 1 ? which.back().constant().value_or(0) : 0;
  const bool fine = rank >= 1 && batch_dims >= 0 && batch_dims < std::min(rank, depth) &&
                    tuple >= 1 && tuple + batch_dims <= rank &&
                    std::equal(from.begin(), from.begin() + batch_dims, which.begin());
  if (!fine) {
    return n.Error("shape", StrCat("expected tuples of indices into ", op::ToText(c.TypeOf(data)),
                                   ", found ", op::ToText(c.TypeOf(indices))));
  }
  const auto b = static_cast<size_t>(batch_dims), end = b + static_cast<size_t>(tuple);
  Shape shape(which.begin(), which.end() - 1);
  shape.insert(shape.end(), from.begin() + end, from.end());
  if (n.importer().IsEmpty(indices)) {
    const op::TensorType none{c.TypeOf(data).dtype, shape};
    if (none.fixed()) return c.Done(c.Empty(none.dtype, none.sizes()));
    return n.Error("open_size", StrCat("expected fixed sizes of what no index picks, found ",
                                       op::ToText(none), kGiveNumbers));
  }
  const Dim batches = Product(from, 0, b), inside = Product(from, b, end);
  const Dim inner = Product(from, end, from.size());
  const Dim per_batch = Product(which, b, which.size() - 1);
  ValueId flat = c.ReshapeTo(FlatPositions(c, indices, from, b, 0), {batches, per_batch});
  if (b > 0) {
    flat = c.Add(flat, c.Mul(c.Counting(ir::kI64, batches, 0, 2), c.SizeOf(inside, ir::kI64)));
  }
  data = c.ReshapeTo(data, {batches * inside, inner});
  const ValueId rows =
      c.Op("gather", {data, c.ReshapeTo(flat, {batches * per_batch})}, {{"axis", int64_t{0}}});
  return c.Done(c.ReshapeTo(rows, shape));
}

// Also Scatter, its older name.
Result ImportScatterElements(NodeReader& n) {
  Composer c(n);
  const ValueId data = c.Input(0), updates = c.Input(2);
  const ValueId indices = c.Cast(c.Input(1), ir::kI64);
  TW_TRY(c.status());
  const int64_t rank = c.Rank(data);
  TW_ASSIGN(const int64_t axis, ReadAxis(n, 0, rank));
  TW_ASSIGN(const Reduction r, ReadReduction(n, c.TypeOf(data).dtype));
  TW_TRY(RefuseBool(n, c.TypeOf(data), r));
  if (n.importer().IsEmpty(updates)) return c.Done(c.Op("identity", {data}));
  const Shape shape = c.Dims(data), part = c.Dims(indices);
  bool fine = part == c.Dims(updates) && part.size() == shape.size();
  int narrower = 0;  // dimensions apart from the axis that the updates do not cover
  for (int64_t d = 0; fine && d < rank; ++d) {
    if (d == axis || part[d] == shape[d]) continue;
    const std::optional<int64_t> more = n.importer().Bound(shape[d] - part[d], false);
    fine = more && *more > 0;
    ++narrower;
  }
  if (!fine) {
    const bool fixed = c.TypeOf(data).fixed() && c.TypeOf(indices).fixed();
    return n.Error(
        fixed ? "shape" : "open_size",
        StrCat("expected indices and updates inside of ", op::ToText(c.TypeOf(data)), ", found ",
               op::ToText(c.TypeOf(indices)), " and ", op::ToText(c.TypeOf(updates))));
  }
  // As three dimensions: those before the axis, the axis, those behind it. Where the updates cover
  // a part of a dimension, the data is cut to that part first.
  ValueId covered = data;
  for (int64_t d = 0; d < rank; ++d) {
    if (d != axis) covered = c.Slice(covered, d, 0, part[d]);
  }
  auto three = [&](ValueId x, const Dim& along) {
    return c.ReshapeTo(x, {Product(part, 0, axis), along, Product(part, axis + 1, part.size())});
  };
  const ValueId positions = FromFront(c, IndicesAround(c, indices, axis), shape[axis]);
  const ValueId done =
      ScatterAlong(c, three(covered, shape[axis]), positions, three(updates, part[axis]), r);
  Shape cut = part;
  cut[axis] = shape[axis];
  ValueId y = c.ReshapeTo(done, cut);
  // The rest of the data goes back around it, one dimension after the other.
  for (int64_t d = rank; narrower > 0 && d-- > 0;) {
    if (d == axis || part[d] == shape[d]) continue;
    ValueId rest = c.Slice(data, d, part[d], shape[d] - part[d]);
    for (int64_t e = 0; e < d; ++e) {
      if (e != axis) rest = c.Slice(rest, e, 0, part[e]);
    }
    y = c.Concat({y, rest}, d);
  }
  return c.Done(y);
}

Result ImportScatterNd(NodeReader& n) {
  Composer c(n);
  const ValueId data = c.Input(0), updates = c.Input(2);
  const ValueId indices = c.Cast(c.Input(1), ir::kI64);
  TW_TRY(c.status());
  TW_ASSIGN(const Reduction r, ReadReduction(n, c.TypeOf(data).dtype));
  TW_TRY(RefuseBool(n, c.TypeOf(data), r));
  if (n.importer().IsEmpty(updates)) return c.Done(c.Op("identity", {data}));
  const Shape shape = c.Dims(data), which = c.Dims(indices);
  Shape expected(which.begin(), which.empty() ? which.end() : which.end() - 1);
  const int64_t tuple = which.empty() ? 0 : which.back().constant().value_or(0);
  const bool fine = tuple >= 1 && tuple <= c.Rank(data);
  if (fine) expected.insert(expected.end(), shape.begin() + tuple, shape.end());
  if (!fine || !MayBeEqual(c.Dims(updates), expected)) {
    return n.Error("shape", StrCat("expected tuples of indices into ", op::ToText(c.TypeOf(data)),
                                   " and a slice for each, found ", op::ToText(c.TypeOf(indices)),
                                   " and ", op::ToText(c.TypeOf(updates))));
  }
  if (const std::optional<int64_t> first = FirstOfRun(c, indices, shape[0]);
      first && tuple == 1 && r.name == "none") {
    return c.Done(WithRows(c, data, *first, updates));
  }
  const Dim tuples = Product(which, 0, which.size() - 1);
  const Dim places = Product(shape, 0, static_cast<size_t>(tuple));
  const Dim inner = Product(shape, static_cast<size_t>(tuple), shape.size());
  const ValueId flat = c.ReshapeTo(FlatPositions(c, indices, shape, 0, -1), {1, tuples, 1});
  const ValueId done = ScatterAlong(c, c.ReshapeTo(data, {1, places, inner}), flat,
                                    c.ReshapeTo(updates, {1, tuples, inner}), r);
  return c.Done(c.ReshapeTo(done, shape));
}

ValueId ScatterLast(Composer& c, ValueId data, ValueId positions, ValueId updates) {
  return ScatterAlong(c, data, positions, updates, Reduction{"none", "", "", 0});
}

// A cache with new entries along one axis, from a position of its own for each batch: every place
// asks which entry it gets, if any.
Result ImportTensorScatter(NodeReader& n) {
  Composer c(n);
  const ValueId cache = c.Input(0), update = c.Input(1);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t axis, ReadAxis(n, -2, c.Rank(cache)));
  TW_ASSIGN(const std::string mode, n.String("mode", "linear"));
  const Shape shape = c.Dims(cache), part = c.Dims(update);
  bool fits = axis > 0 && part.size() == shape.size();
  for (size_t d = 0; fits && d < shape.size(); ++d) {
    const Dim room = shape[d] - part[d];
    fits = static_cast<int64_t>(d) == axis ? n.importer().Bound(room, true).value_or(0) >= 0
                                           : !Differ(shape[d], part[d]);
  }
  const ValueId begin = n.HasInput(2) ? c.Cast(c.Input(2), ir::kI64) : c.Number(0);
  const bool circular = mode == "circular";
  if (!fits || c.TypeOf(cache).dtype != c.TypeOf(update).dtype || (!circular && mode != "linear") ||
      (n.HasInput(2) && (c.Rank(begin) != 1 || Differ(c.Dims(begin)[0], shape[0])))) {
    return n.Error("shape", StrCat("expected a cache, an update that is as long or shorter along "
                                   "an axis other than 0, a place per batch and mode linear or "
                                   "circular, found ",
                                   op::ToText(c.TypeOf(cache)), ", ", op::ToText(c.TypeOf(update)),
                                   ", axis ", axis, " and mode ", support::Quote(mode)));
  }
  Shape batches(shape.size(), 1);
  if (n.HasInput(2)) batches[0] = shape[0];
  ValueId entry =
      c.Sub(c.Counting(ir::kI64, shape[axis], axis, c.Rank(cache)), c.ReshapeTo(begin, batches));
  if (circular) entry = c.Op("mod", {entry, c.SizeOf(shape[axis], ir::kI64)});
  const ValueId entries = c.SizeOf(part[axis], ir::kI64);
  const ValueId fresh =
      c.Op("and", {c.Op("less_equal", {c.Number(0), entry}), c.Op("less", {entry, entries})});
  // Clamped, for an index that counts from the end would mean another entry.
  const ValueId inside =
      c.Op("min", {c.Op("max", {entry, c.Number(0)}), c.Sub(entries, c.Number(1))});
  const ValueId moved =
      c.Op("gather_elements", {update, c.BroadcastTo(inside, shape)}, {{"axis", axis}});
  return c.Done(c.Op("where", {fresh, moved, cache}));
}

}  // namespace tilewright::graph::onnx
