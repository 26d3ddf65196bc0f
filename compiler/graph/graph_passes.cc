#include "compiler/graph/graph_passes.h"

#include "deploy/support/file.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::graph {
namespace {

using support::StrCat;

constexpr GraphPass kPasses[] = {
    {"infer_types", InferTypes},
    {"fold_constants", FoldConstants},
    {"fold_batch_norm", FoldBatchNorm},
    {"split_bias", SplitBias},
    {"clean", Clean},
    {"layout_weights", LayoutWeights},
    {"materialize_outputs", MaterializeOutputs},
    {"fuse_operators", FuseOperators},
};

absl::Status Dump(const std::string& dir, size_t number, std::string_view pass, const Graph& g) {
  if (dir.empty()) return absl::OkStatus();
  TW_TRY(support::MakeDirs(dir));
  const std::string file = StrCat(number < 10 ? "0" : "", number, "_", pass, ".graph");
  return support::WriteFileAtomic(support::PathJoin(dir, file), Print(g));
}

}  // namespace

std::span<const GraphPass> GraphPasses() { return kPasses; }

absl::StatusOr<Graph> InferTypes(Graph g, const GraphPassContext&) {
  for (const Node& node : g.nodes) {
    const op::OpSpec* spec = op::FindOp(node.op);
    if (spec == nullptr) continue;  // fused bodies carry their types; Verify reports unknown ones
    std::vector<op::TensorType> types;
    for (ValueId id : node.inputs) types.push_back(g.values[id].type);
    absl::StatusOr<std::vector<op::TensorType>> results = op::InferTypes(*spec, types, node.attrs);
    if (!results.ok()) return support::WithContext(results.status(), node.name);
    for (size_t i = 0; i < node.outputs.size() && i < results->size(); ++i) {
      g.values[node.outputs[i]].type = (*results)[i];
    }
  }
  return g;
}

absl::StatusOr<Graph> RunGraphPasses(Graph g, const GraphPassContext& ctx) {
  TW_TRY(Verify(g));
  TW_TRY(Dump(ctx.dump_dir, 0, "import", g));
  size_t number = 0;
  for (const GraphPass& pass : GraphPasses()) {
    absl::StatusOr<Graph> result = pass.run(std::move(g), ctx);
    if (!result.ok()) {
      return support::WithContext(result.status(), StrCat("graph pass ", pass.name));
    }
    g = *std::move(result);
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
