#include "compiler/transform/clone.h"

#include <vector>

#include "compiler/ir/visit.h"

namespace tilewright::transform {

using ir::Stmt;
using ir::StmtKind;

namespace {

// Replaces buffers where they are allocated, too.
class ReplaceAllocated : public ir::Rewriter {
 public:
  explicit ReplaceAllocated(const ir::BufferMap& map) : map_(map) {}

 protected:
  ir::Buffer RewriteBuffer(const ir::Buffer& b) override {
    auto it = map_.find(b.get());
    return it == map_.end() ? b : it->second;
  }

 private:
  const ir::BufferMap& map_;
};

}  // namespace

Cloner::Cloner(const ir::Function& f) {
  for (const ir::Buffer& b : f.params) buffer_names_.insert(b->name);
  for (const ir::Buffer& b : f.allocs) buffer_names_.insert(b->name);
  ir::VisitStmts(f.body, [&](const Stmt& s) {
    if (s->kind == StmtKind::kAlloc) buffer_names_.insert(s->buffer->name);
    return true;
  });
}

Stmt Cloner::Clone(const Stmt& s) {
  ir::BufferMap map;
  ir::VisitStmts(s, [&](const Stmt& part) {
    if (part->kind != StmtKind::kAlloc) return true;
    auto copy = std::make_shared<ir::BufferNode>(*part->buffer);
    copy->name = UnusedName(copy->name);
    map[part->buffer.get()] = std::move(copy);
    return true;
  });
  Stmt result = ir::CloneWithFreshVars(s);
  return map.empty() ? result : ReplaceAllocated(map).RewriteStmt(result);
}

std::string Cloner::UnusedName(const std::string& name) {
  std::string unused = name;
  for (int n = 1; !buffer_names_.insert(unused).second; ++n)
    unused = name + "_" + std::to_string(n);
  return unused;
}

bool HasLoop(const Stmt& s) {
  bool found = false;
  ir::VisitStmts(s, [&](const Stmt& part) {
    found = found || part->kind == StmtKind::kFor;
    return !found;
  });
  return found;
}

int64_t CountLeaves(const Stmt& s) {
  int64_t count = 0;
  ir::VisitStmts(s, [&](const Stmt& part) {
    if (part->kind == StmtKind::kStore || part->kind == StmtKind::kEvaluate) ++count;
    return true;
  });
  return count;
}

}  // namespace tilewright::transform
