// TRANSFORMATIONS of merge_threads (kLoops → kLoops)
//
//   for b blockIdx.x { for k { for t threadIdx.x { S1 }; for u threadIdx.x { S2 } } }
//     → for b blockIdx.x { for t threadIdx.x { for k { barrier; S1; barrier; S2[u := t] } } }
//
// One nest of thread loops for each launch, as wide as its widest loop on each axis (narrower ones
// get a condition), on the first axes that there are, and a barrier before every part; prune_sync
// takes away those that nothing needs. A part below fewer axes is done by the threads at 0 of the
// others, or by all where it writes private buffers only. A statement without bound loops is the
// launch of one thread. Threads that have fragments together are neighbours along x, whether a loop
// is bound to it or not; a copy that is marked `bulk_copy` is a part of its own.
//
//   alloc B shared, inside of a launch → around its thread loops; below thread loops: one part each
//
//   alloc B global, inside of a launch → around the launch, one part for each iteration around it
//
//   alloc B shared or local, around several launches → global
//
//   alloc B local, elsewhere → stays: each thread has a whole copy and uses its own part
//   (compact_buffers shrinks it afterwards); refused where an element would pass between threads
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "compiler/analysis/access_region.h"
#include "compiler/ir/ir_text.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/visit.h"
#include "compiler/transform/clone.h"
#include "compiler/transform/passes.h"
#include "compiler/transform/thread_regions.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::transform {
namespace {

using ir::Buffer;
using ir::Expr;
using ir::Stmt;
using ir::StmtKind;
using ir::StorageRank;
using support::StrCat;

constexpr size_t kMaxShownBytes = 2000;

absl::Status Refused(std::string_view reason, std::string_view what, const Stmt& s) {
  std::string text = ir::Print(s);
  if (text.size() > kMaxShownBytes) text = text.substr(0, kMaxShownBytes) + "...";
  return support::FailedPrecondition(StrCat("transform.merge_threads.", reason),
                                     StrCat(what, " in:\n", text));
}

// B[i…] → B'[prefix…, i…]
class Prefixer : public ir::Rewriter {
 public:
  Prefixer(const Buffer& from, Buffer to, std::vector<Expr> prefix)
      : from_(from), to_(std::move(to)), prefix_(std::move(prefix)) {}
  Expr RewriteExpr(const Expr& e) override {
    Expr r = RewriteChildren(e);
    bool ours = r->kind == ir::ExprKind::kLoad && r->buffer == from_;
    return ours ? ir::Load(to_, Extended(r->args), r->mask) : r;
  }
  Stmt RewriteStmt(const Stmt& s) override {
    Stmt r = RewriteChildren(s);
    bool ours = r->kind == StmtKind::kStore && r->buffer == from_;
    return ours ? ir::MakeStore(to_, Extended(r->indices), r->value, r->mask) : r;
  }

 private:
  std::vector<Expr> Extended(const std::vector<Expr>& indices) const {
    std::vector<Expr> all = prefix_;
    all.insert(all.end(), indices.begin(), indices.end());
    return all;
  }
  const Buffer from_;
  Buffer to_;
  std::vector<Expr> prefix_;
};

// The statements of `s` once for each iteration of the unrolled loops around them: pieces of a
// thread's work that may be apart from each other, with those of other threads in between. What
// they allocate stays away: it is for regions of other buffers. Just `s` where there are too many.
std::vector<Stmt> UnrolledPieces(const Stmt& s) {
  constexpr size_t kMaxPieces = 512;
  std::vector<Stmt> pieces;
  const auto add = [&](std::vector<Stmt> more) {
    for (Stmt& piece : more) pieces.push_back(std::move(piece));
  };
  if (s->kind == StmtKind::kSeq) {
    for (const Stmt& child : s->stmts) add(UnrolledPieces(child));
  } else if (s->kind == StmtKind::kAlloc) {
    add(UnrolledPieces(s->body));
  } else if (s->kind == StmtKind::kFor) {
    const int64_t* extent = ir::AsInt(s->range.extent);
    if (s->for_kind == ir::ForKind::kUnrolled && extent != nullptr && ir::IsInt(s->range.min, 0)) {
      for (int64_t i = 0; i < *extent; ++i)
        add(UnrolledPieces(ir::Substitute(s->body, {{s->var.get(), ir::Int(i, s->var->dtype)}})));
    } else {
      for (const Stmt& piece : UnrolledPieces(s->body))
        pieces.push_back(ir::MakeFor(s->var, s->range.min, s->range.extent, piece));
    }
  } else {
    pieces = {s};
  }
  return pieces.size() <= kMaxPieces ? pieces : std::vector<Stmt>{s};
}

// Whether there is a copy that one thread asks for next to what others do with the tile.
bool IsAroundBulkCopy(const Stmt& s) {
  const auto is_copy = [](const Stmt& loop) {
    return loop->kind == StmtKind::kFor && loop->annotations.contains(ir::kBulkCopyKey);
  };
  if (is_copy(s)) return false;
  bool found = false;
  ir::VisitStmts(s, [&](const Stmt& part) {
    found = found || is_copy(part);
    return !found;
  });
  return found;
}

// What stands around a statement below the block loops.
struct Frame {
  unsigned active = 0;       // axes of the thread loops around
  std::vector<Expr> guards;  // conditions for the thread to take part
  std::vector<Stmt> loops;   // serial loops around, outermost first
  bool no_barrier = false;   // inside of async { }
};

class LaunchMerger {
 public:
  explicit LaunchMerger(const ir::Function& f) : function_(f) {}

  absl::StatusOr<Stmt> Run(const Stmt& s);

 private:
  struct Use {  // of a private buffer by a part
    Stmt part;
    std::vector<Stmt> loops;
    unsigned active;
    bool redundant;  // done by all threads of the axes that are not active
  };

  absl::Status FindExtents(const Stmt& body);
  void NameAxes();
  absl::StatusOr<Stmt> Merge(const Stmt& s, Frame frame);
  absl::StatusOr<Stmt> MergeFor(const Stmt& s, Frame frame);
  absl::StatusOr<Stmt> MergeIf(const Stmt& s, Frame frame);
  absl::StatusOr<Stmt> MergeAlloc(const Stmt& s, const Frame& frame);
  absl::StatusOr<Stmt> Part(const Stmt& s, const Frame& frame);
  Stmt LiftAllocs(const Stmt& s, const Frame& frame);
  Stmt Lift(const Buffer& buffer, const Stmt& body, const Frame& frame);
  absl::Status CheckOwned(const Buffer& buffer, const Frame& frame, const Stmt& shown);
  std::vector<Expr> AtZero(unsigned axes) const;

  const ir::Function& function_;
  std::vector<Stmt> blocks_;
  ThreadAxes threads_;
  std::vector<size_t> order_;   // the schedule's axes that become x, y and z of the launch
  std::vector<Buffer> lifted_;  // shared and global buffers of the launch
  std::map<const ir::BufferNode*, std::vector<Use>> uses_;
};

absl::Status LaunchMerger::FindExtents(const Stmt& body) {
  absl::Status status = absl::OkStatus();
  const auto widen = [&](size_t axis, int64_t extent) {
    if (threads_.var[axis] != nullptr && extent <= threads_.extent[axis]) return;
    threads_.extent[axis] = extent;
    threads_.var[axis] = ir::MakeVar("t");
  };
  ir::VisitStmts(body, [&](const Stmt& s) {
    if (s->kind != StmtKind::kFor || !status.ok()) return status.ok();
    if (ir::IsBlockAxis(s->for_kind))
      status =
          Refused("block_axes", "expected block axes in one nest around everything else", body);
    // The threads that have fragments together are neighbours along x, whatever else is there.
    if (const int together = ir::FragmentThreads(*s); together > 1) widen(0, together);
    if (!ir::IsThreadAxis(s->for_kind)) return true;
    const int64_t* extent = ir::AsInt(s->range.extent);
    size_t axis = static_cast<size_t>(ir::AxisOf(s->for_kind));
    if (extent == nullptr || !ir::IsInt(s->range.min, 0)) {
      status = Refused("extent", "expected thread axes from 0 to a constant", s);
    } else {
      widen(axis, *extent);
    }
    return true;
  });
  NameAxes();
  return status;
}

// Axes of several threads take x, y and z in their order, those of one thread what is left: the
// linear numbers of threads stay, and a group of 1 x 3 is one of 3. Not every driver's compiler
// makes right code of the former (compiler/targets/opencl/README.md).
void LaunchMerger::NameAxes() {
  for (const bool several : {true, false}) {
    for (size_t a = 0; a < 3; ++a) {
      if (threads_.var[a] == nullptr || (threads_.extent[a] > 1) != several) continue;
      threads_.var[a] = ir::MakeVar(StrCat("t", std::string(1, "xyz"[order_.size()])));
      order_.push_back(a);
    }
  }
}

std::vector<Expr> LaunchMerger::AtZero(unsigned axes) const {
  std::vector<Expr> conditions;
  for (size_t a = 0; a < 3; ++a) {
    if ((axes >> a & 1) != 0) conditions.push_back(ir::Eq(threads_.var[a], ir::Int(0)));
  }
  return conditions;
}

// A larger buffer outside of the thread loops, and outside of the launch where it is global, in
// which every iteration that had its own has a part.
Stmt LaunchMerger::Lift(const Buffer& buffer, const Stmt& body, const Frame& frame) {
  auto node = std::make_shared<ir::BufferNode>(*buffer);
  std::vector<Expr> shape, prefix;
  if (StorageRankOf(buffer->scope) == StorageRank::kDevice) {
    for (const Stmt& b : blocks_) {
      shape.push_back(b->range.extent);
      prefix.push_back(b->var);
    }
  }
  for (size_t a = 0; a < 3; ++a) {
    if ((frame.active & threads_.Several()) >> a & 1) {
      shape.push_back(ir::Int(threads_.extent[a]));
      prefix.push_back(threads_.var[a]);
    }
  }
  node->shape.insert(node->shape.begin(), shape.begin(), shape.end());
  lifted_.push_back(node);
  return Prefixer(buffer, node, std::move(prefix)).RewriteStmt(body);
}

// Of a part without thread loops.
Stmt LaunchMerger::LiftAllocs(const Stmt& s, const Frame& frame) {
  std::vector<Stmt> allocs;
  ir::VisitStmts(s, [&](const Stmt& part) {
    bool lifts = part->kind == StmtKind::kAlloc &&
                 StorageRankOf(part->buffer->scope) != StorageRank::kThread;
    if (lifts) allocs.push_back(part);
    return true;
  });
  if (allocs.empty()) return s;
  class Unwrap : public ir::Rewriter {
   public:
    Stmt RewriteStmt(const Stmt& part) override {
      Stmt r = RewriteChildren(part);
      bool lifts =
          r->kind == StmtKind::kAlloc && StorageRankOf(r->buffer->scope) != StorageRank::kThread;
      return lifts ? r->body : r;
    }
  };
  Stmt result = Unwrap().RewriteStmt(s);
  for (const Stmt& a : allocs) result = Lift(a->buffer, result, frame);
  return result;
}

absl::StatusOr<Stmt> LaunchMerger::Part(const Stmt& s, const Frame& frame) {
  if (s->kind == StmtKind::kSync) return s;
  if (s->kind == StmtKind::kSeq && s->stmts.empty()) return s;
  // Different statements of one sequence may be done by different threads.
  if (s->kind == StmtKind::kSeq && (frame.active | ~threads_.Several()) != ~0u) {
    std::vector<Stmt> parts;
    for (const Stmt& child : s->stmts) {
      TW_ASSIGN(Stmt part, Part(child, frame));
      parts.push_back(std::move(part));
    }
    return ir::MakeSeq(std::move(parts));
  }
  Stmt part = LiftAllocs(s, frame);
  const TouchedBuffers touched = TouchedIn(part);
  const auto is_private = [](const auto& stored) {
    return StorageRankOf(stored.second->scope) == StorageRank::kThread;
  };
  bool writes_private = std::any_of(touched.stored.begin(), touched.stored.end(), is_private);
  bool writes_others = !std::all_of(touched.stored.begin(), touched.stored.end(), is_private);
  unsigned missing = threads_.Several() & ~frame.active;
  if (missing != 0 && writes_private && writes_others) {
    return Refused(
        "mixed",
        "expected that a part outside of some thread loops writes either private buffers "
        "or others, found both",
        s);
  }
  std::vector<Expr> conditions = frame.guards;
  if (missing != 0 && !writes_private) {
    for (Expr& c : AtZero(missing)) conditions.push_back(std::move(c));
  }
  bool redundant = missing != 0 && writes_private;
  for (auto& [buffer, uses] : uses_) {
    if (touched.all.contains(buffer->name))
      uses.push_back({part, frame.loops, frame.active, redundant});
  }
  if (!conditions.empty()) {
    Expr all = conditions[0];
    for (size_t i = 1; i < conditions.size(); ++i) all = all && conditions[i];
    part = ir::MakeIf(all, part);
  }
  if (frame.no_barrier) return part;
  return ir::MakeSeq({ir::MakeSync(ir::SyncKind::kBarrier), part});
}

absl::StatusOr<Stmt> LaunchMerger::MergeFor(const Stmt& s, Frame frame) {
  if (!ir::IsThreadAxis(s->for_kind)) {
    if (threads_.Mentions(s->range.min) || threads_.Mentions(s->range.extent) ||
        !frame.guards.empty()) {
      bool ranges = threads_.Mentions(s->range.min) || threads_.Mentions(s->range.extent);
      if (ranges)
        return Refused("divergent", "expected a loop that is the same for all threads", s);
    }
    frame.loops.push_back(s);
    TW_ASSIGN(Stmt body, Merge(s->body, frame));
    ir::ForKind kind = ir::IsConcurrent(s->for_kind) ? ir::ForKind::kSerial : s->for_kind;
    return ir::MakeFor(s->var, s->range.min, s->range.extent, body, kind, s->annotations);
  }
  size_t axis = static_cast<size_t>(ir::AxisOf(s->for_kind));
  frame.active |= 1u << axis;
  const Expr& thread = threads_.var[axis];
  if (*ir::AsInt(s->range.extent) < threads_.extent[axis])
    frame.guards.push_back(thread < ir::Int(*ir::AsInt(s->range.extent)));
  return Merge(ir::Substitute(s->body, {{s->var.get(), ir::Cast(s->var->dtype, thread)}}), frame);
}

absl::StatusOr<Stmt> LaunchMerger::MergeIf(const Stmt& s, Frame frame) {
  if (ir::HasLoad(s->condition))
    return Refused("divergent", "expected a condition over loops around thread loops", s);
  bool uniform = !threads_.Mentions(s->condition);
  Frame then_frame = frame, else_frame = frame;
  if (!uniform) {
    then_frame.guards.push_back(s->condition);
    else_frame.guards.push_back(ir::Not(s->condition));
  }
  TW_ASSIGN(Stmt body, Merge(s->body, then_frame));
  Stmt other;
  if (s->else_body != nullptr) {
    TW_ASSIGN(other, Merge(s->else_body, else_frame));
  }
  if (uniform) return ir::MakeIf(s->condition, body, other);
  return other == nullptr ? body : ir::MakeSeq({body, other});
}

absl::StatusOr<Stmt> LaunchMerger::MergeAlloc(const Stmt& s, const Frame& frame) {
  if (StorageRankOf(s->buffer->scope) != StorageRank::kThread)
    return Merge(Lift(s->buffer, s->body, frame), frame);
  uses_[s->buffer.get()];
  TW_ASSIGN(Stmt body, Merge(s->body, frame));
  TW_TRY(CheckOwned(s->buffer, frame, s));
  uses_.erase(s->buffer.get());
  return ir::MakeAlloc(s->buffer, body);
}

// Every element of a private buffer stays with one thread: parts below thread loops keep to the
// part of their thread, and what all threads do alike only writes.
absl::Status LaunchMerger::CheckOwned(const Buffer& buffer, const Frame& frame, const Stmt& shown) {
  auto refuse = [&](std::string_view why) {
    return Refused("passes_between_threads",
                   StrCat("expected that each element of ", buffer->name,
                          " (scope local) belongs to one thread, found that ", why,
                          "; scope shared is for all threads of a block"),
                   shown);
  };
  unsigned several = threads_.Several() & ~frame.active, owners = 0;
  bool own_writes = false;
  std::vector<Stmt> wholes;  // uses by threads, with the loops around
  analysis::Analyzer analyzer(function_);
  for (const Stmt& l : blocks_) analyzer.SetRange(l->var, l->range);
  for (const Stmt& l : frame.loops) analyzer.SetRange(l->var, l->range);
  for (size_t a = 0; a < 3; ++a) {
    if (threads_.var[a] != nullptr)
      analyzer.SetRange(threads_.var[a], {ir::Int(0), ir::Int(threads_.extent[a])});
  }
  const auto add_boxes = [&](const Stmt& s, std::vector<ir::BufferRegion>* boxes) {
    const auto read = analysis::ReadRegion(s, buffer, analyzer);
    const auto written = analysis::WriteRegion(s, buffer, analyzer);
    own_writes = own_writes || written.has_value();
    if (read.has_value()) boxes->push_back(*read);
    if (written.has_value()) boxes->push_back(*written);
  };
  std::vector<ir::BufferRegion> boxes;
  for (const Use& use : uses_[buffer.get()]) {
    unsigned own = use.active & several;
    if (own == 0) continue;
    if (owners != 0 && own != owners) return refuse("different axes use it");
    owners = own;
    Stmt whole = use.part;
    for (size_t i = use.loops.size(); i-- > frame.loops.size();) {
      const Stmt& l = use.loops[i];
      whole = ir::MakeFor(l->var, l->range.min, l->range.extent, whole);
    }
    add_boxes(whole, &boxes);
    wholes.push_back(std::move(whole));
  }
  if (owners == 0 || !own_writes) return absl::OkStatus();
  for (const Use& use : uses_[buffer.get()]) {
    if ((use.active & several) != 0) continue;
    bool reads = false;
    ir::VisitExprsIn(use.part, [&](const Expr& e) {
      reads |= e->kind == ir::ExprKind::kLoad && e->buffer == buffer;
      return !reads;
    });
    if (reads) return refuse("a part outside of the thread loops reads it");
  }
  if (OwnedByThreads(boxes, threads_, owners)) return absl::OkStatus();
  boxes.clear();
  for (const Stmt& whole : wholes) {
    for (const Stmt& piece : UnrolledPieces(whole)) add_boxes(piece, &boxes);
  }
  return OwnedByThreads(boxes, threads_, owners) ? absl::OkStatus()
                                                 : refuse("several threads may use one element");
}

absl::StatusOr<Stmt> LaunchMerger::Merge(const Stmt& s, Frame frame) {
  if (!HasLoop(s, ir::IsThreadAxis) && !IsAroundBulkCopy(s)) return Part(s, frame);
  switch (s->kind) {
    case StmtKind::kFor:
      return MergeFor(s, std::move(frame));
    case StmtKind::kSeq: {
      std::vector<Stmt> stmts;
      for (const Stmt& child : s->stmts) {
        TW_ASSIGN(Stmt merged, Merge(child, frame));
        stmts.push_back(std::move(merged));
      }
      return ir::MakeSeq(std::move(stmts));
    }
    case StmtKind::kIf:
      return MergeIf(s, std::move(frame));
    case StmtKind::kLet: {
      if (ir::HasLoad(s->value))
        return Refused("divergent", "expected a value without loads around thread loops", s);
      TW_ASSIGN(Stmt body, Merge(s->body, frame));
      return ir::MakeLet(s->var, s->value, body);
    }
    case StmtKind::kAlloc:
      return MergeAlloc(s, frame);
    case StmtKind::kAsync: {
      frame.no_barrier = true;
      TW_ASSIGN(Stmt body, Merge(s->body, frame));
      return ir::MakeSeq({ir::MakeSync(ir::SyncKind::kBarrier), ir::MakeAsync(body)});
    }
    default:
      return Refused("form", "expected thread loops under loops, conditions and allocations", s);
  }
}

absl::StatusOr<Stmt> LaunchMerger::Run(const Stmt& s) {
  Stmt at = s;
  std::vector<Buffer> inner;
  while ((at->kind == StmtKind::kFor && ir::IsBlockAxis(at->for_kind)) ||
         (at->kind == StmtKind::kAlloc && HasLoop(at->body, ir::IsBlockAxis))) {
    if (at->kind == StmtKind::kFor) {
      blocks_.push_back(at);
    } else {
      inner.push_back(at->buffer);
    }
    at = at->body;
  }
  for (size_t i = inner.size(); i-- > 0;) at = ir::MakeAlloc(inner[i], at);
  TW_TRY(FindExtents(at));
  TW_ASSIGN(Stmt body, Merge(at, {}));
  for (size_t i = 0; i < order_.size(); ++i) {
    const size_t a = order_[i];
    const auto kind = static_cast<ir::ForKind>(static_cast<size_t>(ir::ForKind::kThreadX) + i);
    body = ir::MakeFor(threads_.var[a], ir::Int(0), ir::Int(threads_.extent[a]), body, kind);
  }
  for (bool global : {false, true}) {
    for (const Buffer& b : lifted_) {
      if ((StorageRankOf(b->scope) == StorageRank::kDevice) == global)
        body = ir::MakeAlloc(b, body);
    }
    if (global) break;
    for (size_t i = blocks_.size(); i-- > 0;) {
      const Stmt& l = blocks_[i];
      body = ir::MakeFor(l->var, l->range.min, l->range.extent, body, l->for_kind, l->annotations);
    }
  }
  return body;
}

// A buffer of a block or a thread that stands around several launches: it becomes global.
bool IsSharedByLaunches(const Stmt& alloc) {
  Stmt at = alloc;
  while (at->kind == StmtKind::kAlloc) at = at->body;
  return at->kind == StmtKind::kSeq && HasLoop(at, ir::IsBlockAxis);
}

// Above the launches: sequences, and global buffers between them.
absl::StatusOr<Stmt> MergeHost(const ir::Function& f, const Stmt& s) {
  if (s->kind == StmtKind::kSeq) {
    // Thread loops one after the other without block axes are launches of one block each.
    std::vector<Stmt> stmts;
    for (const Stmt& child : s->stmts) {
      TW_ASSIGN(Stmt merged, MergeHost(f, child));
      stmts.push_back(std::move(merged));
    }
    return ir::MakeSeq(std::move(stmts));
  }
  if (s->kind == StmtKind::kAlloc && StorageRankOf(s->buffer->scope) == StorageRank::kDevice) {
    TW_ASSIGN(Stmt body, MergeHost(f, s->body));
    return ir::MakeAlloc(s->buffer, body);
  }
  if (s->kind == StmtKind::kAlloc && IsSharedByLaunches(s)) {
    auto node = std::make_shared<ir::BufferNode>(*s->buffer);
    node->scope = ir::Scope::kGlobal;
    TW_ASSIGN(Stmt body, MergeHost(f, ir::ReplaceBuffers(s->body, {{s->buffer.get(), node}})));
    return ir::MakeAlloc(node, body);
  }
  return LaunchMerger(f).Run(s);
}

}  // namespace

absl::StatusOr<Function> MergeThreads(const Function& f, const PassContext&) {
  Function result = f;
  TW_ASSIGN(result.body, MergeHost(f, f.body));
  return result;
}

}  // namespace tilewright::transform
