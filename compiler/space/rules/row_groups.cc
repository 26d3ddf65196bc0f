// row_groups: all that rows need in one launch (softmax, norms), on devices of groups and threads
// that go in step. A group has one row:
//   for rows (blockIdx.x):
//     for T threads (threadIdx.x):  sums over every T-th element, then a tree (partial_sums)
//     all threads:                  the sum of what is left, and the row's other numbers
//     for T threads:                what is kept of each element, in shared memory
//     for T threads:                the row's results
// Cheap stages are computed where they are read. Rows that no number of threads divides, and those
// that are no rows to the last block (it turns them), have other schedules.
#include <algorithm>

#include "compiler/space/rules/partial_sums.h"
#include "compiler/space/rules/rules.h"
#include "deploy/support/status.h"

namespace tilewright::space {
namespace {

// What a block makes of a row.
enum class Part : uint8_t {
  kSum,      // one number of all elements
  kNumber,   // one number of other numbers
  kKept,     // a number of each element that costs a call
  kInlined,  // one that does not
};

class RowGroups final : public Sketch {
 public:
  RowGroups(const std::vector<BlockInfo>& blocks, const target::Target& target) {
    const target::LaunchLimits& limits = target.machine.launch;
    const BlockInfo& last = blocks.back();
    if (!IsPlain(last) || last.has_init || last.iters.size() < 2) return;
    row_ = last.iters.back().extent;
    last_ = last.name;
    rows_ = last.iters.size() - 1;
    int64_t kept_bytes = 0, sums = 0;
    for (auto block = blocks.begin(); block != blocks.end() - 1; ++block) {
      const std::optional<Part> part = PartOf(*block, last);
      if (!part.has_value()) return;
      if (*part == Part::kKept) kept_bytes += row_ * block->writes->dtype.bytes();
      sums += *part == Part::kSum ? 1 : 0;
      stages_.push_back({block->name, *part});
    }
    const std::vector<int64_t> threads = ThreadsOf(limits);
    // Partial sums of the longest row take less than half of what is left.
    if (sums == 0 || threads.empty() || kept_bytes > limits.shared_bytes / 2) return;
    std::vector<int64_t> fan_in = {8, 4, 16, 2};
    if (limits.sub_groups) fan_in.insert(fan_in.begin(), kSubGroup);
    threads_ = AddKnob("threads", threads);
    fan_in_ = AddKnob("fan_in", fan_in);
  }
  bool usable() const { return !knobs_.empty(); }
  std::string name() const override { return "row_groups"; }
  std::optional<std::vector<int>> DefaultChoices() const override { return FirstChoices(); }
  bool Feasible(const Point&) const override { return true; }

  absl::Status Apply(const Point& point, schedule::Schedule* s) const override {
    StepMaker make(s);
    const int64_t threads = Value(point, threads_);
    for (const Stage& stage : stages_) {
      if (stage.part == Part::kInlined) make.Inline(s->BlockHandle(stage.block));
    }
    TW_TRY(make.status());
    std::vector<int> loops = s->LoopsOf(s->BlockHandle(last_));
    const int elements = loops.back();
    loops.pop_back();
    const int group = make.Fuse(loops);
    make.Bind(group, "blockIdx.x");
    OverThreads(elements, threads, &make);
    // From the last to the first, so that each one's readers stand where it is computed.
    for (size_t i = stages_.size(); make.status().ok() && i-- > 0;) {
      TW_TRY(Place(stages_[i], threads, Value(point, fan_in_), group, s, &make));
    }
    return make.status();
  }

 private:
  struct Stage {
    std::string block;
    Part part;
  };

  static bool IsPlain(const BlockInfo& block) {
    return block.plain && block.perfect_nest && block.identity_store;
  }

  // nullopt: none of those of a row of the last block.
  std::optional<Part> PartOf(const BlockInfo& block, const BlockInfo& last) const {
    if (!IsPlain(block) || block.iters.size() < rows_ || block.iters.size() > rows_ + 1)
      return std::nullopt;
    for (size_t i = 0; i < block.iters.size(); ++i) {
      const bool reduces = block.has_init && i == rows_;
      if (block.iters[i].extent != last.iters[i].extent || block.iters[i].reduce != reduces)
        return std::nullopt;
    }
    const bool is_whole = block.iters.size() > rows_;
    if (block.has_init) return is_whole ? std::optional(Part::kSum) : std::nullopt;
    if (!is_whole) return Part::kNumber;
    return block.calls ? Part::kKept : Part::kInlined;
  }

  // Those that divide a row, the one nearest to the usual number first.
  std::vector<int64_t> ThreadsOf(const target::LaunchLimits& limits) const {
    if (row_ < 2 * limits.row_threads) return {};  // a group for a row of few elements is idle
    std::vector<int64_t> threads =
        Divisors(row_, std::min(row_, limits.warp), limits.group_threads);
    const auto distance = [&](int64_t n) { return std::abs(n - limits.usual_threads); };
    std::ranges::stable_sort(threads, {}, distance);
    return threads;
  }

  // A loop over a row's elements: neighbouring threads have neighbours.
  static void OverThreads(int loop, int64_t threads, StepMaker* make) {
    const std::vector<int> parts = make->Split(loop, {schedule::kInfer, threads}, false);
    if (parts.size() == 2) make->Bind(parts[1], "threadIdx.x");
  }

  absl::Status Place(const Stage& stage, int64_t threads, int64_t fan_in, int group,
                     schedule::Schedule* s, StepMaker* make) const {
    if (stage.part == Part::kInlined) return absl::OkStatus();
    const int block = s->BlockHandle(stage.block);
    const PartialSums sums{stage.block, rows_};
    PartialBlocks partial;
    if (stage.part == Part::kSum) partial = FactorTree(sums, threads, fan_in, *s, make);
    const std::vector<int> loops = make->ComputeAt(block, group);
    TW_TRY(make->status());
    for (size_t i = 0; i < rows_; ++i) {
      if (ir::IsInt(s->StmtOf(loops[i])->range.extent, 1)) continue;
      return support::FailedPrecondition(
          "space.row_groups.rows",
          support::StrCat("expected one row of ", stage.block, " for each row of ", last_));
    }
    if (stage.part == Part::kKept) {
      OverThreads(loops.back(), threads, make);
      make->SetScope(block, "shared");
      return make->status();
    }
    make->SetScope(block, "local");
    if (stage.part != Part::kSum) return make->status();
    if (fan_in == kSubGroup) make->Mark(loops.back(), "sub_group");
    PlaceTree(sums, partial, group, make);
    return make->status();
  }

  std::string last_;
  std::vector<Stage> stages_;
  int64_t row_ = 0;
  size_t rows_ = 0;  // iterators over rows
  size_t threads_ = 0, fan_in_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Sketch>> MakeRowGroups(const ir::Function& function,
                                                   const target::Target& target) {
  std::vector<std::unique_ptr<Sketch>> out;
  if (target.machine.launch.warp < 2) return out;
  const std::vector<BlockInfo> blocks = DescribeBlocks(function);
  if (blocks.size() < 2) return out;
  auto sketch = std::make_unique<RowGroups>(blocks, target);
  if (sketch->usable() && FirstPointApplies(*sketch, function)) out.push_back(std::move(sketch));
  return out;
}

}  // namespace tilewright::space
