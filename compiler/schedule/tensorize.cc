// tensorize: the loops of a blockized block are one tensor intrinsic.
#include "compiler/analysis/simplify.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/schedule/legality.h"
#include "compiler/schedule/primitives.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::schedule {
namespace {

using ir::Stmt;
using ir::StmtKind;
using ir::StmtNode;
using support::StrCat;

absl::StatusOr<Stmt> Marked(const Step& step, const Stmt& nest, const std::string& name) {
  auto match = ir::MatchTensor(nest, name);
  if (!match.ok()) return Refuse(step, "mismatch", support::Detail(match.status()), nullptr);
  auto node = std::make_shared<StmtNode>(*nest);
  node->annotations[ir::kTensorKey] = name;
  return Stmt(std::move(node));
}

// The update marked, and a reset that stands before it; a nest that only resets is one too.
absl::StatusOr<Stmt> MarkedBody(const Step& step, const Stmt& body, const std::string& name) {
  const std::string reset = name + ir::kResetSuffix;
  if (body->kind == StmtKind::kSeq && body->stmts.size() == 2) {
    TW_ASSIGN(Stmt update, Marked(step, body->stmts[1], name));
    TW_ASSIGN(Stmt before, Marked(step, body->stmts[0], reset));
    return ir::MakeSeq({std::move(before), std::move(update)});
  }
  absl::StatusOr<Stmt> update = Marked(step, body, name);
  if (update.ok()) return update;
  absl::StatusOr<Stmt> only_reset = Marked(step, body, reset);
  return only_reset.ok() ? only_reset : update;
}

// The block with its body and init as the intrinsic.
absl::StatusOr<Stmt> MarkedBlock(const Step& step, const Stmt& block, const std::string& name) {
  auto node = std::make_shared<StmtNode>(*block);
  TW_ASSIGN(node->body, MarkedBody(step, block->body, name));
  if (block->init != nullptr) {
    TW_ASSIGN(node->init, Marked(step, block->init, name + ir::kResetSuffix));
  }
  return Stmt(std::move(node));
}

// A swizzled buffer that the block reads or writes; null without one. Its elements are no ramps.
ir::Buffer SwizzledBuffer(const Stmt& block) {
  for (const std::vector<ir::BufferRegion>& regions : {block->reads, block->writes}) {
    for (const ir::BufferRegion& region : regions) {
      if (region.buffer->swizzle.has_value()) return region.buffer;
    }
  }
  return nullptr;
}

// Indices of packed operands divide: `floordiv(o * 16 + i, 16)` with i in 0..16 is o.
Stmt Simplified(const Stmt& block) {
  analysis::Analyzer analyzer;
  for (const ir::IterVar& iter : block->iters) analyzer.SetRange(iter.var, iter.domain);
  auto node = std::make_shared<StmtNode>(*block);
  node->body = analysis::Simplify(block->body, analyzer);
  if (block->init != nullptr) node->init = analysis::Simplify(block->init, analyzer);
  return node;
}

}  // namespace

absl::Status ApplyTensorize(Schedule& s, const Step& step) {
  const std::string name(step.Option("intrin"));
  int handle = step.handles[0];
  bool on_loop = handle >= 0 && handle < static_cast<int>(s.handles().size()) &&
                 s.handles()[static_cast<size_t>(handle)].kind == Handle::Kind::kLoop;
  Schedule trial = s;
  std::string block_name;
  if (on_loop) {
    TW_ASSIGN(Path loop, LoopPath(s, step, 0));
    std::vector<BlockSite> below = BlocksIn(loop.back());
    TW_TRY(ApplyBlockize(trial, step));
    block_name = below[0].block->name;
  } else {
    TW_ASSIGN(block_name, s.Block(handle));
  }
  Path path = FindBlock(trial.function().body, block_name);
  TW_CHECK(!path.empty()) << "block " << block_name << " is gone";
  const Stmt block = path.back();
  bool has_loops = block->body->kind == StmtKind::kFor || block->body->kind == StmtKind::kSeq;
  if (!has_loops) {
    return Refuse(step, "not_blockized",
                  "expected a block whose body is a loop nest, found another", block);
  }
  absl::StatusOr<Stmt> marked = MarkedBlock(step, block, name);
  if (const ir::Buffer swizzled = SwizzledBuffer(block); swizzled != nullptr) {
    return Refuse(step, "swizzled",
                  StrCat("expected rows that lie as they are, found ", swizzled->name, " swizzled"),
                  block);
  }
  if (!marked.ok()) {
    absl::StatusOr<Stmt> simple = MarkedBlock(step, Simplified(block), name);
    if (!simple.ok()) return marked.status();
    marked = std::move(simple);
  }
  trial.SetBody(ReplaceAt(path, path.size() - 1, *std::move(marked)));
  s = std::move(trial);
  return absl::OkStatus();
}

}  // namespace tilewright::schedule
