#include "compiler/space/rules/thread_tile_loops.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "compiler/space/rules/work_shares.h"
#include "deploy/support/strings.h"

namespace tilewright::space {
namespace {

// The loops that an axis of a nest is split into; -1: there is none.
struct AxisLoops {
  int group = -1, thread = -1, row = -1, vector = -1, lane = -1;
};

// Splits the loops of a nest, one for each axis of the tile. `groups`: the nest has all tiles, else
// one. Returns nothing after an error.
std::vector<AxisLoops> SplitAxes(const ThreadTile& t, const std::vector<int>& loops, bool groups,
                                 StepMaker* make) {
  std::vector<AxisLoops> axes;
  for (size_t a = 0; a < t.threads.size(); ++a) {
    const bool lanes = a == t.lane_axis;
    std::vector<int64_t> factors;
    if (groups) factors.push_back(schedule::kInfer);
    if (lanes && t.virtual_threads) factors.push_back(t.vectors);
    factors.push_back(t.threads[a]);
    if (!lanes) factors.push_back(t.rows[a]);
    if (lanes && !t.virtual_threads) factors.push_back(t.vectors);
    if (lanes) factors.push_back(t.lanes);
    const std::vector<int> made = make->Split(loops[a], factors, false);
    if (made.size() != factors.size()) return {};
    AxisLoops axis;
    size_t next = 0;
    if (groups) axis.group = made[next++];
    if (lanes && t.virtual_threads) axis.vector = made[next++];
    axis.thread = made[next++];
    if (!lanes) axis.row = made[next++];
    if (lanes && !t.virtual_threads) axis.vector = made[next++];
    if (lanes) axis.lane = made[next++];
    axes.push_back(axis);
  }
  return axes;
}

// The loops over a group's threads, outermost first.
std::vector<int> ThreadLoops(const ThreadTile& t, const std::vector<AxisLoops>& axes) {
  const size_t inside = t.last_axis_inside ? axes.size() - 1 : t.lane_axis;
  std::vector<int> loops;
  for (size_t a = 0; a < axes.size(); ++a) {
    if (a != inside) loops.push_back(axes[a].thread);
  }
  loops.push_back(axes[inside].thread);
  return loops;
}

// The loop over virtual threads, around the threads; none where a thread's vectors are neighbours.
std::vector<int> VirtualLoops(const ThreadTile& t, const std::vector<AxisLoops>& axes) {
  if (!t.virtual_threads) return {};
  return {axes[t.lane_axis].vector};
}

// The loops of a register tile, outermost first: rows, vectors, lanes.
std::vector<int> RegisterLoops(const ThreadTile& t, const std::vector<AxisLoops>& axes) {
  std::vector<int> loops;
  for (const AxisLoops& axis : axes) {
    if (axis.row >= 0) loops.push_back(axis.row);
  }
  if (!t.virtual_threads) loops.push_back(axes[t.lane_axis].vector);
  loops.push_back(axes[t.lane_axis].lane);
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

int TileConsumer(const ThreadTile& t, std::vector<int> loops, int64_t groups, StepMaker* make) {
  const std::vector<int> part(loops.begin(), loops.begin() + (t.parts > 1 ? 1 : 0));
  loops.erase(loops.begin(), loops.begin() + (t.parts > 1 ? 1 : 0));
  const std::vector<AxisLoops> axes = SplitAxes(t, loops, /*groups=*/true, make);
  if (axes.empty()) return -1;
  std::vector<int> tiles;
  for (const AxisLoops& axis : axes) tiles.push_back(axis.group);
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
