#include "compiler/ir/interp.h"

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "compiler/ir/interp_expr.h"
#include "compiler/ir/numeric.h"
#include "compiler/ir/type_rules.h"
#include "deploy/support/status.h"

namespace tilewright::ir {
namespace {

// ------------------------------------------------------------------------------------------------
// bytes and cells

template <typename T>
T ReadAs(const uint8_t* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
template <typename T>
void WriteAs(uint8_t* p, T v) {
  std::memcpy(p, &v, sizeof v);
}

Cell DecodeCell(const uint8_t* p, DType t) {
  switch (t.code) {
    case TypeCode::kBool:
      return {.i = *p != 0};
    case TypeCode::kBFloat:
      return {.d = BfloatToFloat(ReadAs<uint16_t>(p))};
    case TypeCode::kFloat:
      if (t.bits == 16) return {.d = HalfToFloat(ReadAs<uint16_t>(p))};
      return {.d = t.bits == 32 ? static_cast<double>(ReadAs<float>(p)) : ReadAs<double>(p)};
    default: {
      int64_t v = 0;
      std::memcpy(&v, p, t.bytes());  // little-endian; WrapInt extends the sign
      return {.i = WrapInt(v, t)};
    }
  }
}

void EncodeCell(Cell c, DType t, uint8_t* p) {
  switch (t.code) {
    case TypeCode::kBool:
      *p = c.i != 0;
      return;
    case TypeCode::kBFloat:
      return WriteAs(p, FloatToBfloat(c.d));
    case TypeCode::kFloat:
      if (t.bits == 16) return WriteAs(p, FloatToHalf(c.d));
      return t.bits == 32 ? WriteAs(p, static_cast<float>(c.d)) : WriteAs(p, c.d);
    default:
      std::memcpy(p, &c.i, t.bytes());
  }
}

// ------------------------------------------------------------------------------------------------
// statements

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

std::vector<RegionCode> Interpreter::ResolveRegions(const std::vector<BufferRegion>& regions) {
  std::vector<RegionCode> codes;
  for (const BufferRegion& r : regions) {
    RegionCode code{machine_.Find(r.buffer), {}, {}};
    for (const Range& dim : r.region) {
      code.min.push_back(machine_.Resolve(dim.min));
      code.extent.push_back(machine_.Resolve(dim.extent));
    }
    codes.push_back(std::move(code));
  }
  return codes;
}

void Interpreter::ResolveBlock(const StmtNode& s, Action* a) {
  for (const IterVar& iter : s.iters) {
    a->iters.push_back({-1, machine_.Resolve(iter.binding), machine_.Resolve(iter.domain.min),
                        machine_.Resolve(iter.domain.extent), iter.type, iter.var.get()});
    a->ordered |= iter.type == IterType::kSequential;
  }
  if (s.predicate != nullptr) a->condition = machine_.Resolve(s.predicate);
  for (size_t i = 0; i < s.iters.size(); ++i)
    a->iters[i].slot = machine_.DeclareVar(s.iters[i].var);
  a->reads = ResolveRegions(s.reads);
  a->writes = ResolveRegions(s.writes);
  a->init = ResolveChild(s.init);
  a->body = ResolveChild(s.body);
}

void Interpreter::ResolveCombine(const StmtNode& s, Action* a) {
  std::string error = CombineErrorOf(s);
  if (!error.empty()) return machine_.Fail("type", error);
  for (const Stmt& store : s.stmts) {
    a->stmts.push_back(Resolve(store));
    a->loads.push_back(machine_.Resolve(Load(store->buffer, store->indices)));
  }
  for (const Var& v : s.combiner->lhs) a->lhs.push_back(machine_.DeclareVar(v));
  for (const Var& v : s.combiner->rhs) a->rhs.push_back(machine_.DeclareVar(v));
  a->results = ResolveAll(s.combiner->results);
}

Action Interpreter::Resolve(const Stmt& s) {
  Action a;
  a.stmt = s.get();
  switch (s->kind) {
    case StmtKind::kFor:
      a.min = machine_.Resolve(s->range.min);
      a.extent = machine_.Resolve(s->range.extent);
      a.slot = machine_.DeclareVar(s->var);
      a.body = ResolveChild(s->body);
      break;
    case StmtKind::kBlock:
      ResolveBlock(*s, &a);
      break;
    case StmtKind::kStore: {
      std::string error = StoreErrorOf(*s);
      if (!error.empty()) machine_.Fail("type", error);
      a.buffer = machine_.Find(s->buffer);
      a.indices = ResolveAll(s->indices);
      a.value = machine_.Resolve(s->value);
      if (s->mask != nullptr) a.mask = std::make_unique<Code>(machine_.Resolve(s->mask));
      break;
    }
    case StmtKind::kSeq:
      for (const Stmt& child : s->stmts) a.stmts.push_back(Resolve(child));
      break;
    case StmtKind::kIf:
      a.condition = machine_.Resolve(s->condition);
      a.body = ResolveChild(s->body);
      a.else_body = ResolveChild(s->else_body);
      break;
    case StmtKind::kLet:
      a.value = machine_.Resolve(s->value);
      a.slot = machine_.DeclareVar(s->var);
      a.body = ResolveChild(s->body);
      break;
    case StmtKind::kAlloc:
      a.buffer = machine_.DeclareBuffer(s->buffer);
      a.indices = ResolveAll(s->buffer->shape);
      a.body = ResolveChild(s->body);
      break;
    case StmtKind::kEvaluate:
      a.value = machine_.Resolve(s->value);
      break;
    case StmtKind::kAsync:
      a.body = ResolveChild(s->body);
      break;
    case StmtKind::kSync:
      a.has_barrier = s->sync == SyncKind::kBarrier;
      break;
    case StmtKind::kCombine:
      ResolveCombine(*s, &a);
      break;
  }
  for (const auto* child : {&a.init, &a.body, &a.else_body})
    a.has_barrier |= *child != nullptr && (*child)->has_barrier;
  for (const Action& child : a.stmts) a.has_barrier |= child.has_barrier;
  return a;
}

void Interpreter::ExecuteFor(Action& a) {
  if (a.has_barrier && IsThreadAxis(a.stmt->for_kind)) return ExecuteThreads(a);
  int64_t min = machine_.EvalInt(a.min), extent = machine_.EvalInt(a.extent);
  // Iterations that claim to be independent run backwards, so that a false claim shows.
  bool reversed = IsConcurrent(a.stmt->for_kind);
  for (int64_t k = 0; k < extent && Step(); ++k) {
    machine_.SetVar(a.slot, {.i = min + (reversed ? extent - 1 - k : k)});
    Execute(*a.body);
  }
}

// Sets the iteration variables. `point` identifies the values of all but the reduce variables.
bool Interpreter::BindIters(Action& a, uint64_t* point, bool* at_start) {
  *point = 0x9e3779b97f4a7c15ULL;
  *at_start = true;
  std::vector<int64_t>& values = a.values;
  values.clear();
  for (const IterCode& iter : a.iters) values.push_back(machine_.EvalInt(iter.binding));
  for (size_t i = 0; i < a.iters.size(); ++i) {
    const IterCode& iter = a.iters[i];
    int64_t min = machine_.EvalInt(iter.min), extent = machine_.EvalInt(iter.extent), v = values[i];
    if (v < min || static_cast<__int128>(v) - min >= extent) {
      machine_.Fail("domain", "block " + a.stmt->name + ", " + iter.var->name +
                                  ": expected a value in [" + std::to_string(min) + ", " +
                                  std::to_string(min + extent) + "), found " + std::to_string(v));
      return false;
    }
    if (iter.type == IterType::kReduce) {
      *at_start &= v == min;
    } else {
      *point = (*point ^ static_cast<uint64_t>(v)) * 0xbf58476d1ce4e5b9ULL;
      *point ^= *point >> 29;
    }
  }
  for (size_t i = 0; i < a.iters.size(); ++i) machine_.SetVar(a.iters[i].slot, {.i = values[i]});
  return true;
}

// Sequential iterators never go back, except to their start (the work is done once more).
void Interpreter::CheckSequence(Action& a) {
  uint64_t others = 0x9e3779b97f4a7c15ULL;
  std::vector<int64_t> now;
  bool at_start = true;
  for (size_t i = 0; i < a.iters.size(); ++i) {
    if (a.iters[i].type == IterType::kSequential) {
      now.push_back(a.values[i]);
      at_start &= a.values[i] == machine_.EvalInt(a.iters[i].min);
    } else {
      others = (others ^ static_cast<uint64_t>(a.values[i])) * 0xbf58476d1ce4e5b9ULL;
      others ^= others >> 29;
    }
  }
  std::vector<int64_t>& last = a.reached[others];
  if (!at_start && now < last) {
    machine_.Fail("sequence_order", "block " + a.stmt->name + ": a sequential iterator goes back");
  }
  last = std::move(now);
}

std::vector<ConcreteRegion> Interpreter::Concrete(const std::vector<RegionCode>& regions) {
  std::vector<ConcreteRegion> boxes;
  for (const RegionCode& r : regions) {
    ConcreteRegion box{r.buffer, {}, {}};
    for (const Code& c : r.min) box.min.push_back(machine_.EvalInt(c));
    for (const Code& c : r.extent) box.extent.push_back(machine_.EvalInt(c));
    boxes.push_back(std::move(box));
  }
  return boxes;
}

void Interpreter::ExecuteBlock(Action& a) {
  if (a.stmt->predicate != nullptr && !machine_.EvalBool(a.condition)) return;
  uint64_t point = 0;
  bool at_start = true;
  if (!BindIters(a, &point, &at_start)) return;
  if (a.ordered) CheckSequence(a);
  std::vector<ConcreteRegion> reads, writes;
  if (options_.check_regions) {
    reads = Concrete(a.reads);
    writes = Concrete(a.writes);
    // A reduction reads back what it accumulates.
    if (a.init != nullptr) reads.insert(reads.end(), writes.begin(), writes.end());
    machine_.read_regions.push_back(&reads);
    machine_.write_regions.push_back(&writes);
  }
  if (a.init != nullptr && at_start) {
    a.started.insert(point);
    Execute(*a.init);
  } else if (a.init != nullptr && point != a.last_started && a.started.count(point) == 0) {
    machine_.Fail("init_order",
                  "block " + a.stmt->name + " accumulates into a point before its init");
  }
  a.last_started = point;
  Execute(*a.body);
  if (options_.check_regions) {
    machine_.read_regions.pop_back();
    machine_.write_regions.pop_back();
  }
}

void Interpreter::StoreLane(BufferState* state, int64_t position, Cell value) {
  if (position < 0) return;
  if (state->buffer->role == Role::kInput || state->buffer->role == Role::kConstant) {
    return machine_.Fail("read_only", "store to " + state->buffer->name);
  }
  if (!machine_.write_regions.empty()) {
    std::vector<int64_t> where(state->shape.size());
    for (size_t d = where.size(), rest = position; d-- > 0; rest /= state->shape[d]) {
      where[d] = rest % state->shape[d];
    }
    machine_.CheckRegions(machine_.write_regions, *state, where, /*is_write=*/true);
  }
  if (state->written[position] == kInFlight && !async_)
    machine_.Fail("in_flight", "store to " + state->buffer->name + " while another is in flight");
  machine_.Touched(state, position, /*is_write=*/true);
  if (async_) return machine_.Issue(state, position, value);
  state->cells[position] = value;
  state->written[position] = kWritten;
}

void Interpreter::ExecuteAlloc(Action& a) {
  if (!machine_.Allocate(a.buffer, a.indices)) return;
  Execute(*a.body);
  machine_.CheckLanded(a.buffer);
}

void Interpreter::ExecuteSync(const StmtNode& s) {
  if (s.sync == SyncKind::kCommit) machine_.Commit();
  if (s.sync == SyncKind::kWait) machine_.Wait(s.pending);
}

// ------------------------------------------------------------------------------------------------
// threads

// The last thread runs first, so that an order that happens to be right does not hide a missing
// barrier.
template <typename Task>
void Interpreter::EachThread(Team& team, const Task& run) {
  for (size_t t = team.size(); t-- > 0 && !machine_.failed();) {
    Thread& thread = team[t];
    auto swap_locals = [&] {
      for (Thread::Storage& s : thread.locals) {
        std::swap(s.buffer->cells, s.cells);
        std::swap(s.buffer->written, s.written);
      }
    };
    swap_locals();
    for (const auto& [slot, value] : thread.vars) machine_.SetVar(slot, value);
    machine_.EnterLane(static_cast<int32_t>(t));
    machine_.UseQueue(&thread.queue);
    run(thread);
    machine_.EnterLane(-1);
    machine_.UseQueue(nullptr);
    swap_locals();
  }
}

void Interpreter::ExecuteThreads(Action& a) {
  constexpr size_t kMaxThreads = 1 << 14;
  Team team(1);
  Action* inner = &a;
  while (inner->stmt->kind == StmtKind::kFor && IsThreadAxis(inner->stmt->for_kind)) {
    int64_t min = machine_.EvalInt(inner->min), extent = machine_.EvalInt(inner->extent);
    Team wider;
    for (const Thread& t : team) {
      for (int64_t i = 0; i < extent && wider.size() <= kMaxThreads; ++i) {
        wider.push_back(t);
        wider.back().vars.emplace_back(inner->slot, Cell{.i = min + i});
      }
    }
    team = std::move(wider);
    inner = inner->body.get();
  }
  if (team.size() > kMaxThreads)
    return machine_.Fail("threads", "expected at most " + std::to_string(kMaxThreads) + " threads");
  machine_.NextEpoch();
  Together(*inner, team);
  machine_.NextEpoch();
  EachThread(team, [&](Thread&) { machine_.CheckLanded(nullptr); });
}

int64_t Interpreter::Uniform(Code& code, Team& team, std::string_view what) {
  std::optional<int64_t> common;
  EachThread(team, [&](Thread&) {
    int64_t value = machine_.EvalInt(code);
    if (common.has_value() && *common != value) {
      machine_.Fail("divergent", "expected the same " + std::string(what) +
                                     " around a barrier for all threads, found " +
                                     std::to_string(*common) + " and " + std::to_string(value));
    }
    common = value;
  });
  return common.value_or(0);
}

void Interpreter::Together(Action& a, Team& team) {
  if (machine_.failed()) return;
  if (!a.has_barrier) return EachThread(team, [&](Thread&) { Execute(a); });
  switch (a.stmt->kind) {
    case StmtKind::kSync:
      return machine_.NextEpoch();
    case StmtKind::kSeq:
      for (Action& child : a.stmts) Together(child, team);
      return;
    case StmtKind::kAlloc:
      return AllocTogether(a, team);
    case StmtKind::kFor:
    case StmtKind::kIf:
    case StmtKind::kLet:
      return FlowTogether(a, team);
    default:
      return machine_.Fail("divergent", "expected barriers under loops and conditions only");
  }
}

void Interpreter::FlowTogether(Action& a, Team& team) {
  if (a.stmt->kind == StmtKind::kIf) {
    if (Uniform(a.condition, team, "condition") != 0) {
      Together(*a.body, team);
    } else if (a.else_body != nullptr) {
      Together(*a.else_body, team);
    }
    return;
  }
  if (a.stmt->kind == StmtKind::kLet) {
    EachThread(team, [&](Thread& t) { t.vars.emplace_back(a.slot, machine_.EvalScalar(a.value)); });
    Together(*a.body, team);
    for (Thread& t : team) t.vars.pop_back();
    return;
  }
  if (IsConcurrent(a.stmt->for_kind)) {
    return machine_.Fail("divergent",
                         "expected serial loops around a barrier, found " + a.stmt->var->name);
  }
  int64_t min = Uniform(a.min, team, "range"), extent = Uniform(a.extent, team, "range");
  for (int64_t k = 0; k < extent && Step(); ++k) {
    machine_.SetVar(a.slot, {.i = min + k});
    Together(*a.body, team);
  }
}

void Interpreter::AllocTogether(Action& a, Team& team) {
  if (PrivacyOf(a.buffer->buffer->scope) != Privacy::kThread) {
    if (!machine_.Allocate(a.buffer, a.indices)) return;
    Together(*a.body, team);
    return EachThread(team, [&](Thread&) { machine_.CheckLanded(a.buffer); });
  }
  EachThread(team, [&](Thread& t) {
    if (!machine_.Allocate(a.buffer, a.indices)) return;
    t.locals.push_back({a.buffer, {}, {}});  // swapped in when the thread leaves
  });
  Together(*a.body, team);
  EachThread(team, [&](Thread&) { machine_.CheckLanded(a.buffer); });
  for (Thread& t : team) t.locals.pop_back();
}

void Interpreter::ExecuteStore(Action& a) {
  if (!Step()) return;
  int lanes = a.value.dtype.lanes;
  if (lanes == 1) {
    if (a.mask != nullptr && !machine_.EvalBool(*a.mask)) return;
    Cell value = machine_.EvalScalar(a.value);
    return StoreLane(a.buffer, machine_.LocateScalar(*a.buffer, a.indices), value);
  }
  std::vector<Cell> value(lanes), mask(lanes, Cell{.i = 1});
  if (a.mask != nullptr) machine_.EvalVector(*a.mask, mask.data());
  machine_.EvalVector(a.value, value.data());
  std::vector<std::vector<Cell>> indices;
  for (const Code& index : a.indices) {
    indices.emplace_back(index.dtype.lanes);
    machine_.EvalVector(index, indices.back().data());
  }
  for (int lane = 0; lane < lanes && !machine_.failed(); ++lane) {
    if (mask[lane].i != 0)
      StoreLane(a.buffer, machine_.Locate(*a.buffer, indices, lane), value[lane]);
  }
}

// Everything is read before anything is stored.
void Interpreter::ExecuteCombine(Action& a) {
  if (!Step()) return;
  std::vector<Cell> old, added, results;
  for (size_t i = 0; i < a.stmts.size(); ++i) {
    old.push_back(machine_.EvalScalar(a.loads[i]));
    added.push_back(machine_.EvalScalar(a.stmts[i].value));
  }
  for (size_t i = 0; i < a.stmts.size(); ++i) {
    machine_.SetVar(a.lhs[i], old[i]);
    machine_.SetVar(a.rhs[i], added[i]);
  }
  for (const Code& r : a.results) results.push_back(machine_.EvalScalar(r));
  for (size_t i = 0; i < a.stmts.size() && !machine_.failed(); ++i) {
    const Action& store = a.stmts[i];
    StoreLane(store.buffer, machine_.LocateScalar(*store.buffer, store.indices), results[i]);
  }
}

void Interpreter::Execute(Action& a) {
  if (machine_.failed()) return;
  switch (a.stmt->kind) {
    case StmtKind::kFor:
      return ExecuteFor(a);
    case StmtKind::kBlock:
      return ExecuteBlock(a);
    case StmtKind::kStore:
      return ExecuteStore(a);
    case StmtKind::kSeq:
      for (Action& child : a.stmts) Execute(child);
      return;
    case StmtKind::kIf:
      if (machine_.EvalBool(a.condition)) {
        Execute(*a.body);
      } else if (a.else_body != nullptr) {
        Execute(*a.else_body);
      }
      return;
    case StmtKind::kLet:
      machine_.SetVar(a.slot, machine_.EvalScalar(a.value));
      return Execute(*a.body);
    case StmtKind::kAlloc:
      return ExecuteAlloc(a);
    case StmtKind::kEvaluate: {
      std::vector<Cell> ignored(a.value.dtype.lanes);
      machine_.EvalVector(a.value, ignored.data());
      return;
    }
    case StmtKind::kAsync:
      async_ = true;
      Execute(*a.body);
      async_ = false;
      return;
    case StmtKind::kSync:
      return ExecuteSync(*a.stmt);
    case StmtKind::kCombine:
      return ExecuteCombine(a);
  }
}

absl::Status Interpreter::BindSizes(const Function& f, const std::vector<int64_t>& sizes) {
  if (sizes.size() != f.size_params.size()) {
    return support::InvalidArgument(
        "ir.interp.sizes", "expected " + std::to_string(f.size_params.size()) + " sizes, found " +
                               std::to_string(sizes.size()));
  }
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1) {
      return support::InvalidArgument(
          "ir.interp.sizes",
          f.size_params[i]->name + ": expected at least 1, found " + std::to_string(sizes[i]));
    }
    machine_.SetVar(machine_.DeclareVar(f.size_params[i]), {.i = sizes[i]});
  }
  return absl::OkStatus();
}

absl::Status Interpreter::Bind(const Buffer& param, TensorData* data) {
  BufferState* state = machine_.DeclareBuffer(param);
  if (!machine_.Allocate(state, ResolveAll(param->shape))) return Result();
  size_t width = param->dtype.bytes(), bytes = state->cells.size() * width;
  bool holds_values = options_.outputs_hold_values && data->bytes.size() == bytes;
  if (param->role == Role::kOutput && !holds_values) {
    data->bytes.assign(bytes, 0);
    return Result();
  }
  if (data->bytes.size() != bytes) {
    return support::InvalidArgument("ir.interp.argument_size",
                                    param->name + ": expected " + std::to_string(bytes) +
                                        " bytes, found " + std::to_string(data->bytes.size()));
  }
  for (size_t i = 0; i < state->cells.size(); ++i) {
    state->cells[i] = DecodeCell(data->bytes.data() + i * width, param->dtype);
    state->written[i] = 1;
  }
  return Result();
}

absl::Status Interpreter::Run(const Function& f, const std::vector<int64_t>& sizes,
                              const std::vector<TensorData*>& args) {
  TW_TRY(BindSizes(f, sizes));
  if (args.size() != f.params.size()) {
    return support::InvalidArgument("ir.interp.arguments",
                                    "expected " + std::to_string(f.params.size()) +
                                        " arguments, found " + std::to_string(args.size()));
  }
  for (size_t i = 0; i < args.size(); ++i) TW_TRY(Bind(f.params[i], args[i]));
  for (const Buffer& b : f.allocs) {
    BufferState* state = machine_.DeclareBuffer(b);
    if (!machine_.Allocate(state, ResolveAll(b->shape))) return Result();
  }
  Action body = Resolve(f.body);
  if (!machine_.failed()) Execute(body);
  machine_.CheckLanded(nullptr);
  TW_TRY(Result());
  for (size_t i = 0; i < args.size(); ++i) {
    const Buffer& b = f.params[i];
    if (b->role != Role::kOutput) continue;
    const BufferState& state = *machine_.Find(b);
    for (size_t k = 0; k < state.cells.size(); ++k) {
      if (options_.check_uninitialised && state.written[k] == 0) {
        return support::InvalidArgument(
            "ir.interp.unwritten_output",
            b->name + ": element " + std::to_string(k) + " was never written");
      }
      EncodeCell(state.cells[k], b->dtype, args[i]->bytes.data() + k * b->dtype.bytes());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> Interpreter::Shape(const Function& f, const Buffer& b,
                                                        const std::vector<int64_t>& sizes) {
  TW_TRY(BindSizes(f, sizes));
  std::vector<int64_t> shape;
  for (const Expr& extent : b->shape) {
    Code code = machine_.Resolve(extent);
    shape.push_back(machine_.failed() ? 0 : machine_.EvalInt(code));
  }
  TW_TRY(Result());
  return shape;
}

}  // namespace

absl::Status Interpret(const Function& function, const std::vector<int64_t>& sizes,
                       std::vector<TensorData*> args, const InterpOptions& options) {
  if (function.body == nullptr) return support::InvalidArgument("ir.interp.no_body", function.name);
  return Interpreter(options).Run(function, sizes, args);
}

absl::StatusOr<int64_t> BufferElements(const Function& function, const Buffer& buffer,
                                       const std::vector<int64_t>& sizes) {
  TW_ASSIGN(std::vector<int64_t> shape, Interpreter({}).Shape(function, buffer, sizes));
  int64_t elements = 1;
  for (int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(elements, extent, &elements)) {
      return support::InvalidArgument(
          "ir.interp.size",
          buffer->name + ": expected a sensible shape, found extent " + std::to_string(extent));
    }
  }
  return elements;
}

absl::StatusOr<int64_t> EvalIntExpr(const Expr& e,
                                    const std::vector<std::pair<Var, int64_t>>& values) {
  if (e->dtype.is_float() || e->dtype.is_vector()) {
    return support::InvalidArgument("ir.interp.type",
                                    "expected a scalar integer, found " + TypeName(e->dtype));
  }
  ExprMachine machine;
  for (const auto& [var, value] : values) machine.SetVar(machine.DeclareVar(var), {.i = value});
  Code code = machine.Resolve(e);
  int64_t result = machine.failed() ? 0 : machine.EvalInt(code);
  if (machine.failed()) return support::InvalidArgument(machine.slug(), machine.detail());
  return result;
}

}  // namespace tilewright::ir
