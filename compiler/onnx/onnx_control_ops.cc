// If, Loop and Scan. A module has no branches and no loops of its own: of If both branches are
// computed unless the condition is a constant, and loops are unrolled. Operators have no side
// effects, so what is computed in vain changes nothing but the time.
#include <algorithm>
#include <functional>

#include "compiler/onnx/onnx_composer.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;
using Ids = std::vector<ValueId>;

constexpr int64_t kMaxTrips = 1024;

// `a` where the condition holds, else `b`.
ValueId Chosen(Composer& c, ValueId condition, ValueId a, ValueId b) {
  if (a == b) return a;
  if (c.ok() && c.TypeOf(a) != c.TypeOf(b)) {
    return c.Fail(
        "shape", StrCat("expected results of one type and shape from both ways where the condition "
                        "is only known when the model runs, found ",
                        op::ToText(c.TypeOf(a)), " and ", op::ToText(c.TypeOf(b))));
  }
  return c.Op("where", {condition, a, b});
}

ValueId AsFlag(Composer& c, ValueId condition) {
  const op::TensorType type = c.TypeOf(condition);
  if (c.ok() && (!type.dtype.is_bool() || !type.fixed() || type.elements() != 1)) {
    return c.Fail("type", StrCat("expected one bool as condition, found ", op::ToText(type)));
  }
  return c.Reshape(condition, {});
}

// What was expected from number `first` on counts only where the condition holds. Sizes that a run
// finds are found either way.
void ExpectOnlyIf(Composer& c, ValueId condition, size_t first) {
  std::vector<Importer::Expectation>& all = c.node().importer().expectations();
  for (size_t i = first; c.ok() && i < all.size(); ++i) {
    const std::vector<op::Dim>& expected = all[i].check.expected;
    if (!std::ranges::all_of(expected, &op::Dim::is_constant)) continue;
    std::vector<double> numbers;
    for (const op::Dim& dim : expected) numbers.push_back(static_cast<double>(dim.value()));
    const ValueId as_expected =
        c.Constant(ir::kI64, {static_cast<int64_t>(expected.size())}, std::move(numbers));
    all[i].found = c.Op("where", {condition, all[i].found, as_expected});
  }
}

// How many of these flags hold.
ValueId HowMany(Composer& c, Ids flags) {
  for (ValueId& flag : flags) flag = c.Reshape(c.Cast(flag, ir::kI64), {1});
  return c.Reduce("sum", c.Concat(std::move(flags), 0), {0}, false);
}

// ------------------------------------------------------------ loops

// How a loop ends: after this number of trips, or earlier by its condition.
struct Trips {
  int64_t count = 0;
  bool more = false;  // the model allows more: the condition has to end the loop
  // The module computes the condition, and after it values stay what they are. Results with an
  // entry per trip have as many as a run finds.
  bool guarded = false;
  bool stated = false;  // the number is what the model states: a run has to confirm it
};

// The first dimension of the results that the trips of a loop make, if the model states one.
std::optional<int64_t> StatedTrips(NodeReader& n, int first_scan) {
  for (int i = first_scan; i < n.num_outputs(); ++i) {
    const std::optional<std::vector<int64_t>> shape = n.StatedShape(i);
    if (shape && !shape->empty()) return (*shape)[0];
  }
  return std::nullopt;
}

absl::Status TooManyTrips(NodeReader& n) {
  return n.Error("too_large",
                 StrCat("expected at most ", kMaxTrips, " trips, which are unrolled, found more"));
}

absl::StatusOr<Trips> TripsOf(NodeReader& n, bool fixed_condition, int first_scan) {
  std::optional<double> most;
  if (n.HasInput(0)) {
    TW_ASSIGN(const ValueId id, n.Input(0));
    most = n.importer().ConstantScalar(id);
  }
  const std::optional<int64_t> stated = StatedTrips(n, first_scan);
  const bool scans = first_scan < n.num_outputs();
  const double limit = static_cast<double>(kMaxTrips);
  if (fixed_condition && (most || !n.HasInput(0))) {
    const bool more = !most || *most > limit;
    return Trips{more ? kMaxTrips : std::max<int64_t>(0, static_cast<int64_t>(*most)), more};
  }
  std::optional<double> count;
  if (stated) count = static_cast<double>(*stated);
  const bool guarded = !count;
  if (guarded && !most && scans) {
    const absl::StatusOr<op::Dim> trips =
        n.importer().FoundSize(n.output_name(first_scan), 0, std::nullopt);
    if (!trips.ok()) return n.Error("size_bound", support::Detail(trips.status()));
    most = static_cast<double>(n.importer().Bound(*trips, true).value_or(kMaxTrips + 1));
  }
  if (guarded) count = most;
  if (!count) {
    return n.Error("dynamic",
                   "expected a constant largest number of trips, or a result with one entry per "
                   "trip, found neither");
  }
  if (*count > limit) return TooManyTrips(n);
  return Trips{std::max<int64_t>(0, static_cast<int64_t>(*count)), false, guarded, !guarded};
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

// One trip: the subgraph's results, at least `least` of them.
absl::StatusOr<Ids> Trip(NodeReader& n, const pb::GraphProto& body, const Ids& inputs,
                         size_t results) {
  TW_ASSIGN(Ids out, n.importer().ImportBody(body, inputs));
  if (out.size() == results) return out;
  return n.Error("outputs",
                 StrCat("expected a subgraph with ", results, " outputs, found ", out.size()));
}

}  // namespace

absl::StatusOr<const pb::GraphProto*> BodyOf(NodeReader& n, std::string_view name) {
  const pb::AttributeProto* a = n.Find(name);
  if (a != nullptr && a->has_g()) return &a->g();
  return n.Error("attribute", StrCat("expected a graph as attribute ", name, ", found none"));
}

Result BindAll(NodeReader& n, const Ids& results) {
  if (static_cast<int>(results.size()) < n.num_outputs()) {
    return n.Error("outputs", StrCat("expected at most ", results.size(), " outputs, found ",
                                     n.num_outputs()));
  }
  for (int i = 1; i < n.num_outputs(); ++i) TW_TRY(n.BindOutput(i, results[i]));
  return results[0];
}

Result ImportIf(NodeReader& n) {
  Composer c(n);
  const ValueId condition = AsFlag(c, c.Input(0));
  TW_TRY(c.status());
  TW_ASSIGN(const pb::GraphProto* then_body, BodyOf(n, "then_branch"));
  TW_ASSIGN(const pb::GraphProto* else_body, BodyOf(n, "else_branch"));
  if (const std::optional<double> known = n.importer().ConstantScalar(condition)) {
    TW_ASSIGN(const Ids results,
              n.importer().ImportBody(*known != 0 ? *then_body : *else_body, {}));
    return BindAll(n, results);
  }
  const size_t before = n.importer().expectations().size();
  TW_ASSIGN(const Ids yes, n.importer().ImportBody(*then_body, {}));
  ExpectOnlyIf(c, condition, before);
  const size_t between = n.importer().expectations().size();
  TW_ASSIGN(const Ids no, n.importer().ImportBody(*else_body, {}));
  if (n.importer().expectations().size() > between) {
    ExpectOnlyIf(c, c.Op("not", {condition}), between);
  }
  if (yes.size() != no.size()) {
    return n.Error("outputs", "expected branches with the same number of outputs, found others");
  }
  Ids results;
  for (size_t i = 0; i < yes.size(); ++i) {
    results.push_back(Chosen(c, condition, yes[i], no[i]));
    TW_TRY(c.status());
  }
  return BindAll(n, results);
}

Result ImportLoop(NodeReader& n) {
  Composer c(n);
  TW_ASSIGN(const pb::GraphProto* body, BodyOf(n, "body"));
  Ids state;
  for (int i = 2; i < n.num_inputs(); ++i) state.push_back(c.Input(i));
  ValueId going = n.HasInput(1) ? AsFlag(c, c.Input(1)) : c.Scalar(1, ir::kBool);
  TW_TRY(c.status());
  const size_t carried = state.size(), results = static_cast<size_t>(body->output_size());
  if (results < carried + 1) {
    return n.Error("outputs", StrCat("expected a subgraph with ", carried + 1,
                                     " outputs at least, found ", results));
  }
  const auto trip = [&](int64_t number) -> absl::StatusOr<Ids> {
    Ids inputs = {c.Scalar(static_cast<double>(number), ir::kI64), going};
    inputs.insert(inputs.end(), state.begin(), state.end());
    return Trip(n, *body, inputs, results);
  };
  const auto holds = [&] { return n.importer().ConstantScalar(going); };
  Gathered scans(results - 1 - carried);
  const size_t before = n.importer().expectations().size();
  // The first trip also tells whether the condition is known, and the types of an empty result.
  TW_ASSIGN(const Ids sample, trip(0));
  const bool fixed = holds() && n.importer().ConstantScalar(sample[0]);
  TW_ASSIGN(const Trips trips, TripsOf(n, fixed, static_cast<int>(carried)));
  int64_t done = 0;
  Ids ran;  // per trip, where a run finds their number
  const bool limited = trips.guarded && n.IsDynamic(0);
  const auto below_limit = [&](int64_t trip, ValueId flag) {
    if (!limited) return flag;
    const ValueId limit = c.Reshape(c.Cast(c.Input(0), ir::kI64), {});
    return c.Op("and", {flag, c.Op("less", {c.Number(trip), limit})});
  };
  going = below_limit(0, going);
  Ids alive = {going};  // per trip, and once more: whether the loop gets that far
  if (trips.count == 0 || (holds() && *holds() == 0)) {
    n.importer().expectations().resize(before);  // the first trip is only a sample
  }
  while (done < trips.count && !(holds() && *holds() == 0)) {
    Ids out = sample;
    size_t first = before;
    if (done > 0) {
      first = n.importer().expectations().size();
      TW_ASSIGN(out, trip(done));
    }
    if (trips.guarded) {
      ExpectOnlyIf(c, going, first);
      ran.push_back(going);
    }
    for (size_t i = 0; i < carried; ++i) {
      state[i] = trips.guarded ? Chosen(c, going, out[i + 1], state[i]) : out[i + 1];
    }
    for (size_t i = carried; i + 1 < results; ++i) scans.Add(i - carried, out[i + 1]);
    const ValueId next = below_limit(done + 1, AsFlag(c, out[0]));
    going = trips.guarded ? c.Op("and", {going, next}) : next;
    if (trips.stated) alive.push_back(c.Op("and", {alive.back(), next}));
    TW_TRY(c.status());
    ++done;
    if (fixed && !limited && !holds()) {
      return n.Error("dynamic",
                     "expected a condition that is known in every trip, found one that is only "
                     "known when the model runs");
    }
  }
  if (trips.more && *holds() != 0) return TooManyTrips(n);
  if (trips.stated) {
    ValueId made = HowMany(c, alive);
    if (n.HasInput(0)) made = c.Op("min", {made, c.Reshape(c.Cast(c.Input(0), ir::kI64), {})});
    c.ExpectSizes(made, {trips.count});
  }
  const ValueId found = trips.guarded && done > 0 ? HowMany(c, ran) : kNone;
  for (size_t i = carried; i + 1 < results; ++i) {
    if (done > 0) {
      ValueId joined = scans.Join(c, i - carried, 0, false);
      if (found != kNone) {
        joined = c.Slice(joined, 0, 0, c.FoundSize(found, 0, done, static_cast<int>(i)));
      }
      state.push_back(joined);
      continue;
    }
    op::TensorType none = c.TypeOf(sample[i + 1]);
    none.shape.insert(none.shape.begin(), 0);
    if (!none.fixed()) {
      return n.Error("open_size", StrCat("expected a loop of at least one trip, found results ",
                                         op::ToText(none), kGiveNumbers));
    }
    state.push_back(c.Constant(none.dtype, none.sizes(), {}));
  }
  TW_TRY(c.status());
  if (state.empty()) return n.Error("outputs", "expected a loop with results, found none");
  return BindAll(n, state);
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

// The scan of these states and sequences; the states at the end, then what the trips gave.
absl::StatusOr<Ids> ScanOnce(Composer& c, const pb::GraphProto& body, Ids state,
                             const Ids& sequences, const ScanAttrs& a) {
  NodeReader& n = c.node();
  const size_t carried = state.size();
  const size_t results = carried + a.output_axes.size();
  int64_t trips = -1;
  std::vector<int64_t> axes;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const int64_t rank = c.Rank(sequences[i]);
    const int64_t axis = a.input_axes[i] < 0 ? a.input_axes[i] + rank : a.input_axes[i];
    if (axis < 0 || axis >= rank) return n.Error("axis", "expected axes of the scanned inputs");
    const op::Dim along = c.Dims(sequences[i])[axis];
    if (!along.is_constant()) {
      return n.Error("open_size", StrCat("expected sequences of fixed length, found ",
                                         op::ToText(c.TypeOf(sequences[i])), kGiveNumbers));
    }
    const int64_t length = along.value();
    if (trips >= 0 && trips != length) {
      return n.Error("shape",
                     StrCat("expected sequences of one length, found ", trips, " and ", length));
    }
    trips = length;
    axes.push_back(axis);
  }
  if (trips < 1 || trips > kMaxTrips) {
    return n.Error("too_large", StrCat("expected sequences of 1 to ", kMaxTrips,
                                       " steps, which are unrolled, found ", trips));
  }
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
