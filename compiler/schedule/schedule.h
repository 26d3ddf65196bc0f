// A schedule: a function being rewritten, the handles that name its loops and blocks, and the steps applied so far.
// A step succeeds or leaves the schedule unchanged and returns an error that shows the IR and what is wrong
// (schedule.<primitive>.<reason>); it never changes what the function computes. Copyable (nodes are shared).
//
// HANDLES. %0, %1, … are numbered deterministically: first every loop and block of the initial function in pre-order
// (a loop before its body), then the results of each step in the order its primitive documents (primitives.h). A handle
// whose loop or block no longer exists is dead; using it is an error (schedule.handle.dead).
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/step.h"

namespace tilewright::schedule {

struct Handle {
  enum class Kind : uint8_t { kLoop, kBlock } kind;
  ir::Var loop;          // the loop variable (identity survives rewriting)
  std::string block;     // the block's unique name
  bool dead = false;
};

class Schedule {
 public:
  explicit Schedule(ir::Function function);

  absl::Status Apply(const Step& step);
  absl::Status ApplyAll(const Steps& steps);

  const ir::Function& function() const { return function_; }
  const std::vector<Handle>& handles() const { return handles_; }
  const Steps& steps() const { return steps_; }

  // Lookups for space rules. -1 / empty when absent.
  int BlockHandle(std::string_view block) const;
  std::vector<int> LoopsOf(int block_handle) const;     // handles of the loops around a block, outermost first
  std::vector<std::string> BlockNames() const;          // pre-order
  // Steps with the results of the last Apply: handles created by the last successful step.
  std::vector<int> LastResults() const { return last_results_; }
  std::string Describe() const;                          // the printed function with %N beside loops and blocks

  // For primitives only (the .cc files of this folder).
  ir::Function& mutable_function() { return function_; }
  int AddLoop(const ir::Var& var);
  int AddBlock(const std::string& name);
  absl::StatusOr<ir::Var> Loop(int handle) const;
  absl::StatusOr<std::string> Block(int handle) const;

 private:
  ir::Function function_;
  std::vector<Handle> handles_;
  Steps steps_;
  std::vector<int> last_results_;
};

// Parses, applies, returns the scheduled function: what a log record's replay is.
absl::StatusOr<ir::Function> Replay(const ir::Function& function, std::string_view steps);

}  // namespace tilewright::schedule
