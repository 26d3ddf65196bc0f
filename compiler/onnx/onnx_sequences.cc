#include "compiler/onnx/onnx_sequences.h"

#include <utility>

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

ValueId ChosenSequence(Composer& c, ValueId a, ValueId b, const ChooseTensor& choose) {
  Importer& importer = c.node().importer();
  const Container *of_a = importer.ContainerOf(a), *of_b = importer.ContainerOf(b);
  const bool alike = of_a != nullptr && of_b != nullptr && of_a->nothing == of_b->nothing &&
                     of_a->appended == of_b->appended;
  if (!alike || of_a->nothing) {
    return c.Fail("type", "expected tensors or sequences from both ways, found others");
  }
  const SequenceReader first(c, *of_a), second(c, *of_b);
  if (!first.is_list() || !second.is_list()) {
    return importer.AddContainer({.rows = choose(first.Rows(), second.Rows())});
  }
  if (first.items().size() != second.items().size()) {
    return c.Fail("shape",
                  StrCat("expected sequences of one length from both ways, found ",
                         first.items().size(), " and ", second.items().size(), " tensors"));
  }
  Container chosen{.appended = of_a->appended};
  for (size_t i = 0; i < first.items().size(); ++i) {
    chosen.items.push_back(choose(first.items()[i], second.items()[i]));
  }
  return importer.AddContainer(std::move(chosen));
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

Result SequenceOfList(NodeReader& n, std::vector<ValueId> items) {
  if (static_cast<int64_t>(items.size()) > kMaxItems) {
    return n.Error("too_large", StrCat("expected a sequence of at most ", kMaxItems,
                                       " tensors, found ", items.size()));
  }
  return n.importer().AddContainer({.items = std::move(items)});
}

}  // namespace tilewright::graph::onnx
