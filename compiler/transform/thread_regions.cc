#include "compiler/transform/thread_regions.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "compiler/analysis/footprint.h"
#include "compiler/analysis/injective.h"
#include "compiler/analysis/simplify.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/structural.h"
#include "compiler/ir/visit.h"

namespace tilewright::transform {
namespace {

using ir::Expr;
using ir::ExprKind;

constexpr int64_t kMaxElements = 1 << 18;  // over all threads: looked at one by one
constexpr size_t kMaxBoxes = 1 << 11;      // looked at in pairs, where elements are more
constexpr int64_t kMaxThreads = 1 << 11;

bool MentionsAny(const Expr& e, const std::vector<ir::Var>& vars) {
  for (const ir::Var& v : vars) {
    if (v != nullptr && ir::UsesVar(e, v)) return true;
  }
  return false;
}

// The terms of a sum that mention one of `vars`, if nothing but those variables is in them.
bool TermsOver(const Expr& e, const std::vector<ir::Var>& vars, bool negative, Expr* sum) {
  if (!MentionsAny(e, vars)) return true;
  if (e->kind == ExprKind::kAdd || e->kind == ExprKind::kSub) {
    return TermsOver(e->args[0], vars, negative, sum) &&
           TermsOver(e->args[1], vars, negative != (e->kind == ExprKind::kSub), sum);
  }
  bool foreign = false;
  ir::VisitExprs(e, [&](const Expr& part) {
    bool own = std::find(vars.begin(), vars.end(), part) != vars.end();
    foreign |= part->kind == ExprKind::kLoad || (part->kind == ExprKind::kVar && !own);
    return !foreign;
  });
  if (foreign || e->dtype != ir::kI64) return false;
  *sum = negative ? *sum - e : *sum + e;
  return true;
}

struct Box {
  std::vector<Expr> min;
  std::vector<int64_t> extent;
};

std::optional<Box> BoxOf(const ir::BufferRegion& region, const ThreadAxes& threads) {
  Box box;
  const std::vector<ir::Var> vars(threads.var.begin(), threads.var.end());
  for (const ir::Range& r : region.region) {
    const int64_t* extent = ir::AsInt(r.extent);
    Expr min = ir::Int(0);
    if (extent == nullptr || !TermsOver(r.min, vars, false, &min)) return std::nullopt;
    box.min.push_back(min);
    box.extent.push_back(*extent);
  }
  return box;
}

using Owners = std::map<std::vector<int64_t>, int64_t>;

// Enters every element of the box; false when another owner holds one.
bool Claim(const std::vector<int64_t>& min, const std::vector<int64_t>& extent, int64_t owner,
           Owners* owners) {
  std::vector<int64_t> at = min;
  for (;;) {
    auto [it, fresh] = owners->emplace(at, owner);
    if (!fresh && it->second != owner) return false;
    size_t d = at.size();
    while (d > 0 && ++at[d - 1] == min[d - 1] + extent[d - 1]) {
      at[d - 1] = min[d - 1];
      --d;
    }
    if (d == 0) return true;
  }
}

// What threads use, as boxes: each owner's once.
struct OwnedBox {
  std::vector<int64_t> min, extent;
  int64_t owner;
  auto operator<=>(const OwnedBox&) const = default;
};

// Whether no two owners' boxes have an element in common; false where there are too many boxes.
bool AreApart(const std::set<OwnedBox>& boxes) {
  if (boxes.size() > kMaxBoxes) return false;
  const auto meet = [](const OwnedBox& a, const OwnedBox& b) {
    for (size_t d = 0; d < a.min.size(); ++d) {
      if (a.min[d] + a.extent[d] <= b.min[d] || b.min[d] + b.extent[d] <= a.min[d]) return false;
    }
    return true;
  };
  for (auto a = boxes.begin(); a != boxes.end(); ++a) {
    for (auto b = std::next(a); b != boxes.end(); ++b) {
      if (a->owner != b->owner && meet(*a, *b)) return false;
    }
  }
  return true;
}

// Whether every iteration of the loops that meets the conditions gives another point.
bool VisitsOnce(const std::vector<Expr>& indices, const std::vector<ir::Stmt>& loops,
                const std::vector<Expr>& conditions) {
  analysis::Analyzer analyzer;
  std::vector<ir::Var> vars;
  for (const ir::Stmt& l : loops) {
    if (*ir::AsInt(l->range.extent) < 1) return false;
    analyzer.SetRange(l->var, l->range);
    vars.push_back(l->var);
  }
  std::vector<analysis::UpperBound> bounds;
  for (const Expr& condition : conditions) {
    for (analysis::UpperBound& bound : analysis::UpperBounds(analyzer, condition)) {
      const analysis::AffineTerm& first = bound.terms.terms[0];
      if (bound.terms.terms.size() == 1 && first.atom->kind == ExprKind::kVar) {
        const analysis::Interval range = analyzer.Values(first.atom);
        analyzer.Set(first.atom, {range.min, std::min(range.max, bound.limit / first.coeff)});
      } else {
        bounds.push_back(std::move(bound));
      }
    }
  }
  std::vector<analysis::AffineSum> sums;
  for (const Expr& i : indices) {
    if (i->dtype != ir::kI64) return false;
    sums.push_back(analyzer.Affine(i));
  }
  const std::vector<bool> apart = analysis::InjectiveIn(sums, vars, bounds, analyzer);
  return std::find(apart.begin(), apart.end(), false) == apart.end();
}

// The n of floormod(…, n), where one is such a slot and the other one, too, or is none; else 0.
int64_t SlotsOf(const Expr& e) {
  const int64_t* n = e->kind == ExprKind::kFloorMod ? ir::AsInt(e->args[1]) : nullptr;
  return n == nullptr ? 0 : *n;
}
int64_t RingOf(const Expr& a, const Expr& b) {
  int64_t na = SlotsOf(a), nb = SlotsOf(b);
  return na > 0 && nb > 0 && na != nb ? 0 : std::max(na, nb);
}
Expr Unwrapped(const Expr& e, int64_t n) { return SlotsOf(e) == n ? e->args[0] : e; }

}  // namespace

TouchedBuffers TouchedIn(const ir::Stmt& s) {
  TouchedBuffers touched;
  std::vector<std::string> own;
  ir::VisitStmts(s, [&](const ir::Stmt& part) {
    if (part->kind == ir::StmtKind::kStore) touched.stored[part->buffer->name] = part->buffer;
    if (part->kind == ir::StmtKind::kAlloc) own.push_back(part->buffer->name);
    return true;
  });
  touched.all = touched.stored;
  ir::VisitExprsIn(s, [&](const Expr& e) {
    if (e->kind == ExprKind::kLoad) touched.all[e->buffer->name] = e->buffer;
    return true;
  });
  for (const std::string& name : own) {
    touched.stored.erase(name);
    touched.all.erase(name);
  }
  return touched;
}

bool HasLoop(const ir::Stmt& s, bool (*test)(ir::ForKind)) {
  bool found = false;
  ir::VisitStmts(s, [&](const ir::Stmt& part) {
    found = found || (part->kind == ir::StmtKind::kFor && test(part->for_kind));
    return !found;
  });
  return found;
}

bool ThreadAxes::Mentions(const Expr& e) const { return MentionsAny(e, {var.begin(), var.end()}); }

bool StoresOnce(const ir::Stmt& s) {
  struct Store {
    ir::Stmt stmt;
    std::vector<ir::Stmt> loops;
    std::vector<Expr> conditions;
  };
  std::vector<Store> stores;
  std::vector<ir::Stmt> loops;
  std::vector<Expr> conditions;
  bool known = true;
  std::function<void(const ir::Stmt&)> walk = [&](const ir::Stmt& x) {
    if (x->kind == ir::StmtKind::kStore) stores.push_back({x, loops, conditions});
    bool loop = x->kind == ir::StmtKind::kFor;
    known &= !loop || (ir::AsInt(x->range.min) != nullptr && ir::AsInt(x->range.extent) != nullptr);
    known &= x->kind != ir::StmtKind::kLet && x->mask == nullptr;
    if (loop) loops.push_back(x);
    const bool condition = x->kind == ir::StmtKind::kIf && !ir::HasLoad(x->condition);
    if (condition) conditions.push_back(x->condition);
    if (x->body != nullptr) walk(x->body);
    if (condition) conditions.pop_back();
    if (x->else_body != nullptr) walk(x->else_body);
    for (const ir::Stmt& child : x->stmts) walk(child);
    if (loop) loops.pop_back();
  };
  walk(s);
  for (size_t i = 0; known && i < stores.size(); ++i) {
    for (size_t j = 0; j < i; ++j) known &= stores[i].stmt->buffer != stores[j].stmt->buffer;
    known = known && VisitsOnce(stores[i].stmt->indices, stores[i].loops, stores[i].conditions);
  }
  return known;
}

bool OwnedByThreads(const std::vector<ir::BufferRegion>& regions, const ThreadAxes& threads,
                    unsigned axes) {
  int64_t teams = threads.extent[0] * threads.extent[1] * threads.extent[2], elements = 0;
  if (teams > kMaxThreads) return false;
  std::vector<Box> boxes;
  std::vector<std::vector<int64_t>> shift;  // of a box against the first one
  // Pieces of unrolled loops use the same box again and again: it counts once.
  const auto is_known = [&](const Box& box, const std::vector<int64_t>& by) {
    for (size_t b = 0; b < boxes.size(); ++b) {
      if (shift[b] == by && boxes[b].extent == box.extent &&
          ir::StructuralEqual(boxes[b].min, box.min)) {
        return true;
      }
    }
    return false;
  };
  for (const ir::BufferRegion& r : regions) {
    std::optional<Box> box = BoxOf(r, threads);
    if (!box.has_value()) return false;
    ir::VarMap first;
    for (const Expr& v : threads.var) {
      if (v != nullptr) first[v.get()] = ir::Int(0, v->dtype);
    }
    std::vector<int64_t> by;
    for (size_t d = 0; d < r.region.size(); ++d) {
      // The thread terms at thread 0 are in both; the rest differs by a constant.
      int64_t whole = 0, own = 0;
      Expr here = ir::Substitute(box->min[d], first);
      Expr there = ir::Substitute(boxes.empty() ? box->min[d] : boxes[0].min[d], first);
      bool known = analysis::ConstantDifference(ir::Substitute(r.region[d].min, first),
                                                ir::Substitute(regions[0].region[d].min, first), {},
                                                &whole) &&
                   analysis::ConstantDifference(here, there, {}, &own);
      if (!known) return false;
      by.push_back(whole - own);
    }
    if (is_known(*box, by)) continue;
    int64_t volume = 1;
    for (int64_t e : box->extent) {
      if (e < 1 || __builtin_mul_overflow(volume, e, &volume)) return false;
    }
    if (__builtin_mul_overflow(volume, teams, &volume) ||
        __builtin_add_overflow(elements, volume, &elements)) {
      return false;
    }
    boxes.push_back(*std::move(box));
    shift.push_back(std::move(by));
  }
  Owners owners;
  std::set<OwnedBox> apart;
  for (int64_t t = 0; t < teams; ++t) {
    std::vector<std::pair<ir::Var, int64_t>> values;
    int64_t rest = t, owner = 0;
    for (size_t a = 0; a < 3; ++a) {
      int64_t at = rest % threads.extent[a];
      rest /= threads.extent[a];
      if (threads.var[a] != nullptr) values.emplace_back(threads.var[a], at);
      if ((axes >> a & 1) != 0) owner = owner * threads.extent[a] + at;
    }
    for (size_t b = 0; b < boxes.size(); ++b) {
      std::vector<int64_t> min;
      for (size_t d = 0; d < boxes[b].min.size(); ++d) {
        absl::StatusOr<int64_t> value = ir::EvalIntExpr(boxes[b].min[d], values);
        if (!value.ok()) return false;
        min.push_back(*value + shift[b][d]);
      }
      if (elements > kMaxElements) {
        apart.insert({min, boxes[b].extent, owner});
      } else if (!Claim(min, boxes[b].extent, owner, &owners)) {
        return false;
      }
    }
  }
  return AreApart(apart);
}

bool SurelyApart(const ir::BufferRegion& a, const ir::BufferRegion& b) {
  for (size_t d = 0; d < a.region.size() && d < b.region.size(); ++d) {
    const ir::Range &ra = a.region[d], &rb = b.region[d];
    const int64_t *ea = ir::AsInt(ra.extent), *eb = ir::AsInt(rb.extent);
    if (ea == nullptr || eb == nullptr) continue;
    int64_t difference = 0;  // a - b
    if (analysis::ConstantDifference(ra.min, rb.min, {}, &difference) &&
        (difference >= *eb || -difference >= *ea)) {
      return true;
    }
    // Slots of a ring: x and floormod(y, n) are the same only where n divides x - y; so are
    // floormod(x, n) and floormod(y, n).
    int64_t n = RingOf(ra.min, rb.min);
    if (n > 0 && *ea == 1 && *eb == 1 &&
        analysis::ConstantDifference(Unwrapped(ra.min, n), Unwrapped(rb.min, n), {}, &difference) &&
        difference % n != 0) {
      return true;
    }
  }
  return false;
}

}  // namespace tilewright::transform
