// tree_reduction: reductions to so few results that a thread for each leaves a GPU idle (softmax,
// norms, pooling over whole images), on devices of groups and threads. A group reduces one result:
//   for results (blockIdx.x):
//     for T threads (threadIdx.x):   sums over every T-th term, in registers, then shared memory
//     for T/F threads:               sums of F of these; again while more than F are left
//     one thread:                    the rest, to the result
// On a device with sub-groups the tree may end there instead: behind one barrier each of them adds
// up all partial sums, and every thread has the result.
// Where neighbouring results, not neighbouring terms, are neighbours in memory, a group reduces
// several of them, a column of threads for each (threadIdx.y are the parts of a sum then), and one
// thread of a column adds them up. Else neighbouring threads read neighbouring terms. Blocks
// without a reduction are launches of their own. Reassociates, as every reduction across threads
// does.
#include <algorithm>

#include "compiler/space/rules/bound_nest.h"
#include "compiler/space/rules/partial_sums.h"
#include "compiler/space/rules/rules.h"
#include "compiler/space/step_maker.h"

namespace tilewright::space {
namespace {

struct RowReduction : PartialSums {
  size_t reduce = 0;                // iterators, after the spatial ones
  size_t threads, fan_in, columns;  // knobs
};

bool IsReductionToFew(const BlockInfo& block, const target::Target& target) {
  if (!IsTileable(block)) return false;
  int64_t results = 1;
  bool reduces = false;
  for (const IterInfo& iter : block.iters) {
    if (reduces && !iter.reduce) return false;
    reduces = reduces || iter.reduce;
    if (!iter.reduce) results *= iter.extent;
  }
  return !block.iters[0].reduce && results <= target.machine.launch.busy_threads;
}

class TreeReduction final : public Sketch {
 public:
  TreeReduction(const std::vector<BlockInfo>& blocks, const target::Target& target) {
    const int64_t most = target.machine.launch.group_threads;
    most_threads_ = most;
    const KnobAdder add = Adder();
    std::vector<int64_t> fan_in = {2, 4, 8, 16};
    if (target.machine.launch.sub_groups) fan_in.push_back(kSubGroup);
    for (const BlockInfo& block : blocks) {
      if (!block.has_init) {
        others_.emplace_back(block, target, add);
        continue;
      }
      std::vector<int64_t> threads =
          Divisors(block.iters.back().extent, target.machine.launch.row_threads, most);
      if (threads.empty()) return;  // usable() is false
      RowReduction r{{block.name},
                     0,
                     AddKnob("threads_" + block.name, std::move(threads)),
                     AddKnob("fan_in_" + block.name, fan_in),
                     0};
      for (const IterInfo& iter : block.iters) ++(iter.reduce ? r.reduce : r.spatial);
      std::vector<int64_t> columns = {1};
      for (const int64_t n : {8, 16, 32}) {
        if (target.machine.launch.warp > 1 && block.iters[r.spatial - 1].extent % n == 0)
          columns.push_back(n);
      }
      r.columns = AddKnob("columns_" + block.name, std::move(columns));
      reductions_.push_back(std::move(r));
    }
    usable_ = !reductions_.empty();
  }
  bool usable() const { return usable_; }
  std::string name() const override { return "tree_reduction"; }

  bool Feasible(const Point& point) const override {
    return std::all_of(reductions_.begin(), reductions_.end(), [&](const RowReduction& r) {
      const int64_t columns = Value(point, r.columns);
      if (columns == 1) return true;
      return point.choices[r.fan_in] == 0 && Value(point, r.threads) * columns <= most_threads_;
    });
  }

  absl::Status Apply(const Point& point, schedule::Schedule* s) const override {
    StepMaker make(s);
    for (const BoundNest& nest : others_) nest.Apply(*this, point, *s, &make);
    for (const RowReduction& r : reductions_) {
      if (const int64_t columns = Value(point, r.columns); columns > 1) {
        ReduceColumns(r, Value(point, r.threads), columns, s, &make);
      } else {
        Reduce(r, Value(point, r.threads), Value(point, r.fan_in), s, &make);
      }
      TW_TRY(make.status());
    }
    return make.status();
  }

 private:
  static void Reduce(const RowReduction& r, int64_t threads, int64_t fan_in, schedule::Schedule* s,
                     StepMaker* make) {
    const PartialBlocks partial = FactorTree(r, threads, fan_in, *s, make);
    if (!make->status().ok()) return;
    const int group = fan_in == kSubGroup ? AddUpInSubGroups(r, s->BlockHandle(r.block), make)
                                          : Groups(r, s->LoopsOf(s->BlockHandle(r.block)), make);
    if (group >= 0) PlaceTree(r, partial, group, make);
  }

  // A group for so many neighbouring results, a column of `parts` threads for each.
  static void ReduceColumns(const RowReduction& r, int64_t parts, int64_t columns,
                            schedule::Schedule* s, StepMaker* make) {
    const int terms =
        FactorSums(r, s->LoopsOf(s->BlockHandle(r.block)).back(), parts, *s, make, "first");
    if (terms < 0) return;
    const std::vector<int> copy = make->CacheWrite(terms);
    if (copy.empty()) return;
    const int sums = s->BlockHandle(r.block);
    std::vector<int> results = make->CacheWrite(sums);  // a column's sum stays in a register
    if (results.size() < r.spatial + 1) return;
    results.erase(results.begin());
    const std::vector<int> own =
        make->Split(results[r.spatial - 1], {schedule::kInfer, columns}, false);
    if (own.size() != 2) return;
    results.resize(r.spatial - 1);
    results.push_back(own[0]);
    const int group = make->Fuse(results);
    make->Bind(group, "blockIdx.x");
    make->Bind(own[1], "threadIdx.x");
    make->ComputeAt(sums, own[1]);
    const std::vector<int> loops = make->ComputeAt(copy[0], group);  // the parts first
    if (loops.size() != r.spatial + 1) return;
    make->Bind(loops[0], "threadIdx.y");
    make->Bind(loops.back(), "threadIdx.x");
    make->SetScope(copy[0], "shared");
    make->ComputeAt(terms, loops.back());
  }

  // A group for each result; returns the loop.
  static int Groups(const RowReduction& r, const std::vector<int>& loops, StepMaker* make) {
    if (loops.size() < r.spatial) return -1;
    const int group =
        make->Fuse({loops.begin(), loops.begin() + static_cast<std::ptrdiff_t>(r.spatial)});
    make->Bind(group, "blockIdx.x");
    return group;
  }

  // Every thread adds up the partial results, in registers; one of them stores the result. Returns
  // the loop over groups.
  static int AddUpInSubGroups(const RowReduction& r, int block, StepMaker* make) {
    std::vector<int> copy = make->CacheWrite(block);
    if (copy.empty()) return -1;
    copy.erase(copy.begin());
    const int group = Groups(r, copy, make);
    const std::vector<int> sum = make->ComputeAt(block, group);
    if (sum.empty()) return -1;
    make->Mark(sum.back(), "sub_group");
    return group;
  }

  std::vector<RowReduction> reductions_;
  std::vector<BoundNest> others_;
  int64_t most_threads_ = 0;
  bool usable_ = false;
};

}  // namespace

std::vector<std::unique_ptr<Sketch>> MakeTreeReduction(const ir::Function& function,
                                                       const target::Target& target) {
  const std::vector<BlockInfo> blocks = DescribeBlocks(function);
  std::vector<std::unique_ptr<Sketch>> out;
  const bool fits = std::all_of(blocks.begin(), blocks.end(), [&](const BlockInfo& block) {
    return block.has_init ? IsReductionToFew(block, target) : BoundNest::Fits(block);
  });
  if (!fits) return out;
  auto sketch = std::make_unique<TreeReduction>(blocks, target);
  if (!sketch->usable()) return out;
  // Not every reduction can be put together from parts (rfactor: combiner): the first point tells.
  if (FirstPointApplies(*sketch, function)) out.push_back(std::move(sketch));
  return out;
}

}  // namespace tilewright::space
