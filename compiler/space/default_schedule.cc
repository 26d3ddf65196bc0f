// Per reduction: its result goes through a local accumulator tile. The consumer with the same
// iterators (an elementwise epilogue, or a copy made by cache_write) is tiled, the reduction is
// computed at the tile with its reduction loops outside the tile's own, lanes run along the axis
// whose loads are contiguous, and rows of a second axis reuse them. Everything else is split by
// lanes along its best axis.
#include "compiler/space/default_schedule.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "compiler/ir/buffer_bytes.h"
#include "compiler/ir/streamed_writes.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/default_scheduler.h"
#include "compiler/space/lane_axes.h"
#include "deploy/support/status.h"

namespace tilewright::space {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtNode;

constexpr int64_t kLeastBytes = 16;        // lanes of a part of a vector of bytes
constexpr int64_t kMaxPartialVectors = 4;  // of a sum whose lanes run along the reduction
// Rows of so many words are stored at once where vectors lie across them.
constexpr int64_t kStoredRow = 4;
// So many partial results become one in each step of their combination.
constexpr int64_t kFold = 4;
// A stage this small is computed again at every use.
constexpr int kCheapNodes = 24, kCheapDecidedNodes = 64;
constexpr int64_t kCheapReads = 3;  // of each of its elements

}  // namespace

void DefaultScheduler::Run() {
  InlineCheapStages();
  PlaceInRows();
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
  PlaceStages();
  // Epilogues that no reduction took.
  for (const std::string& name : schedule_.BlockNames()) {
    if (std::find(tiled_.begin(), tiled_.end(), name) == tiled_.end()) ScheduleElementwise(name);
  }
}

static int64_t WorkOf(const StmtNode& block) {
  int64_t work = 1;
  for (const ir::IterVar& iter : block.iters) {
    work = std::min(kSymbolicExtent * kSymbolicExtent, work * ExtentOf(iter.domain.extent));
  }
  return work;
}

void DefaultScheduler::InlineCheapStages() {
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
    bool into_reduction = false, into_long = false, into_dots = false;
    int uses = 0;
    int64_t reads = 0;
    for (const BlockSite& site : BlocksIn(schedule_.function().body)) {
      if (!Reads(*site.block, block->writes[0].buffer)) continue;
      ++uses;
      into_reduction = into_reduction || site.block->init != nullptr;
      into_long = into_long || !IsShort(*site.block);
      const std::optional<DotProduct> dot = FindDotProduct(*site.block);
      // An instruction for several rows reads them all: each may lie outside or not.
      into_dots = into_dots || (dot.has_value() && !FindDotTile(*dot, target_.machine).has_value());
      reads += WorkOf(*site.block);
    }
    // A choice (padding) would be made again in every turn of the innermost loop: no matter where
    // each element is read a few times only, for that costs less than keeping it, or where the
    // reduction is written out, for that decides it (partition_loops). So do the loops around dot
    // products, each of which is hundreds of operations: what lies outside is left out.
    const bool decided = chooses && into_reduction && (!into_long || into_dots);
    const bool often = !decided && reads > kCheapReads * WorkOf(*block);
    bool cheap = nodes <= (decided ? kCheapDecidedNodes : kCheapNodes) && !calls &&
                 !(chooses && into_reduction && often);
    cheap = cheap || ChoiceOf(name).place == BlockChoice::kInlined;
    if (cheap || (uses == 1 && !into_reduction)) {
      Try({.kind = StepKind::kInline, .handles = {schedule_.BlockHandle(name)}});
    }
  }
}

bool DefaultScheduler::FeedsFromReduction(const StmtNode& block) const {
  for (const BlockSite& site : BlocksIn(schedule_.function().body)) {
    if (site.block->init == nullptr) continue;
    for (const ir::BufferRegion& w : site.block->writes) {
      if (Reads(block, w.buffer)) return true;
    }
  }
  return false;
}

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

// Fuses as many of the outermost `loops` as needed to keep every thread busy, or `count` of them,
// and maps them.
void DefaultScheduler::ParallelOuter(const std::vector<int>& loops, int64_t work, int64_t count) {
  if (target_.threads < 2 || work < target_.machine.parallel_work || loops.empty()) return;
  std::vector<int> fused;
  int64_t tasks = 1;
  for (int loop : loops) {
    fused.push_back(loop);
    tasks *= ExtentOf(schedule_.StmtOf(loop)->range.extent);
    const bool enough =
        count > 0 ? static_cast<int64_t>(fused.size()) >= count : tasks >= 4 * target_.threads;
    if (enough) break;
  }
  int mapped = fused[0];
  if (fused.size() > 1) {
    if (!Try({.kind = StepKind::kFuse, .handles = fused})) return;
    mapped = schedule_.LastResults()[0];
  }
  Try({.kind = StepKind::kParallel, .handles = {mapped}});
}

// The block through which a reduction's result leaves: its epilogue, or a copy; "" when there is
// none.
std::string DefaultScheduler::TargetOf(const StmtNode& reduction) {
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

// Stages before a reduction that are made anew within its outer loops.
void DefaultScheduler::PlaceStages() {
  for (const std::string& name : schedule_.BlockNames()) {
    int level = ChoiceOf(name).place;
    if (level < 1 || level == BlockChoice::kInlined) continue;
    const ir::Buffer made = BlockOf(name)->writes[0].buffer;
    for (const BlockSite& site : BlocksIn(schedule_.function().body)) {
      if (site.block->name == name || !Reads(*site.block, made)) continue;
      for (int loop : schedule_.LoopsOf(schedule_.BlockHandle(site.block->name))) {
        if (ir::IsInt(schedule_.StmtOf(loop)->range.extent, 1) || --level > 0) continue;
        const int stage = schedule_.BlockHandle(name);
        if (Try({.kind = StepKind::kComputeAt, .handles = {stage, loop}})) {
          VectorizeInner(schedule_.LastResults().back());
        }
        break;
      }
      break;
    }
  }
}

// Lanes along the reduction: partial results side by side (rfactor), combined at the end.
//   for i: { for k_0: for u: for lane: B_rf[u,lane] op= X[i, …];  for w: B[i] op= B_rf[w] }
bool DefaultScheduler::ScheduleAlongReduction(const std::string& name) {
  const Stmt reduction = BlockOf(name);
  const int block = schedule_.BlockHandle(name), lanes = Lanes(*reduction);
  std::vector<int> loops = OwnLoops(name);
  if (loops.size() != reduction->iters.size()) return false;
  const int64_t extent = ExtentOf(reduction->iters.back().domain.extent);
  const int64_t vectors = std::clamp<int64_t>(extent / lanes, 1, kMaxPartialVectors);
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
    width = count > lanes ? lanes : count / kFold;
    count = width;
    if (width < kFold) break;
    if (!Try({.kind = StepKind::kSplit, .handles = {made.back()}, .factors = {kInfer, width}})) {
      break;
    }
  }
  // From the last to the first, so that each one's reader stands where it is computed.
  for (size_t i = partials.size(); i-- > 0;) PlacePartial(partials[i], outer);
  if (!IsInRows(name)) ParallelOuter(outer, WorkOf(*reduction), ChoiceOf(name).parallel);
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
  if (loops.empty() || loops.size() != plan.spatial.size()) return;
  TileLoops outside, inside;
  if (!TileTarget(plan, loops, &outside)) return;
  if (!Try({.kind = StepKind::kComputeAt, .handles = {block, outside.outer.back()}})) return;
  Try({.kind = StepKind::kSetScope, .handles = {block}, .word = "local"});
  TileReduction(plan, *reduction, &inside);
  MapTile(plan, inside);
  MapTile(plan, outside);
  ParallelOuter(outside.outer, WorkOf(*reduction), plan.choice.parallel);
}

// The steps of a scan stay around the reduction, whose results lie where they are: lanes along the
// axis of contiguous loads, within the reduction's own loops.
//   for t: for i: for j_0: for k: for j_1: B[t,i,j] += …
void DefaultScheduler::ScheduleWithinScan(const std::string& name, const Plan& plan) {
  const Stmt reduction = BlockOf(name);
  const auto steps =
      std::count_if(reduction->iters.begin(), reduction->iters.end(),
                    [](const ir::IterVar& iter) { return iter.type == ir::IterType::kSequential; });
  std::vector<int> loops = schedule_.LoopsOf(schedule_.BlockHandle(name));
  if (steps == 0 || plan.vector_at < 0 || loops.size() != reduction->iters.size()) return;
  std::vector<int> outer, reduced;
  int lane_loop = -1;
  for (size_t i = static_cast<size_t>(steps); i < loops.size(); ++i) {
    const bool spatial = reduction->iters[i].type == ir::IterType::kSpatial;
    if (i == plan.spatial[static_cast<size_t>(plan.vector_at)]) lane_loop = loops[i];
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
  std::vector<int> order = outer;
  order.insert(order.end(), reduced.begin(), reduced.end());
  order.insert(order.end(), {made[1], made[2]});
  Try({.kind = StepKind::kReorder, .handles = order});
  Try({.kind = StepKind::kVectorize, .handles = {made[2]}});
  Try({.kind = StepKind::kUnroll, .handles = {made[1]}});
  int64_t work = 1;  // of a step
  for (const ir::IterVar& iter : reduction->iters) {
    if (iter.type == ir::IterType::kSequential) continue;
    work = std::min(kSymbolicExtent * kSymbolicExtent, work * ExtentOf(iter.domain.extent));
  }
  ParallelOuter(outer, work, plan.choice.parallel);
}

void DefaultScheduler::ScheduleElementwise(const std::string& name) {
  tiled_.push_back(name);
  const Stmt block = BlockOf(name);
  const std::vector<int> loops = OwnLoops(name);
  if (loops.size() != block->iters.size() || loops.empty()) return;
  const int lanes = Lanes(*block);
  const BlockChoice& choice = ChoiceOf(name);
  const bool given = choice.lane_axis >= 0 && choice.lane_axis < static_cast<int>(loops.size());
  const int axis =
      given ? choice.lane_axis : VectorAxis(target_.machine, *block, lanes, /*count_store=*/true);
  const int across = AcrossLanes(*block, axis, lanes, kStoredRow);
  std::vector<int> outer;
  int lane_loop = -1, unrolled = -1, row = -1;
  for (size_t i = 0; i < loops.size(); ++i) {
    if (static_cast<int>(i) != axis) {
      outer.push_back(loops[i]);
      if (static_cast<int>(i) != across) continue;
      Step rows{.kind = StepKind::kSplit, .handles = {loops[i]}, .factors = {kInfer, kStoredRow}};
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
    Try({.kind = StepKind::kReorder, .handles = order});
    Try({.kind = StepKind::kVectorize, .handles = {lane_loop}});
    const int between = BetweenLanes(*block, axis);
    if (between >= 0) Try({.kind = StepKind::kUnroll, .handles = {loops[between]}});
    for (int loop : {row, unrolled}) {
      if (loop >= 0) Try({.kind = StepKind::kUnroll, .handles = {loop}});
    }
  }
  if (!IsInRows(name)) ParallelOuter(outer, WorkOf(*block), choice.parallel);
}

Steps DefaultSchedule(const ir::Function& function, const target::Target& target,
                      const Choices& choices) {
  Schedule schedule(function);
  ApplyDefaultSchedule(target, choices, &schedule);
  return schedule.steps();
}

void ApplyDefaultSchedule(const target::Target& target, const Choices& choices,
                          Schedule* schedule) {
  TW_CHECK(schedule->steps().empty()) << "a default schedule starts from an unscheduled function";
  if (schedule->function().body == nullptr) return;
  if (target.machine.has_groups()) {
    return DefaultScheduler(schedule, target, choices).RunBound();
  }
  if (target.machine.has_matrix()) {
    return DefaultScheduler(schedule, target, choices).RunMatrix();
  }
  DefaultScheduler(schedule, target, choices).Run();
  StreamLargeOutputs(target, schedule);
}

void StreamLargeOutputs(const target::Target& target, Schedule* schedule) {
  for (const std::string& name : schedule->BlockNames()) {
    const int handle = schedule->BlockHandle(name);
    const Stmt block = schedule->StmtOf(handle);
    if (block->writes.size() != 1) continue;
    const ir::Buffer& buffer = block->writes[0].buffer;
    if (ir::ConstantBytes(*buffer).value_or(0) <= target.machine.l3.all_bytes() / 2) continue;
    if (ir::HasStreamedWrites(schedule->function(), buffer->name)) continue;
    (void)schedule->Apply({.kind = StepKind::kStreamWrites, .handles = {handle}});
  }
}

}  // namespace tilewright::space
