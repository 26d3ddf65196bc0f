// Statements of the interpreter with their expressions resolved.
#include <string>

#include "compiler/ir/interp_stmt.h"
#include "compiler/ir/type_rules.h"

namespace tilewright::ir {

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

}  // namespace tilewright::ir
