#include "compiler/space/rules/work_shares.h"

#include <algorithm>
#include <functional>

#include "compiler/target/occupancy.h"
#include "deploy/support/strings.h"

namespace tilewright::space {
namespace {

// The loops of an order, made of one for each axis.
std::vector<int> LoopsInOrder(const std::vector<AxisDigit>& order, const std::vector<int>& axes,
                              StepMaker* make) {
  std::vector<int> loops(order.size(), -1);
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    std::vector<size_t> digits;  // the highest first
    for (size_t i = 0; i < order.size(); ++i) {
      if (order[i].axis == axis) digits.push_back(i);
    }
    std::ranges::sort(digits, std::greater(), [&](size_t i) { return order[i].div; });
    std::vector<int64_t> factors;
    for (const size_t i : digits)
      factors.push_back(order[i].extent > 0 ? order[i].extent : schedule::kInfer);
    const std::vector<int> made =
        factors.size() < 2 ? std::vector<int>{axes[axis]} : make->Split(axes[axis], factors, false);
    if (made.size() != digits.size()) return {};
    for (size_t i = 0; i < digits.size(); ++i) loops[digits[i]] = made[i];
  }
  make->Reorder(loops);
  return loops;
}

}  // namespace

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

std::string PartsLayout(const std::vector<AxisDigit>& order) {
  std::string map = "(0";
  for (const AxisDigit& digit : order) {
    map += support::StrCat(",", 1 + digit.axis);
    if (digit.div > 1) map += support::StrCat("/", digit.div);
    if (digit.extent > 0) map += support::StrCat("%", digit.extent);
  }
  return map + ")";
}

int AddUpParts(int64_t parts, int p, int o, size_t terms, int64_t threads,
               const std::vector<AxisDigit>& order, const schedule::Schedule& s, StepMaker* make) {
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
  std::vector<int> loops = s.LoopsOf(o);
  if (!order.empty()) loops = LoopsInOrder(order, loops, make);
  if (loops.empty()) return -1;
  const std::vector<int> results =
      make->Split(make->Fuse(loops), {schedule::kInfer, threads}, false);
  if (results.size() != 2) return -1;
  make->Bind(results[0], "blockIdx.x");
  make->Bind(results[1], "threadIdx.x");
  make->ComputeAt(p, results[1]);
  if (!copies) make->SetScope(p, "local");
  return made[0];
}

}  // namespace tilewright::space
