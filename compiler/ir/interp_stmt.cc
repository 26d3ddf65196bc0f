// Execution of resolved statements, one after the other.
#include "compiler/ir/interp_stmt.h"

#include <string>

namespace tilewright::ir {

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

}  // namespace tilewright::ir
