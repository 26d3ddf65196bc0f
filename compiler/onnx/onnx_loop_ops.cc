// Loop and Scan. Short ones of a known number of trips are unrolled; a run decides about the others
// (onnx_loops.h).
#include <algorithm>

#include "compiler/onnx/onnx_loops.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;
using Ids = std::vector<ValueId>;

constexpr int64_t kMaxTrips = 1024;

// Whether the trips are few enough to be nodes of the graph each.
bool Unrolls(NodeReader& n, const pb::GraphProto& body, int64_t trips) {
  const int64_t most = n.importer().has_loops() ? 1 << 12 : 1 << 14;
  int64_t nodes = 0;
  ForEachNode(body, [&](const pb::NodeProto&) { ++nodes; });
  return trips <= kMaxTrips && trips * nodes <= most;
}

absl::Status TooManyTrips(NodeReader& n) {
  return n.Error("too_large",
                 StrCat("expected at most ", kMaxTrips, " trips, which are unrolled, found more"));
}

// What the trips of a loop gave, one list per result.
class Gathered {
 public:
  explicit Gathered(size_t results) : parts_(results) {}
  void Add(size_t result, ValueId part) { parts_[result].push_back(part); }
  // All parts along a new dimension `axis`, the first trip's last if `backwards`.
  ValueId Join(Composer& c, size_t result, int64_t axis, bool backwards) {
    std::vector<ValueId> parts = parts_[result];
    if (backwards) std::reverse(parts.begin(), parts.end());
    const int64_t rank = c.Rank(parts[0]) + 1;
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank) return c.Fail("axis", "expected axes of the results");
    for (ValueId& part : parts) {
      std::vector<op::Dim> shape = c.Dims(part);
      if (static_cast<int64_t>(shape.size()) + 1 != rank) {
        return c.Fail("shape", "expected results of one rank from all trips, found others");
      }
      shape.insert(shape.begin() + axis, 1);
      part = c.ReshapeTo(part, shape);
    }
    return c.Concat(std::move(parts), axis);
  }

 private:
  std::vector<std::vector<ValueId>> parts_;
};

// One trip: the subgraph's results.
absl::StatusOr<Ids> Trip(NodeReader& n, const pb::GraphProto& body, const Ids& inputs,
                         size_t results) {
  TW_ASSIGN(Ids out, n.importer().ImportBody(body, inputs));
  if (out.size() == results) return out;
  return n.Error("outputs",
                 StrCat("expected a subgraph with ", results, " outputs, found ", out.size()));
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
    before_ = n_.importer().expectations().size();
    // The first trip tells whether the condition is known, and the types of what it makes.
    TW_ASSIGN(sample_, Trip(0, going_, states_));
    const bool fixed = Holds() && n_.importer().ConstantScalar(sample_[0]);
    TW_ASSIGN(Ids results, fixed && IsShort() ? Unrolled() : DecidedByARun(fixed));
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
    if (limit < 1 || *Holds() == 0) n_.importer().expectations().resize(before_);
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

  absl::StatusOr<Ids> DecidedByARun(bool fixed) {
    const std::optional<int64_t> stated = StatedTrips();
    const bool unrolls = stated && *stated > 0 && Unrolls(n_, body_, *stated);
    if (n_.importer().has_loops() || !unrolls) {
      absl::StatusOr<Ids> results = AtRunTime(fixed);
      if (results.ok() || !unrolls) return results;
    }
    n_.importer().expectations().resize(before_);
    return UnrolledAsStated(*stated);
  }

  // `fixed`: the condition always holds.
  absl::StatusOr<Ids> AtRunTime(bool fixed) {
    n_.importer().expectations().resize(before_);  // those of the sample
    if (fixed && !n_.HasInput(0)) return TooManyTrips(n_);
    Composer c(n_);  // what fails here may be tried in another way
    TripsOfLoop trips{kNone, going_};
    if (n_.HasInput(0)) trips.most = c.Reshape(c.Cast(c.Input(0), ir::kI64), {});
    TW_TRY(c.status());
    std::optional<int64_t> most;
    if (most_) most = static_cast<int64_t>(std::clamp(*most_, 0.0, kMostTrips));
    return LoopAtRunTime(c, trips, states_, fixed ? most_size_ : std::nullopt, most,
                         [&](ValueId trip, ValueId going, const Ids& states) {
                           return Body(&c, trip, going, states);
                         });
  }

  absl::StatusOr<Ids> Body(Composer* c, ValueId trip, ValueId going, const Ids& states) {
    TW_ASSIGN(Ids out, TripOf(trip, going, states));
    out[0] = AsFlag(*c, out[0]);
    TW_TRY(c->status());
    return out;
  }

  static constexpr double kMostTrips = 0x1p62;

  NodeReader& n_;
  Composer c_;
  const pb::GraphProto& body_;
  const size_t results_;
  Ids states_, sample_;
  ValueId going_ = kNone;
  std::optional<double> most_;        // trips, if it is a constant
  std::optional<op::Dim> most_size_;  // the same as a size
  size_t before_ = 0;                 // expectations
};

}  // namespace

Result ImportLoop(NodeReader& n) {
  TW_ASSIGN(const pb::GraphProto* body, BodyOf(n, "body"));
  return LoopImport(n, *body).Run();
}

namespace {

// Scan's attributes: per scanned input and per gathered result an axis and a direction.
struct ScanAttrs {
  std::vector<int64_t> input_axes, output_axes, input_backwards, output_backwards;
};

// An attribute with a value for each of `count`; of older versions "" where they have none.
absl::StatusOr<std::vector<int64_t>> OnePer(NodeReader& n, std::string_view name, size_t count) {
  if (name.empty()) return std::vector<int64_t>(count, 0);
  TW_ASSIGN(std::vector<int64_t> values, n.Ints(name, std::vector<int64_t>(count, 0)));
  if (values.size() == count) return values;
  return n.Error("attribute",
                 StrCat("expected ", count, " values of ", name, ", found ", values.size()));
}

// Behind a loop: the parts along `axis`, the first trip's last if `backwards`.
ValueId Arranged(Composer& c, ValueId stack, const op::Dim& length, int64_t axis, bool backwards) {
  const int64_t rank = c.Rank(stack);
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank) return c.Fail("axis", "expected axes of the results");
  if (backwards) {
    const ValueId last = c.SizeOf(length - 1, ir::kI64);
    const ValueId positions = c.Sub(last, c.Counting(ir::kI64, length, 0, 1));
    stack = c.Op("gather", {stack, positions}, {{"axis", int64_t{0}}});
  }
  std::vector<int64_t> perm;
  for (int64_t d = 1; d < rank; ++d) perm.push_back(d);
  perm.insert(perm.begin() + axis, 0);
  return c.Transpose(stack, std::move(perm));
}

absl::StatusOr<Ids> ScanAtRunTime(Composer& c, const pb::GraphProto& body, Ids state,
                                  const Ids& sequences, const ScanAttrs& a,
                                  const std::vector<int64_t>& axes, const op::Dim& length) {
  const size_t carried = state.size(), results = carried + a.output_axes.size();
  const TripsOfLoop trips{c.SizeOf(length, ir::kI64), c.Scalar(1, ir::kBool)};
  const auto steps = [&](ValueId trip, ValueId, const Ids& states) -> absl::StatusOr<Ids> {
    Ids inputs = states;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const ValueId at =
          a.input_backwards[i] == 0 ? trip : c.Sub(c.SizeOf(length - 1, ir::kI64), trip);
      inputs.push_back(c.Op("gather", {sequences[i], at}, {{"axis", axes[i]}}));
    }
    TW_TRY(c.status());
    TW_ASSIGN(Ids out, Trip(c.node(), body, inputs, results));
    out.insert(out.begin(), c.Scalar(1, ir::kBool));
    return out;
  };
  TW_ASSIGN(Ids made, LoopAtRunTime(c, trips, std::move(state), length, std::nullopt, steps));
  for (size_t i = carried; i < results; ++i) {
    const size_t k = i - carried;
    made[i] = Arranged(c, made[i], length, a.output_axes[k], a.output_backwards[k] != 0);
  }
  TW_TRY(c.status());
  return made;
}

// The scan of these states and sequences; the states at the end, then what the trips gave.
absl::StatusOr<Ids> ScanOnce(Composer& c, const pb::GraphProto& body, Ids state,
                             const Ids& sequences, const ScanAttrs& a) {
  NodeReader& n = c.node();
  const size_t carried = state.size();
  const size_t results = carried + a.output_axes.size();
  std::optional<op::Dim> length;
  std::vector<int64_t> axes;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int64_t rank = c.Rank(sequences[i]);
    const int64_t axis = a.input_axes[i] < 0 ? a.input_axes[i] + rank : a.input_axes[i];
    if (axis < 0 || axis >= rank) return n.Error("axis", "expected axes of the scanned inputs");
    const op::Dim along = c.Dims(sequences[i])[static_cast<size_t>(axis)];
    if (length && *length != along) {
      return n.Error("shape", StrCat("expected sequences of one length, found ", length->ToText(),
                                     " and ", along.ToText()));
    }
    length = along;
    axes.push_back(axis);
  }
  if (!length->is_constant() || !Unrolls(n, body, length->value())) {
    return ScanAtRunTime(c, body, std::move(state), sequences, a, axes, *length);
  }
  const int64_t trips = length->value();
  if (trips < 1) return n.Error("shape", "expected sequences of a step at least, found none");
  Gathered scans(a.output_axes.size());
  for (int64_t t = 0; t < trips; ++t) {
    Ids inputs = state;
    for (size_t i = 0; i < sequences.size(); ++i) {
      std::vector<op::Dim> shape = c.Dims(sequences[i]);
      const int64_t at = a.input_backwards[i] != 0 ? trips - 1 - t : t;
      const ValueId step = c.Slice(sequences[i], axes[i], at, 1);
      shape.erase(shape.begin() + axes[i]);
      inputs.push_back(c.ReshapeTo(step, shape));
      TW_TRY(c.status());
    }
    TW_ASSIGN(const Ids out, Trip(n, body, inputs, results));
    for (size_t i = 0; i < carried; ++i) state[i] = out[i];
    for (size_t i = carried; i < results; ++i) scans.Add(i - carried, out[i]);
  }
  for (size_t i = carried; i < results; ++i) {
    const size_t k = i - carried;
    state.push_back(scans.Join(c, k, a.output_axes[k], a.output_backwards[k] != 0));
  }
  TW_TRY(c.status());
  return state;
}

// Opset 8: dimension 0 of everything is a batch, whose sequences are scanned one by one.
absl::StatusOr<Ids> ScanBatches(Composer& c, const pb::GraphProto& body, const Ids& state,
                                const Ids& sequences, const ScanAttrs& a) {
  const auto entry = [&](ValueId x, int64_t b) {
    if (!c.ok()) return kNone;
    std::vector<op::Dim> shape = c.Dims(x);
    const ValueId one = c.Slice(x, 0, b, 1);
    shape.erase(shape.begin());
    return c.ReshapeTo(one, shape);
  };
  const Ids& any = sequences.empty() ? state : sequences;
  int64_t batches =
      any.empty() || c.Rank(any[0]) < 1 ? 0 : c.Dims(any[0])[0].constant().value_or(0);
  for (const Ids* list : {&state, &sequences}) {
    for (ValueId id : *list) {
      if (c.Rank(id) < 1 || c.Dims(id)[0] != op::Dim(batches)) batches = 0;
    }
  }
  const bool open = !any.empty() && c.Rank(any[0]) > 0 && !c.Dims(any[0])[0].is_constant();
  if (batches < 1 || batches > kMaxTrips) {
    return c.node().Error(open ? "open_size" : "shape",
                          StrCat("expected 1 to ", kMaxTrips,
                                 " sequences in dimension 0 of all inputs, found others"));
  }
  Gathered all(state.size() + a.output_axes.size());
  for (int64_t b = 0; b < batches; ++b) {
    Ids one_state, one_sequence;
    for (ValueId id : state) one_state.push_back(entry(id, b));
    for (ValueId id : sequences) one_sequence.push_back(entry(id, b));
    TW_TRY(c.status());
    TW_ASSIGN(const Ids out, ScanOnce(c, body, one_state, one_sequence, a));
    for (size_t i = 0; i < out.size(); ++i) all.Add(i, out[i]);
  }
  Ids results;
  for (size_t i = 0; i < state.size() + a.output_axes.size(); ++i) {
    results.push_back(all.Join(c, i, 0, false));
  }
  TW_TRY(c.status());
  return results;
}

}  // namespace

Result ImportScan(NodeReader& n) {
  Composer c(n);
  TW_ASSIGN(const pb::GraphProto* body, BodyOf(n, "body"));
  TW_ASSIGN(const int64_t count, n.Int("num_scan_inputs", 0));
  const bool batched = n.importer().opset() < 9;
  if (batched && n.HasInput(0)) {
    return n.Error("inputs", "expected sequences of full length, found sequence_lens");
  }
  const int begin = batched ? 1 : 0, total = n.num_inputs() - begin;
  const int64_t carried = total - count, gathered = body->output_size() - carried;
  if (count < 1 || carried < 0 || gathered < 0) {
    return n.Error("attribute", StrCat("expected num_scan_inputs in 1 to ", total,
                                       " and as many states as results, found ", count));
  }
  Ids state, sequences;
  for (int i = 0; i < total; ++i) (i < carried ? state : sequences).push_back(c.Input(begin + i));
  TW_TRY(c.status());
  ScanAttrs a;
  const size_t ins = static_cast<size_t>(count), outs = static_cast<size_t>(gathered);
  TW_ASSIGN(a.input_axes, OnePer(n, batched ? "" : "scan_input_axes", ins));
  TW_ASSIGN(a.output_axes, OnePer(n, batched ? "" : "scan_output_axes", outs));
  TW_ASSIGN(a.input_backwards, OnePer(n, batched ? "directions" : "scan_input_directions", ins));
  TW_ASSIGN(a.output_backwards, OnePer(n, batched ? "" : "scan_output_directions", outs));
  TW_ASSIGN(const Ids results, batched ? ScanBatches(c, *body, state, sequences, a)
                                       : ScanOnce(c, *body, state, sequences, a));
  if (results.empty()) return n.Error("outputs", "expected a scan with results, found none");
  return BindAll(n, results);
}

}  // namespace tilewright::graph::onnx
