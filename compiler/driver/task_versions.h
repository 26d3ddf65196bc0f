// Kernels of open sizes that choose when they run, by how many rows a call has or how large all
// sizes are: between algorithms of an operator, or schedules of one. Pure functions; thread-safe.
// Links no LLVM.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/algorithms_by_size.h"
#include "compiler/target/target.h"

namespace tilewright::driver {

// What of a task is computed by another function than its first one.
struct TaskVersion {
  std::string name;             // of the version, for dumps: "few_rows", or its algorithm
  ir::Function scheduled = {};  // has the parameters of the task's function
  std::string steps = "";
  ir::Expr count = {};  // rows of a call, or the product of its sizes: over its size parameters
  int64_t most = 0;     // this version has more than so many, or with `few` no more than so many
  bool few = false;

  // When it computes, over the size parameters of another function of the task.
  ir::Expr ConditionFor(const ir::Function& function) const;
};

// Whether the default of a task of open sizes is two of its algorithms. Steps that are given for
// such a task leave it only one of them.
bool HasAlgorithmsByRows(std::span<const schedule::Variant> variants);

// The versions of a task beside the schedule that it has, which is `scheduled`: each one replaces
// what was before it. `given`: the steps of that are no default. Errors of a replay of default
// steps, and of the passes.
absl::StatusOr<std::vector<TaskVersion>> TaskVersions(const graph::Graph& task,
                                                      std::span<const schedule::Variant> variants,
                                                      const target::Target& target,
                                                      const space::SizeSpan& span,
                                                      const ir::Function& scheduled, bool given);

}  // namespace tilewright::driver
