// All that the last block needs computed within its rows: softmax and normalisations go over a row
// as often as they must while it lies in the nearest cache, and keep nothing longer than that.
// A number of a row that costs a division or a call (mean, 1 / deviation) is made once for it.
//   for rows: { max = …; for k: e[k] = exp(x[rows,k] - max); sum = …; for k: y[rows,k] = … }
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/loop_tree.h"
#include "compiler/space/default_scheduler.h"

namespace tilewright::space {

bool ReducesRows(const ir::Function& function, const target::Machine& machine) {
  const std::vector<BlockSite> sites = BlocksIn(function.body);
  if (sites.size() < 2) return false;
  const ir::StmtNode& last = *sites.back().block;
  if (last.init != nullptr || last.iters.size() < 2) return false;
  const int64_t row = ExtentOf(last.iters.back().domain.extent);
  // Most open rows (lengths of sequences) are short enough.
  const bool open = row == kSymbolicExtent;
  if (row < 2 || (row > machine.near_row() && !open)) return false;
  bool some = false;
  for (const BlockSite& site : sites) {
    const ir::StmtNode& block = *site.block;
    if (block.init == nullptr) continue;
    const ir::IterVar& inner = block.iters.back();
    if (inner.type != ir::IterType::kReduce || ReductionSteps(block) != row ||
        ExtentOf(inner.domain.extent) != row) {
      return false;
    }
    some = true;
  }
  return some;
}

bool DefaultScheduler::MakesRowNumber(const ir::StmtNode& block) const {
  if (block.init != nullptr || target_.machine.has_groups()) return false;
  const ir::Function& function = schedule_.function();
  const ir::StmtNode& last = *BlocksIn(function.body).back().block;
  if (block.iters.size() + 1 != last.iters.size()) return false;
  bool costs = false;
  ir::VisitExprs(block.body->value, [&](const ir::Expr& e) {
    costs = costs || e->kind == ir::ExprKind::kDiv || ir::IsMathCall(*e);
    return true;
  });
  return costs && ReducesRows(function, target_.machine);
}

void DefaultScheduler::PlaceInRows() {
  if (!ReducesRows(schedule_.function(), target_.machine)) return;
  const std::vector<std::string> names = schedule_.BlockNames();
  const Within rule(this, "rows", names.back());
  const int choice = ChoiceOf(names.back()).in_rows;
  const bool along = std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    const ir::Stmt block = BlockOf(name);
    return block->init == nullptr || RunsAlongReduction(target_.machine, *block, Lanes(*block));
  });
  const bool in_rows = choice < 0 ? along : choice > 0;
  if (explains()) {
    Decide(in_rows ? "all blocks within its rows" : "blocks one after the other",
           choice >= 0 ? "chosen"
           : along     ? "every reduction is contiguous along a row"
                       : "a reduction has better lanes than along a row");
  }
  if (!in_rows) return;
  const std::vector<int> loops = schedule_.LoopsOf(schedule_.BlockHandle(names.back()));
  if (loops.size() < 2) return;
  // From the last to the first, so that each one's readers stand where it is computed.
  for (size_t i = names.size() - 1; i-- > 0;) {
    const int block = schedule_.BlockHandle(names[i]);
    if (!Try({.kind = StepKind::kComputeAt, .handles = {block, loops[loops.size() - 2]}})) continue;
    in_rows_.push_back(names[i]);
    if (MakesRowNumber(*BlockOf(names[i]))) {  // it has no loop of its own
      done_.push_back(names[i]);
      tiled_.push_back(names[i]);
    }
    Try({.kind = StepKind::kSetScope, .handles = {block}, .word = "local"});
  }
}

// A block's loops, without those of the rows that it was placed in.
std::vector<int> DefaultScheduler::OwnLoops(const std::string& name) const {
  std::vector<int> loops = schedule_.LoopsOf(schedule_.BlockHandle(name));
  const size_t own = BlockOf(name)->iters.size();
  if (IsInRows(name) && loops.size() > own) {
    loops.erase(loops.begin(), loops.end() - static_cast<std::ptrdiff_t>(own));
  }
  return loops;
}

}  // namespace tilewright::space
