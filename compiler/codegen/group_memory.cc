#include "compiler/codegen/group_memory.h"

#include "compiler/ir/visit.h"

namespace tilewright::codegen {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtKind;

bool IsBarrier(const Stmt& s) {
  return s->kind == StmtKind::kSync && s->sync == ir::SyncKind::kBarrier;
}
bool StoresGlobal(const Stmt& s) {
  return s->kind == StmtKind::kStore && s->buffer->scope == ir::Scope::kGlobal;
}

// Whether a barrier may follow a store to global memory, in the order of the program or in the next
// iteration of a loop. Then another thread may store to the same element behind the barrier.
bool StoresBeforeBarrier(const Stmt& body) {
  bool stored = false, found = false;
  ir::VisitStmts(body, [&](const Stmt& s) {
    stored = stored || StoresGlobal(s);
    found = found || (stored && IsBarrier(s));
    if (s->kind == StmtKind::kFor && !ir::IsBound(s->for_kind)) {
      bool stores = false, meets = false;
      ir::VisitStmts(s->body, [&](const Stmt& inner) {
        stores = stores || StoresGlobal(inner);
        meets = meets || IsBarrier(inner);
        return true;
      });
      found = found || (stores && meets);
    }
    return !found;
  });
  return found;
}

}  // namespace

std::set<const ir::BufferNode*> ReadBack(const ir::Function& f) {
  std::set<const ir::BufferNode*> written, both;
  bool meets = false;
  ir::VisitStmts(f.body, [&](const Stmt& s) {
    meets = meets || IsBarrier(s);
    if (StoresGlobal(s)) written.insert(s->buffer.get());
    return true;
  });
  if (!meets) return {};
  ir::VisitExprsIn(f.body, [&](const Expr& e) {
    if (e->kind == ir::ExprKind::kLoad && written.contains(e->buffer.get()))
      both.insert(e->buffer.get());
    return true;
  });
  return both;
}

bool OrdersGlobalMemory(const ir::Function& kernel) {
  return !ReadBack(kernel).empty() || StoresBeforeBarrier(kernel.body);
}

bool IsLoopWithBarriers(const Stmt& s) {
  bool meets = false;
  if (s->kind != StmtKind::kFor) return false;
  ir::VisitStmts(s->body, [&](const Stmt& inner) {
    meets = meets || IsBarrier(inner);
    return !meets;
  });
  return meets;
}

std::optional<std::array<int64_t, 3>> GroupOf(const ir::Function& kernel) {
  std::array<int64_t, 3> group = {1, 1, 1};
  bool constant = true;
  ir::VisitStmts(kernel.body, [&](const Stmt& s) {
    if (s->kind != StmtKind::kFor || !ir::IsThreadAxis(s->for_kind)) return true;
    const int64_t* threads = ir::AsInt(s->range.extent);
    constant = constant && threads != nullptr;
    if (threads != nullptr) group[static_cast<size_t>(ir::AxisOf(s->for_kind))] = *threads;
    return true;
  });
  return constant ? std::optional(group) : std::nullopt;
}

}  // namespace tilewright::codegen
