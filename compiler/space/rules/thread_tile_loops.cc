#include "compiler/space/rules/thread_tile_loops.h"

#include <functional>
#include <numeric>

namespace tilewright::space {

int64_t ThreadTile::group() const {
  return std::accumulate(threads.begin(), threads.end(), int64_t{1}, std::multiplies<>());
}

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

std::vector<int> ThreadLoops(const ThreadTile& t, const std::vector<AxisLoops>& axes) {
  const size_t inside = t.last_axis_inside ? axes.size() - 1 : t.lane_axis;
  std::vector<int> loops;
  for (size_t a = 0; a < axes.size(); ++a) {
    if (a != inside) loops.push_back(axes[a].thread);
  }
  loops.push_back(axes[inside].thread);
  return loops;
}

std::vector<int> VirtualLoops(const ThreadTile& t, const std::vector<AxisLoops>& axes) {
  if (!t.virtual_threads) return {};
  return {axes[t.lane_axis].vector};
}

std::vector<int> RegisterLoops(const ThreadTile& t, const std::vector<AxisLoops>& axes) {
  std::vector<int> loops;
  for (const AxisLoops& axis : axes) {
    if (axis.row >= 0) loops.push_back(axis.row);
  }
  if (!t.virtual_threads) loops.push_back(axes[t.lane_axis].vector);
  loops.push_back(axes[t.lane_axis].lane);
  return loops;
}

void MapRegisters(const std::vector<int>& virtual_loops, const std::vector<int>& loops,
                  StepMaker* make) {
  for (const int loop : virtual_loops) make->VirtualThread(loop);
  for (size_t i = 0; i + 1 < loops.size(); ++i) make->Unroll(loops[i]);
}

}  // namespace tilewright::space
