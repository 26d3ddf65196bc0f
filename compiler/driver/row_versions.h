// Kernels of open sizes that choose when they run, by how many rows a call has: between two
// algorithms of an operator, or two schedules of one. Pure functions; thread-safe. Links no LLVM.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target/target.h"

namespace tilewright::driver {

// What of a task is computed by another function than its first one.
struct RowVersion {
  std::string name;             // of the version, for dumps: "few_rows", or its algorithm
  ir::Function scheduled = {};  // has the parameters of the task's function
  std::string steps = "";
  std::vector<ir::Var> sizes = {};  // size parameters
  ir::Expr count = {};              // the rows of a call, over these
  int64_t most = 0;  // this version has more than so many rows, or with `few` no more than so many
  bool few = false;
};

// Whether the default of a task of open sizes is two of its algorithms. Steps that are given for
// such a task leave it only one of them.
bool HasAlgorithmsByRows(const graph::Graph& task, std::span<const schedule::Variant> variants);

// The versions of a task beside the schedule that it has. `given`: the steps of that are no
// default. Errors of a replay of default steps.
absl::StatusOr<std::vector<RowVersion>> RowVersions(const graph::Graph& task,
                                                    std::span<const schedule::Variant> variants,
                                                    const target::Target& target, bool given);

// Two lowered functions in one, which chooses when it is called. REQUIRES: both have the same
// parameters.
ir::Function ChooseByRows(const RowVersion& version, const ir::Function& main,
                          const ir::Function& lowered);

}  // namespace tilewright::driver
