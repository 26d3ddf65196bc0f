// Loop. Short ones of a known number of trips are unrolled; a run decides about the others
// (onnx_loops.h).
#include <algorithm>
#include <map>
#include <string>

#include "compiler/onnx/onnx_loops.h"
#include "compiler/onnx/onnx_sequences.h"
#include "compiler/onnx/onnx_unrolled_loops.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;
using Ids = std::vector<ValueId>;

// Looks for names in a subgraph.
class Names {
 public:
  explicit Names(const pb::GraphProto& graph) : graph_(graph) {
    for (const pb::NodeProto& node : graph.node()) {
      for (const std::string& name : NamesRead(node)) ++reads_[name];
    }
    for (const auto& output : graph.output()) ++reads_[output.name()];
  }
  // The only reader of this name that is a node of the graph; null where there are others.
  const pb::NodeProto* OnlyReader(const std::string& name) const {
    const auto reads = reads_.find(name);
    if (reads == reads_.end() || reads->second != 1) return nullptr;
    for (const pb::NodeProto& node : graph_.node()) {
      if (std::ranges::find(node.input(), name) != node.input().end()) return &node;
    }
    return nullptr;
  }
  bool ReadOnce(const std::string& name) const {
    const auto reads = reads_.find(name);
    return reads != reads_.end() && reads->second == 1;
  }

 private:
  const pb::GraphProto& graph_;
  std::map<std::string, int> reads_;
};

// The axis along which a loop's body appends to input `input`, its only use of it; nullopt where it
// does anything else with it.
std::optional<int64_t> AppendsAlong(const pb::GraphProto& body, int input) {
  const Names names(body);
  const std::string* state = &body.input(input).name();
  const pb::NodeProto* node = names.OnlyReader(*state);
  // Exporters convert to the type that it has.
  while (node != nullptr && (node->op_type() == "Cast" || node->op_type() == "Identity")) {
    state = &node->output(0);
    node = names.OnlyReader(*state);
  }
  if (node == nullptr || node->op_type() != "Concat" || !IsDefaultDomain(node->domain()) ||
      node->input(0) != *state || node->input_size() < 2 ||
      node->output(0) != body.output(input - 1).name() || !names.ReadOnce(node->output(0))) {
    return std::nullopt;
  }
  for (const pb::AttributeProto& attribute : node->attribute()) {
    if (attribute.name() == "axis") return attribute.i();
  }
  return std::nullopt;
}

// Whether a loop's body gives back the sequence that is its input `input`.
bool Keeps(const pb::GraphProto& body, int input) {
  return body.input(input).name() == body.output(input - 1).name();
}

// A Loop under import.
class LoopImport {
 public:
  LoopImport(NodeReader& n, const pb::GraphProto& body)
      : n_(n), c_(n), body_(body), results_(static_cast<size_t>(body.output_size())) {}

  Result Run() {
    for (int i = 2; i < n_.num_inputs(); ++i) states_.push_back(c_.Input(i));
    going_ = n_.HasInput(1) ? AsFlag(c_, c_.Input(1)) : c_.Scalar(1, ir::kBool);
    TW_TRY(c_.status());
    if (results_ < states_.size() + 1) {
      return n_.Error("outputs", StrCat("expected a subgraph with ", states_.size() + 1,
                                        " outputs at least, found ", results_));
    }
    if (n_.HasInput(0)) {
      TW_ASSIGN(const ValueId id, n_.Input(0));
      most_ = n_.importer().ConstantScalar(id);
      if (const auto dims = n_.importer().ConstantDims(id)) most_size_ = dims->at(0);
    }
    before_ = n_.importer().noted();
    // The first trip tells whether the condition is known, and the types of what it makes.
    TW_ASSIGN(sample_, Trip(0, going_, states_));
    const bool fixed = Holds() && n_.importer().ConstantScalar(sample_[0]);
    TW_ASSIGN(Ids results, fixed && IsShort() ? Unrolled() : DecidedByARun());
    if (results.empty()) return n_.Error("outputs", "expected a loop with results, found none");
    return BindAll(n_, results);
  }

 private:
  std::optional<double> Holds() const { return n_.importer().ConstantScalar(going_); }
  // Unrolled, it has few nodes. A condition that is known may end it before `most_` trips.
  bool IsShort() const {
    const bool ends = !n_.HasInput(0) || most_;
    const bool goes_on =
        Holds() && *Holds() != 0 && n_.importer().ConstantScalar(sample_[0]).value_or(0) != 0;
    const double trips = std::clamp<double>(most_.value_or(kMaxTrips + 1), 0, kMaxTrips + 1);
    return ends && !(goes_on && !Unrolls(n_, body_, static_cast<int64_t>(trips)));
  }

  absl::StatusOr<Ids> Trip(int64_t number, ValueId going, const Ids& states) {
    return TripOf(c_.Scalar(static_cast<double>(number), ir::kI64), going, states);
  }
  absl::StatusOr<Ids> TripOf(ValueId number, ValueId going, const Ids& states) {
    Ids inputs = {number, going};
    inputs.insert(inputs.end(), states.begin(), states.end());
    return graph::onnx::Trip(n_, body_, inputs, results_);
  }

  // What a trip made is there for the next one.
  absl::Status Take(const Ids& out, Gathered* scans) {
    const size_t carried = states_.size();
    for (size_t i = 0; i < carried; ++i) states_[i] = out[i + 1];
    for (size_t i = carried; i + 1 < results_; ++i) scans->Add(i - carried, out[i + 1]);
    going_ = AsFlag(c_, out[0]);
    return c_.status();
  }

  // As many trips as the condition and the first input say, one after the other.
  absl::StatusOr<Ids> Unrolled() {
    const size_t carried = states_.size();
    const double limit = std::min(most_.value_or(kMaxTrips), static_cast<double>(kMaxTrips));
    const bool more = !most_ || *most_ > limit;
    Gathered scans(results_ - 1 - carried);
    if (limit < 1 || *Holds() == 0) n_.importer().TakeBack(before_);
    int64_t done = 0;
    for (; static_cast<double>(done) < limit && *Holds() != 0; ++done) {
      Ids out = sample_;
      if (done > 0) {
        TW_ASSIGN(out, Trip(done, going_, states_));
      }
      TW_TRY(Take(out, &scans));
      if (!Holds()) {
        return n_.Error("dynamic",
                        "expected a condition that is known in every trip, found one that is only "
                        "known when the model runs");
      }
    }
    if (more && *Holds() != 0) return TooManyTrips(n_);
    Ids results = states_;
    for (size_t i = carried; i + 1 < results_; ++i) {
      if (done > 0) {
        results.push_back(scans.Join(c_, i - carried, 0, false));
        continue;
      }
      op::TensorType none = c_.TypeOf(sample_[i + 1]);
      none.shape.insert(none.shape.begin(), 0);
      if (!none.fixed()) {
        return n_.Error("open_size", StrCat("expected a loop of at least one trip, found results ",
                                            op::ToText(none), kGiveNumbers));
      }
      results.push_back(c_.Constant(none.dtype, none.sizes(), {}));
    }
    TW_TRY(c_.status());
    return results;
  }

  // How the states change: by what their names are used for, and by what the first trip made.
  absl::StatusOr<std::vector<LoopState>> StatesAtRunTime() const {
    std::vector<LoopState> states;
    for (size_t i = 0; i < states_.size(); ++i) {
      LoopState& state = states.emplace_back(LoopState{.init = states_[i]});
      if (const Container* sequence = SequenceOf(i)) {
        state.init = kNone;
        if (!sequence->nothing) continue;
        return n_.Error("type",
                        "expected sequences and tensors as states of a loop that a run ends, "
                        "found an optional");
      }
      const op::TensorType &before = c_.TypeOf(state.init), &after = c_.TypeOf(sample_[i + 1]);
      if (const std::optional<int64_t> axis = AppendsAlong(body_, static_cast<int>(i) + 2)) {
        state.appended = *axis < 0 ? *axis + before.rank() : *axis;
        const auto d = static_cast<size_t>(*state.appended);
        if (*state.appended < 0 || d >= before.shape.size() || before.rank() != after.rank()) {
          return n_.Error("axis", "expected an axis of the state that the body appends to");
        }
        // What differs in length from trip to trip does not stack.
        if ((after.shape[d] - before.shape[d]).is_constant()) continue;
        state.appended.reset();
      }
      if (before.dtype != after.dtype || before.rank() != after.rank()) continue;
      for (size_t d = 0; d < before.shape.size(); ++d) {
        if (before.shape[d] == after.shape[d]) continue;
        state.grows[static_cast<int64_t>(d)] = LargestOf(before.shape[d], after.shape[d]);
      }
    }
    return states;
  }
  // The size behind the last trip, if each adds as much as the first.
  std::optional<int64_t> LargestOf(const op::Dim& before, const op::Dim& after) const {
    const op::Dim more = after - before;
    const std::optional<int64_t> most = c_.Most(before);
    if (!most_ || !most || !more.is_constant() || more.value() < 0) return std::nullopt;
    const double trips = std::clamp(*most_, 0.0, kMostTrips);
    const double size = static_cast<double>(*most) + trips * static_cast<double>(more.value());
    return size < kMostEntries ? std::optional(static_cast<int64_t>(size)) : std::nullopt;
  }

  // How many trips there are, if the model states it for a result.
  std::optional<int64_t> StatedTrips() const {
    for (int i = static_cast<int>(states_.size()); i < n_.num_outputs(); ++i) {
      const std::optional<std::vector<int64_t>> shape = n_.StatedShape(i);
      if (shape && !shape->empty()) return (*shape)[0];
    }
    return std::nullopt;
  }

  // As many trips as the model states, which a run confirms: bodies whose values differ in shape.
  absl::StatusOr<Ids> UnrolledAsStated(int64_t count) {
    const size_t carried = states_.size();
    Gathered scans(results_ - 1 - carried);
    Ids alive = {going_};  // per trip, and once more: whether the loop gets that far
    for (int64_t done = 0; done < count; ++done) {
      TW_ASSIGN(const Ids out, Trip(done, going_, states_));
      TW_TRY(Take(out, &scans));
      alive.push_back(c_.Op("and", {alive.back(), going_}));
      TW_TRY(c_.status());
    }
    for (ValueId& flag : alive) flag = c_.Reshape(c_.Cast(flag, ir::kI64), {1});
    ValueId made = c_.Reduce("sum", c_.Concat(std::move(alive), 0), {0}, false);
    if (n_.HasInput(0)) made = c_.Op("min", {made, c_.Reshape(c_.Cast(c_.Input(0), ir::kI64), {})});
    c_.ExpectSizes(made, {count});
    Ids results = states_;
    for (size_t i = carried; i + 1 < results_; ++i) {
      results.push_back(scans.Join(c_, i - carried, 0, false));
    }
    TW_TRY(c_.status());
    return results;
  }

  absl::StatusOr<Ids> DecidedByARun() {
    const std::optional<int64_t> stated = StatedTrips();
    const bool unrolls = stated && *stated > 0 && Unrolls(n_, body_, *stated);
    if (n_.importer().has_loops() || !(unrolls || OnlyItsConditionEndsIt())) {
      absl::StatusOr<Ids> results = AtRunTime();
      if (results.ok() || !(unrolls || OnlyItsConditionEndsIt())) return results;
    }
    n_.importer().TakeBack(before_);
    return unrolls ? UnrolledAsStated(*stated) : Unrolled();
  }

  // A condition of constants in the first trip, which later ones make of theirs.
  bool OnlyItsConditionEndsIt() const {
    return !n_.HasInput(0) && Holds() && n_.importer().ConstantScalar(sample_[0]);
  }

  absl::StatusOr<Ids> AtRunTime() {
    n_.importer().TakeBack(before_);  // those of the sample
    Composer c(n_);                   // what fails here may be tried in another way
    TripsOfLoop trips{kNone, going_};
    if (n_.HasInput(0)) trips.most = c.Reshape(c.Cast(c.Input(0), ir::kI64), {});
    TW_TRY(c.status());
    // Exporters write the largest integer for a loop that only its condition ends.
    std::optional<int64_t> most;
    if (most_ && *most_ < kMostEntries) most = static_cast<int64_t>(std::max(*most_, 0.0));
    TW_ASSIGN(const std::vector<LoopState> states, StatesAtRunTime());
    std::optional<op::Dim> known = Holds() ? most_size_ : std::nullopt;
    const auto body = [&](ValueId trip, Ids states) -> absl::StatusOr<Ids> {
      TW_ASSIGN(Ids out, Body(&c, trip, std::move(states)));
      // That of any trip, not only of the first.
      const bool always = n_.importer().ConstantScalar(out[0]).value_or(0) != 0;
      if (always && !n_.HasInput(0)) return TooManyTrips(n_);
      if (!always) known.reset();
      return out;
    };
    TW_ASSIGN(Ids results, LoopAtRunTime(c, trips, states, known, most, body));
    for (size_t i = 0; i < states_.size(); ++i) {
      if (SequenceOf(i) == nullptr) continue;
      TW_ASSIGN(results[i], SequenceBehind(c, i, results));
    }
    results.resize(results_ - 1);
    return results;
  }

  absl::StatusOr<Ids> Body(Composer* c, ValueId trip, Ids states) {
    for (size_t i = 0; i < states.size(); ++i) {
      if (SequenceOf(i) == nullptr) continue;
      const bool keeps = Keeps(body_, static_cast<int>(i) + 2);
      states[i] = keeps ? states_[i] : n_.importer().AddContainer({.appended = true});
    }
    TW_ASSIGN(Ids out, TripOf(trip, c->Scalar(1, ir::kBool), states));  // there is a trip
    out[0] = AsFlag(*c, out[0]);
    for (size_t i = 0; i < states.size(); ++i) {
      if (SequenceOf(i) == nullptr) continue;
      if (out[i + 1] == states[i]) {
        out[i + 1] = kNone;
        continue;
      }
      const Container* made = n_.importer().ContainerOf(out[i + 1]);
      if (made == nullptr || !made->appended) {
        return n_.Error("type",
                        "expected sequences to which a body only appends in a loop that a run "
                        "ends, found another use");
      }
      const Container appended = *made;
      out[i + 1] = SequenceReader(*c, appended).Rows();
      if (appended.there.empty()) continue;
      there_[i] = out.size() - 1;  // behind the results: not one of the node
      out.push_back(FlagsOf(*c, appended));
    }
    TW_TRY(c->status());
    return out;
  }

  // The container of a state that begins as one; null for tensors.
  const Container* SequenceOf(size_t state) const {
    return n_.importer().ContainerOf(states_[state]);
  }
  // Result `state`: the rows that each trip appended; kNone where none did.
  Result SequenceBehind(Composer& c, size_t state, const Ids& results) const {
    if (results[state] == kNone) return states_[state];
    ValueId rows = JoinedRows(c, results[state], 0);
    if (const auto flags = there_.find(state); flags != there_.end()) {
      const ValueId there = JoinedRows(c, results[flags->second], 0);
      rows = RowsThere(c, rows, there, static_cast<int>(state));
    }
    const SequenceReader before(c, *SequenceOf(state));
    if (before.is_list() && before.items().empty()) return SequenceOfRows(c, rows);
    return SequenceOfRows(c, c.Concat({before.Rows(), rows}, 0));
  }

  static constexpr double kMostTrips = 0x1p62, kMostEntries = 0x1p31;

  NodeReader& n_;
  Composer c_;
  const pb::GraphProto& body_;
  const size_t results_;
  Ids states_, sample_;
  ValueId going_ = kNone;
  std::map<size_t, size_t> there_;    // by state: the result that says what is appended
  std::optional<double> most_;        // trips, if it is a constant
  std::optional<op::Dim> most_size_;  // the same as a size
  Importer::Noted before_;            // the sample
};

}  // namespace

Result ImportLoop(NodeReader& n) {
  TW_ASSIGN(const pb::GraphProto* body, BodyOf(n, "body"));
  return LoopImport(n, *body).Run();
}

}  // namespace tilewright::graph::onnx
