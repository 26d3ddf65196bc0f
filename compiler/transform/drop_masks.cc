// TRANSFORMATIONS of drop_masks (kFlat → kFlat), for vectors of a local buffer that are written
// under one condition and one mask only:
//   if (c) { S[ramp(8, 1, 8)] = fma(X[… if m], w, S[ramp(8, 1, 8)]) if m }
//     → S[ramp(8, 1, 8)] = fma(X[… if m], w, S[ramp(8, 1, 8)])
// What they hold otherwise has no value before nor after, and nothing asks for one. A vector that
// is written in part, or now and then, cannot stay in a register. Loads of other buffers keep their
// masks, and get the condition. It stays around loads without a mask, unless what they read is
// always there.
#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "compiler/analysis/simplify.h"
#include "compiler/ir/expr_parts.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/passes.h"

namespace tilewright::transform {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;

// Lanes [begin, begin + lanes) of a local buffer, and the conditions that all stores to them have,
// the mask last.
struct Place {
  int64_t begin = 0, lanes = 0;
  std::vector<Expr> conditions;

  bool Overlaps(const Place& other) const {
    return begin < other.begin + other.lanes && other.begin < begin + lanes;
  }
  bool operator==(const Place& other) const {
    return begin == other.begin && lanes == other.lanes &&
           ir::StructuralEqual(conditions, other.conditions);
  }
};

std::optional<Place> PlaceOf(const ir::StmtNode& store) {
  if (store.indices.size() != 1) return std::nullopt;
  const Expr& index = store.indices[0];
  if (const int64_t* at = ir::AsInt(index)) return Place{*at, 1, {}};
  if (index->kind != ExprKind::kRamp || !ir::IsInt(index->args[1], 1)) return std::nullopt;
  const int64_t* at = ir::AsInt(index->args[0]);
  return at == nullptr ? std::nullopt : std::optional(Place{*at, index->dtype.lanes, {}});
}

// Looks at all stores to one buffer.
class Stores {
 public:
  // Whether their conditions may go.
  static bool MayGo(const ir::StmtNode& alloc) {
    Stores stores(alloc.buffer);
    stores.Visit(alloc.body);
    return stores.good_ && std::ranges::any_of(stores.places_, [](const Place& place) {
             return !place.conditions.empty();
           });
  }

 private:
  explicit Stores(const Buffer& buffer) : buffer_(buffer), size_(ir::AsInt(buffer->shape[0])) {
    good_ = size_ != nullptr;
  }

  void Visit(const Stmt& s) {
    if (!good_) return;
    if (s->kind == StmtKind::kFor || s->kind == StmtKind::kLet) inside_.insert(s->var.get());
    if (s->kind == StmtKind::kStore && s->buffer == buffer_) Add(*s);
    const bool condition = s->kind == StmtKind::kIf;
    if (condition) conditions_.push_back(s->condition);
    for (const Stmt& child : s->stmts) Visit(child);
    if (s->body != nullptr) Visit(s->body);
    if (condition) conditions_.back() = ir::Not(s->condition);
    if (s->else_body != nullptr) Visit(s->else_body);
    if (condition) conditions_.pop_back();
  }

  void Add(const ir::StmtNode& store) {
    std::optional<Place> place = PlaceOf(store);
    good_ = place && place->begin >= 0 && place->begin + place->lanes <= *size_;
    if (!good_) return;
    place->conditions = conditions_;
    if (store.mask != nullptr) place->conditions.push_back(store.mask);
    good_ = std::ranges::none_of(place->conditions, [&](const Expr& e) { return Changes(e); }) &&
            std::ranges::none_of(places_, [&](const Place& other) {
              return other.Overlaps(*place) && !(other == *place);
            });
    places_.push_back(*std::move(place));
  }

  // Whether a condition may not be the same for as long as the buffer lives.
  bool Changes(const Expr& condition) const {
    bool changes = false;
    ir::VisitExprs(condition, [&](const Expr& e) {
      changes = changes || inside_.contains(e.get()) || e->kind == ExprKind::kLoad;
      return !changes;
    });
    return changes;
  }

  const Buffer& buffer_;
  const int64_t* size_;
  bool good_ = true;
  std::vector<Place> places_;
  std::vector<Expr> conditions_;          // around the current statement
  std::set<const ir::ExprNode*> inside_;  // variables that change while the buffer lives
};

class Unmasker : public ir::Rewriter {
 public:
  explicit Unmasker(const Function& f) : analyzer_(f) {}

  Expr RewriteExpr(const Expr& e) override {
    const Expr r = RewriteChildren(e);
    const bool ours = r->kind == ExprKind::kLoad && buffers_.contains(r->buffer.get());
    return ours && r->mask != nullptr ? ir::Load(r->buffer, r->args) : r;
  }
  Stmt RewriteStmt(const Stmt& s) override {
    if (s->kind == StmtKind::kFor) analyzer_.SetRange(s->var, s->range);
    if (s->kind == StmtKind::kAlloc && s->buffer->scope == ir::Scope::kLocal && Stores::MayGo(*s))
      buffers_.insert(s->buffer.get());
    const Stmt r = RewriteChildren(s);
    if (r->kind == StmtKind::kStore && IsOurs(*r) && r->mask != nullptr)
      return ir::MakeStore(r->buffer, r->indices, r->value);
    const bool goes = r->kind == StmtKind::kIf && r->else_body == nullptr && AlwaysRuns(*r->body);
    return goes ? Under(r->condition).RewriteStmt(r->body) : r;
  }

 private:
  bool IsOurs(const ir::StmtNode& store) const { return buffers_.contains(store.buffer.get()); }

  // Puts a condition into the masks of loads that do not ask for it themselves.
  class Under : public ir::Rewriter {
   public:
    explicit Under(Expr condition) : condition_(std::move(condition)) {}
    Expr RewriteExpr(const Expr& e) override {
      const Expr r = RewriteChildren(e);
      if (r->kind != ExprKind::kLoad || r->mask == nullptr || Implies(r->mask)) return r;
      const int lanes = r->mask->dtype.lanes;
      const Expr all = lanes == 1 ? condition_ : ir::Broadcast(condition_, lanes);
      return ir::Load(r->buffer, r->args, all && r->mask);
    }

   private:
    // Whether a lane of the mask ramp(a, …) < b is on only if the condition holds, which is a < b.
    bool Implies(const Expr& mask) const {
      if (mask->kind != ExprKind::kLt || condition_->kind != ExprKind::kLt) return false;
      const Expr &a = mask->args[0], &b = mask->args[1];
      if (a->kind != ExprKind::kRamp || b->kind != ExprKind::kBroadcast) return false;
      const int64_t* stride = ir::AsInt(a->args[1]);
      int64_t apart = 1;
      return stride != nullptr && *stride >= 0 &&
             analysis::ConstantDifference(a->args[0] - b->args[0],
                                          condition_->args[0] - condition_->args[1], {}, &apart) &&
             apart >= 0;
    }

    const Expr condition_;
  };

  // Whether a statement may run where its condition does not hold: it writes our buffers only, and
  // what it reads is there.
  bool AlwaysRuns(const ir::StmtNode& s) const {
    if (s.kind == StmtKind::kSeq) {
      return std::ranges::all_of(s.stmts, [&](const Stmt& child) { return AlwaysRuns(*child); });
    }
    if (s.kind != StmtKind::kStore || !IsOurs(s)) return false;
    bool good = true;
    ir::VisitExprs(s.value, [&](const Expr& e) {
      good = good && (e->kind == ExprKind::kLoad ? IsThere(*e) : !MayFail(*e));
      return good;
    });
    return good;
  }

  // Whether it divides by what may be zero where the condition does not hold.
  static bool MayFail(const ir::ExprNode& e) {
    const bool divides = e.kind == ExprKind::kDiv || e.kind == ExprKind::kMod ||
                         e.kind == ExprKind::kFloorDiv || e.kind == ExprKind::kFloorMod;
    return divides && e.dtype.is_int() && ir::AsInt(ir::OfEachLane(e.args[1])) == nullptr;
  }

  bool IsThere(const ir::ExprNode& load) const {
    if (load.mask != nullptr || buffers_.contains(load.buffer.get())) return true;
    const int64_t* size = load.args.size() == 1 ? ir::AsInt(load.buffer->shape[0]) : nullptr;
    if (size == nullptr) return false;
    const analysis::Interval at = analyzer_.Values(load.args[0]);
    return at.min >= 0 && at.max < *size;
  }

  analysis::Analyzer analyzer_;
  std::set<const ir::BufferNode*> buffers_;  // whose masks go
};

}  // namespace

absl::StatusOr<Function> DropMasks(const Function& f, const PassContext&) {
  Function result = f;
  result.body = Unmasker(f).RewriteStmt(f.body);
  return result;
}

}  // namespace tilewright::transform
