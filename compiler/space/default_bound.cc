// The default for devices of groups and threads: one thread for each result, or for a tile of them.
//   for n, c, h: Y[n,c,h] = f(sum over k of X[…])
//     → for b blockIdx.x { for t threadIdx.x { for k, h_1: local sum; for h_1: Y[…] = f(sum) } }
// A block is a launch of its own, unless another one takes it: a cheap stage is inlined, and a
// reduction is computed in the thread of the results that need it. A block without spatial loops
// is a launch of one thread. Functions whose blocks belong together, such as those of rows, take a
// rule's default instead, in one launch.
//
// Sums of products of bytes are dot products. Constant weights that lie in rows of terms, as
// products of matrices want them, have a copy for that. It depends on constants only, so it is made
// once, before the first run.
#include "compiler/schedule/legality.h"
#include "compiler/space/default_scheduler.h"
#include "compiler/space/rules/rules.h"
#include "compiler/space/rules/tile_operands.h"
#include "deploy/support/strings.h"

namespace tilewright::space {
namespace {

constexpr int64_t kFewestLanes = 4;  // the intrinsics have 4, 8 or 16

// Returns the tensor intrinsic for a reduction that is a dot product of bytes along its last
// spatial iterator; empty if it is none. Chooses the number of results of a thread if nobody did.
std::string DotIntrinsic(const ir::StmtNode& reduction, int64_t* vectors) {
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

// Whether the block adds up more than `most` floats, of a number that is known.
bool IsLongSum(const ir::StmtNode& block, int64_t most) {
  const ir::StmtNode& body = *block.body;
  const bool fixed = std::ranges::all_of(block.iters, [](const ir::IterVar& iter) {
    return iter.type == ir::IterType::kSpatial || ir::AsInt(iter.domain.extent) != nullptr;
  });
  return fixed && body.kind == ir::StmtKind::kStore && body.value->kind == ir::ExprKind::kAdd &&
         body.value->dtype.is_float() && ReductionSteps(block) > most;
}

}  // namespace

void DefaultScheduler::RunBound() {
  if (choices_.empty() && RunRules({MakeRowGroups, MakeNestGroups})) return;
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

// Makes a copy of the weights of a sum of products of bytes, in words of four terms. Returns the
// tensor intrinsic that multiplies them; empty if the block is no such sum, or if its threads have
// another number of results than an intrinsic.
std::string DefaultScheduler::PackByteRows(const std::string& name, int64_t* vectors) {
  const std::optional<ByteRows> rows = FindByteRows(*BlockOf(name));
  const int64_t lanes = *vectors == 0 ? kFewestLanes : *vectors;
  if (!rows.has_value() || lanes < kFewestLanes || rows->columns % lanes != 0) return "";
  const int block = schedule_.BlockHandle(name);
  Step read{.kind = StepKind::kCacheRead, .handles = {block}, .options = {{"scope", "global"}}};
  const int64_t index = ReadIndex(schedule_, block, rows->weights->name);
  if (index > 0) read.options["read"] = std::to_string(index);
  if (!Try(read)) return "";
  const std::vector<int> copy = schedule_.LastResults();  // the block, then its loops
  const std::string packed = schedule_.StmtOf(copy[0])->name;
  const bool packs =
      Try({.kind = StepKind::kSplit, .handles = {copy[2]}, .factors = {kInfer, ir::kDotTerms}}) &&
      Try({.kind = StepKind::kTransformLayout, .handles = {copy[0]}, .word = "(1/4,0,1%4)"});
  BindResults(packed, ChoiceOf(packed));
  if (!packs) return "";
  if (explains()) Decide("constant weights in words of four terms", "dot products read words");
  *vectors = lanes;
  return support::StrCat(rows->intrinsic, lanes);
}

// Cuts a long sum of floats into parts of about as many terms as there are parts: each is rounded
// less often. Returns the block of the parts; empty if the sum stays whole.
std::string DefaultScheduler::SumInParts(const std::string& name) {
  const int64_t most = target_.machine.launch.summed_terms;
  const ir::Stmt sum = BlockOf(name);
  if (most == 0 || !IsLongSum(*sum, most)) return "";
  size_t outer = sum->iters.size();
  int64_t extent = 1, inner = 1;  // of the outer loop, of all others
  for (size_t i = 0; i < sum->iters.size(); ++i) {
    if (sum->iters[i].type == ir::IterType::kSpatial) continue;
    const int64_t terms = ExtentOf(sum->iters[i].domain.extent);
    if (outer == sum->iters.size()) {
      outer = i;
      extent = terms;
    } else {
      inner = std::min(kSymbolicExtent, inner * terms);
    }
  }
  int64_t each = 1;  // iterations of the outer loop, for a part
  for (int64_t e = 2; e <= extent && inner * e * e <= extent; ++e) {
    if (extent % e == 0) each = e;
  }
  if (each * inner == 1) return "";  // a prime number of terms
  const int block = schedule_.BlockHandle(name);
  int parts = schedule_.LoopsOf(block)[outer];
  if (each > 1) {
    if (!Try({.kind = StepKind::kSplit, .handles = {parts}, .factors = {kInfer, each}})) return "";
    parts = schedule_.LastResults()[0];
  }
  if (!Try({.kind = StepKind::kRfactor, .handles = {block, parts}, .options = {{"axis", "last"}}}))
    return "";
  if (explains()) {
    Decide(support::StrCat("sums of ", each * inner, " terms, then of these"),
           support::StrCat("the machine rounds products, and adds up ", most, " at most"));
  }
  return schedule_.StmtOf(schedule_.LastResults()[0])->name;
}

void DefaultScheduler::BindReduction(const std::string& name) {
  const Within rule(this, "tile", name);
  tiled_.push_back(name);
  const ir::Stmt reduction = BlockOf(name);
  const std::string target = TargetOf(*reduction);
  BlockChoice choice = ChoiceOf(name);
  std::string dots = target.empty() ? "" : DotIntrinsic(*reduction, &choice.vectors);
  const bool packs = dots.empty() && !target.empty();
  if (packs) dots = PackByteRows(name, &choice.vectors);
  const bool tiles = choice.vectors > 1 || choice.rows > 1;
  const std::string parts =
      dots.empty() && !tiles && !target.empty() ? SumInParts(name) : std::string();
  if (!parts.empty()) done_.push_back(parts), tiled_.push_back(parts);
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
  if (!parts.empty()) {
    const int part = schedule_.BlockHandle(parts);
    Try({.kind = StepKind::kComputeAt, .handles = {part, loops.back()}});
    Try({.kind = StepKind::kSetScope, .handles = {part}, .word = "local"});
  }
  if (!tiles) return;
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
    if (packs &&
        Try({.kind = StepKind::kSplit, .handles = terms, .factors = {kInfer, ir::kDotTerms}})) {
      order.push_back(schedule_.LastResults()[0]);
      terms = {schedule_.LastResults()[1]};
    }
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
