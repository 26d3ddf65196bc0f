// Scan. Short ones are unrolled; a run decides about the others (onnx_loops.h).
#include <utility>

#include "compiler/onnx/onnx_loops.h"
#include "compiler/onnx/onnx_unrolled_loops.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;
using Ids = std::vector<ValueId>;

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
  return c.MoveAxis(stack, 0, axis);
}

absl::StatusOr<Ids> ScanAtRunTime(Composer& c, const pb::GraphProto& body, Ids state,
                                  const Ids& sequences, const ScanAttrs& a,
                                  const std::vector<int64_t>& axes, const op::Dim& length) {
  const size_t carried = state.size(), results = carried + a.output_axes.size();
  const TripsOfLoop trips{c.SizeOf(length, ir::kI64), c.Scalar(1, ir::kBool)};
  const auto steps = [&](ValueId trip, const Ids& states) -> absl::StatusOr<Ids> {
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
  std::vector<LoopState> states;
  for (const ValueId init : state) states.push_back({.init = init});
  TW_ASSIGN(Ids made, LoopAtRunTime(c, trips, states, length, std::nullopt, steps));
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
