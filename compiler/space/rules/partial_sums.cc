#include "compiler/space/rules/partial_sums.h"

namespace tilewright::space {
namespace {

// Returns the loop over threads.
int PlaceInThreads(const PartialSums& sums, int block, int group, StepMaker* make) {
  const std::vector<int> loops = make->ComputeAt(block, group);
  if (loops.size() <= sums.spatial) return -1;
  make->Bind(loops[sums.spatial], "threadIdx.x");
  make->SetScope(block, "shared");
  return loops[sums.spatial];
}

}  // namespace

int FactorSums(const PartialSums& sums, int loop, int64_t parts, const schedule::Schedule& s,
               StepMaker* make, const char* axis) {
  const std::vector<int> split = make->Split(loop, {schedule::kInfer, parts}, false);
  if (split.size() != 2) return -1;
  const std::vector<int> made = make->Rfactor(s.BlockHandle(sums.block), split[1], axis);
  return made.empty() ? -1 : made[0];
}

PartialBlocks FactorTree(const PartialSums& sums, int64_t threads, int64_t fan_in,
                         const schedule::Schedule& s, StepMaker* make) {
  const auto innermost = [&] { return s.LoopsOf(s.BlockHandle(sums.block)).back(); };
  PartialBlocks blocks;
  blocks.terms = FactorSums(sums, innermost(), threads, s, make);
  for (int64_t left = threads;
       make->status().ok() && fan_in != kSubGroup && left > fan_in && left % fan_in == 0;) {
    left /= fan_in;
    blocks.levels.push_back(FactorSums(sums, innermost(), left, s, make));
  }
  // The sums over the terms stay in registers until they are complete.
  const std::vector<int> copy = make->CacheWrite(blocks.terms);
  if (!copy.empty()) blocks.copy = copy[0];
  return blocks;
}

void PlaceTree(const PartialSums& sums, const PartialBlocks& blocks, int group, StepMaker* make) {
  for (size_t i = blocks.levels.size(); i-- > 0;) {
    PlaceInThreads(sums, blocks.levels[i], group, make);
  }
  make->ComputeAt(blocks.terms, PlaceInThreads(sums, blocks.copy, group, make));
}

}  // namespace tilewright::space
