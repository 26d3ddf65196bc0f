// The order of the default's rules on a processor, and those that fit no kind of block.
#include "compiler/space/default_schedule.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>

#include "compiler/ir/bind_sizes.h"
#include "compiler/ir/buffer_bytes.h"
#include "compiler/ir/streamed_writes.h"
#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/default_scheduler.h"
#include "compiler/space/lane_axes.h"
#include "compiler/space/rules/rules.h"
#include "deploy/support/status.h"
#include "deploy/support/strings.h"

namespace tilewright::space {
namespace {

using ir::Expr;
using ir::Stmt;
using ir::StmtNode;
using support::StrCat;

}  // namespace

void DefaultScheduler::Run() {
  if (IsNest()) return RunNest();
  if (RunFieldSums() || RunRules({MakeDepthwiseDots, MakeWinograd})) return;
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

// A rule's own choice: stages have an order that blocks one by one do not find.
bool DefaultScheduler::RunRules(std::initializer_list<SketchMaker*> rules) {
  const ir::Function function = ir::BindSizes(schedule_.function(), typical_);
  for (SketchMaker* make : rules) {
    const std::vector<std::unique_ptr<Sketch>> sketches = make(function, target_);
    if (sketches.empty()) continue;
    const Sketch& sketch = *sketches.front();
    const std::optional<std::vector<int>> choices = sketch.DefaultChoices();
    if (!choices.has_value()) continue;
    const Point point{0, *choices};
    const std::string decided = explains() ? sketch.DecidedOn(schedule_) : "";
    Schedule trial = schedule_;
    if (!sketch.Apply(point, &trial).ok()) continue;
    schedule_ = std::move(trial);
    if (!explains()) return true;
    const std::string name = sketch.name();
    const Within rule(this, name, schedule_.BlockNames().back());
    for (size_t k = 0; k < sketch.knobs().size(); ++k) {
      Decide(StrCat(sketch.knobs()[k].name, " ", sketch.Value(point, k)));
    }
    if (!decided.empty()) Decide(decided);
    return true;
  }
  return false;
}

bool DefaultScheduler::Try(Step step) {
  const absl::Status done = schedule_.Apply(step);
  if (!done.ok() && explains()) trace_->Refuse(block_, rule_, step, done);
  return done.ok();
}

DefaultScheduler::Within::Within(DefaultScheduler* scheduler, std::string_view rule,
                                 std::string block)
    : scheduler_(*scheduler), rule_(rule), block_(std::move(block)) {
  std::swap(scheduler_.rule_, rule_);
  std::swap(scheduler_.block_, block_);
}

DefaultScheduler::Within::~Within() {
  std::swap(scheduler_.rule_, rule_);
  std::swap(scheduler_.block_, block_);
}

int64_t WorkOf(const StmtNode& block) {
  int64_t work = 1;
  for (const ir::IterVar& iter : block.iters) {
    work = std::min(kSymbolicExtent * kSymbolicExtent, work * ExtentOf(iter.domain.extent));
  }
  return work;
}

// How many steps of the block's reduction move its reads of `buffer` along axes that results move
// them along, too: the taps of a window.
int64_t TapsOf(const StmtNode& block, const ir::Buffer& buffer) {
  std::set<const ir::ExprNode*> taps;
  const auto uses = [](const Expr& index, const ir::IterVar& iter) {
    return ir::UsesVar(index, iter.var);
  };
  ir::VisitExprsIn(block.body, [&](const Expr& e) {
    if (e->kind != ir::ExprKind::kLoad || e->buffer != buffer) return true;
    for (const Expr& index : e->args) {
      const bool moves = std::ranges::any_of(block.iters, [&](const ir::IterVar& iter) {
        return iter.type == ir::IterType::kSpatial && uses(index, iter);
      });
      for (const ir::IterVar& iter : block.iters) {
        if (moves && iter.type == ir::IterType::kReduce && uses(index, iter)) {
          taps.insert(iter.var.get());
        }
      }
    }
    return true;
  });
  int64_t count = 1;
  for (const ir::IterVar& iter : block.iters) {
    if (taps.contains(iter.var.get())) count *= ExtentOf(iter.domain.extent);
  }
  return count;
}

// How many results of the block need one element of `buffer` in each tap.
int64_t ResultsOfElement(const StmtNode& block, const ir::Buffer& buffer) {
  std::set<const ir::ExprNode*> moves;
  ir::VisitExprsIn(block.body, [&](const Expr& e) {
    if (e->kind != ir::ExprKind::kLoad || e->buffer != buffer) return true;
    for (const ir::IterVar& iter : block.iters) {
      const bool used = std::ranges::any_of(
          e->args, [&](const Expr& index) { return ir::UsesVar(index, iter.var); });
      if (used) moves.insert(iter.var.get());
    }
    return true;
  });
  int64_t count = 1;
  for (const ir::IterVar& iter : block.iters) {
    if (iter.type == ir::IterType::kSpatial && !moves.contains(iter.var.get()))
      count *= ExtentOf(iter.domain.extent);
  }
  return count;
}

void DefaultScheduler::InlineCheapStages() {
  const target::InlineLimits& limits = target_.machine.inlined;
  const bool is_open = !schedule_.function().size_params.empty();
  // Threads of a group have one body for all taps, and what it decides costs those whose threads
  // run one after the other.
  const bool in_turn = target_.machine.has_groups() && target_.machine.launch.warp == 1;
  const auto has_few_taps = [&](const StmtNode& reader, const ir::Buffer& buffer) {
    if (in_turn) return false;
    const int64_t taps = TapsOf(reader, buffer);
    if (!is_open) return taps <= limits.window_taps;
    return taps * ResultsOfElement(reader, buffer) <= limits.open_reads;
  };
  for (const std::string& name : schedule_.BlockNames()) {
    const Within rule(this, "inline", name);
    Stmt block = BlockOf(name);
    if (block->init != nullptr || block->body->kind != ir::StmtKind::kStore) continue;
    if (block->writes[0].buffer->role != ir::Role::kIntermediate) continue;
    if (MakesRowNumber(*block) && ChoiceOf(name).place != BlockChoice::kInlined) {
      if (explains()) Decide("kept", "a number of a row that costs a division or a call");
      continue;
    }
    int nodes = 0;
    bool calls = false, chooses = false;
    ir::VisitExprs(block->body->value, [&](const Expr& e) {
      ++nodes;
      calls = calls || ir::IsMathCall(*e);
      chooses = chooses || e->kind == ir::ExprKind::kSelect;
      return true;
    });
    bool into_reduction = false, into_long = false, into_dots = false;
    bool of_few_taps = chooses;
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
      of_few_taps = of_few_taps && has_few_taps(*site.block, block->writes[0].buffer);
      reads += WorkOf(*site.block);
    }
    // A choice (padding) would be made again in every turn of the innermost loop: no matter where
    // each element is read a few times only, for that costs less than keeping it, or where the
    // reduction is written out, for that decides it (partition_loops). So do the loops around dot
    // products, each of which is hundreds of operations: what lies outside is left out. A window of
    // a few taps has a body for each of them, without the products outside. An image of open size
    // may be larger than any cache: each element that is kept comes from memory then.
    const bool decided = chooses && into_reduction && (!into_long || into_dots || of_few_taps);
    const bool often = !decided && reads > limits.reads * WorkOf(*block);
    bool cheap = nodes <= (decided ? limits.decided_nodes : limits.nodes) && !calls &&
                 !(chooses && into_reduction && often);
    cheap = cheap || ChoiceOf(name).place == BlockChoice::kInlined;
    if (cheap || (uses == 1 && !into_reduction)) {
      const bool done = Try({.kind = StepKind::kInline, .handles = {schedule_.BlockHandle(name)}});
      if (done && explains()) {
        Decide("into its readers", cheap ? StrCat("a value of ", nodes, " nodes") : "one reader");
      }
    } else if (uses > 0 && explains()) {
      Decide("kept", calls   ? StrCat("calls a function; ", uses, " readers")
                     : often ? StrCat("each element is read ", reads / WorkOf(*block), " times")
                             : StrCat("a value of ", nodes, " nodes"));
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

// Fuses as many of the outermost `loops` as needed to keep every thread busy, or `count` of them,
// and maps them. An open loop may have one turn only, and is fused with loops inside of it or not
// at all.
void DefaultScheduler::ParallelOuter(std::vector<int> loops, int64_t work, int64_t count) {
  const Within rule(this, "parallel", block_);
  if (serial_ || target_.threads < 2 || work < target_.machine.parallel_work || loops.empty())
    return;
  const int64_t wanted = 4 * target_.threads;
  const auto extent = [this](int loop) { return ExtentOf(schedule_.StmtOf(loop)->range.extent); };
  const auto is_open = [&](int loop) { return extent(loop) == kSymbolicExtent; };
  const auto open = std::find_if(loops.begin(), loops.end(), is_open);
  int64_t before = 1;  // turns of the loops outside of it
  for (auto it = loops.begin(); it != open; ++it) before *= extent(*it);
  if (open != loops.end() && open != loops.begin() && before < wanted && count <= 0) {
    const std::vector<int> nested = loops;
    std::rotate(loops.begin(), open, open + 1);
    if (!Try({.kind = StepKind::kReorder, .handles = loops})) loops = nested;
  }
  std::vector<int> fused;
  int64_t tasks = 1;
  for (int loop : loops) {
    if (!fused.empty() && is_open(loop)) break;
    fused.push_back(loop);
    tasks *= is_open(loop) ? 1 : extent(loop);
    const bool enough = count > 0 ? static_cast<int64_t>(fused.size()) >= count : tasks >= wanted;
    if (enough) break;
  }
  const bool at_least = is_open(fused[0]);
  int mapped = fused[0];
  if (fused.size() > 1) {
    if (!Try({.kind = StepKind::kFuse, .handles = fused})) return;
    mapped = schedule_.LastResults()[0];
  }
  if (Try({.kind = StepKind::kParallel, .handles = {mapped}}) && explains()) {
    Decide(StrCat("the outer ", fused.size(), " loops in parallel"),
           StrCat(at_least ? "at least " : "", tasks, " tasks for ", target_.threads, " threads"));
  }
}

// Stages before a reduction that are made anew within its outer loops.
void DefaultScheduler::PlaceStages() {
  for (const std::string& name : schedule_.BlockNames()) {
    const Within rule(this, "place", name);
    int level = ChoiceOf(name).place;
    if (level < 1 || level == BlockChoice::kInlined) continue;
    const ir::Buffer made = BlockOf(name)->writes[0].buffer;
    for (const BlockSite& site : BlocksIn(schedule_.function().body)) {
      if (site.block->name == name || !Reads(*site.block, made)) continue;
      for (int loop : schedule_.LoopsOf(schedule_.BlockHandle(site.block->name))) {
        const Expr& turns = schedule_.StmtOf(loop)->range.extent;
        if (ir::IsInt(turns, 1) || --level > 0) continue;
        // An open number of turns is rows: each of them would make the whole stage again.
        if (ExtentOf(turns) == kSymbolicExtent) break;
        const int stage = schedule_.BlockHandle(name);
        if (Try({.kind = StepKind::kComputeAt, .handles = {stage, loop}})) {
          VectorizeInner(schedule_.LastResults().back());
          if (explains()) Decide(StrCat("at a loop of ", site.block->name), "chosen");
        }
        break;
      }
      break;
    }
  }
}

Steps DefaultSchedule(const ir::Function& function, const target::Target& target,
                      const Choices& choices) {
  Schedule schedule(function);
  ApplyDefaultSchedule(target, choices, &schedule);
  return schedule.steps();
}

Steps DefaultSchedule(std::span<const schedule::Variant> variants, const target::Target& target,
                      const Sizes& typical) {
  const size_t variant = DefaultVariant(variants, target, typical);
  Schedule schedule(variants[variant].function);
  ApplyDefaultSchedule(target, {}, &schedule, nullptr, typical);
  Steps steps = schedule.steps();
  if (variant > 0) {
    steps.insert(steps.begin(), {.kind = StepKind::kVariant, .word = variants[variant].name});
  }
  return steps;
}

void ApplyDefaultSchedule(const target::Target& target, const Choices& choices, Schedule* schedule,
                          Trace* trace, const Sizes& typical) {
  const Steps& steps = schedule->steps();
  TW_CHECK(steps.empty() || (steps.size() == 1 && steps[0].kind == StepKind::kVariant))
      << "a default schedule starts from an unscheduled function";
  if (schedule->function().body == nullptr) return;
  DefaultScheduler scheduler(schedule, target, choices, trace, typical);
  if (target.machine.has_groups()) return scheduler.RunBound();
  if (target.machine.has_matrix()) return scheduler.RunMatrix();
  scheduler.Run();
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
