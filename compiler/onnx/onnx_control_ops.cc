// If. A constant condition decides at import. A run computes the way that it takes where the ways
// cost something and the device runs loops (onnx_branches.h), else both: operators have no side
// effects, so what is computed in vain changes nothing but the time.
#include <algorithm>

#include "compiler/onnx/onnx_branches.h"
#include "compiler/onnx/onnx_loops.h"
#include "compiler/onnx/onnx_sequences.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph::onnx {
namespace {

using support::StrCat;
using Ids = std::vector<ValueId>;

// Output `output` of an If whose branches make different sizes: a run finds them.
ValueId ChosenOfSizes(Composer& c, ValueId condition, ValueId a, ValueId b, int output) {
  const std::vector<op::Dim> of_a = c.Dims(a), of_b = c.Dims(b);
  std::vector<ValueId> sizes;
  std::vector<Composer::SizeBound> bounds(of_a.size());
  for (size_t d = 0; d < of_a.size(); ++d) {
    const ValueId size =
        c.Op("where", {condition, c.SizeOf(of_a[d], ir::kI64), c.SizeOf(of_b[d], ir::kI64)});
    sizes.push_back(c.Reshape(size, {1}));
    if (of_a[d] == of_b[d]) {
      bounds[d].known = of_a[d];
      continue;
    }
    const std::optional<int64_t> most_a = c.Most(of_a[d]), most_b = c.Most(of_b[d]);
    if (!most_a || !most_b) {
      return c.Fail("open_size", StrCat("expected ranges of the sizes of both ways", kGiveNumbers));
    }
    bounds[d].most = std::max<int64_t>({1, *most_a, *most_b});
    a = Widened(c, a, static_cast<int64_t>(d), *bounds[d].most);
    b = Widened(c, b, static_cast<int64_t>(d), *bounds[d].most);
  }
  const std::vector<op::Dim> found = c.FoundShape(c.Concat(std::move(sizes), 0), bounds, output);
  ValueId chosen = c.Op("where", {condition, a, b});
  for (size_t d = 0; c.ok() && d < found.size(); ++d) {
    if (of_a[d] != of_b[d]) chosen = c.Slice(chosen, static_cast<int64_t>(d), 0, found[d]);
  }
  return chosen;
}

// Output `output` of an If: `a` where the condition holds, else `b`.
ValueId Chosen(Composer& c, ValueId condition, ValueId a, ValueId b, int output) {
  if (a == b) return a;
  Importer& importer = c.node().importer();
  if (importer.ContainerOf(a) != nullptr || importer.ContainerOf(b) != nullptr) {
    return ChosenSequence(
        c, a, b,
        [&](ValueId one, ValueId other) { return Chosen(c, condition, one, other, output); },
        output);
  }
  const bool sizes_differ = c.ok() && c.TypeOf(a).dtype == c.TypeOf(b).dtype &&
                            c.Rank(a) == c.Rank(b) && c.Dims(a) != c.Dims(b);
  if (sizes_differ) return ChosenOfSizes(c, condition, a, b, output);
  if (c.ok() && c.TypeOf(a) != c.TypeOf(b)) {
    return c.Fail(
        "shape", StrCat("expected results of one type and shape from both ways where the condition "
                        "is only known when the model runs, found ",
                        op::ToText(c.TypeOf(a)), " and ", op::ToText(c.TypeOf(b))));
  }
  return c.Op("where", {condition, a, b});
}

// What was expected from number `first` on counts only where the condition holds. Sizes that a run
// finds are found either way.
void ExpectOnlyIf(Composer& c, ValueId condition, size_t first) {
  std::vector<Importer::Expectation>& all = c.node().importer().expectations();
  for (size_t i = first; c.ok() && i < all.size(); ++i) {
    const std::vector<op::Dim>& expected = all[i].check.expected;
    if (!std::ranges::all_of(expected, &op::Dim::is_constant)) continue;
    all[i].found = c.Op("where", {condition, all[i].found, c.SizesOf(expected)});
  }
}

// What both ways make: the results of the one that counts, or of both.
absl::StatusOr<std::pair<Ids, Ids>> BothWays(Composer& c, ValueId condition,
                                             const pb::GraphProto& then_body,
                                             const pb::GraphProto& else_body) {
  Importer& importer = c.node().importer();
  const Importer::Noted before = importer.noted();
  const Importer::BodyWork work = importer.body_work();
  const SizeRanges sizes = importer.size_ranges();
  SampledWay yes{then_body, {}, importer.num_nodes()}, no{else_body};
  TW_ASSIGN(yes.results, importer.ImportBody(then_body, {}));
  yes.end_node = no.first_node = importer.num_nodes();
  ExpectOnlyIf(c, condition, before.expectations.size());
  const size_t between = importer.expectations().size();
  TW_ASSIGN(no.results, importer.ImportBody(else_body, {}));
  no.end_node = importer.num_nodes();
  if (importer.expectations().size() > between) {
    ExpectOnlyIf(c, c.Op("not", {condition}), between);
  }
  // Subgraphs in subgraphs are imported once: each level would double them.
  if (!importer.has_loops() || importer.in_subgraph()) return std::pair(yes.results, no.results);
  const Importer::Noted sampled = importer.noted();
  const bool loops[] = {IsWorthALoop(importer, yes, sizes), IsWorthALoop(importer, no, sizes)};
  if (!loops[0] && !loops[1]) return std::pair(yes.results, no.results);
  importer.TakeBack(before);
  importer.set_body_work(work);  // once more, but only here: not in other subgraphs
  Composer once(c.node());       // what fails here is there in another way
  auto way = [&](const SampledWay& w, bool loop, ValueId taken) -> absl::StatusOr<Ids> {
    if (loop) return ComputeOnlyIf(once, taken, w);
    const size_t first = importer.expectations().size();
    TW_ASSIGN(Ids results, importer.ImportBody(w.body, {}));
    ExpectOnlyIf(once, taken, first);
    return results;
  };
  const absl::StatusOr<Ids> first = way(yes, loops[0], condition);
  const absl::StatusOr<Ids> second = way(no, loops[1], once.Op("not", {condition}));
  if (first.ok() && second.ok() && once.ok()) return std::pair(*first, *second);
  importer.TakeBack(sampled);
  return std::pair(yes.results, no.results);
}

}  // namespace

ValueId AsFlag(Composer& c, ValueId condition) {
  const op::TensorType type = c.TypeOf(condition);
  if (c.ok() && (!type.dtype.is_bool() || !type.fixed() || type.elements() != 1)) {
    return c.Fail("type", StrCat("expected one bool as condition, found ", op::ToText(type)));
  }
  return c.Reshape(condition, {});
}

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
  TW_ASSIGN(auto ways, BothWays(c, condition, *then_body, *else_body));
  const auto& [yes, no] = ways;
  if (yes.size() != no.size()) {
    return n.Error("outputs", "expected branches with the same number of outputs, found others");
  }
  Ids results;  // of the outputs that the node has: branches may have more
  for (size_t i = 0; i < yes.size() && static_cast<int>(i) < n.num_outputs(); ++i) {
    results.push_back(Chosen(c, condition, yes[i], no[i], static_cast<int>(i)));
    TW_TRY(c.status());
  }
  return BindAll(n, results);
}

}  // namespace tilewright::graph::onnx
