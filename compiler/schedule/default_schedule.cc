// Per reduction: its result goes through a local accumulator tile. The consumer with the same
// iterators (an elementwise epilogue, or a copy made by cache_write) is tiled, the reduction is
// computed at the tile with its reduction loops outside the tile's own, lanes run along the axis
// whose loads are contiguous, and rows of a second axis reuse them. Everything else is split by
// lanes along its best axis.
#include "compiler/schedule/default_schedule.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "compiler/ir/visit.h"
#include "compiler/schedule/lane_axes.h"
#include "compiler/schedule/legality.h"
#include "compiler/schedule/schedule.h"

namespace tilewright::schedule {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtNode;

// Fewer scalar operations than this are done before a second thread has started.
constexpr int64_t kParallelWork = 20'000;
constexpr int64_t kMaxPartialVectors = 4;  // of a sum whose lanes run along the reduction
// A stage this small is computed again at every use.
constexpr int kCheapNodes = 24;

class Scheduler {
 public:
  Scheduler(const ir::Function& function, const ir::Target& target)
      : schedule_(function), target_(target) {}

  Steps Run() {
    InlineCheapStages();
    for (const std::string& name : schedule_.BlockNames()) {
      if (IsDone(name)) continue;
      Stmt block = BlockOf(name);
      done_.push_back(name);
      if (block->init != nullptr) {
        ScheduleReduction(name);
      } else if (!FeedsFromReduction(*block)) {
        ScheduleElementwise(name);
      }
    }
    // Epilogues that no reduction took.
    for (const std::string& name : schedule_.BlockNames()) {
      if (std::find(tiled_.begin(), tiled_.end(), name) == tiled_.end()) ScheduleElementwise(name);
    }
    return schedule_.steps();
  }

 private:
  bool Try(Step step) { return schedule_.Apply(step).ok(); }
  Stmt BlockOf(std::string_view name) const {
    return schedule_.StmtOf(schedule_.BlockHandle(name));
  }
  bool IsDone(const std::string& name) const {
    return std::find(done_.begin(), done_.end(), name) != done_.end();
  }

  void InlineCheapStages();
  bool FeedsFromReduction(const StmtNode& block) const;
  std::optional<std::string> EpilogueOf(const StmtNode& reduction) const;
  // Which of a reduction's spatial iterators get lanes, rows and planes (positions in `spatial`,
  // -1 = none).
  struct Plan {
    std::vector<size_t> spatial;  // indices into the block's iterators
    int vector_at = -1, row_at = -1, plane_at = -1;
    std::vector<bool> moves_lanes;  // per spatial iterator
    int64_t width = 1;              // lanes
    Tile tile;
  };
  struct TileLoops {
    std::vector<int> outer;
    int plane = -1, row = -1, vector = -1, lane = -1;
  };
  std::string TargetOf(const StmtNode& reduction);
  Plan PlanTile(const StmtNode& reduction) const;
  bool TileTarget(const Plan& plan, const std::vector<int>& loops, TileLoops* tile);
  void TileReduction(const Plan& plan, const StmtNode& reduction, TileLoops* tile);
  void MapTile(const Plan& plan, const TileLoops& tile);
  void ScheduleReduction(const std::string& name);
  bool ScheduleAlongReduction(const std::string& name);
  void ScheduleElementwise(const std::string& name);
  void ParallelOuter(const std::vector<int>& loops, int64_t work);

  int Lanes(const StmtNode& block) const {
    return std::max(2, target_.vector_bytes / std::max(1, block.writes[0].buffer->dtype.bytes()));
  }

  Schedule schedule_;
  const ir::Target& target_;
  std::vector<std::string> done_, tiled_;
};

void Scheduler::InlineCheapStages() {
  for (const std::string& name : schedule_.BlockNames()) {
    Stmt block = BlockOf(name);
    if (block->init != nullptr || block->body->kind != ir::StmtKind::kStore) continue;
    int nodes = 0;
    bool calls = false, chooses = false;
    ir::VisitExprs(block->body->value, [&](const Expr& e) {
      ++nodes;
      calls = calls || e->kind == ir::ExprKind::kCall;
      chooses = chooses || e->kind == ir::ExprKind::kSelect;
      return true;
    });
    bool into_reduction = false;
    int uses = 0;
    for (const BlockSite& site : BlocksIn(schedule_.function().body)) {
      if (!Reads(*site.block, block->writes[0].buffer)) continue;
      ++uses;
      into_reduction = into_reduction || site.block->init != nullptr;
    }
    // A choice (padding) would be made again in every turn of the innermost loop.
    bool cheap = nodes <= kCheapNodes && !calls && !(chooses && into_reduction);
    if (cheap || (uses == 1 && !into_reduction)) {
      Try({.kind = StepKind::kInline, .handles = {schedule_.BlockHandle(name)}});
    }
  }
}

bool Scheduler::FeedsFromReduction(const StmtNode& block) const {
  for (const BlockSite& site : BlocksIn(schedule_.function().body)) {
    if (site.block->init == nullptr) continue;
    for (const ir::BufferRegion& w : site.block->writes) {
      if (Reads(block, w.buffer)) return true;
    }
  }
  return false;
}

// The iterators in order; where there is one element, a constant may stand for it.
bool AtOwnIterators(const ir::BufferRegion& read, const StmtNode& block) {
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
std::optional<std::string> Scheduler::EpilogueOf(const StmtNode& reduction) const {
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

// Fuses as many of the outermost `loops` as needed to keep every thread busy, and maps them.
void Scheduler::ParallelOuter(const std::vector<int>& loops, int64_t work) {
  if (target_.threads < 2 || work < kParallelWork || loops.empty()) return;
  std::vector<int> fused;
  int64_t tasks = 1;
  for (int loop : loops) {
    fused.push_back(loop);
    tasks *= ExtentOf(schedule_.StmtOf(loop)->range.extent);
    if (tasks >= 4 * target_.threads) break;
  }
  int mapped = fused[0];
  if (fused.size() > 1) {
    if (!Try({.kind = StepKind::kFuse, .handles = fused})) return;
    mapped = schedule_.LastResults()[0];
  }
  Try({.kind = StepKind::kParallel, .handles = {mapped}});
}

int64_t WorkOf(const StmtNode& block) {
  int64_t work = 1;
  for (const ir::IterVar& iter : block.iters) {
    work = std::min(kSymbolicExtent * kSymbolicExtent, work * ExtentOf(iter.domain.extent));
  }
  return work;
}

// The block through which a reduction's result leaves: its epilogue, or a copy; "" when there is
// none.
std::string Scheduler::TargetOf(const StmtNode& reduction) {
  std::string target;
  if (std::optional<std::string> epilogue = EpilogueOf(reduction); epilogue.has_value()) {
    target = *epilogue;
  } else {
    int block = schedule_.BlockHandle(reduction.name);
    if (!Try({.kind = StepKind::kCacheWrite, .handles = {block}})) return "";
    target = schedule_.handles()[static_cast<size_t>(schedule_.LastResults()[0])].block;
  }
  done_.push_back(target);
  tiled_.push_back(target);
  return target;
}

Scheduler::Plan Scheduler::PlanTile(const StmtNode& reduction) const {
  Plan plan;
  for (size_t i = 0; i < reduction.iters.size(); ++i) {
    if (reduction.iters[i].type == ir::IterType::kSpatial) plan.spatial.push_back(i);
  }
  auto position = [&](int axis) {
    auto at = std::find(plan.spatial.begin(), plan.spatial.end(), static_cast<size_t>(axis));
    return axis < 0 ? -1 : static_cast<int>(at - plan.spatial.begin());
  };
  auto extent = [&](int axis) {
    return axis < 0 ? int64_t{1}
                    : ExtentOf(reduction.iters[static_cast<size_t>(axis)].domain.extent);
  };
  const int lanes = Lanes(reduction);
  const int vector_axis = VectorAxis(reduction, lanes, /*count_store=*/false);
  const int row_axis = RowAxis(reduction, vector_axis);
  plan.vector_at = position(vector_axis);
  plan.row_at = position(row_axis);
  plan.width = vector_axis < 0 ? 1 : std::min<int64_t>(lanes, extent(vector_axis));
  int64_t panel = plan.width * reduction.writes[0].buffer->dtype.bytes();
  for (const ir::IterVar& iter : reduction.iters) {
    if (iter.type != ir::IterType::kSpatial) {
      panel = std::min(kSymbolicExtent * kSymbolicExtent, panel * ExtentOf(iter.domain.extent));
    }
  }
  const int plane_axis = SecondRowAxis(reduction, vector_axis, row_axis);
  plan.tile = ChooseTile((extent(vector_axis) + plan.width - 1) / plan.width, extent(row_axis),
                         extent(plane_axis), panel, target_);
  if (plan.tile.planes > 1) plan.plane_at = position(plane_axis);
  for (size_t axis : plan.spatial) {
    plan.moves_lanes.push_back(MovesLanes(reduction, vector_axis, static_cast<int>(axis)));
  }
  return plan;
}

// The target's loops (the reduction's spatial iterators in order) become outer loops, then the
// tile's: rows, vectors, lanes.
bool Scheduler::TileTarget(const Plan& plan, const std::vector<int>& loops, TileLoops* tile) {
  for (size_t i = 0; i < loops.size(); ++i) {
    Step split{.kind = StepKind::kSplit, .handles = {loops[i]}, .options = {{"tail", "peel"}}};
    if (static_cast<int>(i) == plan.vector_at) {
      split.factors = {kInfer, plan.tile.vectors, plan.width};
    } else if (static_cast<int>(i) == plan.row_at) {
      split.factors = {kInfer, plan.tile.rows};
    } else if (static_cast<int>(i) == plan.plane_at) {
      split.factors = {kInfer, plan.tile.planes};
    } else {
      tile->outer.push_back(loops[i]);
      continue;
    }
    if (!Try(split)) return false;
    const std::vector<int>& made = schedule_.LastResults();
    tile->outer.push_back(made[0]);
    if (made.size() == 3) {
      tile->vector = made[1];
      tile->lane = made[2];
    } else {
      (static_cast<int>(i) == plan.row_at ? tile->row : tile->plane) = made[1];
    }
  }
  // The lanes' operand (weights) stays close while the rows go by.
  std::vector<int> order;
  for (bool moves : {true, false}) {
    for (size_t i = 0; i < tile->outer.size(); ++i) {
      if (plan.moves_lanes[i] == moves) order.push_back(tile->outer[i]);
    }
  }
  tile->outer = order;
  for (int loop : {tile->plane, tile->row, tile->vector, tile->lane}) {
    if (loop >= 0) order.push_back(loop);
  }
  Try({.kind = StepKind::kReorder, .handles = order});
  return true;
}

// The reduction's own loops at the tile: reduction loops outside, then rows, vectors, lanes.
void Scheduler::TileReduction(const Plan& plan, const StmtNode& reduction, TileLoops* tile) {
  std::vector<int> own = schedule_.LoopsOf(schedule_.BlockHandle(reduction.name));
  own.erase(own.begin(), own.end() - static_cast<std::ptrdiff_t>(reduction.iters.size()));
  std::vector<int> order;
  for (size_t i = 0; i < reduction.iters.size(); ++i) {
    if (reduction.iters[i].type != ir::IterType::kSpatial) order.push_back(own[i]);
  }
  for (size_t i = 0; i < plan.spatial.size(); ++i) {
    int loop = own[plan.spatial[i]];
    if (static_cast<int>(i) == plan.row_at) {
      tile->row = loop;
    } else if (static_cast<int>(i) == plan.plane_at) {
      tile->plane = loop;
    } else if (static_cast<int>(i) != plan.vector_at) {
      order.push_back(loop);
    } else if (plan.tile.vectors > 1 && Try({.kind = StepKind::kSplit,
                                             .handles = {loop},
                                             .factors = {plan.tile.vectors, plan.width}})) {
      tile->vector = schedule_.LastResults()[0];
      tile->lane = schedule_.LastResults()[1];
    } else {
      tile->lane = loop;
    }
  }
  for (int loop : {tile->plane, tile->row, tile->vector, tile->lane}) {
    if (loop >= 0) order.push_back(loop);
  }
  Try({.kind = StepKind::kReorder, .handles = order});
}

void Scheduler::MapTile(const Plan& plan, const TileLoops& tile) {
  if (tile.lane >= 0 && plan.width > 1) {
    Try({.kind = StepKind::kVectorize, .handles = {tile.lane}});
  }
  for (int loop : {tile.plane, tile.row, tile.vector}) {
    if (loop >= 0) Try({.kind = StepKind::kUnroll, .handles = {loop}});
  }
}

// Lanes along the reduction: partial results side by side (rfactor), combined at the end.
//   for i: { for k_0: for u: for lane: B_rf[u,lane] op= X[i, …];  for w: B[i] op= B_rf[w] }
bool Scheduler::ScheduleAlongReduction(const std::string& name) {
  const Stmt reduction = BlockOf(name);
  const int block = schedule_.BlockHandle(name), lanes = Lanes(*reduction);
  std::vector<int> loops = schedule_.LoopsOf(block);
  if (loops.size() != reduction->iters.size()) return false;
  const int64_t extent = ExtentOf(reduction->iters.back().domain.extent);
  const int64_t vectors = std::clamp<int64_t>(extent / lanes, 1, kMaxPartialVectors);
  if (!Try({.kind = StepKind::kSplit,
            .handles = {loops.back()},
            .factors = {kInfer, vectors * lanes}})) {
    return false;
  }
  int lane = schedule_.LastResults()[1];
  loops.back() = schedule_.LastResults()[0];
  if (!Try({.kind = StepKind::kRfactor, .handles = {block, lane}})) return true;
  const int partial = schedule_.LastResults()[0];
  std::vector<int> outer(schedule_.LastResults().begin() + 1, schedule_.LastResults().end());
  outer.pop_back();  // the loop that combines
  tiled_.push_back(schedule_.handles()[static_cast<size_t>(partial)].block);
  if (!outer.empty() && Try({.kind = StepKind::kComputeAt, .handles = {partial, outer.back()}})) {
    loops = schedule_.LastResults();  // the lane's iterator comes first
    lane = loops.front();
    loops.erase(loops.begin());
    Try({.kind = StepKind::kSetScope, .handles = {partial}, .word = "local"});
  }
  if (!Try({.kind = StepKind::kSplit, .handles = {lane}, .factors = {vectors, lanes}})) return true;
  const std::vector<int> parts = schedule_.LastResults();
  loops.insert(loops.end(), parts.begin(), parts.end());
  Try({.kind = StepKind::kReorder, .handles = loops});
  Try({.kind = StepKind::kVectorize, .handles = {parts[1]}});
  Try({.kind = StepKind::kUnroll, .handles = {parts[0]}});
  ParallelOuter(outer, WorkOf(*reduction));
  return true;
}

void Scheduler::ScheduleReduction(const std::string& name) {
  const Stmt reduction = BlockOf(name);
  const int block = schedule_.BlockHandle(name);
  tiled_.push_back(name);
  if (RunsAlongReduction(*reduction, Lanes(*reduction)) && ScheduleAlongReduction(name)) return;
  const std::string target = TargetOf(*reduction);
  if (target.empty()) return;
  const Plan plan = PlanTile(*reduction);
  std::vector<int> loops = schedule_.LoopsOf(schedule_.BlockHandle(target));
  if (loops.empty() || loops.size() != plan.spatial.size()) return;
  TileLoops outside, inside;
  if (!TileTarget(plan, loops, &outside)) return;
  if (!Try({.kind = StepKind::kComputeAt, .handles = {block, outside.outer.back()}})) return;
  Try({.kind = StepKind::kSetScope, .handles = {block}, .word = "local"});
  TileReduction(plan, *reduction, &inside);
  MapTile(plan, inside);
  MapTile(plan, outside);
  ParallelOuter(outside.outer, WorkOf(*reduction));
}

void Scheduler::ScheduleElementwise(const std::string& name) {
  tiled_.push_back(name);
  const Stmt block = BlockOf(name);
  std::vector<int> loops = schedule_.LoopsOf(schedule_.BlockHandle(name));
  if (loops.size() != block->iters.size() || loops.empty()) return;
  const int lanes = Lanes(*block);
  const int axis = VectorAxis(*block, lanes, /*count_store=*/true);
  std::vector<int> outer;
  int lane_loop = -1;
  for (size_t i = 0; i < loops.size(); ++i) {
    if (static_cast<int>(i) != axis) {
      outer.push_back(loops[i]);
      continue;
    }
    int64_t width = std::min<int64_t>(lanes, ExtentOf(block->iters[i].domain.extent));
    Step split{.kind = StepKind::kSplit, .handles = {loops[i]}, .factors = {kInfer, width}};
    if (!Try(split)) return;
    outer.push_back(schedule_.LastResults()[0]);
    lane_loop = schedule_.LastResults()[1];
  }
  if (lane_loop >= 0) {
    std::vector<int> order = outer;
    order.push_back(lane_loop);
    Try({.kind = StepKind::kReorder, .handles = order});
    Try({.kind = StepKind::kVectorize, .handles = {lane_loop}});
  }
  ParallelOuter(outer, WorkOf(*block));
}

}  // namespace

Steps DefaultSchedule(const ir::Function& function, const ir::Target& target) {
  if (function.body == nullptr) return {};
  return Scheduler(function, target).Run();
}

}  // namespace tilewright::schedule
