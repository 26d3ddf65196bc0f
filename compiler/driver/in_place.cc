#include "compiler/driver/in_place.h"

#include <algorithm>

#include "compiler/analysis/injective.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"

namespace tilewright::driver {
namespace {

using ir::Stmt;
using ir::StmtKind;

bool SameType(const ir::BufferNode& a, const ir::BufferNode& b) {
  return a.dtype == b.dtype && ir::StructuralEqual(a.shape, b.shape);
}

// The one store into `buffer` when it is the whole body of a block without reduction; else null.
Stmt OnlyStore(const ir::Function& f, const ir::Buffer& buffer) {
  Stmt store, block;
  int stores = 0;
  ir::VisitStmts(f.body, [&](const Stmt& s) {
    if (s->kind == StmtKind::kStore && s->buffer == buffer) {
      ++stores;
      store = s;
    }
    if (s->kind == StmtKind::kBlock && s->init == nullptr && s->body != nullptr &&
        s->body->kind == StmtKind::kStore && s->body->buffer == buffer) {
      block = s;
    }
    return true;
  });
  return stores == 1 && block != nullptr && block->body == store ? store : nullptr;
}

// Whether no two iterations of the loops around the block write one element: a second one would
// read what the first has left.
bool WritesOnce(const ir::Function& f, const Stmt& store) {
  for (const schedule::BlockSite& site : schedule::BlocksIn(f.body)) {
    if (site.block->body != store) continue;
    const analysis::Analyzer analyzer = schedule::BlockAnalyzer(f, site);
    const std::vector<analysis::AffineSum> sums = schedule::WriteSums(analyzer, *site.block);
    const std::vector<bool> known =
        analysis::InjectiveIn(sums, schedule::VarsOf(site.loops),
                              analysis::UpperBounds(analyzer, site.block->predicate), analyzer);
    return !sums.empty() &&
           std::all_of(known.begin(), known.end(), [](bool determined) { return determined; });
  }
  return false;
}

// All loads of `operand` stand in `store` and read the element that it writes.
bool ReadOnlyThere(const ir::Function& f, const ir::Buffer& operand, const ir::StmtNode& store) {
  auto loads = [&](const ir::Expr& root, bool* same) {
    int count = 0;
    ir::VisitExprs(root, [&](const ir::Expr& e) {
      if (e->kind != ir::ExprKind::kLoad || e->buffer != operand) return true;
      ++count;
      const bool here = ir::StructuralEqual(e->args, store.indices);
      if (same != nullptr) *same = *same && here;
      return true;
    });
    return count;
  };
  bool same = true;
  const int inside = loads(store.value, &same);
  int everywhere = 0;
  bool whole = true;  // operands of tensor calls and the like, which are no loads
  ir::VisitStmts(f.body, [&](const Stmt& s) {
    if (s->kind == StmtKind::kStore) {
      everywhere += loads(s->value, nullptr);
      for (const ir::Expr& index : s->indices) everywhere += loads(index, nullptr);
      if (s->mask != nullptr) everywhere += loads(s->mask, nullptr);
    } else if (s->kind != StmtKind::kBlock && s->kind != StmtKind::kFor &&
               s->kind != StmtKind::kSeq) {
      whole = false;
    }
    return true;
  });
  return whole && same && inside > 0 && inside == everywhere;
}

}  // namespace

std::vector<int> InPlaceOperands(const ir::Function& scheduled, std::string_view steps) {
  std::vector<int> operands;
  std::vector<ir::Buffer> outputs;
  for (const ir::Buffer& param : scheduled.params) {
    if (param->role == ir::Role::kOutput) outputs.push_back(param);
  }
  if (outputs.size() != 1 || steps.find("overlap") != std::string_view::npos) return operands;
  const Stmt store = OnlyStore(scheduled, outputs[0]);
  if (store == nullptr || !WritesOnce(scheduled, store)) return operands;
  for (size_t i = 0; i < scheduled.params.size(); ++i) {
    const ir::Buffer& param = scheduled.params[i];
    if (param->role != ir::Role::kInput || !SameType(*param, *outputs[0])) continue;
    if (ReadOnlyThere(scheduled, param, *store)) operands.push_back(static_cast<int>(i));
  }
  return operands;
}

}  // namespace tilewright::driver
