// Statement half of the reference interpreter: statements are resolved once (`Action`) and then
// executed. Internal to compiler/ir. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "compiler/ir/interp.h"
#include "compiler/ir/interp_expr.h"
#include "deploy/support/status.h"

namespace tilewright::ir {

struct RegionCode {
  BufferState* buffer;
  std::vector<Code> min, extent;
};
struct IterCode {
  int slot;
  Code binding, min, extent;
  IterType type;
  const ExprNode* var;
};

// A statement with its expressions resolved.
struct Action {
  const StmtNode* stmt;
  int slot = -1;                  // For, Let
  Code min, extent;               // For
  Code value;                     // Store, Let, Evaluate
  Code condition;                 // If, Block predicate
  std::unique_ptr<Code> mask;     // Store
  std::vector<Code> indices;      // Store; Alloc: the shape
  BufferState* buffer = nullptr;  // Store, Alloc
  std::vector<IterCode> iters;    // Block
  std::vector<int64_t> values;    // of the iters, at this visit
  std::vector<RegionCode> reads, writes;
  std::unique_ptr<Action> init, body, else_body;
  std::vector<Action> stmts;             // Seq; Combine: its stores
  std::vector<Code> loads, results;      // Combine
  std::vector<int> lhs, rhs;             // Combine: slots of the variables
  std::unordered_set<uint64_t> started;  // Block: spatial points whose init has run
  uint64_t last_started = 0;
  bool has_barrier = false;  // here or below
  bool ordered = false;      // Block: has sequential iterators
  // Block: the last values of the sequential iterators, by the values of the others.
  std::unordered_map<uint64_t, std::vector<int64_t>> reached;
};

// One thread of a nest of thread loops with barriers, while another one runs.
struct Thread {
  std::vector<std::pair<int, Cell>> vars;  // of the thread loops, and lets around barriers
  struct Storage {
    BufferState* buffer;
    std::vector<Cell> cells;
    std::vector<uint8_t> written;
  };
  std::vector<Storage> locals;  // private allocations around barriers
  AsyncQueue queue;
};
using Team = std::vector<Thread>;

class Interpreter {
 public:
  explicit Interpreter(const InterpOptions& options) : options_(options) {
    machine_.check_uninitialised = options.check_uninitialised;
  }

  absl::Status Run(const Function& f, const std::vector<int64_t>& sizes,
                   const std::vector<TensorData*>& args);
  absl::StatusOr<std::vector<int64_t>> Shape(const Function& f, const Buffer& b,
                                             const std::vector<int64_t>& sizes);

 private:
  absl::Status BindSizes(const Function& f, const std::vector<int64_t>& sizes);
  absl::Status Bind(const Buffer& param, TensorData* data);
  absl::Status Result() const {
    return machine_.failed() ? support::InvalidArgument(machine_.slug(), machine_.detail())
                             : absl::OkStatus();
  }
  std::vector<Code> ResolveAll(const std::vector<Expr>& list) {
    std::vector<Code> codes;
    for (const Expr& e : list) codes.push_back(machine_.Resolve(e));
    return codes;
  }
  std::unique_ptr<Action> ResolveChild(const Stmt& s) {
    return s == nullptr ? nullptr : std::make_unique<Action>(Resolve(s));
  }
  Action Resolve(const Stmt& s);
  void ResolveBlock(const StmtNode& s, Action* a);
  void ResolveCombine(const StmtNode& s, Action* a);
  std::vector<RegionCode> ResolveRegions(const std::vector<BufferRegion>& regions);

  bool Step() {
    if (++steps_ > options_.max_steps)
      machine_.Fail("step_limit",
                    "expected at most " + std::to_string(options_.max_steps) + " steps");
    return !machine_.failed();
  }
  void Execute(Action& a);
  void ExecuteFor(Action& a);
  void ExecuteBlock(Action& a);
  void ExecuteStore(Action& a);
  void ExecuteCombine(Action& a);
  void StoreLane(BufferState* state, int64_t position, Cell value);
  void ExecuteAlloc(Action& a);
  void ExecuteSync(const StmtNode& s);
  // Threads that go together from barrier to barrier.
  void ExecuteThreads(Action& a);
  void Together(Action& a, Team& team);
  void FlowTogether(Action& a, Team& team);
  void AllocTogether(Action& a, Team& team);
  template <typename Task>
  void EachThread(Team& team, const Task& run);
  // A value that has to be the same for all threads.
  int64_t Uniform(Code& code, Team& team, std::string_view what);
  bool BindIters(Action& a, uint64_t* point, bool* at_start);
  void CheckSequence(Action& a);
  std::vector<ConcreteRegion> Concrete(const std::vector<RegionCode>& regions);

  const InterpOptions options_;
  ExprMachine machine_;
  int64_t steps_ = 0;
  bool async_ = false;  // inside of async { }
};

}  // namespace tilewright::ir
