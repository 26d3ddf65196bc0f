// Sequences and optionals. A module has tensors only: the import follows which tensors a sequence
// has, so that positions and lengths have to be known. A sequence that a loop builds is known, too,
// because loops are unrolled.
#include <algorithm>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::Quote;
using support::StrCat;
using Ids = std::vector<ValueId>;

constexpr int64_t kMaxItems = 4096;

absl::StatusOr<Ids> ItemsOf(NodeReader& n, int input) {
  TW_ASSIGN(const ValueId id, n.Input(input));
  const Container* container = n.importer().ContainerOf(id);
  if (container == nullptr || container->nothing) {
    return n.Error("type", StrCat("expected a sequence as input ", input, ", found another type"));
  }
  return container->items;
}

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

Result Sequence(NodeReader& n, Ids items) {
  if (static_cast<int64_t>(items.size()) > kMaxItems) {
    return n.Error("too_large", StrCat("expected a sequence of at most ", kMaxItems,
                                       " tensors, found ", items.size()));
  }
  return n.importer().AddContainer({false, std::move(items)});
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

Result ImportSequenceEmpty(NodeReader& n) { return Sequence(n, {}); }

Result ImportSequenceConstruct(NodeReader& n) {
  Ids items;
  for (int i = 0; i < n.num_inputs(); ++i) {
    TW_ASSIGN(const ValueId id, n.Input(i));
    items.push_back(id);
  }
  return Sequence(n, std::move(items));
}

Result ImportSequenceInsert(NodeReader& n) {
  TW_ASSIGN(Ids items, ItemsOf(n, 0));
  TW_ASSIGN(const ValueId item, n.Input(1));
  if (n.importer().ContainerOf(item) != nullptr) {
    return n.Error("type", "expected a tensor to insert, found another type");
  }
  const int64_t count = static_cast<int64_t>(items.size());
  TW_ASSIGN(const int64_t position, PositionIn(n, 2, count, true, count));
  items.insert(items.begin() + position, item);
  return Sequence(n, std::move(items));
}

Result ImportSequenceErase(NodeReader& n) {
  TW_ASSIGN(Ids items, ItemsOf(n, 0));
  const int64_t count = static_cast<int64_t>(items.size());
  TW_ASSIGN(const int64_t position, PositionIn(n, 1, count, false, count - 1));
  items.erase(items.begin() + position);
  return Sequence(n, std::move(items));
}

Result ImportSequenceAt(NodeReader& n) {
  TW_ASSIGN(const Ids items, ItemsOf(n, 0));
  TW_ASSIGN(const int64_t position,
            PositionIn(n, 1, static_cast<int64_t>(items.size()), false, -1));
  return items[static_cast<size_t>(position)];
}

Result ImportSequenceLength(NodeReader& n) {
  TW_ASSIGN(const Ids items, ItemsOf(n, 0));
  Composer c(n);
  return c.Done(c.Number(static_cast<int64_t>(items.size())));
}

// The subgraph, once for each tensor of the first sequence. Other sequences give a tensor each,
// tensors are the same each time; results are sequences.
Result ImportSequenceMap(NodeReader& n) {
  TW_ASSIGN(const pb::GraphProto* body, BodyOf(n, "body"));
  TW_ASSIGN(const Ids first, ItemsOf(n, 0));
  std::vector<Ids> inputs(first.size());
  for (int i = 0; i < n.num_inputs(); ++i) {
    TW_ASSIGN(const ValueId id, n.Input(i));
    const Container* list = n.importer().ContainerOf(id);
    if (list != nullptr && (list->nothing || list->items.size() != first.size())) {
      return n.Error("shape", StrCat("expected sequences of ", first.size(), " tensors, found ",
                                     list->items.size(), " in input ", i));
    }
    for (size_t t = 0; t < inputs.size(); ++t) {
      inputs[t].push_back(list == nullptr ? id : list->items[t]);
    }
  }
  std::vector<Ids> lists(static_cast<size_t>(body->output_size()));
  for (const Ids& operands : inputs) {
    TW_ASSIGN(const Ids results, n.importer().ImportBody(*body, operands));
    for (size_t i = 0; i < lists.size(); ++i) {
      if (n.importer().ContainerOf(results[i]) != nullptr) {
        return n.Error("type", "expected tensors as results of the subgraph, found another type");
      }
      lists[i].push_back(results[i]);
    }
  }
  Ids sequences;
  for (Ids& list : lists) {
    TW_ASSIGN(const ValueId sequence, Sequence(n, std::move(list)));
    sequences.push_back(sequence);
  }
  if (sequences.empty()) return n.Error("outputs", "expected a subgraph with results, found none");
  return BindAll(n, sequences);
}

// All tensors of a sequence along an axis, which new_axis makes.
Result ImportConcatFromSequence(NodeReader& n) {
  TW_ASSIGN(Ids items, ItemsOf(n, 0));
  TW_ASSIGN(const int64_t stacks, n.Int("new_axis", 0));
  TW_ASSIGN(int64_t axis, n.Int("axis", 0));
  if (items.empty()) return n.Error("inputs", "expected a sequence of tensors, found none in it");
  Composer c(n);
  const int64_t rank = c.Rank(items[0]) + (stacks != 0 ? 1 : 0);
  if (axis < 0) axis += rank;
  if (n.Find("axis") == nullptr || axis < 0 || axis >= rank) {
    return n.Error("axis", StrCat("expected an axis of rank ", rank, ", found another"));
  }
  for (ValueId& item : items) {
    std::vector<op::Dim> shape = c.Dims(item);
    if (static_cast<int64_t>(shape.size()) + (stacks != 0 ? 1 : 0) != rank) {
      return n.Error("shape", "expected tensors of one rank, found others");
    }
    if (stacks == 0) continue;
    shape.insert(shape.begin() + axis, 1);
    item = c.ReshapeTo(item, shape);
  }
  if (items.size() == 1) return c.Done(c.Op("identity", {items[0]}));
  return c.Done(c.Concat(std::move(items), axis));
}

// Parts along an axis: of these sizes, of one size with a smaller last one, or of 1.
Result ImportSplitToSequence(NodeReader& n) {
  Composer c(n);
  const ValueId x = c.Input(0);
  TW_TRY(c.status());
  TW_ASSIGN(const int64_t axis, ReadAxis(n, 0, c.Rank(x)));
  TW_ASSIGN(const int64_t keepdims, n.Int("keepdims", 1));
  const op::Dim along = c.Dims(x)[axis];
  if (!along.is_constant()) {
    return n.Error("open_size", StrCat("expected a dimension of fixed size to split, found ",
                                       op::ToText(c.TypeOf(x)), kGiveNumbers));
  }
  const int64_t size = along.value();
  std::vector<int64_t> sizes = {1};
  bool list = false;
  if (n.HasInput(1)) {
    TW_ASSIGN(sizes, n.InputInts(1, "the sizes"));
    list = c.Rank(c.Input(1)) == 1;
  }
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
    ValueId item = c.Slice(x, axis, at, part);
    std::vector<op::Dim> shape = c.Dims(item);
    if (!n.HasInput(1) && keepdims == 0) {
      shape.erase(shape.begin() + axis);
      item = c.ReshapeTo(item, shape);
    }
    TW_TRY(c.status());
    items.push_back(item);
    at += part;
  }
  if (at == size) return Sequence(n, std::move(items));
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
