// The default for devices of groups and threads: one thread for each result, or for a tile of them.
//   for n, c, h: Y[n,c,h] = f(sum over k of X[…])
//     → for b blockIdx.x { for t threadIdx.x { for k, h_1: local sum; for h_1: Y[…] = f(sum) } }
// A block is a launch of its own, unless another one takes it: a cheap stage is inlined, and a
// reduction is computed in the thread of the results that need it. A block without spatial loops
// is a launch of one thread.
#include "compiler/schedule/legality.h"
#include "compiler/space/default_scheduler.h"
#include "deploy/support/strings.h"

namespace tilewright::space {
namespace {

// Returns the tensor intrinsic for a reduction that is a dot product of bytes along its last
// spatial iterator; empty if it is none. Chooses the number of results of a thread if nobody did.
std::string DotIntrinsic(const ir::StmtNode& reduction, int64_t* vectors) {
  constexpr int64_t kFewestLanes = 4;  // the intrinsics have 4, 8 or 16
  const std::optional<DotProduct> dot = FindByteDots(reduction);
  if (!dot.has_value()) return "";
  const auto lane = static_cast<size_t>(dot->lane_axis);
  for (size_t i = lane + 1; i < reduction.iters.size(); ++i) {
    if (reduction.iters[i].type == ir::IterType::kSpatial) return "";
  }
  const bool whole = ExtentOf(reduction.iters[lane].domain.extent) % kFewestLanes == 0;
  if (*vectors == 0 && whole) *vectors = kFewestLanes;
  return *vectors < kFewestLanes ? "" : support::StrCat(dot->intrinsic, *vectors);
}

}  // namespace

void DefaultScheduler::RunBound() {
  InlineCheapStages();
  for (const std::string& name : schedule_.BlockNames()) {
    if (IsDone(name)) continue;
    const ir::Stmt block = BlockOf(name);
    done_.push_back(name);
    if (block->init != nullptr) {
      BindReduction(name);
    } else if (!FeedsFromReduction(*block)) {
      BindResults(name, ChoiceOf(name));
    }
  }
  // Blocks after a reduction that no reduction took.
  for (const std::string& name : schedule_.BlockNames()) {
    if (std::find(tiled_.begin(), tiled_.end(), name) == tiled_.end())
      BindResults(name, ChoiceOf(name));
  }
}

// Splits the thread's own results off the innermost loops of `loops`; returns their loops.
std::vector<int> DefaultScheduler::SplitTile(const BlockChoice& choice, std::vector<int>* loops) {
  std::vector<int> tile;
  const int64_t widths[] = {choice.vectors, choice.rows};
  for (size_t i = 0; i < std::min<size_t>(2, loops->size()); ++i) {
    int& loop = (*loops)[loops->size() - 1 - i];
    if (widths[i] < 2 || ExtentOf(schedule_.StmtOf(loop)->range.extent) < widths[i]) continue;
    if (!Try({.kind = StepKind::kSplit, .handles = {loop}, .factors = {kInfer, widths[i]}}))
      continue;
    loop = schedule_.LastResults()[0];
    tile.insert(tile.begin(), schedule_.LastResults()[1]);
  }
  return tile;
}

// Returns the innermost loop that was bound; -1 if none was.
int DefaultScheduler::BindResults(const std::string& name, const BlockChoice& choice) {
  const Within rule(this, "threads", name);
  tiled_.push_back(name);
  const ir::Stmt block = BlockOf(name);
  const std::vector<int> loops = schedule_.LoopsOf(schedule_.BlockHandle(name));
  if (loops.size() != block->iters.size()) return -1;
  std::vector<int> spatial;
  for (size_t i = 0; i < loops.size(); ++i) {
    if (block->iters[i].type != ir::IterType::kSpatial) break;
    spatial.push_back(loops[i]);
  }
  if (spatial.empty()) return -1;
  const std::vector<int> tile = SplitTile(choice, &spatial);
  if (!tile.empty()) {
    std::vector<int> order = spatial;
    order.insert(order.end(), tile.begin(), tile.end());
    if (!Try({.kind = StepKind::kReorder, .handles = order})) return -1;
  }
  int results = spatial[0];
  if (spatial.size() > 1) {
    if (!Try({.kind = StepKind::kFuse, .handles = spatial})) return -1;
    results = schedule_.LastResults()[0];
  }
  const target::LaunchLimits& limits = target_.machine.launch;
  const int64_t threads =
      std::min(choice.threads > 0 ? choice.threads : limits.usual_threads, limits.group_threads);
  if (ExtentOf(schedule_.StmtOf(results)->range.extent) > threads) {
    if (!Try({.kind = StepKind::kSplit, .handles = {results}, .factors = {kInfer, threads}}))
      return -1;
    const int group = schedule_.LastResults()[0];
    results = schedule_.LastResults()[1];
    if (!Try({.kind = StepKind::kBind, .handles = {group}, .word = "blockIdx.x"})) return -1;
  }
  if (!Try({.kind = StepKind::kBind, .handles = {results}, .word = "threadIdx.x"})) return -1;
  for (int loop : tile) Try({.kind = StepKind::kUnroll, .handles = {loop}});
  if (explains()) {
    Decide(support::StrCat("a thread for each ", std::max<int64_t>(1, choice.vectors), " x ",
                           std::max<int64_t>(1, choice.rows), " results, ", threads, " in a group"),
           choice.threads > 0 ? "chosen" : "the machine's usual number");
  }
  return results;
}

void DefaultScheduler::BindReduction(const std::string& name) {
  const Within rule(this, "tile", name);
  tiled_.push_back(name);
  const ir::Stmt reduction = BlockOf(name);
  const std::string target = TargetOf(*reduction);
  BlockChoice choice = ChoiceOf(name);
  const std::string dots = target.empty() ? "" : DotIntrinsic(*reduction, &choice.vectors);
  // A reduction of several values has no copy to leave through: its threads add to the result.
  const int thread = BindResults(target.empty() ? name : target, choice);
  if (target.empty() || thread < 0) return;
  const int block = schedule_.BlockHandle(name);
  if (!Try({.kind = StepKind::kComputeAt, .handles = {block, thread}})) {
    BindResults(name, choice);  // a launch of its own
    return;
  }
  const std::vector<int> loops = schedule_.LastResults();  // one for each iterator
  Try({.kind = StepKind::kSetScope, .handles = {block}, .word = "local"});
  if (choice.vectors < 2 && choice.rows < 2) return;
  // Each element that is loaded serves the whole tile, whose sums stay in registers.
  std::vector<int> order, tile;
  for (size_t i = 0; i < loops.size(); ++i) {
    const bool spatial = reduction->iters[i].type == ir::IterType::kSpatial;
    (spatial ? tile : order).push_back(loops[i]);
  }
  std::vector<int> terms;  // of a dot product, inside the lanes
  if (!dots.empty()) {
    terms = {order.back()};
    order.pop_back();
  }
  for (const std::vector<int>& part : {tile, terms})
    order.insert(order.end(), part.begin(), part.end());
  if (!Try({.kind = StepKind::kReorder, .handles = order})) return;
  if (!dots.empty() && Try({.kind = StepKind::kTensorize,
                            .handles = {tile.back()},
                            .options = {{"intrin", dots}}})) {
    tile.pop_back();
  }
  for (int loop : tile) {
    if (!ir::IsInt(schedule_.StmtOf(loop)->range.extent, 1))
      Try({.kind = StepKind::kUnroll, .handles = {loop}});
  }
}

}  // namespace tilewright::space
