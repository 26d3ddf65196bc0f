// TRANSFORMATIONS of prune_sync (kLoops → kLoops)
//   barrier; S
//     → S, where no thread in S may touch what another thread touched since the last barrier that
//       stays, if one of the two writes (asynchronous stores count again where they are waited for)
//   for i { barrier; S } → barrier; for i { S }, where S stores to no element twice over all i and
//       all threads, and reads nothing that it stores: the rounds of a copy
// Loops are looked at over some iterations one after the other, so that what the end of one
// iteration and the start of the next share counts as well. A barrier that any of these views needs
// stays. Loops in loops have as many views as the product of their iterations: a launch with too
// many keeps all its barriers.
#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <vector>

#include "compiler/analysis/access_region.h"
#include "compiler/analysis/simplify.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/thread_regions.h"
#include "deploy/support/status.h"

namespace tilewright::transform {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Stmt;
using ir::StmtKind;

// Iterations of a loop that are looked at: more than any ring of slots is long.
constexpr int kIterations = 6;
// Comparisons of two accesses, of a launch: the networks' kernels need up to 1,200.
constexpr int64_t kMostComparisons = 1 << 14;

bool IsBarrier(const Stmt& s) {
  return s->kind == StmtKind::kSync && s->sync == ir::SyncKind::kBarrier;
}
bool HasBarrier(const Stmt& s) {
  bool found = false;
  ir::VisitStmts(s, [&](const Stmt& part) {
    found = found || IsBarrier(part);
    return !found;
  });
  return found;
}

// Moves barriers in front of loops whose iterations have nothing to do with each other.
class BarriersOutOfLoops : public ir::Rewriter {
 public:
  // `axes`: the thread loops around.
  explicit BarriersOutOfLoops(const std::vector<Stmt>& axes) : axes_(axes) {}

  Stmt RewriteStmt(const Stmt& s) override {
    if (!HasBarrier(s)) return s;
    const Stmt inside = RewriteChildren(s);
    if (inside->kind != StmtKind::kFor || inside->body->kind != StmtKind::kSeq) return inside;
    const std::vector<Stmt>& stmts = inside->body->stmts;
    if (stmts.size() != 2 || !IsBarrier(stmts[0]) || !IsApart(*inside, stmts[1])) return inside;
    return ir::MakeSeq({stmts[0], LoopOf(*inside, stmts[1])});
  }

 private:
  static Stmt LoopOf(const ir::StmtNode& loop, Stmt body) {
    return ir::MakeFor(loop.var, loop.range.min, loop.range.extent, std::move(body), loop.for_kind,
                       loop.annotations);
  }

  bool IsApart(const ir::StmtNode& loop, const Stmt& body) const {
    std::set<Buffer> written, read;
    bool known = true;
    ir::VisitStmts(body, [&](const Stmt& s) {
      if (s->kind == StmtKind::kStore) written.insert(s->buffer);
      known = known && s->kind != StmtKind::kSync && s->kind != StmtKind::kAsync &&
              s->kind != StmtKind::kEvaluate;
      return known;
    });
    ir::VisitExprsIn(body, [&](const Expr& e) {
      if (e->kind == ir::ExprKind::kLoad) read.insert(e->buffer);
      return true;
    });
    for (const Buffer& b : written) known = known && !read.contains(b);
    if (!known) return false;
    Stmt everywhere = LoopOf(loop, body);
    for (const Stmt& axis : axes_) everywhere = LoopOf(*axis, everywhere);
    return StoresOnce(everywhere);
  }

  const std::vector<Stmt>& axes_;
};

struct Access {
  Buffer buffer;
  bool write;
  ir::BufferRegion own, all;  // of one thread, of all threads
};

// The threads of one launch.
class Pruner {
 public:
  Pruner(const analysis::Analyzer& analyzer, const Stmt& nest) : analyzer_(analyzer) {
    body_ = nest;
    while (body_->kind == StmtKind::kFor && ir::IsThreadAxis(body_->for_kind)) {
      size_t axis = static_cast<size_t>(ir::AxisOf(body_->for_kind));
      threads_.var[axis] = body_->var;
      threads_.extent[axis] = *ir::AsInt(body_->range.extent);
      analyzer_.SetRange(body_->var, body_->range);
      axes_.push_back(body_);
      body_ = body_->body;
    }
    body_ = BarriersOutOfLoops(axes_).RewriteStmt(body_);
    ir::VisitStmts(body_, [&](const Stmt& s) {
      bool shared = s->kind == StmtKind::kStore &&
                    StorageRankOf(s->buffer->scope) != ir::StorageRank::kThread;
      if (shared) written_.insert(s->buffer);
      return true;
    });
  }

  absl::StatusOr<Stmt> Run() {
    for (size_t before = SIZE_MAX; before != kept_.size() && !TooLong();) {
      before = kept_.size();
      pending_.clear();
      open_.clear();
      flying_.clear();
      candidate_ = nullptr;
      TW_TRY(Simulate(body_));
    }
    Stmt body = TooLong() ? body_ : Remove(body_);
    for (size_t i = axes_.size(); i-- > 0;) {
      const Stmt& l = axes_[i];
      body = ir::MakeFor(l->var, l->range.min, l->range.extent, body, l->for_kind, l->annotations);
    }
    return body;
  }

 private:
  bool TooLong() const { return comparisons_ > kMostComparisons; }

  absl::Status Simulate(const Stmt& s) {
    if (TooLong()) return absl::OkStatus();
    if (IsBarrier(s)) {
      candidate_ = s.get();
      if (kept_.contains(s.get())) pending_.clear();
      return absl::OkStatus();
    }
    if (s->kind == StmtKind::kSync) {
      Land(*s);
      return absl::OkStatus();
    }
    if (!HasBarrier(s)) return Part(s);
    switch (s->kind) {
      case StmtKind::kSeq:
        return Sequence(s->stmts);
      case StmtKind::kFor:
        return Loop(s);
      case StmtKind::kIf: {
        std::vector<Access> before = pending_;
        TW_TRY(Simulate(s->body));
        std::vector<Access> after = pending_;
        pending_ = std::move(before);
        candidate_ = nullptr;
        if (s->else_body != nullptr) TW_TRY(Simulate(s->else_body));
        candidate_ = nullptr;
        pending_.insert(pending_.end(), after.begin(), after.end());
        return absl::OkStatus();
      }
      default:
        return Simulate(s->body);
    }
  }

  // Statements without a barrier between them are one part: there each thread only depends on
  // itself.
  absl::Status Sequence(const std::vector<Stmt>& stmts) {
    std::vector<Stmt> run;
    for (size_t i = 0; i <= stmts.size(); ++i) {
      bool joins = i < stmts.size() && stmts[i]->kind != StmtKind::kSync &&
                   stmts[i]->kind != StmtKind::kAsync && !HasBarrier(stmts[i]);
      if (joins) {
        run.push_back(stmts[i]);
        continue;
      }
      if (!run.empty()) TW_TRY(Part(ir::MakeSeq(std::move(run))));
      run.clear();
      if (i < stmts.size()) TW_TRY(Simulate(stmts[i]));
    }
    return absl::OkStatus();
  }

  // What was issued asynchronously is written when its thread waits for it.
  void Land(const ir::StmtNode& s) {
    if (s.sync == ir::SyncKind::kCommit) {
      flying_.push_back(std::move(open_));
      open_.clear();
    }
    while (s.sync == ir::SyncKind::kWait && flying_.size() > static_cast<size_t>(s.pending)) {
      pending_.insert(pending_.end(), flying_.front().begin(), flying_.front().end());
      flying_.erase(flying_.begin());
    }
  }

  absl::Status Loop(const Stmt& s) {
    analyzer_.SetRange(s->var, s->range);
    const int64_t* extent = ir::AsInt(s->range.extent);
    std::vector<Access> before = pending_;
    int64_t iterations = extent == nullptr ? kIterations : std::min<int64_t>(*extent, kIterations);
    for (int64_t i = 0; i < iterations; ++i) {
      Expr value = s->var + ir::Int(i, s->var->dtype);
      TW_TRY(Simulate(i == 0 ? s->body : ir::Substitute(s->body, {{s->var.get(), value}})));
    }
    if (!KeepsOne(s->body)) {  // what is pending may be from any iteration
      ir::Var other = ir::MakeVar(s->var->name, s->var->dtype);
      analyzer_.SetRange(other, s->range);
      TW_TRY(Simulate(ir::Substitute(s->body, {{s->var.get(), other}})));
    }
    candidate_ = nullptr;
    if (extent == nullptr || *extent < 1)
      pending_.insert(pending_.end(), before.begin(), before.end());
    return absl::OkStatus();
  }

  bool KeepsOne(const Stmt& s) const {
    bool found = false;
    ir::VisitStmts(s, [&](const Stmt& part) {
      found = found || kept_.contains(part.get());
      // What stands under conditions and inner loops may not run.
      return !found && part->kind != StmtKind::kIf && (part == s || part->kind != StmtKind::kFor);
    });
    return found;
  }

  absl::Status Part(const Stmt& s) {
    std::vector<Access> accesses;
    Stmt everywhere = s;
    for (const Stmt& l : axes_)
      everywhere = ir::MakeFor(l->var, l->range.min, l->range.extent, everywhere);
    for (const Buffer& b : written_) {
      for (bool write : {false, true}) {
        auto region = write ? analysis::WriteRegion : analysis::ReadRegion;
        std::optional<ir::BufferRegion> own = region(s, b, analyzer_, {});
        if (own.has_value())
          accesses.push_back({b, write, *own, *region(everywhere, b, analyzer_, {})});
      }
    }
    comparisons_ += std::ssize(pending_) * std::ssize(accesses);
    if (TooLong()) return absl::OkStatus();
    bool conflict = false;
    for (const Access& a : pending_) {
      for (const Access& b : accesses) conflict = conflict || Conflict(a, b);
    }
    if (conflict) {
      if (candidate_ == nullptr) {
        return support::Internal("transform.prune_sync.no_barrier",
                                 "expected a barrier before every part, found none");
      }
      kept_.insert(candidate_);
      pending_.clear();
    }
    pending_.insert(pending_.end(), accesses.begin(), accesses.end());
    if (s->kind == StmtKind::kAsync) {
      std::copy_if(accesses.begin(), accesses.end(), std::back_inserter(open_),
                   [](const Access& a) { return a.write; });
    }
    candidate_ = nullptr;
    return absl::OkStatus();
  }

  bool Conflict(const Access& a, const Access& b) const {
    if (a.buffer != b.buffer || (!a.write && !b.write)) return false;
    return !SurelyApart(a.all, b.all) &&
           !OwnedByThreads({a.own, b.own}, threads_, threads_.Several());
  }

  // Everything but the barriers that nothing needs.
  Stmt Remove(const Stmt& s) const {
    class Remover : public ir::Rewriter {
     public:
      explicit Remover(const std::set<const ir::StmtNode*>& kept) : kept_(kept) {}
      Stmt RewriteStmt(const Stmt& part) override {
        if (IsBarrier(part)) return kept_.contains(part.get()) ? part : ir::MakeSeq({});
        return RewriteChildren(part);
      }

     private:
      const std::set<const ir::StmtNode*>& kept_;
    };
    return Remover(kept_).RewriteStmt(s);
  }

  struct ByName {
    bool operator()(const Buffer& a, const Buffer& b) const { return a->name < b->name; }
  };

  analysis::Analyzer analyzer_;
  ThreadAxes threads_;
  std::vector<Stmt> axes_;
  Stmt body_;
  std::set<Buffer, ByName> written_;
  std::set<const ir::StmtNode*> kept_;
  std::vector<Access> pending_;              // since the last barrier that stays
  std::vector<Access> open_;                 // asynchronous, not committed
  std::vector<std::vector<Access>> flying_;  // committed, oldest first
  const ir::StmtNode* candidate_ = nullptr;
  int64_t comparisons_ = 0;
};

class LaunchFinder {
 public:
  explicit LaunchFinder(const ir::Function& f) : analyzer_(f) {}

  absl::StatusOr<Stmt> Walk(const Stmt& s) {
    if (!HasBarrier(s)) return s;
    if (s->kind == StmtKind::kFor) {
      if (ir::IsThreadAxis(s->for_kind)) return Pruner(analyzer_, s).Run();
      analyzer_.SetRange(s->var, s->range);
    }
    if (IsBarrier(s)) return ir::MakeSeq({});  // of a launch without threads
    if (s->kind == StmtKind::kSeq) {
      std::vector<Stmt> stmts;
      for (const Stmt& child : s->stmts) {
        TW_ASSIGN(Stmt walked, Walk(child));
        stmts.push_back(std::move(walked));
      }
      return ir::MakeSeq(std::move(stmts));
    }
    ir::StmtNode node = *s;
    TW_ASSIGN(node.body, Walk(s->body));
    if (node.else_body != nullptr) {
      TW_ASSIGN(node.else_body, Walk(s->else_body));
    }
    return std::make_shared<const ir::StmtNode>(std::move(node));
  }

 private:
  analysis::Analyzer analyzer_;
};

}  // namespace

absl::StatusOr<Function> PruneSync(const Function& f, const PassContext&) {
  Function result = f;
  TW_ASSIGN(result.body, LaunchFinder(f).Walk(f.body));
  return result;
}

}  // namespace tilewright::transform
