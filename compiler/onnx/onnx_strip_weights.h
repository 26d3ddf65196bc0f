// A model without its weights: the same graph and shapes, so that it has the same tasks, with
// made-up numbers in place of everything that was learned. For tuning on a server that must not
// have the weights. Pure function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "deploy/support/status.h"

namespace tilewright::graph {

struct StrippedModel {
  std::string onnx;
  int64_t replaced_tensors = 0;
  int64_t replaced_values = 0;
  int64_t kept_values = 0;  // single numbers, and what decides about shapes
};

// Replaced: every floating-point or 8-bit tensor of more than one element, as initializer or
// constant, in subgraphs too, unless an operator takes shapes or bounds from it (Resize, Upsample,
// Clip, Pad, Range, Slice, Tile, Expand, Reshape) or it holds zero points. 32- and 64-bit integers
// hold shapes, axes and indices: tables of more than 64 become zeros, but for positions in equal
// steps. Data in other files is left
// out; texts for people and training information go, too. The made-up numbers depend on `seed`, the
// tensor's place and which tensors before it are equal to it (so that equal weights stay one weight
// of the network, others do not become one), and lie in (0, 1), so that variances and divisors stay
// sound; bytes lie in 1 .. 100.
// invalid_argument: graph.onnx.parse; graph.onnx.strip for functions and sparse tensors.
absl::StatusOr<StrippedModel> StripWeights(std::string_view onnx, uint64_t seed);

}  // namespace tilewright::graph
