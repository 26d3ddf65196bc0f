// The problem that a use of `attention` states, for attention*.cc only: attributes and sizes, read
// and checked. Plain values.
#pragma once

#include <vector>

#include "compiler/op/attention.h"

namespace tilewright::op {

struct AttentionLayouts {
  Layout q{kAttentionAxes}, k{kAttentionAxes}, v{kAttentionAxes}, y{kAttentionAxes};
};

struct AttentionProblem {
  AttentionLayouts layouts;
  Dim batch, tokens, keys;
  int64_t heads = 0, kv_heads = 0, head = 0, value = 0;  // value: elements of a head of v
  int64_t tile_rows = 0, tile_keys = 0;
  int64_t few_tokens = 0;  // up to so many, lanes lie along the elements of a head
  double scale = 1, softcap = 0;
  bool causal = false, dead_rows_zero = false;
  std::vector<Dim> mask;  // [] without one
  int64_t shared() const { return heads / kv_heads; }
};

// op.attention.attribute, op.attention.shape.
absl::StatusOr<AttentionProblem> AttentionProblemOf(std::span<const TensorType> inputs,
                                                    const Attrs& attrs, DimEqualities* equal);
// Adds the kernel: with `query_lanes`, rows lie side by side; else elements of a head do.
ir::Buffer AddAttention(const ComputeArgs& args, const AttentionProblem& problem, bool query_lanes);

}  // namespace tilewright::op
