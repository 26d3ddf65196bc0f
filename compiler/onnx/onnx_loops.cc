#include "compiler/onnx/onnx_loops.h"

#include <algorithm>
#include <map>
#include <utility>

#include "compiler/onnx/onnx_sequences.h"
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

// Whether each trip finds this size.
class FoundInTrips {
 public:
  explicit FoundInTrips(const Importer& importer) : before_(importer.size_ranges()) {}
  bool operator()(const op::Dim& dim) const {
    if (dim.is_constant()) return false;
    return std::ranges::any_of(dim.variables(),
                               [&](const std::string& name) { return !before_.contains(name); });
  }

 private:
  const std::map<std::string, SizeRange> before_;
};

// A state whose sizes grow: what is carried is as large as the largest, and these sizes.
class GrowingState {
 public:
  GrowingState(Composer& c, LoopBuilder& loop, const LoopState& state, int output)
      : c_(c), loop_(loop), output_(output), buffer_(state.init) {
    const std::vector<op::Dim> shape = c.Dims(state.init);
    for (const auto& [axis, most] : state.grows) {
      Axis& a = axes_.emplace_back(Axis{.axis = axis});
      a.carried = Carry(c.SizeOf(shape[static_cast<size_t>(axis)], ir::kI64));
      a.size = c.SizeInTrip(Value(a.carried), axis, output,
                            most ? most : c.node().importer().LargestEnd());
      a.most = c.Most(a.size).value_or(1);
      buffer_ = Grown(buffer_, a);
    }
    carried_ = Carry(buffer_);
  }
  ValueId InTrip() {
    ValueId value = Value(carried_);
    for (const Axis& a : axes_) value = c_.Slice(value, a.axis, 0, a.size);
    return value;
  }
  // In the order in which they are carried.
  void AddNext(ValueId next, Ids* all) {
    const std::vector<op::Dim> shape = c_.Dims(next);
    for (const Axis& a : axes_) {
      all->push_back(c_.SizeOf(shape[static_cast<size_t>(a.axis)], ir::kI64));
      next = Grown(next, a);
    }
    all->push_back(next);
  }
  ValueId Behind() {
    ValueId result = loop_.Result(carried_);
    for (const Axis& a : axes_) {
      const op::Dim size = c_.FoundSize(loop_.Result(a.carried), a.axis, a.most, output_);
      result = c_.Slice(result, a.axis, 0, size);
    }
    return result;
  }

 private:
  struct Axis {
    int64_t axis = 0, most = 0;
    size_t carried = 0;  // its size
    op::Dim size = 1;    // in a trip
  };
  size_t Carry(ValueId init) {
    loop_.Carry(init);
    return loop_.num_carried() - 1;
  }
  ValueId Value(size_t carried) const { return loop_.Value(carried); }
  // A tensor without entries is what it grows to.
  ValueId Grown(ValueId x, const Axis& a) {
    if (!c_.ok() || !c_.node().importer().IsEmpty(x)) return Widened(c_, x, a.axis, a.most);
    op::TensorType type = c_.TypeOf(x);
    type.shape[static_cast<size_t>(a.axis)] = a.most;
    if (type.elements() == 0) return c_.Empty(type.dtype, type.sizes());
    return c_.Broadcast(c_.Scalar(0, type.dtype), type.sizes());
  }

  Composer& c_;
  LoopBuilder& loop_;
  const int output_;
  ValueId buffer_;
  size_t carried_ = 0;
  std::vector<Axis> axes_;
};

// What trips give, one behind the other: all of the same sizes, which trips may find.
class StackedPart {
 public:
  // `wanted`: the sizes that it has to have; empty where any will do.
  StackedPart(Composer& c, const FoundInTrips& found, ValueId part,
              const std::vector<op::Dim>& wanted)
      : c_(c), part_(part) {
    const std::vector<op::Dim> shape = c.Dims(part);
    for (size_t d = 0; c.ok() && d < shape.size(); ++d) {
      if (!found(shape[d])) continue;
      const auto axis = static_cast<int64_t>(d);
      const ValueId size = c.SizeOf(shape[d], ir::kI64);
      if (wanted.empty()) {
        sizes_.push_back({axis, c.Most(shape[d]).value_or(1), size});
        part_ = Widened(c, part_, axis, sizes_.back().most);
        continue;
      }
      c.ExpectDims(size, {wanted[d]}, c.node().label());
      part_ = Widened(c, part_, axis, c.Most(wanted[d]).value_or(1));
      part_ = c.Slice(part_, axis, 0, wanted[d]);
    }
  }
  ValueId part() const { return part_; }
  // The first trip's size is carried, and expected of all.
  void Carry(LoopBuilder& loop) {
    for (Size& size : sizes_) {
      size.seen = loop.Carry(c_.Number(-1));
      size.carried = loop.num_carried() - 1;
    }
  }
  void AddNext(const std::vector<op::Dim>& shape, Ids* all) {
    for (const Size& size : sizes_) {
      const ValueId first = c_.Op("less", {size.seen, c_.Number(0)});
      all->push_back(c_.Op("where", {first, size.size, size.seen}));
      c_.ExpectDims(all->back(), {shape[static_cast<size_t>(size.axis)]}, c_.node().label());
    }
  }
  ValueId Behind(LoopBuilder& loop, ValueId stack, int output) {
    for (const Size& size : sizes_) {
      const ValueId seen = c_.Op("max", {loop.Result(size.carried), c_.Number(0)});
      const op::Dim found = c_.FoundSize(seen, size.axis + 1, size.most, output);
      stack = c_.Slice(stack, size.axis + 1, 0, found);
    }
    return stack;
  }

 private:
  struct Size {
    int64_t axis = 0, most = 0;
    ValueId size = kNone, seen = kNone;  // in a trip; in the first one, -1 before
    size_t carried = 0;
  };
  Composer& c_;
  ValueId part_;
  std::vector<Size> sizes_;
};

// Entries of trips along dimension 0 as more of `init` along the axis.
ValueId Appended(Composer& c, ValueId init, ValueId stack, int64_t axis) {
  const ValueId made = JoinedRows(c, stack, axis);
  return !c.ok() || c.node().importer().IsEmpty(init) ? made : c.Concat({init, made}, axis);
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

namespace {

// A loop under import that a run ends.
class RunTimeLoop {
 public:
  RunTimeLoop(Composer& c, const TripsOfLoop& trips, const std::vector<LoopState>& states)
      : c_(c), trips_(trips), states_(states), loop_(c), found_(c.node().importer()) {}

  absl::StatusOr<Ids> Run(const std::optional<op::Dim>& known, std::optional<int64_t> most,
                          const LoopBody& body) {
    loop_.Carry(Below(trips_.condition, c_.Number(0)));
    const ValueId trip = loop_.Carry(c_.Number(0));
    const Ids in_trip = CarryStates();
    TW_TRY(c_.status());
    TW_ASSIGN(Ids out, body(trip, in_trip));
    for (ValueId& id : out) {
      if (id != kNone) id = Data(c_, id);
    }
    TW_TRY(c_.status());
    Close(trip, out);
    Ids results;
    for (size_t i = 0; i < states_.size(); ++i) {
      results.push_back(IsStacked(states_[i])      ? kNone
                        : states_[i].grows.empty() ? loop_.Result(plain_.at(i))
                                                   : growing_.at(i).Behind());
    }
    TW_TRY(c_.status());
    TW_TRY(AddStacks(known, most, &results));
    return results;
  }

 private:
  ValueId Below(ValueId flag, ValueId trip) {
    if (trips_.most == kNone) return flag;
    const ValueId more = c_.Op("less", {trip, trips_.most});
    const bool holds = c_.node().importer().ConstantScalar(flag).value_or(0) != 0;
    return holds ? more : c_.Op("and", {flag, more});
  }

  Ids CarryStates() {
    Ids in_trip;
    for (size_t i = 0; c_.ok() && i < states_.size(); ++i) {
      const LoopState& state = states_[i];
      if (state.init == kNone) {
        in_trip.push_back(kNone);
      } else if (state.appended) {
        std::vector<int64_t> none(c_.Dims(state.init).size(), 1);
        none[static_cast<size_t>(*state.appended)] = 0;
        in_trip.push_back(c_.Empty(c_.TypeOf(state.init).dtype, std::move(none)));
      } else if (!state.grows.empty()) {
        in_trip.push_back(
            growing_.try_emplace(i, c_, loop_, state, static_cast<int>(i)).first->second.InTrip());
      } else {
        plain_[i] = loop_.num_carried();
        in_trip.push_back(loop_.Carry(state.init));
      }
    }
    return in_trip;
  }

  void Close(ValueId trip, const Ids& out) {
    const ValueId done = c_.Add(trip, c_.Number(1));
    counted_ = MostTrips(out);
    Ids next = {Below(out[0], done), done};
    for (size_t i = 0; c_.ok() && i < states_.size(); ++i) {
      if (IsStacked(states_[i])) {
        AddPart(out[i + 1], static_cast<int>(i), WantedOf(states_[i]));
      } else if (const auto state = growing_.find(i); state != growing_.end()) {
        state->second.AddNext(out[i + 1], &next);
      } else {
        next.push_back(out[i + 1]);
      }
    }
    for (size_t i = states_.size(); i + 1 < out.size(); ++i) {
      AddPart(out[i + 1], static_cast<int>(i), {});
    }
    Ids parts;
    for (Part& part : parts_) {
      part.stacked.Carry(loop_);
      part.stacked.AddNext(c_.Dims(part.whole), &next);
      parts.push_back(part.stacked.part());
    }
    loop_.Close(next, parts);
  }

  // What the condition says of states that count.
  std::optional<int64_t> MostTrips(const Ids& out) const {
    std::vector<Importer::Counter> counters;
    for (const auto& [state, carried] : plain_) {
      counters.push_back({states_[state].init, loop_.Value(carried), out[state + 1]});
    }
    return c_.ok() ? c_.node().importer().MostTrips(out[0], counters) : std::nullopt;
  }

  static bool IsStacked(const LoopState& state) { return state.init == kNone || state.appended; }
  // What is appended has the sizes of what it is appended to, but along that axis.
  std::vector<op::Dim> WantedOf(const LoopState& state) const {
    return state.init == kNone ? std::vector<op::Dim>() : c_.Dims(state.init);
  }
  void AddPart(ValueId part, int output, const std::vector<op::Dim>& wanted) {
    if (part == kNone) return;
    if (!wanted.empty() && c_.ok() && c_.Dims(part).size() != wanted.size()) {
      c_.Fail("shape", "expected a state of one rank in all trips, found others");
    }
    if (c_.ok()) parts_.push_back({output, part, StackedPart(c_, found_, part, wanted)});
  }

  // All stacks are as long: as the model states of one of them, if it does.
  absl::Status AddStacks(const std::optional<op::Dim>& known, std::optional<int64_t> most,
                         Ids* results) {
    if (parts_.empty()) return absl::OkStatus();
    if (counted_) most = std::min(most.value_or(*counted_), *counted_);
    NodeReader& n = c_.node();
    int stated = parts_[0].output;
    for (const Part& part : parts_) {
      const bool whole = static_cast<size_t>(part.output) >= states_.size();
      if (!whole || part.output >= n.num_outputs()) continue;
      const auto shape = n.StatedShape(part.output);
      if (shape && !shape->empty()) stated = part.output;
    }
    const op::Dim count = known ? *known : c_.FoundSize(loop_.Result(1), 0, most, stated);
    TW_TRY(c_.status());
    const bool found = !count.is_constant() && !known;
    const std::optional<int64_t> largest = found ? c_.Most(count) : std::nullopt;
    results->resize(std::max(results->size(), static_cast<size_t>(parts_.back().output) + 1));
    for (Part& part : parts_) {
      ValueId stack = loop_.Stack(part.stacked.part(), largest ? op::Dim(*largest) : count);
      if (largest) stack = c_.Slice(stack, 0, 0, count);
      stack = part.stacked.Behind(loop_, stack, part.output);
      const auto at = static_cast<size_t>(part.output);
      if (at < states_.size() && states_[at].appended) {
        stack = Appended(c_, states_[at].init, stack, *states_[at].appended);
      }
      (*results)[at] = stack;
    }
    return c_.status();
  }

  struct Part {
    int output;
    ValueId whole;  // as a trip gives it
    StackedPart stacked;
  };
  Composer& c_;
  const TripsOfLoop trips_;
  const std::vector<LoopState>& states_;
  LoopBuilder loop_;
  const FoundInTrips found_;
  std::map<size_t, size_t> plain_;  // by state: the value carried
  std::map<size_t, GrowingState> growing_;
  std::vector<Part> parts_;
  std::optional<int64_t> counted_;  // trips at most
};

}  // namespace

absl::StatusOr<Ids> LoopAtRunTime(Composer& c, const TripsOfLoop& trips,
                                  const std::vector<LoopState>& states,
                                  const std::optional<op::Dim>& known, std::optional<int64_t> most,
                                  const LoopBody& body) {
  return RunTimeLoop(c, trips, states).Run(known, most, body);
}

}  // namespace tilewright::graph::onnx
