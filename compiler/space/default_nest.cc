// Stages that share outer loops (a nest), such as those of attention: all stay in these loops. Each
// has lanes along its last axis. A reduction of two axes of its own gets a register tile of both,
// and leaves through the block that reads it, within the loops that are its own.
//   parallel b, g, rb { …; for t { for k_0, r_0 { x_l[8,32] = Σ …; x[k,r] = f(x_l) } … } … }
#include <algorithm>

#include "compiler/ir/visit.h"
#include "compiler/space/default_scheduler.h"
#include "deploy/support/strings.h"

namespace tilewright::space {

using ir::Stmt;
using support::StrCat;

// How many of the outermost loops of a block have other blocks inside, too.
size_t DefaultScheduler::SharedLoops(const std::string& name) const {
  size_t shared = 0;
  for (int loop : schedule_.LoopsOf(schedule_.BlockHandle(name))) {
    int blocks = 0;
    ir::VisitStmts(schedule_.StmtOf(loop), [&](const Stmt& s) {
      blocks += s->kind == ir::StmtKind::kBlock;
      return s->kind != ir::StmtKind::kBlock;
    });
    if (blocks < 2) break;
    ++shared;
  }
  return shared;
}

// Whether all blocks are in the same loops, at least two, and no others are.
bool DefaultScheduler::IsNest() const {
  const std::vector<std::string> names = schedule_.BlockNames();
  if (names.size() < 3) return false;
  const std::vector<int> loops = schedule_.LoopsOf(schedule_.BlockHandle(names.front()));
  size_t common = loops.size();
  for (const std::string& name : names) {
    const std::vector<int> of = schedule_.LoopsOf(schedule_.BlockHandle(name));
    const auto end = std::mismatch(loops.begin(), loops.end(), of.begin(), of.end()).first;
    common = std::min(common, static_cast<size_t>(end - loops.begin()));
  }
  return common >= 2;
}

void DefaultScheduler::RunNest() {
  const std::vector<std::string> names = schedule_.BlockNames();
  int64_t work = 0;
  for (const std::string& name : names) {
    work = std::min(kSymbolicExtent * kSymbolicExtent, work + WorkOf(*BlockOf(name)));
  }
  std::vector<int> nest = schedule_.LoopsOf(schedule_.BlockHandle(names.front()));
  nest.resize(SharedLoops(names.front()));
  for (const std::string& name : names) {
    if (IsDone(name)) continue;
    const Stmt block = BlockOf(name);
    if (block->init == nullptr) {
      ScheduleNestStage(name);  // no reduction before it has taken it as its target
      continue;
    }
    done_.push_back(name);
    ChooseNestTile(name);
    ScheduleReduction(name);
  }
  block_ = names.back();
  ParallelOuter(nest, work, ChoiceOf(names.back()).parallel);
}

// Lanes and rows of a reduction's tile are axes of its own, the last ones.
void DefaultScheduler::ChooseNestTile(const std::string& name) {
  const Stmt block = BlockOf(name);
  BlockChoice& choice = choices_[name];
  const size_t shared = SharedLoops(name);
  int lane = -1, row = -1;
  for (size_t i = shared; i < block->iters.size(); ++i) {
    if (block->iters[i].type != ir::IterType::kSpatial) continue;
    row = lane;
    lane = static_cast<int>(i);
  }
  if (choice.lane_axis < 0) choice.lane_axis = lane;
  if (choice.row_axis < 0) choice.row_axis = row;
  if (row < 0) choice.rows = 1;
  choice.planes = 1;
}

// A stage that reduces nothing: lanes along its last axis, in the loops of its own.
void DefaultScheduler::ScheduleNestStage(const std::string& name) {
  const Within rule(this, "nest", name);
  tiled_.push_back(name);
  const Stmt block = BlockOf(name);
  std::vector<int> loops = schedule_.LoopsOf(schedule_.BlockHandle(name));
  const size_t shared = SharedLoops(name);
  if (loops.size() <= shared) return;
  const int64_t extent = ExtentOf(schedule_.StmtOf(loops.back())->range.extent);
  const int64_t width = std::min<int64_t>(Lanes(*block), extent);
  if (width < 2) return;
  int lane = loops.back();
  if (extent > width) {
    if (!Try({.kind = StepKind::kSplit,
              .handles = {lane},
              .factors = {kInfer, width},
              .options = {{"tail", "peel"}}})) {
      return;
    }
    lane = schedule_.LastResults()[1];
  }
  if (Try({.kind = StepKind::kVectorize, .handles = {lane}}) && explains()) {
    Decide(StrCat("along its last axis, ", width, " wide"), "its outer loops are shared");
  }
}

}  // namespace tilewright::space
