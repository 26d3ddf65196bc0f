#include "compiler/space/rules/thread_tile_loops.h"

#include <algorithm>
#include <array>
#include <functional>
#include <initializer_list>
#include <numeric>

#include "compiler/space/rules/work_shares.h"
#include "deploy/support/strings.h"

namespace tilewright::space {
namespace {

// What an axis of a nest is split into.
enum AxisPart : size_t { kGroup, kThread, kRow, kVector, kLane, kNumParts };
struct PartOfAxis {
  AxisPart part;
  int64_t extent;
};

// All but the group, outermost first.
std::vector<PartOfAxis> PartsOf(const ThreadTile& t, size_t a) {
  const PartOfAxis thread = {kThread, t.threads[a]};
  if (a != t.lane_axis) return {thread, {kRow, t.rows[a]}};
  const PartOfAxis vector = {kVector, t.vectors}, lane = {kLane, t.lanes};
  if (t.virtual_threads) return {vector, thread, lane};
  return {thread, vector, lane};
}

// The loops of an axis, by part; -1: there is none.
using AxisLoops = std::array<int, kNumParts>;

// Splits the loops of a nest, one for each axis of the tile. `groups`: the nest has all tiles, else
// one. Returns nothing after an error.
std::vector<AxisLoops> SplitAxes(const ThreadTile& t, const std::vector<int>& loops, bool groups,
                                 StepMaker* make) {
  std::vector<AxisLoops> axes;
  for (size_t a = 0; a < t.threads.size(); ++a) {
    std::vector<PartOfAxis> parts = PartsOf(t, a);
    if (groups) parts.insert(parts.begin(), {kGroup, schedule::kInfer});
    std::vector<int64_t> factors;
    for (const PartOfAxis& part : parts) factors.push_back(part.extent);
    const std::vector<int> made = make->Split(loops[a], factors, false);
    if (made.size() != factors.size()) return {};
    AxisLoops& axis = axes.emplace_back();
    axis.fill(-1);
    for (size_t i = 0; i < parts.size(); ++i) axis[parts[i].part] = made[i];
  }
  return axes;
}

// The axes in the order of a group's threads: along the last one neighbours are neighbours.
std::vector<size_t> ThreadAxes(const ThreadTile& t) {
  const size_t inside = t.last_axis_inside ? t.threads.size() - 1 : t.lane_axis;
  std::vector<size_t> axes;
  for (size_t a = 0; a < t.threads.size(); ++a) {
    if (a != inside) axes.push_back(a);
  }
  axes.push_back(inside);
  return axes;
}

// The loops over a group's threads, outermost first.
std::vector<int> ThreadLoops(const ThreadTile& t, const std::vector<AxisLoops>& axes) {
  std::vector<int> loops;
  for (const size_t a : ThreadAxes(t)) loops.push_back(axes[a][kThread]);
  return loops;
}

// The loop over virtual threads, around the threads; none where a thread's vectors are neighbours.
std::vector<int> VirtualLoops(const ThreadTile& t, const std::vector<AxisLoops>& axes) {
  if (!t.virtual_threads) return {};
  return {axes[t.lane_axis][kVector]};
}

// The loops of a register tile, outermost first: rows, vectors, lanes.
std::vector<int> RegisterLoops(const ThreadTile& t, const std::vector<AxisLoops>& axes) {
  std::vector<int> loops;
  for (const AxisLoops& axis : axes) {
    if (axis[kRow] >= 0) loops.push_back(axis[kRow]);
  }
  if (!t.virtual_threads) loops.push_back(axes[t.lane_axis][kVector]);
  loops.push_back(axes[t.lane_axis][kLane]);
  return loops;
}

// Maps virtual threads and the loops of a register tile, all but the lanes.
void MapRegisters(const std::vector<int>& virtual_loops, const std::vector<int>& loops,
                  StepMaker* make) {
  for (const int loop : virtual_loops) make->VirtualThread(loop);
  for (size_t i = 0; i + 1 < loops.size(); ++i) make->Unroll(loops[i]);
}

}  // namespace

int64_t ThreadTile::group() const {
  return std::accumulate(threads.begin(), threads.end(), int64_t{1}, std::multiplies<>());
}

std::vector<AxisDigit> ThreadOrder(const ThreadTile& t) {
  std::vector<AxisDigit> order;
  for (size_t a = 0; a < t.threads.size(); ++a) order.push_back({a, t.extent(a), 0});
  const auto add = [&](size_t a, std::initializer_list<AxisPart> wanted) {
    int64_t div = t.extent(a);
    for (const PartOfAxis& part : PartsOf(t, a)) {
      div /= part.extent;
      const bool is_wanted = std::ranges::find(wanted, part.part) != wanted.end();
      if (is_wanted && part.extent > 1) order.push_back({a, div, part.extent});
    }
  };
  for (size_t a = 0; a < t.threads.size(); ++a) add(a, {kRow, kVector});
  for (const size_t a : ThreadAxes(t)) add(a, {kThread});
  add(t.lane_axis, {kLane});
  return order;
}

int TileConsumer(const ThreadTile& t, std::vector<int> loops, int64_t groups, StepMaker* make) {
  const std::vector<int> part(loops.begin(), loops.begin() + (t.parts > 1 ? 1 : 0));
  loops.erase(loops.begin(), loops.begin() + (t.parts > 1 ? 1 : 0));
  const std::vector<AxisLoops> axes = SplitAxes(t, loops, /*groups=*/true, make);
  if (axes.empty()) return -1;
  std::vector<int> tiles;
  for (const AxisLoops& axis : axes) tiles.push_back(axis[kGroup]);
  if (t.swap_groups) {  // the lanes' axis outermost
    const auto lanes = tiles.begin() + static_cast<std::ptrdiff_t>(t.lane_axis);
    std::rotate(tiles.begin(), lanes, lanes + 1);
  }
  tiles.insert(tiles.begin(), part.begin(), part.end());
  const std::vector<int> virtual_loops = VirtualLoops(t, axes);
  const std::vector<int> threads = ThreadLoops(t, axes), inner = RegisterLoops(t, axes);
  std::vector<int> order = tiles;
  for (const std::vector<int>& next : {virtual_loops, threads, inner})
    order.insert(order.end(), next.begin(), next.end());
  make->Reorder(order);
  const int group = BindGroups(make->Fuse(tiles), t.tiles_of_group, groups, make);
  make->Bind(make->Fuse(threads), "threadIdx.x");
  MapRegisters(virtual_loops, inner, make);
  if (t.lanes > 1) make->Vectorize(inner.back());
  return group;
}

SumLoops TileSums(const ThreadTile& t, const std::vector<int>& axes, std::vector<int> terms,
                  const std::string& intrinsic, StepMaker* make) {
  const std::vector<AxisLoops> split = SplitAxes(t, axes, /*groups=*/false, make);
  if (split.empty()) return {};
  std::vector<int> order;  // loops over steps
  for (size_t j = 0; t.staged && j + (t.dots ? 1 : 0) < terms.size(); ++j) {
    const std::vector<int> parts = make->Split(terms[j], {schedule::kInfer, t.steps[j]}, false);
    if (parts.size() != 2) return {};
    order.push_back(parts[0]);
    terms[j] = parts[1];
  }
  const int step = order.empty() ? -1 : order.back();
  std::vector<int> in_dot;  // inside the instruction
  if (t.dots) {
    in_dot = {terms.back()};
    terms.pop_back();
  }
  const std::vector<int> virtual_loops = VirtualLoops(t, split);
  const std::vector<int> threads = ThreadLoops(t, split), inner = RegisterLoops(t, split);
  for (const std::vector<int>& part : {virtual_loops, threads, terms, inner, in_dot})
    order.insert(order.end(), part.begin(), part.end());
  make->Reorder(order);
  make->Bind(make->Fuse(threads), "threadIdx.x");
  MapRegisters(virtual_loops, inner, make);
  if (t.unroll) make->Unroll(terms.back());
  if (t.dots) {
    make->Tensorize(inner.back(), support::StrCat(intrinsic, t.lanes));
  } else if (t.lanes > 1) {
    make->Vectorize(inner.back());
  }
  return {step, terms.size() < 2 ? -1 : terms[terms.size() - 2]};
}

}  // namespace tilewright::space
