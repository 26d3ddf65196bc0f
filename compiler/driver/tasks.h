// Tasks: the unique fused kernels of a model. A task is the canonical text of its sub-graph (operators, attributes, types,
// shapes, layouts; names normalised); its hash is the SHA-256 of that text. Everything that tunes, builds, measures or
// replays a kernel starts from this text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"
#include "compiler/ir/ir.h"
#include "compiler/ir/target.h"

namespace tilewright::driver {

struct Task {
  std::string hash;                        // 64 hex digits
  std::string name;                        // human: "conv2d_bias_relu 1x4x84x84 → 1x32x20x20 k8s4"
  std::string text;                        // canonical
  int weight = 1;                          // uses in the model
  double flops = 0;
  int64_t bytes = 0;                       // compulsory traffic: inputs + constants + outputs
};
absl::StatusOr<std::vector<Task>> ExtractTasks(const graph::Graph& fused);   // in order of first use
absl::StatusOr<graph::Graph> ParseTask(std::string_view text);
// The unscheduled tensor-IR function of a task: parameters are inputs, constants, outputs in the sub-graph's order.
absl::StatusOr<ir::Function> TaskFunction(std::string_view task_text);
absl::StatusOr<ir::Function> TaskFunction(const graph::Graph& task);

// What a measurement of a task needs: seeded inputs and the expected outputs by op/reference.
struct TaskCheck {
  uint64_t seed;
  std::string expected_bytes;              // outputs concatenated, row-major
  double rtol, atol;                       // from type and reduction length
};
absl::StatusOr<TaskCheck> MakeTaskCheck(const Task& task, uint64_t seed);

}  // namespace tilewright::driver
