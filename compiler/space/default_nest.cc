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

// A stage that turns what it reads, such as queries whose lanes are to be tokens: lanes along what
// is contiguous in memory, a few rows together. False if it is no such stage.
bool DefaultScheduler::TurnNestStage(const ir::StmtNode& block, const std::vector<int>& loops,
                                     size_t shared) {
  ir::StmtNode inside = block;  // as far as its iterators move in loops of its own
  std::vector<int> loop_of(block.iters.size(), -1);
  for (size_t i = 0; i < block.iters.size(); ++i) {
    for (size_t at = shared; at < loops.size() && loop_of[i] < 0; ++at) {
      const Stmt loop = schedule_.StmtOf(loops[at]);
      if (!ir::UsesVar(block.iters[i].binding, loop->var)) continue;
      loop_of[i] = loops[at];
      inside.iters[i].domain.extent = loop->range.extent;
    }
    if (loop_of[i] < 0) inside.iters[i].domain.extent = ir::Int(1);
  }
  const int lanes = Lanes(block);
  const int64_t rows = target_.machine.tile.stored_rows;
  const int axis = VectorAxis(target_.machine, inside, lanes, /*count_store=*/true);
  const int across = AcrossLanes(inside, axis, lanes, rows);
  if (axis < 0 || across < 0) return false;
  const int lane_loop = loop_of[static_cast<size_t>(axis)];
  const int row_loop = loop_of[static_cast<size_t>(across)];
  if (lane_loop < 0 || row_loop < 0) return false;
  std::vector<int> order;
  int row = -1, lane = -1;
  for (size_t i = shared; i < loops.size(); ++i) {
    const bool is_lane = loops[i] == lane_loop, is_row = loops[i] == row_loop;
    order.push_back(loops[i]);
    if (!is_lane && !is_row) continue;
    if (!Try({.kind = StepKind::kSplit,
              .handles = {loops[i]},
              .factors = {kInfer, is_lane ? lanes : rows},
              .options = {{"tail", "peel"}}})) {
      return false;
    }
    order.back() = schedule_.LastResults()[0];
    (is_lane ? lane : row) = schedule_.LastResults()[1];
  }
  order.insert(order.end(), {row, lane});
  Try({.kind = StepKind::kReorder, .handles = order});
  Try({.kind = StepKind::kVectorize, .handles = {lane}});
  Try({.kind = StepKind::kUnroll, .handles = {row}});
  if (explains()) {
    Decide(StrCat("along ", block.iters[static_cast<size_t>(axis)].var->name, ", ", lanes,
                  " wide, ", rows, " rows together"),
           "it turns what it reads");
  }
  return true;
}

// A stage that reduces nothing: lanes along its last axis, in the loops of its own.
void DefaultScheduler::ScheduleNestStage(const std::string& name) {
  const Within rule(this, "nest", name);
  tiled_.push_back(name);
  const Stmt block = BlockOf(name);
  std::vector<int> loops = schedule_.LoopsOf(schedule_.BlockHandle(name));
  const size_t shared = SharedLoops(name);
  if (loops.size() <= shared) return;
  if (TurnNestStage(*block, loops, shared)) return;
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
