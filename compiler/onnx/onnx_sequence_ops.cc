// Sequences and optionals. A module has tensors only: the import follows which tensors a sequence
// has, or which rows of one tensor they are where only a run ends it (onnx_sequences.h).
#include <algorithm>

#include "compiler/onnx/onnx_loops.h"
#include "compiler/onnx/onnx_sequences.h"
#include "compiler/onnx/onnx_unrolled_loops.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::Quote;
using support::StrCat;
using Ids = std::vector<ValueId>;

// A constant position in [-count, count - 1], or up to `count` if `end`; `fallback` if left out.
absl::StatusOr<int64_t> PositionIn(NodeReader& n, int input, int64_t count, bool end,
                                   int64_t fallback) {
  int64_t position = fallback;
  if (n.HasInput(input)) {
    TW_ASSIGN(const std::vector<int64_t> values, n.InputInts(input, "the position"));
    if (values.size() != 1) return n.Error("shape", "expected one position, found others");
    position = values[0] < 0 ? values[0] + count : values[0];
  }
  if (position >= 0 && position < count + (end ? 1 : 0)) return position;
  return n.Error("position", StrCat("expected a position in a sequence of ", count,
                                    ", found one outside of it"));
}

// All tensors as a list of known length.
absl::StatusOr<Ids> ListOf(NodeReader& n, int input) {
  Composer c(n);
  const SequenceReader sequence(c, input);
  TW_TRY(c.status());
  if (sequence.is_list()) return sequence.items();
  return n.Error("open_size", StrCat("expected a sequence of known length as input ", input,
                                     ", found one that only a run ends", kGiveNumbers));
}

// An axis of attribute "axis" in a tensor of this rank.
absl::StatusOr<int64_t> AxisOf(NodeReader& n, int64_t rank) {
  TW_ASSIGN(int64_t axis, n.Int("axis", 0));
  if (axis < 0) axis += rank;
  if (n.Find("axis") != nullptr && axis >= 0 && axis < rank) return axis;
  return n.Error("axis", StrCat("expected an axis of rank ", rank, ", found another"));
}

// ConcatFromSequence of rows.
Result RowsAlong(NodeReader& n, Composer& c, ValueId rows, bool stacks) {
  TW_ASSIGN(const int64_t axis, AxisOf(n, c.Rank(rows) - (stacks ? 0 : 1)));
  return c.Done(stacks ? c.MoveAxis(rows, 0, axis) : JoinedRows(c, rows, axis));
}

// Refuses runs in which a sequence of open length is too short for a position.
void ExpectPosition(Composer& c, const op::Dim& length, int64_t position) {
  constexpr int64_t kFar = int64_t{1} << 40;  // behind the end of every sequence
  position = std::clamp(position, -kFar, kFar);
  const int64_t least = position < 0 ? -position : position + 1;
  if (c.node().importer().Bound(length, /*largest=*/false).value_or(0) >= least) return;
  const ValueId there = c.Op("less", {c.Number(least - 1), c.SizeOf(length, ir::kI64)});
  c.ExpectSizes(c.Reshape(c.Cast(there, ir::kI64), {1}), {1},
                StrCat(c.node().label(), ": whether position ", position, " is in the sequence"));
}

}  // namespace

absl::Status Importer::CheckTensors(const Conversion& row, const pb::NodeProto& node) {
  for (const std::string& name : node.input()) {
    const auto it = values_.find(name);
    if (row.takes_containers || it == values_.end() || ContainerOf(it->second) == nullptr) continue;
    return Bad("type", StrCat(NodeLabel(node), ": expected tensors, found ", Quote(name),
                              ", a sequence or an optional"));
  }
  return absl::OkStatus();
}

ValueId Importer::AddContainer(Container container) {
  const ValueId id = Constant("container", {ir::kBool, {}}, std::string(1, '\0'));
  containers_.emplace(id, std::move(container));
  return id;
}

const Container* Importer::ContainerOf(ValueId id) const {
  const auto it = containers_.find(id);
  return it == containers_.end() ? nullptr : &it->second;
}

Result ImportSequenceEmpty(NodeReader& n) { return SequenceOfList(n, {}); }

Result ImportSequenceConstruct(NodeReader& n) {
  Ids items;
  for (int i = 0; i < n.num_inputs(); ++i) {
    TW_ASSIGN(const ValueId id, n.Input(i));
    items.push_back(id);
  }
  return SequenceOfList(n, std::move(items));
}

Result ImportSequenceInsert(NodeReader& n) {
  Composer c(n);
  const ValueId item = c.Input(1);
  TW_TRY(c.status());
  if (n.importer().ContainerOf(item) != nullptr) {
    return n.Error("type", "expected a tensor to insert, found another type");
  }
  const Container* before = n.importer().ContainerOf(c.Input(0));
  if (before != nullptr && before->appended && !n.HasInput(2)) {
    Container longer = *before;
    longer.items.push_back(item);
    if (!longer.there.empty()) longer.there.push_back(c.Scalar(1, ir::kBool));
    return n.importer().AddContainer(std::move(longer));
  }
  const SequenceReader sequence(c, 0);
  TW_TRY(c.status());
  if (!sequence.is_list() && !n.HasInput(2)) {
    return SequenceOfRows(c, c.Concat({sequence.Rows(), AsRow(c, item)}, 0));
  }
  TW_ASSIGN(Ids items, ListOf(n, 0));
  const int64_t count = static_cast<int64_t>(items.size());
  TW_ASSIGN(const int64_t position, PositionIn(n, 2, count, true, count));
  items.insert(items.begin() + position, item);
  return SequenceOfList(n, std::move(items));
}

Result ImportSequenceErase(NodeReader& n) {
  TW_ASSIGN(Ids items, ListOf(n, 0));
  const int64_t count = static_cast<int64_t>(items.size());
  TW_ASSIGN(const int64_t position, PositionIn(n, 1, count, false, count - 1));
  items.erase(items.begin() + position);
  return SequenceOfList(n, std::move(items));
}

Result ImportSequenceAt(NodeReader& n) {
  Composer c(n);
  const SequenceReader sequence(c, 0);
  TW_TRY(c.status());
  std::optional<int64_t> position;  // where it is a number
  if (!n.IsDynamic(1)) {
    TW_ASSIGN(const std::vector<op::Dim> given, n.InputDims(1, "the position"));
    if (given.size() == 1) position = given[0].constant();
  }
  if (position && sequence.is_list()) {
    TW_ASSIGN(const int64_t at,
              PositionIn(n, 1, static_cast<int64_t>(sequence.items().size()), false, -1));
    return sequence.items()[static_cast<size_t>(at)];
  }
  if (position) ExpectPosition(c, sequence.length(), *position);
  return c.Done(sequence.At(c.Input(1)));
}

Result ImportSequenceLength(NodeReader& n) {
  Composer c(n);
  const op::Dim length = SequenceReader(c, 0).length();
  if (!c.ok() || length.is_constant()) return c.Done(c.SizeOf(length, ir::kI64));
  return n.importer().AddDims(n.output_name(), {ir::kI64, {}}, {length});
}

namespace {

// A SequenceMap under import: its subgraph, once for each tensor of the first sequence. Other
// sequences give a tensor each, tensors are the same each time; results are sequences.
class MapImport {
 public:
  MapImport(NodeReader& n, const pb::GraphProto& body)
      : n_(n), c_(n), body_(body), results_(static_cast<size_t>(body.output_size())) {}

  Result Run() {
    if (results_ == 0) return n_.Error("outputs", "expected a subgraph with results, found none");
    const SequenceReader first(c_, 0);
    TW_TRY(c_.status());
    TW_ASSIGN(const Ids sequences,
              first.is_list() ? OfLists(first.items()) : OfRows(first.length()));
    return BindAll(n_, sequences);
  }

 private:
  absl::StatusOr<Ids> ResultsOf(const Ids& operands) {
    TW_ASSIGN(const Ids results, Trip(n_, body_, operands, results_));
    for (const ValueId id : results) {
      if (n_.importer().ContainerOf(id) == nullptr) continue;
      return n_.Error("type", "expected tensors as results of the subgraph, found another type");
    }
    return results;
  }

  absl::StatusOr<Ids> OfLists(const Ids& first) {
    std::vector<Ids> inputs(first.size());
    for (int i = 0; i < n_.num_inputs(); ++i) {
      TW_ASSIGN(const ValueId id, n_.Input(i));
      const bool list = n_.importer().ContainerOf(id) != nullptr;
      Ids items;
      if (list) {
        TW_ASSIGN(items, ListOf(n_, i));
      }
      if (list && items.size() != first.size()) {
        return n_.Error("shape", StrCat("expected sequences of ", first.size(), " tensors, found ",
                                        items.size(), " in input ", i));
      }
      for (size_t t = 0; t < inputs.size(); ++t) inputs[t].push_back(list ? items[t] : id);
    }
    std::vector<Ids> lists(results_);
    for (const Ids& operands : inputs) {
      TW_ASSIGN(const Ids results, ResultsOf(operands));
      for (size_t i = 0; i < lists.size(); ++i) lists[i].push_back(results[i]);
    }
    Ids sequences;
    for (Ids& list : lists) {
      TW_ASSIGN(const ValueId sequence, SequenceOfList(n_, std::move(list)));
      sequences.push_back(sequence);
    }
    return sequences;
  }

  // A loop over the rows.
  absl::StatusOr<Ids> OfRows(const op::Dim& length) {
    for (int i = 1; i < n_.num_inputs(); ++i) {
      if (n_.importer().ContainerOf(c_.Input(i)) == nullptr) continue;
      if (SequenceReader(c_, i).length() == length) continue;
      return n_.Error("shape",
                      StrCat("expected sequences of one length, found another in input ", i));
    }
    const TripsOfLoop trips{c_.SizeOf(length, ir::kI64), c_.Scalar(1, ir::kBool)};
    const LoopBody body = [&](ValueId trip, const Ids&) -> absl::StatusOr<Ids> {
      Ids operands;
      for (int i = 0; i < n_.num_inputs(); ++i) {
        const ValueId id = c_.Input(i);
        const bool one = c_.ok() && n_.importer().ContainerOf(id) == nullptr;
        operands.push_back(one ? id : SequenceReader(c_, i).At(trip));
      }
      TW_TRY(c_.status());
      TW_ASSIGN(Ids results, ResultsOf(operands));
      results.insert(results.begin(), c_.Scalar(1, ir::kBool));
      return results;
    };
    TW_ASSIGN(Ids stacks, LoopAtRunTime(c_, trips, {}, length, std::nullopt, body));
    for (ValueId& stack : stacks) {
      TW_ASSIGN(stack, SequenceOfRows(c_, stack));
    }
    return stacks;
  }

  NodeReader& n_;
  Composer c_;
  const pb::GraphProto& body_;
  const size_t results_;
};

}  // namespace

Result ImportSequenceMap(NodeReader& n) {
  TW_ASSIGN(const pb::GraphProto* body, BodyOf(n, "body"));
  return MapImport(n, *body).Run();
}

// All tensors of a sequence along an axis, which new_axis makes.
Result ImportConcatFromSequence(NodeReader& n) {
  Composer c(n);
  const SequenceReader sequence(c, 0);
  TW_ASSIGN(const int64_t stacks, n.Int("new_axis", 0));
  TW_TRY(c.status());
  if (!sequence.is_list()) return RowsAlong(n, c, sequence.Rows(), stacks != 0);
  Ids items = sequence.items();
  if (items.empty()) return n.Error("inputs", "expected a sequence of tensors, found none in it");
  const int64_t rank = c.Rank(items[0]) + (stacks != 0 ? 1 : 0);
  TW_ASSIGN(const int64_t axis, AxisOf(n, rank));
  for (ValueId& item : items) {
    if (c.Rank(item) + (stacks != 0 ? 1 : 0) != rank) {
      return n.Error("shape", "expected tensors of one rank, found others");
    }
    if (stacks != 0) item = AsRow(c, item, axis);
  }
  if (items.size() == 1) return c.Done(c.Op("identity", {items[0]}));
  return c.Done(c.Concat(std::move(items), axis));
}

namespace {

// Parts of one entry each: rows, and their list where there are few enough.
Result SplitInOnes(NodeReader& n, Composer& c, ValueId x, int64_t axis, bool squeeze) {
  ValueId rows = c.MoveAxis(x, axis, 0);
  if (!squeeze) rows = AsRow(c, rows, axis + 1);
  const op::Dim length = c.Dims(x)[axis];
  TW_TRY(c.status());
  if (!length.is_constant() || length.value() > kMaxItems) return SequenceOfRows(c, rows);
  std::vector<op::Dim> shape = c.Dims(x);
  shape.erase(shape.begin() + axis);
  Ids items;
  for (int64_t at = 0; at < length.value(); ++at) {
    items.push_back(c.Slice(x, axis, at, 1));
    if (squeeze) items.back() = c.ReshapeTo(items.back(), shape);
  }
  TW_TRY(c.status());
  return n.importer().AddContainer({.items = std::move(items), .rows = rows});
}

}  // namespace

// Parts along an axis: of these sizes, of one size with a smaller last one, or of 1.
Result ImportSplitToSequence(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t axis, ReadAxis(n, 0, c.Rank(x)));
  TW_ASSIGN(const int64_t keepdims, n.Int("keepdims", 1));
  std::vector<int64_t> sizes = {1};
  bool list = false;
  if (n.HasInput(1)) {
    TW_ASSIGN(sizes, n.InputInts(1, "the sizes"));
    list = c.Rank(c.Input(1)) == 1;
  }
  // ONNX ignores keepdims where sizes are given; PyTorch gives 1, and ONNX Runtime obeys.
  if (!list && sizes == std::vector<int64_t>{1}) {
    return SplitInOnes(n, c, x, axis, /*squeeze=*/keepdims == 0);
  }
  const op::Dim along = c.Dims(x)[axis];
  if (!along.is_constant()) {
    return n.Error("open_size", StrCat("expected a dimension of fixed size to split, found ",
                                       op::ToText(c.TypeOf(x)), kGiveNumbers));
  }
  const int64_t size = along.value();
  if (!list) {
    const int64_t part = sizes.size() == 1 ? sizes[0] : 0;
    if (part < 1 || (size - 1) / part >= kMaxItems) {
      return n.Error("shape", StrCat("expected a size that gives at most ", kMaxItems, " parts"));
    }
    sizes.clear();
    for (int64_t at = 0; at < size; at += part) sizes.push_back(std::min(part, size - at));
  }
  int64_t at = 0;
  Ids items;
  for (const int64_t part : sizes) {
    if (part < 0 || part > size - at) at = size + 1;
    if (at > size) break;
    items.push_back(c.Slice(x, axis, at, part));
    TW_TRY(c.status());
    at += part;
  }
  if (at == size) return SequenceOfList(n, std::move(items));
  return n.Error("shape", StrCat("expected sizes whose sum is ", size, ", found others"));
}

// An optional with an element is the element.
Result ImportOptional(NodeReader& n) {
  if (n.HasInput(0)) return n.Input(0);
  return n.importer().AddContainer({true, {}});
}

Result ImportOptionalHasElement(NodeReader& n) {
  bool has = n.HasInput(0);
  if (has) {
    TW_ASSIGN(const ValueId id, n.Input(0));
    const Container* container = n.importer().ContainerOf(id);
    has = container == nullptr || !container->nothing;
  }
  Composer c(n);
  return c.Done(c.Scalar(has ? 1 : 0, ir::kBool));
}

Result ImportOptionalGetElement(NodeReader& n) {
  TW_ASSIGN(const ValueId id, n.Input(0));
  const Container* container = n.importer().ContainerOf(id);
  if (container == nullptr || !container->nothing) return id;
  return n.Error("inputs", "expected an optional with an element, found one without");
}

}  // namespace tilewright::graph::onnx
