// TRANSFORMATIONS of mark_double_buffers (kScheduled → kScheduled)
//   for k { for … block A @{double_buffer}; for … block C, which reads A }
//     → for k @{pipeline="program"} { for … @{pipeline_stage=0} A; for … @{pipeline_stage=1} C }
//   The block's nest works one iteration ahead of what reads it; inject_software_pipeline gives the
//   buffer its two versions. Nests that the early ones read are early, too. Marks that have no loop
//   to act on (not serial, no constant extent of at least 2, a block without a nest) stay hints.
#include <algorithm>
#include <vector>

#include "compiler/ir/visit.h"
#include "compiler/transform/passes.h"

namespace tilewright::transform {
namespace {

using ir::Buffer;
using ir::Stmt;
using ir::StmtKind;

bool IsMarked(const Stmt& nest) {
  bool marked = false;
  ir::VisitStmts(nest, [&](const Stmt& s) {
    marked = marked || (s->kind == StmtKind::kBlock && s->annotations.contains("double_buffer"));
    return !marked && s->kind != StmtKind::kBlock;
  });
  return marked;
}

std::vector<Buffer> Used(const Stmt& nest, bool writes) {
  std::vector<Buffer> buffers;
  ir::VisitStmts(nest, [&](const Stmt& s) {
    if (s->kind != StmtKind::kBlock) return true;
    for (const ir::BufferRegion& r : writes ? s->writes : s->reads) buffers.push_back(r.buffer);
    return false;
  });
  return buffers;
}

bool FeedsInto(const Stmt& producer, const Stmt& consumer) {
  std::vector<Buffer> reads = Used(consumer, false);
  for (const Buffer& b : Used(producer, true)) {
    if (std::find(reads.begin(), reads.end(), b) != reads.end()) return true;
  }
  return false;
}

class Marker : public ir::Rewriter {
 public:
  Stmt RewriteStmt(const Stmt& s) override {
    if (s->kind == StmtKind::kBlock) return s;
    Stmt r = RewriteChildren(s);
    const int64_t* extent = r->kind == StmtKind::kFor ? ir::AsInt(r->range.extent) : nullptr;
    bool fits = extent != nullptr && *extent >= 2 && r->for_kind == ir::ForKind::kSerial &&
                !r->annotations.contains("pipeline") && r->body->kind == StmtKind::kSeq;
    return fits ? Pipelined(r) : r;
  }

 private:
  static Stmt Pipelined(const Stmt& loop) {
    std::vector<Stmt> nests = loop->body->stmts;
    std::vector<bool> early;
    for (const Stmt& n : nests) {
      if (n->kind != StmtKind::kFor) return loop;
      early.push_back(IsMarked(n));
    }
    for (size_t i = nests.size(); i-- > 0;) {
      for (size_t j = i + 1; j < nests.size(); ++j)
        early[i] = early[i] || (early[j] && FeedsInto(nests[i], nests[j]));
    }
    bool both = std::find(early.begin(), early.end(), true) != early.end() &&
                std::find(early.begin(), early.end(), false) != early.end();
    if (!both) return loop;
    for (size_t i = 0; i < nests.size(); ++i) {
      ir::StmtNode nest = *nests[i];
      nest.annotations["pipeline_stage"] = int64_t{early[i] ? 0 : 1};
      nests[i] = std::make_shared<const ir::StmtNode>(std::move(nest));
    }
    ir::StmtNode node = *loop;
    node.annotations["pipeline"] = std::string("program");
    node.body = ir::MakeSeq(std::move(nests));
    return std::make_shared<const ir::StmtNode>(std::move(node));
  }
};

}  // namespace

absl::StatusOr<Function> MarkDoubleBuffers(const Function& f, const PassContext&) {
  Function result = f;
  result.body = Marker().RewriteStmt(f.body);
  return result;
}

}  // namespace tilewright::transform
