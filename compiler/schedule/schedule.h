// A schedule: a function being rewritten, the handles that name its loops and blocks, and the steps
// applied so far. A step succeeds or leaves the schedule unchanged and returns an error that shows
// the IR and what is wrong (schedule.<primitive>.<reason>); it never changes what the function
// computes. Copyable (nodes are shared); not thread-safe.
//
// The function is at stage `scheduled` and of the builder's form: loops, sequences and blocks,
// every intermediate buffer complete before it is first read. The primitives keep that form within
// every loop: what an iteration reads of an intermediate it has written itself, or it was complete
// before the loop began.
//
// HANDLES. %0, %1, … are numbered deterministically: first every loop and block of the initial
// function in pre-order (a loop before its body), then the results of each step in the order its
// primitive documents (primitives.h). A handle whose loop or block no longer exists is dead; using
// it is an error (schedule.handle.dead).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/ir/ir.h"
#include "compiler/schedule/step.h"

namespace tilewright::schedule {

struct Handle {
  enum class Kind : uint8_t { kLoop, kBlock } kind;
  ir::Var loop;       // the loop variable (identity survives rewriting)
  std::string block;  // the block's unique name
  bool dead = false;
};

// One of an operator's algorithms.
struct Variant {
  std::string name;  // as the step `variant` names it
  ir::Function function;
};

class Schedule {
 public:
  explicit Schedule(ir::Function function);
  // Starts as the first of the variants; a first step `variant NAME` chooses another.
  // REQUIRES: not empty.
  explicit Schedule(std::vector<Variant> variants);

  absl::Status Apply(const Step& step);
  // Stops at the first refused step; the steps before it stay applied. The error names the step.
  absl::Status ApplyAll(const Steps& steps);
  // ir::Verify after every step; a failure undoes the step (schedule.<primitive>.verify: a bug).
  // For tests and tilewright-opt: the search replays thousands of schedules per second without it.
  void set_verify_each(bool on) { verify_each_ = on; }

  const ir::Function& function() const { return function_; }
  const std::vector<Handle>& handles() const { return handles_; }
  const Steps& steps() const { return steps_; }

  // Lookups for space rules. -1 / empty when absent.
  int BlockHandle(std::string_view block) const;
  int LoopHandle(const ir::Var& var) const;
  // Handles of the loops around a block, outermost first.
  std::vector<int> LoopsOf(int block_handle) const;
  std::vector<std::string> BlockNames() const;  // pre-order
  // The statement a handle stands for (a For or a Block); null when dead or out of range.
  ir::Stmt StmtOf(int handle) const;
  const std::vector<Variant>& variants() const;
  // Handles created by the last successful step.
  const std::vector<int>& LastResults() const { return last_results_; }
  std::string Describe() const;  // the printed function, then what each live handle names

  // For primitives only (the .cc files of this folder). A primitive changes nothing before all its
  // checks have passed: an error leaves the schedule as it was.
  void SetBody(ir::Stmt body);
  ir::Function& mutable_function() { return function_; }
  // Starts again from a function: all handles and names are new.
  void Restart(ir::Function function);
  int AddLoop(const ir::Var& var);
  int AddBlock(const std::string& name);
  void KillLoop(const ir::Var& var);
  void KillBlock(std::string_view name);
  absl::StatusOr<ir::Var> Loop(int handle) const;
  absl::StatusOr<std::string> Block(int handle) const;
  // `wanted`, or `wanted` with a number, so that no name of the function or of an earlier step
  // (alive or dead) is used twice.
  std::string UniqueName(std::string_view wanted);

 private:
  void Number(const ir::Stmt& s);
  void Reserve(std::string_view name);

  std::shared_ptr<const std::vector<Variant>> variants_;
  ir::Function function_;
  std::vector<Handle> handles_;
  Steps steps_;
  std::vector<int> last_results_;
  std::vector<uint64_t> used_names_;  // hashes: a collision only makes a name longer
  bool verify_each_ = false;
  bool tensorized_ = false;  // some nest is marked: steps are held to leave it alone
};

// Parses, applies, returns the scheduled function: what a log record's replay is.
absl::StatusOr<ir::Function> Replay(const ir::Function& function, std::string_view steps);
absl::StatusOr<ir::Function> Replay(std::vector<Variant> variants, std::string_view steps);

}  // namespace tilewright::schedule
