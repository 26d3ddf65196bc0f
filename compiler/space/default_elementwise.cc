// A block that reduces nothing is split by lanes along its best axis; its outer loops run in
// parallel.
#include <algorithm>

#include "compiler/space/default_scheduler.h"
#include "deploy/support/strings.h"

namespace tilewright::space {
namespace {

using ir::Stmt;

constexpr int64_t kLeastBytes = 16;  // lanes of a part of a vector of bytes

}  // namespace

std::string DefaultScheduler::LaneCosts(const ir::StmtNode& block, int lanes,
                                        bool count_store) const {
  std::string text = "loads of a vector:";
  for (size_t i = 0; i < block.iters.size(); ++i) {
    if (block.iters[i].type != ir::IterType::kSpatial) continue;
    text += support::StrCat(" ", block.iters[i].var->name, " ",
                            LaneCost(target_.machine, block, i, lanes, count_store));
  }
  return text;
}

// Lanes along a loop whose iterations lie side by side.
void DefaultScheduler::VectorizeInner(int loop) {
  const int64_t lanes = target_.machine.vector_bytes / 4;
  const int64_t extent = ExtentOf(schedule_.StmtOf(loop)->range.extent);
  if (extent > lanes && extent < kSymbolicExtent) {
    if (!Try({.kind = StepKind::kSplit,
              .handles = {loop},
              .factors = {kInfer, lanes},
              .options = {{"tail", "peel"}}})) {
      return;
    }
    loop = schedule_.LastResults()[1];
  }
  Try({.kind = StepKind::kVectorize, .handles = {loop}});
}

void DefaultScheduler::ScheduleElementwise(const std::string& name) {
  const Within rule(this, "lanes", name);
  tiled_.push_back(name);
  const Stmt block = BlockOf(name);
  const std::vector<int> loops = OwnLoops(name);
  if (loops.size() != block->iters.size() || loops.empty()) return;
  const int lanes = Lanes(*block);
  const BlockChoice& choice = ChoiceOf(name);
  const bool given = choice.lane_axis >= 0 && choice.lane_axis < static_cast<int>(loops.size());
  const int axis =
      given ? choice.lane_axis : VectorAxis(target_.machine, *block, lanes, /*count_store=*/true);
  const int64_t stored_rows = target_.machine.tile.stored_rows;
  const int across = AcrossLanes(*block, axis, lanes, stored_rows);
  if (explains()) {
    Decide(axis < 0 ? "no lanes" : "along " + block->iters[static_cast<size_t>(axis)].var->name,
           given ? "chosen" : LaneCosts(*block, lanes, /*count_store=*/true));
  }
  std::vector<int> outer;
  int lane_loop = -1, unrolled = -1, row = -1;
  for (size_t i = 0; i < loops.size(); ++i) {
    if (static_cast<int>(i) != axis) {
      outer.push_back(loops[i]);
      if (static_cast<int>(i) != across) continue;
      Step rows{.kind = StepKind::kSplit, .handles = {loops[i]}, .factors = {kInfer, stored_rows}};
      if (!Try(rows)) return;
      outer.back() = schedule_.LastResults()[0];
      row = schedule_.LastResults()[1];
      continue;
    }
    const int64_t extent = ExtentOf(block->iters[i].domain.extent);
    int64_t width = std::min<int64_t>(lanes, extent);
    // Of bytes a part of a vector without a mask is better than a whole one with.
    while (width > kLeastBytes && extent % width != 0) width /= 2;
    Step split{.kind = StepKind::kSplit, .handles = {loops[i]}, .factors = {kInfer, width}};
    if (choice.vectors > 1) split.factors = {kInfer, choice.vectors, width};
    if (!Try(split)) return;
    const std::vector<int> made = schedule_.LastResults();
    outer.push_back(made[0]);
    if (made.size() == 3) unrolled = made[1];
    lane_loop = made.back();
  }
  if (lane_loop >= 0) {
    std::vector<int> order = outer;
    for (int loop : {unrolled, row, lane_loop}) {
      if (loop >= 0) order.push_back(loop);
    }
    // Around those of a block with others in its rows there is more than its own loops.
    if (order != OwnLoops(name)) Try({.kind = StepKind::kReorder, .handles = order});
    Try({.kind = StepKind::kVectorize, .handles = {lane_loop}});
    const int between = BetweenLanes(*block, axis);
    if (between >= 0) Try({.kind = StepKind::kUnroll, .handles = {loops[between]}});
    for (int loop : {row, unrolled}) {
      if (loop >= 0) Try({.kind = StepKind::kUnroll, .handles = {loop}});
    }
  }
  if (!IsInRows(name)) ParallelOuter(outer, WorkOf(*block), choice.parallel);
}

}  // namespace tilewright::space
