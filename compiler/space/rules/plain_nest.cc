#include "compiler/space/rules/plain_nest.h"

#include <algorithm>

#include "compiler/space/step_maker.h"

namespace tilewright::space {
namespace {

bool Reduces(const BlockInfo& block) {
  return std::any_of(block.iters.begin(), block.iters.end(),
                     [](const IterInfo& iter) { return iter.reduce; });
}

int64_t InnerExtent(const BlockInfo& block) {
  return block.iters.empty() ? 1 : block.iters.back().extent;
}

// Spatial loops outside the innermost loop and outside every reduction loop.
size_t Outer(const BlockInfo& block) {
  size_t n = 0;
  while (n < block.iters.size() && !block.iters[n].reduce) ++n;
  return n == block.iters.size() && n > 0 ? n - 1 : n;
}

}  // namespace

PlainNest::PlainNest(BlockInfo block, const target::Target& target, const KnobAdder& add)
    : block_(std::move(block)) {
  std::vector<int64_t> lanes = {1}, unroll = {1}, parallel = {0};
  const bool simple = block_.plain && block_.perfect_nest && !block_.iters.empty();
  if (simple && !Reduces(block_) && InnerExtent(block_) >= 4) {
    const int64_t most = target.machine.vector_bytes / std::max(block_.writes->dtype.bytes(), 1);
    for (int64_t n = most; n >= 4; n /= 2) lanes.push_back(n);
    unroll = {1, 2, 4, 8};
  }
  if (simple && target.threads > 1) {
    for (size_t n = 1; n <= Outer(block_); ++n) parallel.push_back(static_cast<int64_t>(n));
  }
  lanes_ = add("lanes_" + block_.name, lanes);
  unroll_ = add("unroll_" + block_.name, unroll);
  parallel_ = add("parallel_" + block_.name, parallel);
}

bool PlainNest::Feasible(const Sketch& sketch, const Point& point) const {
  const int64_t lanes = sketch.Value(point, lanes_), unroll = sketch.Value(point, unroll_);
  if (sketch.Value(point, parallel_) > static_cast<int64_t>(Outer(block_))) return false;
  return lanes > 1 ? lanes * unroll <= 2 * InnerExtent(block_) : unroll == 1;
}

bool PlainNest::Untouched(const Point& point) const {
  return point.choices[lanes_] == 0 && point.choices[unroll_] == 0 && point.choices[parallel_] == 0;
}

absl::Status PlainNest::Apply(const Sketch& sketch, const Point& point,
                              schedule::Schedule* s) const {
  const int64_t lanes = sketch.Value(point, lanes_), unroll = sketch.Value(point, unroll_);
  const int64_t parallel = sketch.Value(point, parallel_);
  StepMaker make(s);
  std::vector<int> loops = s->LoopsOf(s->BlockHandle(block_.name));
  if (lanes > 1) {
    std::vector<int64_t> factors = {schedule::kInfer};
    if (unroll > 1) factors.push_back(unroll);
    factors.push_back(lanes);
    const std::vector<int> parts = make.Split(loops.back(), factors, true);
    if (!parts.empty()) {
      if (unroll > 1) make.Unroll(parts[1]);
      make.Vectorize(parts.back());
    }
  }
  if (parallel > 0) {
    make.Parallel(
        make.Fuse({loops.begin(), loops.begin() + static_cast<std::ptrdiff_t>(parallel)}));
  }
  return make.status();
}

}  // namespace tilewright::space
