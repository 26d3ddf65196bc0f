// Nests of thread loops with barriers: all threads go from one barrier to the next.
#include <optional>
#include <string>

#include "compiler/ir/interp_stmt.h"

namespace tilewright::ir {

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
  if (StorageRankOf(a.buffer->buffer->scope) != StorageRank::kThread) {
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

}  // namespace tilewright::ir
