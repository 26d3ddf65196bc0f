#include "compiler/codegen/sub_group_sums.h"

#include <optional>
#include <set>
#include <utility>

#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"

namespace tilewright::codegen {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

bool CanAddUp(ir::DType type) {
  if (type.is_vector()) return false;
  return type.is_int() ? type.bits >= 32 : type.code == ir::TypeCode::kFloat;
}

bool LoadsFrom(const Expr& e, const ir::Buffer& buffer) {
  bool loads = false;
  ir::VisitExprs(e, [&](const Expr& part) {
    loads = loads || (part->kind == ExprKind::kLoad && part->buffer == buffer);
    return !loads;
  });
  return loads;
}

class Finder {
 public:
  // `together`: all threads of a group come to the statement.
  void Walk(const Stmt& s, bool together) {
    switch (s->kind) {
      case StmtKind::kFor:
        return WalkFor(s, together);
      case StmtKind::kSeq:
        for (const Stmt& child : s->stmts) Walk(child, together);
        return;
      case StmtKind::kIf:
        together = together && !Differs(s->condition);
        Walk(s->body, together);
        if (s->else_body != nullptr) Walk(s->else_body, together);
        return;
      case StmtKind::kLet:
        if (Differs(s->value)) differing_.insert(s->var.get());
        return Walk(s->body, together);
      case StmtKind::kAlloc:
        return Walk(s->body, together);
      default:
        return;
    }
  }
  SubGroupSums Take() { return std::move(found_); }

 private:
  void WalkFor(const Stmt& s, bool together) {
    if (ir::IsBound(s->for_kind)) {
      if (ir::IsThreadAxis(s->for_kind)) differing_.insert(s->var.get());
      return Walk(s->body, together);
    }
    const bool alike = !Differs(s->range.min) && !Differs(s->range.extent);
    if (!alike) differing_.insert(s->var.get());
    const auto sum = together && alike ? SumOf(s) : std::nullopt;
    if (sum.has_value()) {
      found_[s.get()] = *sum;
    } else {
      Walk(s->body, together && alike);
    }
  }

  // Whether the value may differ between the threads of a group. Memory that they share holds one
  // value for all of them: nobody writes what others read without a barrier in between.
  bool Differs(const Expr& e) const {
    bool differs = false;
    ir::VisitExprs(e, [&](const Expr& part) {
      differs = differs || differing_.contains(part.get()) ||
                (part->kind == ExprKind::kLoad &&
                 ir::StorageRankOf(part->buffer->scope) == ir::StorageRank::kThread);
      return !differs;
    });
    return differs;
  }

  std::optional<SubGroupSum> SumOf(const Stmt& loop) const {
    const Stmt& store = loop->body;
    if (!loop->annotations.contains("sub_group") || store->kind != StmtKind::kStore ||
        store->mask != nullptr || !CanAddUp(store->value->dtype)) {
      return std::nullopt;
    }
    const ExprKind op = store->value->kind;
    if (op != ExprKind::kAdd && op != ExprKind::kMin && op != ExprKind::kMax) return std::nullopt;
    for (const bool first : {true, false}) {
      const SubGroupSum sum{store, first};
      const Expr& load = sum.accumulator();
      const bool accumulates = load->kind == ExprKind::kLoad && load->buffer == store->buffer &&
                               load->mask == nullptr &&
                               ir::StructuralEqual(load->args[0], store->indices[0]) &&
                               !ir::UsesVar(load->args[0], loop->var);
      if (accumulates && !LoadsFrom(sum.value(), store->buffer) && !Differs(sum.value()))
        return sum;
    }
    return std::nullopt;
  }

  std::set<const ir::ExprNode*> differing_;  // variables
  SubGroupSums found_;
};

}  // namespace

SubGroupSums FindSubGroupSums(const ir::Function& kernel) {
  Finder finder;
  finder.Walk(kernel.body, /*together=*/true);
  return finder.Take();
}

}  // namespace tilewright::codegen
