// split_reduction: one long reduction to results so few that their tiles cannot keep all threads
// busy. Each thread reduces a part, and the partial results are combined afterwards:
//   split k → [parts, rest]; rfactor over the parts
//     parallel for part, tiles of results:  the part's sums, in registers
//     for results, parts:                   combined
// Where results have no vector of neighbours, sums over V·lanes neighbours along the last reduction
// axis take their place (a second rfactor, before the first). Reassociates the sum, as every
// vectorised reduction does.
#include <algorithm>

#include "compiler/space/block_info.h"
#include "compiler/space/rules/plain_nest.h"
#include "compiler/space/rules/rules.h"
#include "compiler/space/step_maker.h"

namespace tilewright::space {
namespace {

struct Reduction {
  std::string block;
  size_t spatial = 0, reduce = 0;       // iterators, spatial ones first
  int64_t results = 1, neighbours = 1;  // all, and along the innermost spatial iterator
  size_t part_axis = 0, lane_axis = 0;  // of the reduction iterators
  int64_t part_extent = 1, lane_extent = 1;
  int64_t lanes = 1;

  // Vectors of results, or of sums along the lane axis.
  bool of_results() const { return neighbours >= lanes; }
};

class SplitReductionSketch final : public Sketch {
 public:
  SplitReductionSketch(Reduction r, const std::vector<BlockInfo>& others,
                       const target::Target& target)
      : r_(std::move(r)) {
    std::vector<int64_t> parts;
    for (int64_t n = target.threads; n <= 8 * target.threads; n *= 2) {
      if (r_.part_extent % n == 0) parts.push_back(n);
    }
    parts_ = AddKnob("parts", parts);
    vectors_ = AddKnob("vectors", {1, 2, 4, 8});
    for (const BlockInfo& block : others) nests_.emplace_back(block, target, Adder());
  }
  std::string name() const override { return "split_reduction"; }

  bool Feasible(const Point& point) const override {
    const int64_t wide = Value(point, vectors_) * r_.lanes;
    if (r_.of_results()) {
      if (wide >= 2 * r_.neighbours) return false;
    } else {
      const bool same = r_.part_axis == r_.lane_axis;
      if (r_.lane_extent % (same ? wide * Value(point, parts_) : wide) != 0) return false;
    }
    return std::all_of(nests_.begin(), nests_.end(),
                       [&](const PlainNest& nest) { return nest.Feasible(*this, point); });
  }

  absl::Status Apply(const Point& point, schedule::Schedule* s) const override {
    StepMaker make(s);
    int combine = -1;  // the block that adds up the parts
    const int part = Factor(point, s, &make, &combine);
    TW_TRY(make.status());
    Accumulate(point, part, &make);
    TW_TRY(make.status());
    Combine(combine, s, &make);
    TW_TRY(make.status());
    for (const PlainNest& nest : nests_) TW_TRY(nest.Apply(*this, point, s));
    return absl::OkStatus();
  }

 private:
  // Returns the block of partial results, whose dimensions are the part, the spatial ones, the
  // lanes.
  int Factor(const Point& point, schedule::Schedule* s, StepMaker* make, int* combine) const {
    const int64_t wide = Value(point, vectors_) * r_.lanes, parts = Value(point, parts_);
    *combine = s->BlockHandle(r_.block);
    std::vector<int> loops = s->LoopsOf(*combine);
    int axis = loops[r_.spatial + r_.part_axis];
    if (!r_.of_results()) {
      const std::vector<int> k =
          make->Split(loops[r_.spatial + r_.lane_axis], {schedule::kInfer, wide}, false);
      if (k.empty()) return -1;
      if (r_.part_axis == r_.lane_axis) axis = k[0];
      const std::vector<int> made = make->Rfactor(*combine, k[1], "last");
      if (made.empty()) return -1;
      *combine = made[0];
    }
    const std::vector<int> k = make->Split(axis, {parts, schedule::kInfer}, false);
    if (k.empty()) return -1;
    const std::vector<int> made = make->Rfactor(*combine, k[0], "first");
    return made.empty() ? -1 : made[0];
  }

  void Accumulate(const Point& point, int part, StepMaker* make) const {
    const size_t spatial = 1 + r_.spatial + (r_.of_results() ? 0 : 1);
    const std::vector<int> copy = make->CacheWrite(part);
    if (copy.size() != 1 + spatial) return;
    std::vector<int> outer(copy.begin() + 1, copy.end() - 1);
    const std::vector<int> v =
        make->Split(copy.back(), {schedule::kInfer, Value(point, vectors_), r_.lanes}, true);
    if (v.empty()) return;
    outer.push_back(v[0]);
    std::vector<int> own = make->ComputeAt(part, v[0]);
    if (own.size() != spatial + r_.reduce) return;
    // Factored iterators come first, the later one before the earlier.
    const size_t vector = r_.of_results() ? spatial - 1 : 1;
    const int last = own[vector];
    own.erase(own.begin() + static_cast<std::ptrdiff_t>(vector));
    own.push_back(last);
    make->Reorder(own);
    const std::vector<int> lanes = make->Split(last, {schedule::kInfer, r_.lanes}, true);
    if (lanes.empty()) return;
    for (const int loop : {v[1], lanes[0]}) make->Unroll(loop);
    for (const int loop : {v[2], lanes[1]}) make->Vectorize(loop);
    make->Parallel(make->Fuse(outer));
  }

  void Combine(int block, schedule::Schedule* s, StepMaker* make) const {
    std::vector<int> loops = s->LoopsOf(block);  // spatial, part
    const int last = loops[loops.size() - 2];
    const std::vector<int> v = make->Split(last, {schedule::kInfer, r_.lanes}, true);
    if (v.empty()) return;
    loops.insert(loops.end() - 1, v[0]);
    loops.erase(loops.end() - 3);
    loops.push_back(v[1]);
    make->Reorder(loops);
    make->Vectorize(v[1]);
  }

  Reduction r_;
  size_t parts_ = 0, vectors_ = 0;
  std::vector<PlainNest> nests_;
};

// What `block` is, if it is a reduction that this rule is for.
bool Describe(const BlockInfo& block, const target::Target& target, Reduction* r) {
  if (!block.plain || !block.perfect_nest || block.dot.has_value()) return false;
  r->block = block.name;
  r->lanes = target.machine.vector_bytes / std::max(block.writes->dtype.bytes(), 1);
  int64_t length = 1;
  for (const IterInfo& iter : block.iters) {
    if (!iter.reduce) {
      if (r->reduce > 0) return false;
      ++r->spatial;
      r->results *= iter.extent;
      r->neighbours = iter.extent;
      continue;
    }
    if (iter.extent > r->part_extent) {
      r->part_axis = r->reduce;
      r->part_extent = iter.extent;
    }
    r->lane_axis = r->reduce++;
    r->lane_extent = iter.extent;
    length *= iter.extent;
  }
  const int64_t tiles = r->of_results() ? r->results / r->lanes : r->results;
  return r->reduce > 0 && length * r->results >= target.machine.split_work &&
         tiles < target.machine.tiles_per_thread * target.threads &&
         r->part_extent % target.threads == 0;
}

}  // namespace

std::vector<std::unique_ptr<Sketch>> MakeSplitReduction(const ir::Function& function,
                                                        const target::Target& target) {
  std::vector<std::unique_ptr<Sketch>> out;
  std::vector<BlockInfo> others;
  std::vector<BlockInfo> reductions;
  for (BlockInfo& block : DescribeBlocks(function)) {
    (block.has_init ? reductions : others).push_back(std::move(block));
  }
  Reduction reduction;
  const bool fits =
      target.threads > 1 && reductions.size() == 1 && Describe(reductions[0], target, &reduction);
  if (!fits) return out;
  auto sketch = std::make_unique<SplitReductionSketch>(std::move(reduction), others, target);
  // Not every reduction can be put together from parts (rfactor: combiner): the first point tells.
  Point first;
  first.choices.assign(sketch->knobs().size(), 0);
  schedule::Schedule trial(function);
  if (!sketch->Feasible(first) || !sketch->Apply(first, &trial).ok()) return out;
  out.push_back(std::move(sketch));
  return out;
}

}  // namespace tilewright::space
