#include "tests/support/race_check.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "compiler/ir/ir_text.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::tests {
namespace {

using ir::Expr;
using ir::ExprKind;
using ir::Stmt;
using ir::StmtKind;
using ir::StmtNode;
using support::StrCat;

// Who touched an element in one run of a concurrent loop.
struct Touch {
  std::optional<int64_t> writer, reader;  // iterations
};
struct ActiveLoop {
  const StmtNode* loop;
  int64_t iteration = 0;
  std::set<const ir::BufferNode*> shared;
  std::map<std::pair<const ir::BufferNode*, int64_t>, Touch> touches;
};

void CollectBuffers(const Stmt& s, std::set<const ir::BufferNode*>* buffers) {
  ir::VisitStmts(s, [&](const Stmt& x) {
    for (const auto* regions : {&x->reads, &x->writes}) {
      for (const ir::BufferRegion& r : *regions) buffers->insert(r.buffer.get());
    }
    return true;
  });
}

// Buffers used by the blocks outside `loop`.
void CollectOutside(const Stmt& s, const StmtNode* loop, std::set<const ir::BufferNode*>* buffers) {
  if (s.get() == loop) return;
  if (s->kind == StmtKind::kBlock) return CollectBuffers(s, buffers);
  if (s->kind == StmtKind::kFor) return CollectOutside(s->body, loop, buffers);
  for (const Stmt& child : s->stmts) CollectOutside(child, loop, buffers);
}

class Runner {
 public:
  Runner(const ir::Function& f, const std::vector<int64_t>& sizes, int64_t budget)
      : function_(f), budget_(budget) {
    for (size_t i = 0; i < sizes.size(); ++i) values_[f.size_params[i].get()] = sizes[i];
  }

  absl::Status Run(const Stmt& s) {
    switch (s->kind) {
      case StmtKind::kFor:
        return RunLoop(s);
      case StmtKind::kSeq:
        for (const Stmt& child : s->stmts) TW_TRY(Run(child));
        return absl::OkStatus();
      case StmtKind::kBlock:
        return RunBlock(*s);
      default:
        return support::InvalidArgument("test.race.form", "expected loops and blocks");
    }
  }

 private:
  absl::StatusOr<int64_t> Eval(const Expr& e);
  absl::Status RunLoop(const Stmt& s);
  absl::Status RunBlock(const StmtNode& block);
  absl::Status Access(const ir::BufferRegion& region, bool write);
  absl::Status Touched(const ir::BufferNode* buffer, int64_t element, bool write);

  const ir::Function& function_;
  int64_t budget_;
  std::unordered_map<const ir::ExprNode*, int64_t> values_;
  std::vector<ActiveLoop> active_;
};

int64_t FloorDivInt(int64_t a, int64_t b) {
  int64_t q = a / b;
  return a % b != 0 && ((a < 0) != (b < 0)) ? q - 1 : q;
}

absl::StatusOr<int64_t> Runner::Eval(const Expr& e) {
  if (e->kind == ExprKind::kIntImm) return e->int_value;
  if (e->kind == ExprKind::kVar) {
    auto it = values_.find(e.get());
    if (it != values_.end()) return it->second;
  }
  if (e->args.size() != 2) {
    return support::InvalidArgument("test.race.form", StrCat("cannot evaluate ", ir::Print(e)));
  }
  TW_ASSIGN(int64_t a, Eval(e->args[0]));
  TW_ASSIGN(int64_t b, Eval(e->args[1]));
  switch (e->kind) {
    case ExprKind::kAdd:
      return a + b;
    case ExprKind::kSub:
      return a - b;
    case ExprKind::kMul:
      return a * b;
    case ExprKind::kFloorDiv:
      return FloorDivInt(a, b);
    case ExprKind::kFloorMod:
      return a - FloorDivInt(a, b) * b;
    case ExprKind::kMin:
      return std::min(a, b);
    case ExprKind::kMax:
      return std::max(a, b);
    case ExprKind::kLt:
      return a < b ? 1 : 0;
    case ExprKind::kLe:
      return a <= b ? 1 : 0;
    case ExprKind::kGt:
      return a > b ? 1 : 0;
    case ExprKind::kGe:
      return a >= b ? 1 : 0;
    case ExprKind::kEq:
      return a == b ? 1 : 0;
    case ExprKind::kNe:
      return a != b ? 1 : 0;
    case ExprKind::kAnd:
      return a != 0 && b != 0 ? 1 : 0;
    case ExprKind::kOr:
      return a != 0 || b != 0 ? 1 : 0;
    default:
      return support::InvalidArgument("test.race.form", StrCat("cannot evaluate ", ir::Print(e)));
  }
}

absl::Status Runner::RunLoop(const Stmt& s) {
  TW_ASSIGN(int64_t min, Eval(s->range.min));
  TW_ASSIGN(int64_t extent, Eval(s->range.extent));
  bool vector = s->for_kind == ir::ForKind::kVectorized;
  bool concurrent = ir::IsConcurrent(s->for_kind);
  if (concurrent) {
    ActiveLoop loop{s.get(), 0, {}, {}};
    if (vector) {
      CollectBuffers(s, &loop.shared);
    } else {
      CollectOutside(function_.body, s.get(), &loop.shared);
      for (const ir::Buffer& b : function_.params) loop.shared.insert(b.get());
    }
    active_.push_back(std::move(loop));
  }
  for (int64_t i = 0; i < extent; ++i) {
    if (concurrent) active_.back().iteration = i;
    values_[s->var.get()] = min + i;
    TW_TRY(Run(s->body));
  }
  if (concurrent) active_.pop_back();
  return absl::OkStatus();
}

absl::Status Runner::RunBlock(const StmtNode& block) {
  if (active_.empty()) return absl::OkStatus();
  if (block.predicate != nullptr) {
    TW_ASSIGN(int64_t runs, Eval(block.predicate));
    if (runs == 0) return absl::OkStatus();
  }
  for (const ir::IterVar& iter : block.iters) {
    TW_ASSIGN(values_[iter.var.get()], Eval(iter.binding));
  }
  for (const ir::BufferRegion& r : block.reads) TW_TRY(Access(r, /*write=*/false));
  for (const ir::BufferRegion& r : block.writes) TW_TRY(Access(r, /*write=*/true));
  return absl::OkStatus();
}

// A point, or a box walked element by element; what sticks out of the buffer is not touched.
absl::Status Runner::Access(const ir::BufferRegion& region, bool write) {
  std::vector<int64_t> elements = {0};
  for (size_t d = 0; d < region.region.size(); ++d) {
    TW_ASSIGN(int64_t min, Eval(region.region[d].min));
    TW_ASSIGN(int64_t extent, Eval(region.region[d].extent));
    TW_ASSIGN(int64_t size, Eval(region.buffer->shape[d]));
    std::vector<int64_t> next;
    for (int64_t e : elements) {
      for (int64_t i = std::max<int64_t>(min, 0); i < std::min(min + extent, size); ++i) {
        next.push_back(e * size + i);
      }
    }
    elements = std::move(next);
  }
  for (int64_t e : elements) TW_TRY(Touched(region.buffer.get(), e, write));
  return absl::OkStatus();
}

absl::Status Runner::Touched(const ir::BufferNode* buffer, int64_t element, bool write) {
  for (ActiveLoop& loop : active_) {
    if (loop.shared.count(buffer) == 0) continue;
    if (--budget_ < 0) {
      return support::ResourceExhausted("test.race.budget", "expected fewer accesses, found more");
    }
    Touch& t = loop.touches[{buffer, element}];
    bool conflict = (t.writer.has_value() && *t.writer != loop.iteration) ||
                    (write && t.reader.has_value() && *t.reader != loop.iteration);
    if (conflict) {
      return support::FailedPrecondition(
          "test.race.conflict",
          StrCat("expected independent iterations of ", loop.loop->var->name,
                 ", found that iteration ", loop.iteration, write ? " writes " : " reads ",
                 buffer->name, " at element ", element, ", which iteration ",
                 t.writer.has_value() ? *t.writer : *t.reader, " touched"));
    }
    // Two readers: any later writer conflicts with at least one of them.
    (write ? t.writer : t.reader) = loop.iteration;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckRaces(const ir::Function& scheduled, const std::vector<int64_t>& sizes,
                        int64_t max_accesses) {
  return Runner(scheduled, sizes, max_accesses).Run(scheduled.body);
}

}  // namespace tilewright::tests
