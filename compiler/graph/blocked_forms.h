// The forms in which an image exists while its graph gets layouts of blocks (block_layouts.cc): as
// it was, in blocks of channels, as one block of all channels. Each is made once, on first demand.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"
#include "compiler/op/op.h"

namespace tilewright::graph {

class BlockedForms {
 protected:
  BlockedForms(Graph g, int64_t block) : g_(std::move(g)), block_(block) {}

  const std::vector<op::Dim>& ShapeOf(ValueId id) const { return g_.values[id].type.shape; }
  bool HasBlocked(ValueId id) const { return blocked_.count(id) > 0; }
  bool Divides(int64_t channels) const { return channels % block_ == 0; }
  int64_t Filled(int64_t channels) const { return (channels + block_ - 1) / block_ * block_; }
  static bool IsPixel(const std::vector<op::Dim>& s) {
    return s[2] == op::Dim(1) && s[3] == op::Dim(1);
  }

  // Appends a node; its result.
  absl::StatusOr<ValueId> Emit(const std::string& name, std::string_view op_name,
                               std::vector<ValueId> inputs, op::Attrs attrs);
  // In blocks of channels; zeros fill the last one.
  absl::StatusOr<ValueId> Pack(ValueId id);
  // All channels as one block, with zeros up to whole dot products.
  absl::StatusOr<ValueId> PackWhole(ValueId id);
  // In blocks of one channel: the same bytes.
  absl::StatusOr<ValueId> AsSingleChannels(ValueId id);

  // `id` now exists as `blocked`; its own form is computed when somebody asks.
  void Define(ValueId id, ValueId blocked) {
    blocked_[id] = blocked;
    plain_.insert(id);
  }
  // Computes the own form of a value that exists in blocks only; nothing for others.
  absl::Status Plain(ValueId id);
  // Makes `id` of what has its channels in order, those that fill the last block behind them.
  absl::Status WithoutFilled(ValueId id, ValueId ordered);

  // Notes what an elementwise operator makes of the channels that fill the last block. False where
  // that may be no finite number of a float: products with weights of zero would be none either.
  absl::StatusOr<bool> FillsFinite(const Node& node);
  // The same of an operator that moves its first operand's numbers, or makes means or maxima.
  void KeepFill(const Node& node);

  Graph g_;
  const int64_t block_;
  std::map<ValueId, ValueId> blocked_;  // value → its blocked form

 private:
  absl::StatusOr<ValueId> View(const std::string& name, ValueId id,
                               const std::vector<op::Dim>& shape);
  absl::StatusOr<ValueId> WithChannels(ValueId id, int64_t channels);
  // What the channels that fill the last block of an operand hold, if it is one number.
  absl::StatusOr<std::optional<double>> FillOf(ValueId id) const;

  std::map<ValueId, double> fills_;   // blocked → what fills its last block; others 0
  std::map<ValueId, ValueId> whole_;  // value → all its channels as one block
  std::set<ValueId> plain_;           // values whose own form nobody computes yet
};

}  // namespace tilewright::graph
