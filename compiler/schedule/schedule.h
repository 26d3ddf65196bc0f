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
  double tolerance = 1;  // how many times the direct form's error its results may have
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

  // From here on, copies of this schedule remember where steps lead: a program that two of them
  // came by is kept, and the third goes on from there without the work. What is remembered is
  // forgotten with the last copy that can reach it.
  void RememberSteps();
  // Steps that are remembered, of all copies.
  size_t remembered() const { return at_ == nullptr ? 0 : *at_->count; }

  const ir::Function& function() const { return state().function; }
  const std::vector<Handle>& handles() const { return *state().handles; }
  std::string ProgramHash() const;  // ir::ProgramHash of the function, computed once
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
  const std::vector<int>& LastResults() const { return state().last_results; }
  std::string Describe() const;  // the printed function, then what each live handle names

  // For primitives only (the .cc files of this folder). A primitive changes nothing before all its
  // checks have passed: an error leaves the schedule as it was.
  void SetBody(ir::Stmt body);
  ir::Function& mutable_function() { return mutable_state().function; }
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
  // A value that copies share until one of them changes it.
  template <typename T>
  class Shared {
   public:
    const T& operator*() const {
      static const T* const kEmpty = new T();
      return value_ == nullptr ? *kEmpty : *value_;
    }
    T& Own() {
      if (value_.use_count() != 1) value_ = std::make_shared<T>(**this);
      return *value_;
    }

   private:
    std::shared_ptr<T> value_;
  };
  // What steps change, but for the list of them.
  struct State {
    ir::Function function;
    Shared<std::vector<Handle>> handles;
    std::vector<int> last_results;
    Shared<std::vector<uint64_t>> used_names;  // hashes: a collision only makes a name longer
    bool tensorized = false;  // some nest is marked: steps are held to leave it alone
  };
  // A step that was applied: where it has led, or why it was refused.
  struct Remembered {
    Step step;
    uint64_t hash = 0;  // of the step
    absl::Status status;
    std::unique_ptr<const State> state;  // null before a second schedule came by
    std::string program_hash;            // empty: nobody has asked
    std::vector<std::shared_ptr<Remembered>> next;
    std::shared_ptr<size_t> count;
  };

  const State& state() const { return owns_state_ ? state_ : *at_->state; }
  void OwnState();
  State& mutable_state();
  absl::Status ApplyNow(const Step& step);
  absl::Status ApplyRemembered(const Step& step);
  int Add(Handle handle);
  void Kill(int handle);
  void Number(const ir::Stmt& s);
  void Reserve(std::string_view name);

  std::shared_ptr<const std::vector<Variant>> variants_;
  State state_;
  bool owns_state_ = true;          // or it is the one of `at_`
  std::shared_ptr<Remembered> at_;  // the last step; null: none is remembered
  Steps steps_;
  bool verify_each_ = false;
};

// Parses, applies, returns the scheduled function: what a log record's replay is.
absl::StatusOr<ir::Function> Replay(const ir::Function& function, std::string_view steps);
absl::StatusOr<ir::Function> Replay(std::vector<Variant> variants, std::string_view steps);

}  // namespace tilewright::schedule
