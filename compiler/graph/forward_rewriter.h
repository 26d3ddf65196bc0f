// A graph pass that goes through the nodes once, in order, and replaces some by others: the base of
// the passes on quantised values. Inside of compiler/graph. One object per run.
#pragma once

#include <deque>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"
#include "compiler/graph/rewrite_util.h"

namespace tilewright::graph {

class ForwardRewriter {
 public:
  ForwardRewriter(Graph g, int64_t max_known_bytes)
      : g_(std::move(g)), outputs_(OutputSet(g_)), max_known_bytes_(max_known_bytes) {}
  virtual ~ForwardRewriter() = default;
  absl::StatusOr<Graph> Run();

 protected:
  // True: nodes were added that compute what this one does, into its own outputs. Its operands are
  // those of the new graph.
  virtual absl::StatusOr<bool> Rewrite(const Node& node) = 0;

  const op::TensorType& TypeOf(ValueId id) const { return g_.values[id].type; }
  const std::string& NameOf(ValueId id) const { return g_.values[id].name; }
  // The node of the new graph that computes a value when it is an `op` (any where empty); null
  // else.
  const Node* Before(ValueId id, std::string_view op = "") const;
  // The value where it depends on constants only; nothing where it does not, or is too large.
  absl::StatusOr<std::optional<op::RefTensor>> Known(ValueId id) const;
  // Its one number.
  absl::StatusOr<std::optional<double>> KnownNumber(ValueId id) const;
  absl::StatusOr<ValueId> Emit(const std::string& name, std::string_view op,
                               std::vector<ValueId> inputs, op::Attrs attrs = {});
  // The same for what `node` computes, under its name.
  void Define(const Node& node, std::string_view op, std::vector<ValueId> inputs,
              op::Attrs attrs = {});
  // What `node` computes is the value `id`.
  void Same(const Node& node, ValueId id);

  Graph g_;  // its nodes are those that `Run` has not seen yet

 private:
  void Add(Node node);

  const std::set<ValueId> outputs_;
  const int64_t max_known_bytes_;
  std::deque<Node> done_;            // of the new graph; pointers to them stay good
  std::vector<const Node*> before_;  // by value
  std::vector<ValueId> same_;        // by value; -1 = itself
};

}  // namespace tilewright::graph
