// Tasks: the unique fused kernels of a model. A task is the canonical text of its sub-graph
// (operators, attributes, types, shapes, layouts; no names); its hash is the SHA-256 of that text.
// Everything that tunes, builds, measures or replays a kernel starts from this text, which may come
// over the network: hostile text gives errors. Pure functions and plain values; thread-safe. Links
// no LLVM.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"
#include "compiler/graph/graph_passes.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target/target.h"
#include "deploy/module/launch_names.h"
#include "deploy/module/manifest.h"

namespace tilewright::driver {

struct Task {
  std::string hash;         // 64 hex digits
  std::string name;         // human: "conv2d_add_relu 1x4x84x84 → 1x32x20x20 k8x8 s4"
  std::string label;        // ExtractTasks: unique in the model, "t0-conv2d-add-relu"
  std::string text;         // canonical
  bool open_sizes = false;  // some dimension is an expression: it has no flops, bytes, measurement
  std::string library;      // whose function computes it; empty: a kernel of the compiler does
  int weight = 1;           // uses in the model
  // Of what its sums or products are made: "float32"; "int8" for products of bytes, whatever their
  // sums are. Decides which of a machine's peaks counts.
  std::string data_type;
  double flops = 0;
  int64_t bytes = 0;                      // compulsory traffic: inputs + constants + outputs
  std::vector<module::LaunchNames> uses;  // ExtractTasks: the launches that the model makes of it
};
std::string TaskHash(std::string_view text);
// What graph passes need to know of a target: its lanes, and how many weights its caches hold.
graph::GraphPassContext PassContext(const target::Target& target);
// REQUIRES for these: a graph that FuseOperators made, and a task's own graph.
absl::StatusOr<std::vector<Task>> ExtractTasks(const graph::Graph& fused);  // in order of first use
// The same of a model's graphs at several sizes, each task once for all of them. `of_node[g][n]` is
// the position of the task of node n of graph g; -1 for views.
struct ModelTasks {
  std::vector<Task> tasks;
  std::vector<std::vector<int>> of_node;
};
absl::StatusOr<ModelTasks> ExtractModelTasks(std::span<const graph::Graph* const> graphs);
Task DescribeTask(const graph::Graph& task);
// driver.task.text: the text must be canonical, so that equal tasks have equal hashes.
absl::StatusOr<graph::Graph> ParseTask(std::string_view text);
absl::StatusOr<Task> MakeTask(std::string_view text);
// The function of a library that computes a task; nullopt for tasks that kernels compute.
struct LibraryCall {
  std::string library, function, attributes;
};
std::optional<LibraryCall> LibraryCallOf(const graph::Graph& task);
// driver.task.open_size where a dimension is an expression: such a task is compiled, not measured.
absl::Status RequireFixed(const graph::Graph& task);
// The unscheduled tensor-IR function of a task: parameters are inputs, constants, outputs in the
// sub-graph's order. An anchor (convolution, reduction, …) is a block of its own; every chain of
// injective operators around it is composed into one block. driver.task.*
absl::StatusOr<ir::Function> TaskFunction(std::string_view task_text);
absl::StatusOr<ir::Function> TaskFunction(const graph::Graph& task);
// The same by each algorithm that the task's operators have (op::VariantsOf): "direct" first, which
// is TaskFunction's. What a task's schedules start from.
absl::StatusOr<std::vector<schedule::Variant>> TaskVariants(std::string_view task_text);
absl::StatusOr<std::vector<schedule::Variant>> TaskVariants(const graph::Graph& task);
// By how much each of them, but "direct", widens the tolerances of the task's check.
std::map<std::string, double> VariantTolerances(const graph::Graph& task);
// How far results of the task's products may be off in addition to their check's tolerances, on a
// machine that rounds factors of 32 bits (Machine::is_inexact); 0 elsewhere.
double RoundedProductError(const graph::Graph& task, const target::Machine& machine);

// What a measurement of a task needs: seeded inputs and the expected outputs by op::Reference.
struct TaskCheck {
  uint64_t seed = 0;
  std::string expected_bytes;  // outputs concatenated, row-major
  double rtol = 0, atol = 0;   // from type and reduction length
};
absl::StatusOr<TaskCheck> MakeTaskCheck(const Task& task, uint64_t seed);

// One operand of a measured task: agents make the values from (seed, distribution), so that neither
// inputs nor weights travel.
struct TaskInput {
  op::TensorType type;
  bool weight = false;
  bool cold = false;  // a weight that comes from memory at every call
  uint64_t seed = 0;
  module::Distribution distribution;
};
absl::StatusOr<std::vector<TaskInput>> TaskInputs(const graph::Graph& task, uint64_t seed);
// The values of such an operand, the same as the agent's.
absl::StatusOr<op::RefTensor> MakeInput(const TaskInput& input);
// driver.task.element_type for types that modules do not have.
absl::StatusOr<module::DType> ModuleDType(ir::DType dtype);

}  // namespace tilewright::driver
