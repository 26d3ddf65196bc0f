#include "compiler/space/rules/bound_nest.h"

#include <algorithm>

namespace tilewright::space {
namespace {}  // namespace

int64_t WholeThreads(const std::vector<int64_t>& extents, int64_t most) {
  int64_t threads = 1;
  for (size_t i = extents.size(); i-- > 0;) {
    int64_t part = std::min(extents[i], most / threads);
    while (extents[i] % part != 0) --part;
    threads *= part;
    if (part < extents[i]) break;
  }
  return threads;
}

bool IsFullEnough(const target::LaunchLimits& limits, int64_t most_threads, int64_t threads,
                  int64_t shared_bytes, int64_t registers) {
  const double fullest =
      target::Occupancy(limits, most_threads, 0, target::TileRegisters(/*sums=*/1, /*operands=*/2));
  return target::Occupancy(limits, threads, shared_bytes, registers) >=
         std::min(limits.least_occupancy, fullest);
}

bool BoundNest::Fits(const BlockInfo& block) {
  return block.plain && block.perfect_nest && !block.has_init && !block.iters.empty() &&
         std::none_of(block.iters.begin(), block.iters.end(),
                      [](const IterInfo& iter) { return iter.reduce; });
}

BoundNest::BoundNest(BlockInfo block, const target::Target& target, const KnobAdder& add)
    : block_(std::move(block)) {
  std::vector<int64_t> extents;
  for (const IterInfo& iter : block_.iters) extents.push_back(iter.extent);
  const target::LaunchLimits& limits = target.machine.launch;
  std::vector<int64_t> threads, lanes = {1};
  for (const int64_t n : {limits.usual_threads, std::max<int64_t>(1, limits.usual_threads / 4),
                          limits.group_threads}) {
    const int64_t whole = WholeThreads(extents, n);
    if (std::find(threads.begin(), threads.end(), whole) == threads.end()) threads.push_back(whole);
  }
  for (const int64_t n : {4, 16}) {
    if (block_.iters.back().extent % n == 0) lanes.push_back(n);
  }
  threads_ = add("threads_" + block_.name, threads);
  lanes_ = add("lanes_" + block_.name, lanes);
}

bool BoundNest::Untouched(const Point& point) const {
  return point.choices[threads_] == 0 && point.choices[lanes_] == 0;
}

void BoundNest::Apply(const Sketch& sketch, const Point& point, const schedule::Schedule& s,
                      StepMaker* make) const {
  std::vector<int> loops = s.LoopsOf(s.BlockHandle(block_.name));
  std::vector<int64_t> extents;
  for (const IterInfo& iter : block_.iters) extents.push_back(iter.extent);
  const int64_t lanes = sketch.Value(point, lanes_);
  if (lanes > 1) {
    const std::vector<int> parts = make->Split(loops.back(), {schedule::kInfer, lanes}, false);
    if (parts.size() != 2) return;
    make->Vectorize(parts[1]);
    loops.back() = parts[0];
    extents.back() /= lanes;
  }
  const std::vector<int> parts =
      make->Split(make->Fuse(loops),
                  {schedule::kInfer, WholeThreads(extents, sketch.Value(point, threads_))}, false);
  if (parts.size() != 2) return;
  make->Bind(parts[0], "blockIdx.x");
  make->Bind(parts[1], "threadIdx.x");
}

}  // namespace tilewright::space
