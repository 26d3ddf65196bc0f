#include "compiler/onnx/onnx_sequences.h"

#include <algorithm>
#include <utility>

#include "compiler/onnx/onnx_conversions.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;

// The input as a sequence; an empty one with an error noted.
const Container& SequenceOf(Composer& c, int input) {
  static const Container kEmpty;
  const ValueId id = c.Input(input);
  const Container* found = c.ok() ? c.node().importer().ContainerOf(id) : nullptr;
  if (found != nullptr && found->appended) {
    c.Fail("type", StrCat("expected a sequence as input ", input,
                          ", found the state of a loop that "
                          "a run ends, to which its body may only append"));
    return kEmpty;
  }
  if (found != nullptr && !found->nothing) return *found;
  c.Fail("type", StrCat("expected a sequence as input ", input, ", found another type"));
  return kEmpty;
}

}  // namespace

SequenceReader::SequenceReader(Composer& c, int input) : c_(c), sequence_(SequenceOf(c, input)) {}

op::Dim SequenceReader::length() const {
  if (!is_list()) return c_.Dims(sequence_.rows)[0];
  return static_cast<int64_t>(sequence_.items.size());
}

ValueId SequenceReader::Rows() const {
  if (sequence_.rows != kNone) return sequence_.rows;
  if (sequence_.items.empty()) {
    return c_.Fail("inputs", "expected a sequence of tensors, found none in it");
  }
  std::vector<ValueId> rows;
  for (const ValueId item : sequence_.items) {
    if (c_.ok() && c_.TypeOf(item) != c_.TypeOf(sequence_.items[0])) {
      return c_.Fail("shape", StrCat("expected tensors of one type in a sequence of which a run ",
                                     "chooses one, found ", op::ToText(c_.TypeOf(item)),
                                     " next to ", op::ToText(c_.TypeOf(sequence_.items[0]))));
    }
    rows.push_back(AsRow(c_, item));
  }
  return rows.size() == 1 ? rows[0] : c_.Concat(std::move(rows), 0);
}

ValueId SequenceReader::At(ValueId position) const {
  const ValueId at = c_.Reshape(position, {});
  return c_.Op("gather", {Rows(), at}, {{"axis", int64_t{0}}});
}

namespace {

// Rows of a sequence, or none of the rows that `like` has.
ValueId RowsLike(Composer& c, const SequenceReader& sequence, const SequenceReader& like) {
  if (!sequence.is_list() || !sequence.items().empty()) return sequence.Rows();
  return c.Slice(like.Rows(), 0, 0, 0);
}

// Item i of one way or of both, which is there or not.
Container ChosenItems(Composer& c, const Container& a, const Container& b,
                      const ChooseTensor& choose) {
  Container chosen{.appended = a.appended};
  const bool all = a.items.size() == b.items.size() && a.there.empty() && b.there.empty();
  const ValueId yes = all ? kNone : c.Scalar(1, ir::kBool),
                no = all ? kNone : c.Scalar(0, ir::kBool);
  const auto there = [&](const Container& of, size_t i) {
    return i >= of.items.size() ? no : of.there.empty() ? yes : of.there[i];
  };
  for (size_t i = 0; i < std::max(a.items.size(), b.items.size()); ++i) {
    const bool both = i < a.items.size() && i < b.items.size();
    chosen.items.push_back(both                 ? choose(a.items[i], b.items[i])
                           : i < a.items.size() ? a.items[i]
                                                : b.items[i]);
    if (!all) chosen.there.push_back(choose(there(a, i), there(b, i)));
  }
  return chosen;
}

}  // namespace

ValueId ChosenSequence(Composer& c, ValueId a, ValueId b, const ChooseTensor& choose, int output) {
  Importer& importer = c.node().importer();
  const Container *of_a = importer.ContainerOf(a), *of_b = importer.ContainerOf(b);
  const bool alike = of_a != nullptr && of_b != nullptr && of_a->nothing == of_b->nothing &&
                     of_a->appended == of_b->appended;
  if (!alike || of_a->nothing) {
    return c.Fail("type", "expected tensors or sequences from both ways, found others");
  }
  const SequenceReader first(c, *of_a), second(c, *of_b);
  if (!first.is_list() || !second.is_list()) {
    return importer.AddContainer(
        {.rows = choose(RowsLike(c, first, second), RowsLike(c, second, first))});
  }
  Container chosen = ChosenItems(c, *of_a, *of_b, choose);
  if (!chosen.appended && !chosen.there.empty()) {
    const ValueId rows = SequenceReader(c, chosen).Rows();
    chosen = {.rows = RowsThere(c, rows, FlagsOf(c, chosen), output)};
  }
  return importer.AddContainer(std::move(chosen));
}

ValueId FlagsOf(Composer& c, const Container& sequence) {
  std::vector<ValueId> flags = sequence.there;
  for (ValueId& flag : flags) flag = c.Reshape(flag, {1});
  return flags.size() == 1 ? flags[0] : c.Concat(std::move(flags), 0);
}

ValueId AsRow(Composer& c, ValueId x, int64_t axis) {
  std::vector<op::Dim> shape = c.Dims(x);
  shape.insert(shape.begin() + axis, 1);
  return c.ReshapeTo(x, shape);
}

ValueId JoinedRows(Composer& c, ValueId rows, int64_t axis) {
  if (!c.ok()) return kNone;
  std::vector<op::Dim> shape = c.Dims(rows);
  const op::Dim count = shape[0];
  shape.erase(shape.begin());
  shape[static_cast<size_t>(axis)] = count * shape[static_cast<size_t>(axis)];
  return c.ReshapeTo(c.MoveAxis(rows, 0, axis), shape);
}

Result SequenceOfRows(Composer& c, ValueId rows) {
  if (c.ok() && c.node().importer().IsEmpty(rows)) {
    c.Fail("type", "expected tensors with elements in a sequence of open length, found none");
  }
  if (!c.ok()) return c.status();
  return c.node().importer().AddContainer({.rows = rows});
}

ValueId RowsThere(Composer& c, ValueId rows, ValueId there, int output) {
  if (!c.ok()) return kNone;
  // Another name than that of the trips, which is the output's own.
  const std::string name = StrCat(c.node().output_name(output), "_there");
  const auto size = c.node().importer().NewSize(name, c.Most(c.Dims(there)[0]));
  if (!size.ok()) return c.Fail("size_bound", support::Detail(size.status()));
  c.ExpectDims(c.Reduce("sum", c.Cast(there, ir::kI64), {0}), {*size}, c.node().label());
  const ValueId places = PositionsOfTrue(c, there, *size);
  return c.Op("gather", {rows, places}, {{"axis", int64_t{0}}});
}

Result SequenceOfList(NodeReader& n, std::vector<ValueId> items) {
  if (static_cast<int64_t>(items.size()) > kMaxItems) {
    return n.Error("too_large", StrCat("expected a sequence of at most ", kMaxItems,
                                       " tensors, found ", items.size()));
  }
  return n.importer().AddContainer({.items = std::move(items)});
}

}  // namespace tilewright::graph::onnx
