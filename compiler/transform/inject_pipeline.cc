// TRANSFORMATIONS of inject_software_pipeline (kLoops → kLoops)
//   for i in 0..N @{pipeline} { alloc B; A(i) @{pipeline_stage=0}; C(i) @{pipeline_stage=S} }
//     → alloc B[S + 1, …];  A(0); …; A(S - 1)
//       for k in 0..N - S { A(k + S) on B[(k + S) mod (S + 1)]; C(k) on B[k mod (S + 1)] }
//       C(N - S); …; C(N - 1)
//   order=consumers: C before A in each step, and one copy of B less.
//   pipeline_async: A becomes async { A }; commit, and each step begins with a wait that leaves the
//   groups of later iterations in flight.
// A part without a stage of its own (an init that was moved before its loop) has that of the part
// after it. A loop whose parts cannot be moved apart loses its mark: it stays the loop that it is.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/visit.h"
#include "compiler/transform/clone.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/thread_regions.h"

namespace tilewright::transform {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Stmt;
using ir::StmtKind;

struct Part {
  Stmt stmt;
  int64_t stage;
};

// A pipelined loop, taken apart.
struct Plan {
  Stmt loop;
  bool consumers_first = false, async = false;
  int64_t min = 0, extent = 0, last = 0;  // last: the last stage
  std::vector<Part> parts;                // in program order
  std::vector<Buffer> buffers;            // allocated in the body
};

const ir::AnnotationValue* Find(const Stmt& s, const std::string& key) {
  auto it = s->annotations.find(key);
  return it == s->annotations.end() ? nullptr : &it->second;
}

Stmt WithoutMarks(const Stmt& s) {
  if (s->kind != StmtKind::kFor) return s;
  ir::StmtNode node = *s;
  for (const char* key : {"pipeline", "pipeline_async", "pipeline_stage"})
    node.annotations.erase(key);
  return std::make_shared<const ir::StmtNode>(std::move(node));
}

// The statements of the body, and what is allocated around them.
void Flatten(const Stmt& s, Plan* plan, std::vector<Stmt>* parts) {
  if (s->kind == StmtKind::kAlloc) {
    plan->buffers.push_back(s->buffer);
    return Flatten(s->body, plan, parts);
  }
  if (s->kind == StmtKind::kSeq) {
    for (const Stmt& child : s->stmts) Flatten(child, plan, parts);
    return;
  }
  parts->push_back(s);
}

struct Touch {
  bool reads = false, writes = false;
};
Touch TouchOf(const Stmt& s, const Buffer& b) {
  Touch touch;
  ir::VisitStmts(s, [&](const Stmt& part) {
    touch.writes |= part->kind == StmtKind::kStore && part->buffer == b;
    return true;
  });
  ir::VisitExprsIn(s, [&](const Expr& e) {
    touch.reads |= e->kind == ir::ExprKind::kLoad && e->buffer == b;
    return true;
  });
  return touch;
}

std::vector<Buffer> StoredIn(const std::vector<Part>& parts) {
  std::vector<Buffer> stored;
  for (const Part& p : parts) {
    ir::VisitStmts(p.stmt, [&](const Stmt& s) {
      bool fresh = s->kind == StmtKind::kStore &&
                   std::find(stored.begin(), stored.end(), s->buffer) == stored.end();
      if (fresh) stored.push_back(s->buffer);
      return true;
    });
  }
  return stored;
}

// What passes from a stage to a later one is allocated in the body (so nothing passes between
// iterations), and nothing passes to an earlier one.
bool IsSound(const Plan& plan) {
  for (const Buffer& b : StoredIn(plan.parts)) {
    bool owned = std::find(plan.buffers.begin(), plan.buffers.end(), b) != plan.buffers.end();
    for (size_t i = 0; i < plan.parts.size(); ++i) {
      for (size_t j = i + 1; j < plan.parts.size(); ++j) {
        Touch first = TouchOf(plan.parts[i].stmt, b), second = TouchOf(plan.parts[j].stmt, b);
        bool both = (first.reads || first.writes) && (second.reads || second.writes) &&
                    (first.writes || second.writes);
        if (!both || plan.parts[i].stage == plan.parts[j].stage) continue;
        if (!owned || plan.parts[i].stage > plan.parts[j].stage) return false;
      }
    }
  }
  return true;
}

// Copies that a copy engine can do: stores to shared memory under loops and conditions, of what no
// other one of them brings, and to each element once, so that their order does not matter.
bool CanBeAsync(const Plan& plan) {
  std::vector<Part> first;
  for (const Part& p : plan.parts) {
    if (p.stage == 0) first.push_back(p);
  }
  bool possible = true;
  for (const Buffer& b : StoredIn(first)) possible &= b->scope == ir::Scope::kShared;
  for (const Part& p : first) {
    possible = possible && StoresOnce(p.stmt);
    ir::VisitStmts(p.stmt, [&](const Stmt& s) {
      possible &= s->kind != StmtKind::kAlloc && s->kind != StmtKind::kAsync &&
                  s->kind != StmtKind::kSync && s->kind != StmtKind::kEvaluate;
      return possible;
    });
    for (const Buffer& b : StoredIn(first)) possible &= !TouchOf(p.stmt, b).reads;
  }
  return possible;
}

std::optional<Plan> PlanOf(const Stmt& loop, const Stmt& body) {
  const ir::AnnotationValue* order = Find(loop, "pipeline");
  const int64_t *min = ir::AsInt(loop->range.min), *extent = ir::AsInt(loop->range.extent);
  if (order == nullptr || !std::holds_alternative<std::string>(*order) || min == nullptr ||
      extent == nullptr || loop->var->dtype != ir::kI64)
    return std::nullopt;
  Plan plan;
  plan.loop = loop;
  plan.consumers_first = std::get<std::string>(*order) == "consumers";
  plan.async = Find(loop, "pipeline_async") != nullptr;
  plan.min = *min;
  plan.extent = *extent;
  std::vector<Stmt> parts;
  Flatten(body, &plan, &parts);
  int64_t stage = -1;
  for (size_t i = parts.size(); i-- > 0;) {
    const ir::AnnotationValue* own = Find(parts[i], "pipeline_stage");
    if (own != nullptr && std::holds_alternative<int64_t>(*own)) stage = std::get<int64_t>(*own);
    if (stage < 0) return std::nullopt;
    plan.last = std::max(plan.last, stage);
    plan.parts.insert(plan.parts.begin(), {WithoutMarks(parts[i]), stage});
  }
  plan.async = plan.async && CanBeAsync(plan);
  bool possible = plan.last > 0 && plan.last < plan.extent && IsSound(plan);
  return possible ? std::optional<Plan>(std::move(plan)) : std::nullopt;
}

// B[i…] → B'[slot, i…]
class SlotRewriter : public ir::Rewriter {
 public:
  struct Ring {
    Buffer buffer;
    int64_t slots;
  };
  SlotRewriter(const std::map<const ir::BufferNode*, Ring>& rings, const ir::Var& iteration)
      : rings_(rings), iteration_(iteration) {}
  Expr RewriteExpr(const Expr& e) override {
    Expr r = RewriteChildren(e);
    if (r->kind != ir::ExprKind::kLoad) return r;
    auto it = rings_.find(r->buffer.get());
    return it == rings_.end() ? r
                              : ir::Load(it->second.buffer, Slotted(it->second, r->args), r->mask);
  }
  Stmt RewriteStmt(const Stmt& s) override {
    Stmt r = RewriteChildren(s);
    if (r->kind != StmtKind::kStore) return r;
    auto it = rings_.find(r->buffer.get());
    if (it == rings_.end()) return r;
    return ir::MakeStore(it->second.buffer, Slotted(it->second, r->indices), r->value, r->mask);
  }

 private:
  std::vector<Expr> Slotted(const Ring& ring, const std::vector<Expr>& indices) const {
    std::vector<Expr> all = {ir::FloorMod(iteration_, ir::Int(ring.slots))};
    all.insert(all.end(), indices.begin(), indices.end());
    return all;
  }
  const std::map<const ir::BufferNode*, Ring>& rings_;
  const ir::Var& iteration_;
};

class PipelineBuilder {
 public:
  PipelineBuilder(Plan plan, Cloner* cloner) : plan_(std::move(plan)), cloner_(*cloner) {}

  Stmt Build() {
    MakeRings();
    std::vector<Stmt> stmts;
    for (int64_t t = 0; t < plan_.last; ++t) Step(ir::Int(plan_.min + t), t, &stmts);
    ir::Var k = ir::MakeVar(plan_.loop->var->name);
    std::vector<Stmt> body;
    Step(k + ir::Int(plan_.min + plan_.last), plan_.last, &body);
    ir::Annotations annotations = WithoutMarks(plan_.loop)->annotations;
    stmts.push_back(ir::MakeFor(k, ir::Int(0), ir::Int(plan_.extent - plan_.last),
                                ir::MakeSeq(std::move(body)), ir::ForKind::kSerial, annotations));
    for (int64_t t = plan_.extent; t < plan_.extent + plan_.last; ++t)
      Step(ir::Int(plan_.min + t), t, &stmts);
    Stmt all = ir::MakeSeq(std::move(stmts));
    for (size_t i = plan_.buffers.size(); i-- > 0;)
      all = ir::MakeAlloc(rings_.at(plan_.buffers[i].get()).buffer, all);
    return all;
  }

 private:
  void MakeRings() {
    for (const Buffer& b : plan_.buffers) {
      int64_t first = plan_.last, last = 0;
      for (const Part& p : plan_.parts) {
        Touch touch = TouchOf(p.stmt, b);
        if (!touch.reads && !touch.writes) continue;
        first = std::min(first, p.stage);
        last = std::max(last, p.stage);
      }
      int64_t apart = std::max<int64_t>(last - first, 0);
      int64_t slots = plan_.consumers_first ? std::max<int64_t>(apart, 1) : apart + 1;
      auto node = std::make_shared<ir::BufferNode>(*b);
      node->shape.insert(node->shape.begin(), ir::Int(slots));
      rings_[b.get()] = {node, slots};
    }
  }

  // Everything that happens at time t: the parts of stage s work on iteration t - s. `time` is t as
  // an expression; in the steady state t stands for any time from `last` on.
  void Step(const Expr& time, int64_t t, std::vector<Stmt>* out) {
    std::vector<Part> parts = plan_.parts;
    if (plan_.consumers_first) {
      std::stable_sort(parts.begin(), parts.end(),
                       [](const Part& a, const Part& b) { return a.stage > b.stage; });
    }
    bool fetched = false;
    // Before the step, so that one barrier serves both what has landed and the slot that is free
    // now.
    if (plan_.async && t >= plan_.last) {
      int64_t pending = t < plan_.extent ? plan_.last - 1 : plan_.extent - 1 - (t - plan_.last);
      out->push_back(ir::MakeSync(ir::SyncKind::kWait, pending));
    }
    for (const Part& p : parts) {
      if (t < p.stage || t - p.stage >= plan_.extent) continue;
      Stmt stmt = SlotsAt(p.stmt, Iteration(time, p.stage));
      if (plan_.async && p.stage == 0) {
        stmt = ir::MakeAsync(stmt);
        fetched = true;
      }
      out->push_back(stmt);
    }
    if (fetched) out->push_back(ir::MakeSync(ir::SyncKind::kCommit));
  }

  static Expr Iteration(const Expr& time, int64_t stage) { return time - ir::Int(stage); }

  Stmt SlotsAt(const Stmt& s, const Expr& iteration) {
    Stmt slotted = SlotRewriter(rings_, plan_.loop->var).RewriteStmt(s);
    return cloner_.Clone(ir::Substitute(slotted, {{plan_.loop->var.get(), iteration}}));
  }

  Plan plan_;
  Cloner& cloner_;
  std::map<const ir::BufferNode*, SlotRewriter::Ring> rings_;
};

class PipelineFinder : public ir::Rewriter {
 public:
  explicit PipelineFinder(const ir::Function& f) : cloner_(f) {}
  Stmt RewriteStmt(const Stmt& s) override {
    Stmt r = RewriteChildren(s);
    if (r->kind != StmtKind::kFor || Find(r, "pipeline") == nullptr) return r;
    std::optional<Plan> plan = PlanOf(r, r->body);
    return plan.has_value() ? PipelineBuilder(*std::move(plan), &cloner_).Build() : WithoutMarks(r);
  }

 private:
  Cloner cloner_;
};

}  // namespace

absl::StatusOr<Function> InjectSoftwarePipeline(const Function& f, const PassContext&) {
  Function result = f;
  result.body = PipelineFinder(f).RewriteStmt(f.body);
  return result;
}

}  // namespace tilewright::transform
