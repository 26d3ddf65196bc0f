// A reduction goes through a local tile of sums. The consumer with the same iterators is tiled: an
// elementwise epilogue, or a copy made by cache_write. The reduction is computed at the tile, with
// its reduction loops outside of the tile's own. Where all contiguous loads run along the
// reduction, so do its lanes.
#include <algorithm>
#include <optional>

#include "compiler/schedule/legality.h"
#include "compiler/space/default_scheduler.h"
#include "deploy/support/strings.h"

namespace tilewright::space {
namespace {

using ir::Stmt;
using ir::StmtNode;
using support::StrCat;

}  // namespace

// The iterators in order; where there is one element, a constant may stand for it.
static bool AtOwnIterators(const ir::BufferRegion& read, const StmtNode& block) {
  size_t d = 0;
  // Whether no iterator before `var` (null: none at all) has several values.
  auto only_units_before = [&](const ir::ExprNode* var) {
    while (d < block.iters.size() && block.iters[d].var.get() != var) {
      if (!ir::IsInt(block.iters[d++].domain.extent, 1)) return false;
    }
    return true;
  };
  for (const ir::Range& dim : read.region) {
    if (ir::IsInt(dim.min, 0)) continue;
    if (!only_units_before(dim.min.get()) || d++ >= block.iters.size()) return false;
  }
  return only_units_before(nullptr);
}

// The one consumer of a reduction, when it reads each result once at its own iterators.
std::optional<std::string> DefaultScheduler::EpilogueOf(const StmtNode& reduction) const {
  const ir::Buffer& result = reduction.writes[0].buffer;
  if (result->role != ir::Role::kIntermediate) return std::nullopt;
  std::optional<std::string> epilogue;
  for (const BlockSite& site : BlocksIn(schedule_.function().body)) {
    const StmtNode& block = *site.block;
    if (!Reads(block, result)) continue;
    if (epilogue.has_value() || block.init != nullptr || IsDone(block.name)) return std::nullopt;
    for (const ir::BufferRegion& r : block.reads) {
      if (r.buffer != result) continue;
      if (!AtOwnIterators(r, block)) return std::nullopt;
    }
    epilogue = block.name;
  }
  return epilogue;
}

// The block through which a reduction's result leaves: its epilogue, or a copy; "" when there is
// none.
std::string DefaultScheduler::TargetOf(const StmtNode& reduction) {
  std::string target;
  if (std::optional<std::string> epilogue = EpilogueOf(reduction); epilogue.has_value()) {
    target = *epilogue;
    if (explains()) Decide("leaves through " + target, "it reads each result once");
  } else {
    int block = schedule_.BlockHandle(reduction.name);
    if (!Try({.kind = StepKind::kCacheWrite, .handles = {block}})) return "";
    target = schedule_.handles()[static_cast<size_t>(schedule_.LastResults()[0])].block;
    if (explains()) Decide("leaves through a copy", "no block reads each result once, in order");
  }
  done_.push_back(target);
  tiled_.push_back(target);
  return target;
}

// Lanes along the reduction: partial results side by side (rfactor), combined at the end.
//   for i: { for k_0: for u: for lane: B_rf[u,lane] op= X[i, …];  for w: B[i] op= B_rf[w] }
bool DefaultScheduler::ScheduleAlongReduction(const std::string& name) {
  const Within rule(this, "lanes_along_reduction", name);
  const Stmt reduction = BlockOf(name);
  const int block = schedule_.BlockHandle(name), lanes = Lanes(*reduction);
  std::vector<int> loops = OwnLoops(name);
  if (loops.size() != reduction->iters.size()) return false;
  const size_t shared = IsInRows(name) ? 0 : SharedLoops(name);
  const int64_t extent = ExtentOf(reduction->iters.back().domain.extent);
  const int64_t vectors =
      std::clamp<int64_t>(extent / lanes, 1, target_.machine.tile.partial_vectors);
  if (!Try({.kind = StepKind::kSplit,
            .handles = {loops.back()},
            .factors = {kInfer, vectors * lanes}})) {
    return false;
  }
  // Partial results, then fewer of them, each step in vectors; what is left is combined one by one.
  std::vector<Partial> partials;
  std::vector<int> outer;
  int64_t count = vectors * lanes, width = lanes;
  while (true) {
    const std::vector<int> parts = schedule_.LastResults();
    loops.back() = parts[0];
    if (!Try({.kind = StepKind::kRfactor, .handles = {block, parts[1]}})) break;
    const std::vector<int> made = schedule_.LastResults();
    partials.push_back({made[0], parts[1], count, width, loops});
    outer.assign(made.begin() + 1, made.end() - 1);
    loops.assign(made.begin() + 1, made.end());
    width = count > lanes ? lanes : count / target_.machine.tile.fold;
    count = width;
    if (width < target_.machine.tile.fold) break;
    if (!Try({.kind = StepKind::kSplit, .handles = {made.back()}, .factors = {kInfer, width}})) {
      break;
    }
  }
  // From the last to the first, so that each one's reader stands where it is computed.
  for (size_t i = partials.size(); i-- > 0;) PlacePartial(partials[i], outer);
  if (explains() && !partials.empty()) {
    Decide(StrCat(vectors, " vectors of ", lanes, " partial results"),
           StrCat("every operand is contiguous along ", reduction->iters.back().var->name));
  }
  if (!IsInRows(name) && shared == 0) {
    ParallelOuter(outer, WorkOf(*reduction), ChoiceOf(name).parallel);
  }
  return true;
}

void DefaultScheduler::PlacePartial(const Partial& partial, const std::vector<int>& outer) {
  std::vector<int> loops = partial.loops;
  int lane = partial.lane;
  tiled_.push_back(schedule_.handles()[static_cast<size_t>(partial.block)].block);
  if (!outer.empty() &&
      Try({.kind = StepKind::kComputeAt, .handles = {partial.block, outer.back()}})) {
    loops = schedule_.LastResults();  // the lane's iterator comes first
    lane = loops.front();
    loops.erase(loops.begin());
    Try({.kind = StepKind::kSetScope, .handles = {partial.block}, .word = "local"});
  }
  std::vector<int> parts = {lane};
  if (partial.count > partial.width) {
    if (!Try({.kind = StepKind::kSplit,
              .handles = {lane},
              .factors = {partial.count / partial.width, partial.width}})) {
      return;
    }
    parts = schedule_.LastResults();
  }
  loops.insert(loops.end(), parts.begin(), parts.end());
  Try({.kind = StepKind::kReorder, .handles = loops});
  Try({.kind = StepKind::kVectorize, .handles = {parts.back()}});
  if (parts.size() > 1) Try({.kind = StepKind::kUnroll, .handles = {parts[0]}});
}

void DefaultScheduler::ScheduleReduction(const std::string& name) {
  const Within rule(this, "tile", name);
  const Stmt reduction = BlockOf(name);
  const int block = schedule_.BlockHandle(name);
  tiled_.push_back(name);
  const int along = ChoiceOf(name).along_reduction;
  const bool in_rows = IsInRows(name);
  const bool by_default =
      along < 0 && RunsAlongReduction(target_.machine, *reduction, Lanes(*reduction));
  if ((in_rows || along > 0 || by_default) && (ScheduleAlongReduction(name) || in_rows)) return;
  const std::string target = TargetOf(*reduction);
  const Plan plan = PlanTile(*reduction);
  if (target.empty()) return ScheduleWithinScan(name, plan);
  std::vector<int> loops = schedule_.LoopsOf(schedule_.BlockHandle(target));
  if (loops.empty() || loops.size() != plan.spatial.size()) {
    // The target has the steps of a scan, too, which are not tiled: it gets lanes of its own.
    done_.pop_back();
    tiled_.pop_back();
    return ScheduleWithinScan(name, plan);
  }
  TileLoops outside, inside;
  const size_t shared = SharedLoops(target);
  if (!TileTarget(plan, loops, shared, &outside) || outside.outer.empty()) return;
  if (!Try({.kind = StepKind::kComputeAt, .handles = {block, outside.outer.back()}})) return;
  Try({.kind = StepKind::kSetScope, .handles = {block}, .word = "local"});
  TileReduction(plan, *reduction, &inside);
  MapTile(plan, inside);
  MapTile(plan, outside);
  if (shared == 0) ParallelOuter(outside.outer, WorkOf(*reduction), plan.choice.parallel);
}

// The steps of a scan stay around the reduction, whose results lie where they are: lanes along the
// axis of contiguous loads and the tile's rows, within the reduction's own loops.
//   for t: for i_0: for j_0: for k: for i_1: for j_1: B[t,i,j] += …
void DefaultScheduler::ScheduleWithinScan(const std::string& name, const Plan& plan) {
  const Within rule(this, "within_scan", name);
  const Stmt reduction = BlockOf(name);
  const auto steps = static_cast<size_t>(std::count_if(
      reduction->iters.begin(), reduction->iters.end(),
      [](const ir::IterVar& iter) { return iter.type == ir::IterType::kSequential; }));
  const size_t own = std::max(steps, SharedLoops(name));  // its first loop that is
  std::vector<int> loops = schedule_.LoopsOf(schedule_.BlockHandle(name));
  if (steps == 0 || plan.vector_at < 0 || loops.size() != reduction->iters.size()) return;
  std::vector<int> outer, reduced;
  int lane_loop = -1, row_loop = -1;
  for (size_t i = own; i < loops.size(); ++i) {
    const bool spatial = reduction->iters[i].type == ir::IterType::kSpatial;
    if (i == plan.spatial[static_cast<size_t>(plan.vector_at)]) lane_loop = loops[i];
    const bool row = plan.row_at >= 0 && i == plan.spatial[static_cast<size_t>(plan.row_at)];
    if (row && plan.tile.rows > 1) row_loop = loops[i];
    (spatial ? outer : reduced).push_back(loops[i]);
  }
  if (lane_loop < 0) return;
  const int64_t vectors = std::max<int64_t>(1, plan.tile.vectors);
  if (!Try({.kind = StepKind::kSplit,
            .handles = {lane_loop},
            .factors = {kInfer, vectors, plan.width},
            .options = {{"tail", "peel"}}})) {
    return;
  }
  const std::vector<int> made = schedule_.LastResults();
  std::replace(outer.begin(), outer.end(), lane_loop, made[0]);
  std::vector<int> rows;
  if (row_loop >= 0 && Try({.kind = StepKind::kSplit,
                            .handles = {row_loop},
                            .factors = {kInfer, plan.tile.rows},
                            .options = {{"tail", "peel"}}})) {
    std::replace(outer.begin(), outer.end(), row_loop, schedule_.LastResults()[0]);
    rows.push_back(schedule_.LastResults()[1]);
  }
  std::vector<int> order = outer;
  for (const std::vector<int>& more : {reduced, rows, {made[1], made[2]}}) {
    order.insert(order.end(), more.begin(), more.end());
  }
  Try({.kind = StepKind::kReorder, .handles = order});
  Try({.kind = StepKind::kVectorize, .handles = {made[2]}});
  Try({.kind = StepKind::kUnroll, .handles = {made[1]}});
  for (const int row : rows) Try({.kind = StepKind::kUnroll, .handles = {row}});
  if (explains()) {
    Decide(StrCat(vectors, " vectors of ", plan.width,
                  rows.empty() ? "" : StrCat(" x ", plan.tile.rows)),
           "its steps stay in order");
  }
  if (own > steps) return;  // the loops around the scan are the parallel ones
  int64_t work = 1;         // of a step
  for (const ir::IterVar& iter : reduction->iters) {
    if (iter.type == ir::IterType::kSequential) continue;
    work = std::min(kSymbolicExtent * kSymbolicExtent, work * ExtentOf(iter.domain.extent));
  }
  ParallelOuter(outer, work, plan.choice.parallel);
}

}  // namespace tilewright::space
