// TRANSFORMATIONS of merge_launches (kLoops → kLoops), for a block loop marked with_next=1 at the
// top of a function and the nest behind it
//
//   for a blockIdx.x in 0..A { S }; for b blockIdx.x in 0..B { T }
//     → for g blockIdx.x in 0..A+B { if g < A { S[a := g] } else { T[b := g - A] } }
//
// where neither nest writes what the other touches: groups of both run at the same time, and those
// of T fill what the last wave of S leaves free. A group does one of the two, so T's shared buffers
// are those of S where S has the same; they stand around the condition then. Nests that depend on
// each other stay apart.
#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/thread_regions.h"

namespace tilewright::transform {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Stmt;
using ir::StmtKind;

constexpr char kWithNext[] = "with_next";

bool AreIndependent(const Stmt& a, const Stmt& b) {
  const TouchedBuffers of_a = TouchedIn(a), of_b = TouchedIn(b);
  const auto apart = [](const auto& stored, const auto& all) {
    return std::none_of(stored.begin(), stored.end(),
                        [&](const auto& buffer) { return all.contains(buffer.first); });
  };
  return apart(of_a.stored, of_b.all) && apart(of_b.stored, of_a.all);
}

// A launch of one axis, from 0 to a number.
bool IsPlainLaunch(const Stmt& s) {
  return s->kind == StmtKind::kFor && s->for_kind == ir::ForKind::kBlockX &&
         ir::IsInt(s->range.min, 0) && ir::AsInt(s->range.extent) != nullptr &&
         !HasLoop(s->body, ir::IsBlockAxis);
}

std::vector<Buffer> SharedAllocs(const Stmt& s) {
  std::vector<Buffer> buffers;
  ir::VisitStmts(s, [&](const Stmt& part) {
    if (part->kind == StmtKind::kAlloc && part->buffer->scope == ir::Scope::kShared)
      buffers.push_back(part->buffer);
    return true;
  });
  return buffers;
}

// Whether two buffers are the same but for their names.
bool SameStorage(const Buffer& a, const Buffer& b) {
  const Stmt nothing = ir::MakeSeq({});
  return ir::StructuralEqual(ir::MakeAlloc(a, nothing), ir::MakeAlloc(b, nothing));
}

class WithoutAllocs : public ir::Rewriter {
 public:
  explicit WithoutAllocs(const std::set<const ir::BufferNode*>& buffers) : buffers_(buffers) {}
  Stmt RewriteStmt(const Stmt& s) override {
    const Stmt r = RewriteChildren(s);
    return r->kind == StmtKind::kAlloc && buffers_.contains(r->buffer.get()) ? r->body : r;
  }

 private:
  const std::set<const ir::BufferNode*>& buffers_;
};

Stmt MergedLaunch(const Stmt& first, const Stmt& second) {
  const ir::DType type = first->var->dtype;
  const Expr count = first->range.extent;
  const int64_t groups = *ir::AsInt(count) + *ir::AsInt(second->range.extent);
  const ir::Var group = ir::MakeVar(first->var->name + "_both", type);
  const Stmt s = ir::Substitute(first->body, {{first->var.get(), group}});
  const Stmt t = ir::Substitute(second->body, {{second->var.get(), group - count}});
  std::set<const ir::BufferNode*> outside;
  std::vector<Buffer> both;
  ir::BufferMap same;
  const std::vector<Buffer> own = SharedAllocs(s);
  for (const Buffer& other : SharedAllocs(t)) {
    const auto at = std::find_if(own.begin(), own.end(), [&](const Buffer& buffer) {
      return !outside.contains(buffer.get()) && SameStorage(buffer, other);
    });
    if (at == own.end()) continue;
    outside.insert(at->get());
    outside.insert(other.get());
    both.push_back(*at);
    same[other.get()] = *at;
  }
  WithoutAllocs moved(outside);
  Stmt body = ir::MakeIf(group < count, moved.RewriteStmt(s),
                         ir::ReplaceBuffers(moved.RewriteStmt(t), same));
  for (const Buffer& buffer : both) body = ir::MakeAlloc(buffer, body);
  ir::Annotations annotations = first->annotations;
  annotations.erase(kWithNext);
  return ir::MakeFor(group, first->range.min, ir::Int(groups, type), body, first->for_kind,
                     annotations);
}

// The statement with `first` merged into its first nest; nullopt where that cannot be.
std::optional<Stmt> MergedInto(const Stmt& first, const Stmt& s) {
  if (s->kind == StmtKind::kSeq && !s->stmts.empty()) {
    std::optional<Stmt> merged = MergedInto(first, s->stmts[0]);
    if (!merged.has_value()) return std::nullopt;
    std::vector<Stmt> stmts = s->stmts;
    stmts[0] = *std::move(merged);
    return ir::MakeSeq(std::move(stmts));
  }
  if (s->kind == StmtKind::kAlloc && s->buffer->scope == ir::Scope::kGlobal) {
    std::optional<Stmt> merged = MergedInto(first, s->body);
    if (!merged.has_value()) return std::nullopt;
    return ir::MakeAlloc(s->buffer, *std::move(merged));
  }
  const bool merges = IsPlainLaunch(s) && first->var->dtype == s->var->dtype &&
                      AreIndependent(first->body, s->body);
  return merges ? std::optional(MergedLaunch(first, s)) : std::nullopt;
}

// Above the launches: sequences, and buffers between them.
Stmt MergeMarked(const Stmt& s) {
  if (s->kind == StmtKind::kAlloc) return ir::MakeAlloc(s->buffer, MergeMarked(s->body));
  if (s->kind != StmtKind::kSeq) return s;
  std::vector<Stmt> stmts;
  for (size_t i = s->stmts.size(); i-- > 0;) {
    const Stmt& child = s->stmts[i];
    if (!stmts.empty() && IsPlainLaunch(child) && child->annotations.contains(kWithNext)) {
      if (std::optional<Stmt> merged = MergedInto(child, stmts.front())) {
        stmts.front() = *std::move(merged);
        continue;
      }
    }
    stmts.insert(stmts.begin(), MergeMarked(child));
  }
  return ir::MakeSeq(std::move(stmts));
}

}  // namespace

absl::StatusOr<Function> MergeLaunches(const Function& f, const PassContext&) {
  Function result = f;
  result.body = MergeMarked(f.body);
  return result;
}

}  // namespace tilewright::transform
