#include "compiler/space/rules/work_shares.h"

#include <algorithm>

#include "compiler/target/occupancy.h"

namespace tilewright::space {

std::vector<int64_t> TilesOfGroupMenu(const target::LaunchLimits& limits, int64_t most) {
  std::vector<int64_t> menu;
  for (int64_t tiles = 1; tiles <= most; tiles *= 2) menu.push_back(tiles);
  if (limits.warp > 1) menu.push_back(kItsShare);
  return menu;
}

int64_t GroupsAtOnce(const target::LaunchLimits& limits, int64_t threads, int64_t shared_bytes,
                     int64_t registers) {
  return std::max<int64_t>(1, limits.units) *
         target::GroupsPerUnit(limits, threads, shared_bytes, registers);
}

bool CanShareOut(int64_t tiles, int64_t tiles_of_group, int64_t groups) {
  return tiles_of_group == kItsShare ? groups > 0 && tiles > groups : tiles % tiles_of_group == 0;
}

int BindGroups(int loop, int64_t tiles_of_group, int64_t groups, StepMaker* make) {
  if (tiles_of_group == 1 || tiles_of_group == kItsShare) {
    make->Bind(loop, "blockIdx.x");
    if (tiles_of_group == kItsShare) make->Annotate(loop, "groups", groups);
    return loop;
  }
  const std::vector<int> parts = make->Split(loop, {schedule::kInfer, tiles_of_group}, false);
  if (parts.size() != 2) return -1;
  make->Bind(parts[0], "blockIdx.x");
  return parts[1];
}

std::vector<int64_t> PartsMenu(const target::LaunchLimits& limits, int64_t most) {
  std::vector<int64_t> menu = {1, 2, 4, 8};
  if (limits.warp > 1) menu.insert(menu.end(), {-2, -4, -8});
  for (int64_t parts = 16; parts <= most; parts *= 2) menu.push_back(parts);
  return menu;
}

int64_t WholeWaveRows(int64_t rows, int64_t columns, int64_t groups) {
  if (groups < 1 || rows * columns % groups == 0) return 0;
  return rows * columns / groups * groups / columns;
}

LastWave CutLastWave(int64_t first, int p, int o, size_t iters, const schedule::Schedule& s,
                     StepMaker* make) {
  if (o < 0) {
    const std::vector<int> copy = make->CacheWrite(p);
    if (copy.empty()) return {};
    o = copy[0];
  }
  const std::vector<int> made = make->Divide({s.LoopsOf(p)[0], s.LoopsOf(o)[0]}, first);
  if (made.empty()) return {};
  return {p, o, made[0], made[1 + iters]};
}

int AddUpParts(int64_t parts, int p, int o, size_t terms, int64_t threads,
               const schedule::Schedule& s, StepMaker* make) {
  const std::vector<int> cut = make->Split(s.LoopsOf(p)[terms], {parts, schedule::kInfer}, false);
  if (cut.size() != 2) return -1;
  const std::vector<int> made = make->Rfactor(p, cut[0], "first");
  if (made.empty()) return -1;
  const bool copies = o < 0;
  if (copies) {
    const std::vector<int> copy = make->CacheWrite(p);
    if (copy.empty()) return -1;
    o = copy[0];
  }
  const std::vector<int> results =
      make->Split(make->Fuse(s.LoopsOf(o)), {schedule::kInfer, threads}, false);
  if (results.size() != 2) return -1;
  make->Bind(results[0], "blockIdx.x");
  make->Bind(results[1], "threadIdx.x");
  make->ComputeAt(p, results[1]);
  if (!copies) make->SetScope(p, "local");
  return made[0];
}

}  // namespace tilewright::space
