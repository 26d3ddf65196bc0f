// The parts of a module from a compiled graph or a compiled task: tensors, constants, launches,
// provenance. Inside of the driver. Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/codegen.h"
#include "compiler/driver/compile.h"
#include "compiler/graph/graph_passes.h"
#include "deploy/module/module_writer.h"

namespace tilewright::driver {

// What a task computes once from its weights, before the first call: packed weights.
struct PreparedKernel {
  int program = -1;                     // index into the programs of the task's part; -1: nothing
  std::vector<size_t> reads;            // the task's inputs that it reads, in its parameter order
  std::vector<op::TensorType> tensors;  // what it writes; the task's kernel reads them after its
                                        // inputs
};

// The code of a module for one target: its own, or that of the processor next to a device.
struct CodePart {
  target::Target target;
  codegen::Artifact code = {};
};

// Where the kernel of a task is, and what runs before it.
struct PlacedTask {
  size_t part = 0;
  int program = 0;  // index into the part's programs
  PreparedKernel prepared = {};
};

// A graph that becomes a function of the module.
struct ModelFunction {
  const graph::Graph* fused = nullptr;
  module::Sizes at = {};          // of a specialisation; empty: "main"
  std::vector<int> of_node = {};  // ModelTasks::of_node
  graph::MemoryPlan plan = {};
};

// `placed[i]` computes `tasks[i]`; the first function is "main", the first part the module's
// target. Fills the report's sizes.
absl::StatusOr<module::ModuleParts> ModelParts(std::span<const ModelFunction> functions,
                                               const std::vector<Task>& tasks,
                                               const std::vector<PlacedTask>& placed,
                                               const std::vector<CodePart>& parts,
                                               const CompileOptions& options,
                                               CompileReport* report);
// One task over inputs that are all generated where the candidate is measured.
absl::StatusOr<module::ModuleParts> CandidateParts(
    const graph::Graph& task, const std::vector<TaskInput>& inputs, const PreparedKernel& prepared,
    const std::string& steps, const std::string& program_hash, const target::Target& target,
    const codegen::Artifact& code);

}  // namespace tilewright::driver
