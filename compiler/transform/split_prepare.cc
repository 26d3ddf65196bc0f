#include "compiler/transform/split_prepare.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "compiler/ir/buffer_bytes.h"
#include "compiler/ir/visit.h"
#include "deploy/support/status.h"

namespace tilewright::transform {
namespace {

using ir::Buffer;
using ir::Stmt;

// Compared by address, used for membership only: never iterated.
using BufferSet = std::set<const ir::BufferNode*>;

struct NestAccess {
  std::vector<Buffer> reads, writes;  // in order of appearance
};

void AddOnce(const Buffer& buffer, std::vector<Buffer>* buffers) {
  if (std::find(buffers->begin(), buffers->end(), buffer) == buffers->end()) {
    buffers->push_back(buffer);
  }
}

NestAccess AccessOf(const Stmt& nest) {
  NestAccess access;
  ir::VisitStmts(nest, [&](const Stmt& s) {
    for (const ir::BufferRegion& r : s->reads) AddOnce(r.buffer, &access.reads);
    for (const ir::BufferRegion& r : s->writes) AddOnce(r.buffer, &access.writes);
    return true;
  });
  return access;
}

bool Contains(const std::vector<Buffer>& buffers, const Buffer& buffer) {
  return std::find(buffers.begin(), buffers.end(), buffer) != buffers.end();
}

bool IsOpen(const ir::Function& f, const Stmt& nest) {
  return std::any_of(f.size_params.begin(), f.size_params.end(),
                     [&](const ir::Var& size) { return ir::UsesVar(nest, size); });
}

// Which top-level nests depend on constants only.
std::vector<bool> FindPreparable(const ir::Function& f, const std::vector<NestAccess>& nests) {
  std::vector<bool> moves(nests.size(), false);
  BufferSet known;
  for (const Buffer& p : f.params) {
    if (p->role == ir::Role::kConstant) known.insert(p.get());
  }
  for (size_t i = 0; i < nests.size(); ++i) {
    const NestAccess& nest = nests[i];
    bool own = !nest.reads.empty() && !nest.writes.empty() && !IsOpen(f, f.body->stmts[i]);
    for (const Buffer& b : nest.reads) {
      own = own && (known.contains(b.get()) || Contains(nest.writes, b));
    }
    for (const Buffer& b : nest.writes) {
      own = own && b->role == ir::Role::kIntermediate && b->scope == ir::Scope::kGlobal &&
            !b->storage_align.has_value() && !b->swizzle.has_value() && ir::ConstantBytes(*b);
      for (size_t k = 0; k < nests.size(); ++k) {
        own = own && (k == i || !Contains(nests[k].writes, b));
      }
    }
    moves[i] = own;
    for (const Buffer& b : nest.writes) {
      if (own) known.insert(b.get());
    }
  }
  return moves;
}

Buffer WithRole(const Buffer& buffer, ir::Role role) {
  auto node = std::make_shared<ir::BufferNode>(*buffer);
  node->role = role;
  return node;
}

// Puts the two functions together from the nests of each.
class Split {
 public:
  Split(const ir::Function& f, const std::vector<Stmt>& stmts, const std::vector<NestAccess>& nests,
        const std::vector<bool>& moves)
      : f_(f), stmts_(stmts), nests_(nests), moves_(moves) {}

  PreparedFunction Run() {
    PreparedFunction result;
    std::vector<Buffer> handed_over;
    for (const Buffer& b : f_.allocs) {
      if (Used(b, /*moved=*/true, /*written=*/true) && Used(b, false, false)) {
        handed_over.push_back(b);
      }
    }
    result.prepare = Half(true);
    result.main = Half(false);
    result.prepare->name = f_.name + "_prepare";
    result.prepare->size_params.clear();  // weights, and what is made of them, have fixed sizes
    ir::BufferMap outputs, constants;
    for (const Buffer& p : f_.params) {
      bool output = p->role == ir::Role::kOutput;
      if (!output && Used(p, true, false)) result.prepare->params.push_back(p);
      if (!output) result.main.params.push_back(p);
    }
    for (const Buffer& b : handed_over) {
      outputs[b.get()] = WithRole(b, ir::Role::kOutput);
      constants[b.get()] = WithRole(b, ir::Role::kConstant);
      result.prepare->params.push_back(outputs[b.get()]);
      result.main.params.push_back(constants[b.get()]);
      result.prepared.push_back(b);
    }
    for (const Buffer& p : f_.params) {
      if (p->role == ir::Role::kOutput) result.main.params.push_back(p);
    }
    for (const Buffer& b : f_.allocs) {
      if (Contains(handed_over, b)) continue;
      if (Used(b, true, true)) result.prepare->allocs.push_back(b);
      if (Used(b, false, true)) result.main.allocs.push_back(b);
    }
    result.prepare->body = ir::ReplaceBuffers(result.prepare->body, outputs);
    result.main.body = ir::ReplaceBuffers(result.main.body, constants);
    return result;
  }

 private:
  // Whether a nest of one half reads (or writes) the buffer.
  bool Used(const Buffer& b, bool moved, bool written) const {
    for (size_t i = 0; i < nests_.size(); ++i) {
      if (moves_[i] != moved) continue;
      if (Contains(nests_[i].writes, b) || (!written && Contains(nests_[i].reads, b))) return true;
    }
    return false;
  }
  ir::Function Half(bool moved) const {
    ir::Function half = f_;
    half.params.clear();
    half.allocs.clear();
    std::vector<Stmt> stmts;
    for (size_t i = 0; i < stmts_.size(); ++i) {
      if (moves_[i] == moved) stmts.push_back(stmts_[i]);
    }
    half.body = ir::MakeSeq(std::move(stmts));
    return half;
  }

  const ir::Function& f_;
  const std::vector<Stmt>& stmts_;
  const std::vector<NestAccess>& nests_;
  const std::vector<bool>& moves_;
};

}  // namespace

absl::StatusOr<PreparedFunction> SplitPrepare(const ir::Function& f) {
  if (f.stage != ir::Stage::kScheduled) {
    return support::FailedPrecondition("transform.split_prepare.stage",
                                       "expected a function of stage scheduled");
  }
  PreparedFunction whole;
  whole.main = f;
  if (f.body->kind != ir::StmtKind::kSeq) return whole;
  std::vector<NestAccess> nests;
  for (const Stmt& s : f.body->stmts) nests.push_back(AccessOf(s));
  std::vector<bool> moves = FindPreparable(f, nests);
  size_t count = static_cast<size_t>(std::count(moves.begin(), moves.end(), true));
  if (count == 0 || count == moves.size()) return whole;
  return Split(f, f.body->stmts, nests, moves).Run();
}

}  // namespace tilewright::transform
