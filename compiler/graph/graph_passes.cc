#include "compiler/graph/graph_passes.h"

#include <algorithm>
#include <initializer_list>
#include <set>

#include "compiler/graph/found_sizes.h"
#include "compiler/graph/loops.h"
#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

using support::StrCat;

constexpr bool kAnySizes = true;
constexpr GraphPass kPasses[] = {
    {"infer_types", InferTypes, GraphPass::Use::kRequired, kAnySizes},
    // Before constants are folded: weights are still the bytes that the model has.
    {"quantized_moves", QuantizedMoves, GraphPass::Use::kStandard, kAnySizes},
    {"integer_layers", IntegerLayers, GraphPass::Use::kStandard, kAnySizes},
    {"fold_requantize", FoldRequantize, GraphPass::Use::kStandard, kAnySizes},
    {"requantize_sums", RequantizeSums, GraphPass::Use::kStandard, kAnySizes},
    {"pack_weights", PackWeights, GraphPass::Use::kStandard, kAnySizes},
    {"share_heads", ShareHeads, GraphPass::Use::kStandard, kAnySizes},
    {"half_products", HalfProducts, GraphPass::Use::kStandard, kAnySizes},
    {"drop_roundings", DropRoundings, GraphPass::Use::kStandard, kAnySizes},
    {"fold_constants", FoldConstants, GraphPass::Use::kStandard, kAnySizes},
    {"simplify_algebra", SimplifyAlgebra, GraphPass::Use::kStandard, kAnySizes},
    {"eliminate_common", EliminateCommon, GraphPass::Use::kStandard, kAnySizes},
    {"fold_batch_norm", FoldBatchNorm, GraphPass::Use::kStandard, kAnySizes},
    {"fold_scales", FoldScales, GraphPass::Use::kStandard, kAnySizes},
    {"split_bias", SplitBias, GraphPass::Use::kStandard, kAnySizes},
    {"simplify_algebra", SimplifyAlgebra, GraphPass::Use::kStandard, kAnySizes},
    {"fuse_norms", FuseNorms, GraphPass::Use::kStandard, kAnySizes},
    {"fuse_attention", FuseAttention, GraphPass::Use::kStandard, kAnySizes},
    {"join_products", JoinProducts},
    {"crop_kernels", CropKernels, GraphPass::Use::kStandard, kAnySizes},
    {"separate_maxima", SeparateMaxima, GraphPass::Use::kStandard, kAnySizes},
    {"block_layouts", BlockLayouts, GraphPass::Use::kOptional, kAnySizes},
    {"stage_pools", StagePools},
    {"flatten_images", FlattenImages, GraphPass::Use::kStandard, kAnySizes},
    {"clean", Clean, GraphPass::Use::kStandard, kAnySizes},
    {"layout_weights", LayoutWeights, GraphPass::Use::kStandard, kAnySizes},
    {"materialize_outputs", MaterializeOutputs, GraphPass::Use::kRequired, kAnySizes},
    {"view_moves", ViewMoves, GraphPass::Use::kStandard, kAnySizes},
    {"fuse_operators", FuseOperators, GraphPass::Use::kStandard, kAnySizes},
    {"wrap_operators", WrapOperators, GraphPass::Use::kRequired, kAnySizes},
    {"mark_cold_weights", MarkColdWeights, GraphPass::Use::kStandard, kAnySizes},
};

absl::Status Dump(const std::string& dir, size_t number, std::string_view pass, const Graph& g) {
  if (dir.empty()) return absl::OkStatus();
  TW_TRY(support::MakeDirs(dir));
  const std::string file = StrCat(number < 10 ? "0" : "", number, "_", pass, ".graph");
  return support::WriteFileAtomic(support::PathJoin(dir, file), Print(g));
}

// `names` may only hold passes of these uses.
absl::Status CheckNames(const std::vector<std::string>& names,
                        std::initializer_list<GraphPass::Use> uses) {
  for (const std::string& name : names) {
    std::set<std::string_view> known;
    bool exists = false;
    for (const GraphPass& pass : kPasses) {
      exists = exists || pass.name == name;
      if (std::find(uses.begin(), uses.end(), pass.use) != uses.end()) known.insert(pass.name);
    }
    if (known.count(name) > 0) continue;
    return support::InvalidArgument(
        exists ? "graph.pass.fixed" : "graph.pass.unknown",
        StrCat("expected one of ", support::Join(known, ", "), ", found ", name));
  }
  return absl::OkStatus();
}

bool Runs(const GraphPass& pass, const GraphPassContext& ctx) {
  if (IsNamed(ctx.disabled, pass.name)) return false;
  return pass.use != GraphPass::Use::kOptional || IsNamed(ctx.enabled, pass.name);
}

std::vector<std::string> NodeNames(const Graph& g) {
  std::vector<std::string> names;
  for (const Node& node : g.nodes) names.push_back(node.name);
  return names;
}

}  // namespace

std::span<const GraphPass> GraphPasses() { return kPasses; }

bool IsNamed(const std::vector<std::string>& names, std::string_view pass) {
  return std::find(names.begin(), names.end(), pass) != names.end();
}

absl::StatusOr<Graph> InferTypes(Graph g, const GraphPassContext&) {
  for (Node& node : g.nodes) {
    const op::OpSpec* spec = op::FindOp(node.op);
    if (spec == nullptr) continue;  // fused bodies carry their types; Verify reports unknown ones
    std::vector<op::TensorType> types;
    for (ValueId id : node.inputs) types.push_back(g.values[id].type);
    op::DimEqualities equal;  // hold at the sizes that the graph is used at
    absl::StatusOr<op::TensorTypes> results = op::InferTypes(*spec, types, node.attrs, &equal);
    if (!results.ok()) return support::WithContext(results.status(), node.name);
    for (size_t i = 0; i < node.outputs.size() && i < results->size(); ++i) {
      g.values[node.outputs[i]].type = (*results)[i];
    }
    node.attrs = op::SpecializeAttrs(*spec, node.attrs, results->front());
  }
  return g;
}

absl::StatusOr<Graph> RunGraphPasses(Graph g, const GraphPassContext& ctx) {
  TW_TRY(Verify(g));
  TW_TRY(Dump(ctx.dump_dir, 0, "import", g));
  TW_TRY(CheckNames(ctx.disabled, {GraphPass::Use::kStandard, GraphPass::Use::kOptional}));
  TW_TRY(CheckNames(ctx.enabled, {GraphPass::Use::kOptional}));
  const bool open = IsSymbolic(g);
  if (open) {
    TW_ASSIGN(g, InferShapes(std::move(g)));
  }
  size_t number = 0;
  const auto sources = g.sources;
  const std::vector<SizeCheck> checks = g.checks;
  const std::map<std::string, SizeRange> size_ranges = g.size_ranges;
  const std::vector<SizeEquality> equal_sizes = g.equal_sizes;
  for (const GraphPass& pass : GraphPasses()) {
    if (!Runs(pass, ctx) || (open && !pass.open)) continue;
    const bool watched = ctx.changed != nullptr && pass.use == GraphPass::Use::kOptional;
    const std::vector<std::string> before = watched ? NodeNames(g) : std::vector<std::string>();
    absl::StatusOr<Graph> result = pass.run(std::move(g), ctx);
    if (!result.ok()) {
      return support::WithContext(result.status(), StrCat("graph pass ", pass.name));
    }
    g = *std::move(result);
    if (watched && NodeNames(g) != before) ctx.changed->emplace_back(pass.name);
    g.sources = sources;
    g.checks = checks;
    g.size_ranges = size_ranges;
    g.equal_sizes = equal_sizes;
    g = OrderLoops(OrderFound(std::move(g)));
    const absl::Status verified = Verify(g);
    if (!verified.ok()) {
      return support::Internal("graph.pass.invalid_result",
                               StrCat("pass ", pass.name, ": ", support::StatusText(verified)));
    }
    TW_TRY(Dump(ctx.dump_dir, ++number, pass.name, g));
  }
  return g;
}

}  // namespace tilewright::graph
