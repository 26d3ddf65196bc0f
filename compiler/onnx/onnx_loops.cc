#include "compiler/onnx/onnx_loops.h"

#include <algorithm>
#include <utility>

#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;
using Ids = std::vector<ValueId>;

// As a tensor with elements that nodes may read.
ValueId Data(Composer& c, ValueId id) {
  if (!c.ok()) return kNone;
  Importer& importer = c.node().importer();
  if (importer.ContainerOf(id) != nullptr || importer.IsEmpty(id)) {
    return c.Fail("type",
                  "expected tensors with elements in a loop that a run ends, found a sequence, an "
                  "optional or a tensor without elements");
  }
  const absl::StatusOr<ValueId> data = importer.DataOf(id);
  return data.ok() ? *data : c.Fail("type", support::Detail(data.status()));
}

// A number of the body that has to be `expected` in every trip is carried: what differs from it
// stays, and is seen behind the loop.
class Expected {
 public:
  Expected(Composer& c, LoopBuilder& loop, Importer::Expectation expectation)
      : c_(c), made_(std::move(expectation)) {
    init_ = c_.SizesOf(made_.check.expected);
    value_ = loop.Carry(init_);
  }
  ValueId Next() { return c_.Op("where", {c_.Op("equal", {value_, init_}), made_.found, value_}); }
  void ExpectBehind(ValueId result) {
    c_.node().importer().Expect({result, std::move(made_.check)});
  }

 private:
  Composer& c_;
  Importer::Expectation made_;
  ValueId init_ = kNone, value_ = kNone;
};

// What trips expect of sizes is taken out of the body. Sizes that differ from trip to trip have no
// place in the graph.
absl::StatusOr<std::vector<Expected>> TakeExpected(Composer& c, LoopBuilder& loop, size_t first,
                                                   size_t sizes_before) {
  Importer& importer = c.node().importer();
  std::vector<Importer::Expectation>& all = importer.expectations();
  std::vector<Expected> taken;
  const std::vector<Importer::Expectation> own(all.begin() + static_cast<std::ptrdiff_t>(first),
                                               all.end());
  all.resize(first);
  if (importer.num_sizes() > sizes_before) {
    return c.node().Error("dynamic",
                          "expected sizes that all trips have, found one that each trip finds");
  }
  for (const Importer::Expectation& expectation : own) taken.emplace_back(c, loop, expectation);
  TW_TRY(c.status());
  return taken;
}

}  // namespace

ValueId LoopBuilder::Control(std::string_view row, Ids inputs, op::Attrs attrs) {
  if (!c_.ok()) return kNone;
  const absl::StatusOr<ValueId> id = c_.node().importer().EmitControl(
      row, std::move(inputs), std::move(attrs), StrCat(c_.node().output_name(0), "_", row));
  return id.ok() ? *id : c_.Fail("shape", support::Detail(id.status()));
}

ValueId LoopBuilder::Carry(ValueId init) {
  const auto index = static_cast<int64_t>(values_.size());
  values_.push_back(Control(kLoopValueOp, {Data(c_, init)}, {{"loop", number_}, {"index", index}}));
  return values_.back();
}

void LoopBuilder::Close(const Ids& next, const Ids& parts) {
  Ids inputs;
  for (ValueId id : next) inputs.push_back(Data(c_, id));
  inputs.insert(inputs.end(), values_.begin(), values_.end());
  for (ValueId id : parts) inputs.push_back(Data(c_, id));
  const auto carried = static_cast<int64_t>(values_.size());
  end_ = Control(kLoopEndOp, std::move(inputs), {{"loop", number_}, {"carried", carried}});
}

ValueId LoopBuilder::Stack(ValueId part, const op::Dim& trips) {
  part = Data(c_, part);
  std::vector<op::Dim> sizes(1 + c_.Dims(part).size(), op::Dim(-1));
  sizes[0] = trips;
  return Control(kLoopStackOp, {end_, part}, {{"sizes", op::ShapeAttr(sizes)}});
}

absl::StatusOr<Ids> LoopAtRunTime(Composer& c, const TripsOfLoop& trips, Ids states,
                                  const std::optional<op::Dim>& known, std::optional<int64_t> most,
                                  const LoopBody& body) {
  NodeReader& n = c.node();
  Importer& importer = n.importer();
  const auto below = [&](ValueId flag, ValueId trip) {
    if (trips.most == kNone) return flag;
    const ValueId more = c.Op("less", {trip, trips.most});
    return importer.ConstantScalar(flag).value_or(0) != 0 ? more : c.Op("and", {flag, more});
  };
  LoopBuilder loop(c);
  const ValueId going = loop.Carry(below(trips.condition, c.Number(0)));
  const ValueId trip = loop.Carry(c.Number(0));
  for (ValueId& state : states) state = loop.Carry(state);
  TW_TRY(c.status());
  const size_t carried = states.size(), first = importer.expectations().size();
  const size_t sizes = importer.num_sizes();
  TW_ASSIGN(Ids out, body(trip, going, states));
  for (ValueId& id : out) id = Data(c, id);
  const ValueId done = c.Add(trip, c.Number(1));
  Ids next = {below(out[0], done), done};
  TW_TRY(c.status());
  next.insert(next.end(), out.begin() + 1, out.begin() + 1 + static_cast<std::ptrdiff_t>(carried));
  TW_ASSIGN(std::vector<Expected> expected, TakeExpected(c, loop, first, sizes));
  for (Expected& number : expected) next.push_back(number.Next());
  const Ids parts(out.begin() + 1 + static_cast<std::ptrdiff_t>(carried), out.end());
  loop.Close(next, parts);
  Ids results;
  for (size_t i = 0; i < carried; ++i) results.push_back(loop.Result(2 + i));
  for (size_t i = 0; i < expected.size(); ++i) {
    expected[i].ExpectBehind(loop.Result(2 + carried + i));
  }
  if (parts.empty()) return results;
  // All stacks are as long: as the model states of one of them, if it does.
  const int begin = static_cast<int>(carried), end = begin + static_cast<int>(parts.size());
  int stated = begin;
  for (int i = begin; i < std::min(end, n.num_outputs()); ++i) {
    const auto shape = n.StatedShape(i);
    if (shape && !shape->empty()) stated = i;
  }
  const op::Dim count = known ? *known : c.FoundSize(loop.Result(1), 0, most, stated);
  TW_TRY(c.status());
  const bool found = !count.is_constant() && !known;
  const std::optional<int64_t> largest = found ? c.Most(count) : std::nullopt;
  for (ValueId part : parts) {
    const ValueId stack = loop.Stack(part, largest ? op::Dim(*largest) : count);
    results.push_back(largest ? c.Slice(stack, 0, 0, count) : stack);
  }
  TW_TRY(c.status());
  return results;
}

}  // namespace tilewright::graph::onnx
