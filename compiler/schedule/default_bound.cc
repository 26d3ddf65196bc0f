// The default for devices of groups and threads: one thread for each result.
//   for n, c, h: Y[n,c,h] = f(sum over k of X[…])
//     → for b blockIdx.x { for t threadIdx.x { local sum; Y[(b,t)] = f(sum) } }
// A block is a launch of its own, unless another one takes it: a cheap stage is inlined, and a
// reduction is computed in the thread of the result that needs it. A block without spatial loops
// is a launch of one thread.
#include "compiler/schedule/default_scheduler.h"
#include "compiler/schedule/legality.h"

namespace tilewright::schedule {

// Threads of a group: enough to hide a load's latency, few enough that small results still fill
// several groups.
static constexpr int64_t kGroupThreads = 64;

void DefaultScheduler::RunBound(int64_t max_group_threads) {
  group_threads_ = std::min(kGroupThreads, max_group_threads);
  InlineCheapStages();
  for (const std::string& name : schedule_.BlockNames()) {
    if (IsDone(name)) continue;
    const ir::Stmt block = BlockOf(name);
    done_.push_back(name);
    if (block->init != nullptr) {
      BindReduction(name);
    } else if (!FeedsFromReduction(*block)) {
      BindResults(name);
    }
  }
  // Blocks after a reduction that no reduction took.
  for (const std::string& name : schedule_.BlockNames()) {
    if (std::find(tiled_.begin(), tiled_.end(), name) == tiled_.end()) BindResults(name);
  }
}

// Returns the innermost loop that was bound; -1 if none was.
int DefaultScheduler::BindResults(const std::string& name) {
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
  int results = spatial[0];
  if (spatial.size() > 1) {
    if (!Try({.kind = StepKind::kFuse, .handles = spatial})) return -1;
    results = schedule_.LastResults()[0];
  }
  if (ExtentOf(schedule_.StmtOf(results)->range.extent) > group_threads_) {
    if (!Try({.kind = StepKind::kSplit, .handles = {results}, .factors = {kInfer, group_threads_}}))
      return -1;
    const int group = schedule_.LastResults()[0];
    results = schedule_.LastResults()[1];
    if (!Try({.kind = StepKind::kBind, .handles = {group}, .word = "blockIdx.x"})) return -1;
  }
  return Try({.kind = StepKind::kBind, .handles = {results}, .word = "threadIdx.x"}) ? results : -1;
}

void DefaultScheduler::BindReduction(const std::string& name) {
  tiled_.push_back(name);
  const std::string target = TargetOf(*BlockOf(name));
  // A reduction of several values has no copy to leave through: its threads add to the result.
  const int thread = BindResults(target.empty() ? name : target);
  if (target.empty() || thread < 0) return;
  const int block = schedule_.BlockHandle(name);
  if (!Try({.kind = StepKind::kComputeAt, .handles = {block, thread}})) {
    BindResults(name);  // a launch of its own
    return;
  }
  Try({.kind = StepKind::kSetScope, .handles = {block}, .word = "local"});
}

}  // namespace tilewright::schedule
