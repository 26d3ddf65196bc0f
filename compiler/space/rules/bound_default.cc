// bound_default: the default schedule of a device of groups and threads, with its decisions as
// knobs: threads of a group, and the tile of results that a thread computes in registers. The first
// value of every knob leaves the decision to the heuristics, so the default is a point of the
// space.
#include <algorithm>

#include "compiler/space/block_info.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/rules/bound_nest.h"
#include "compiler/space/rules/rules.h"

namespace tilewright::space {
namespace {

class BoundDefault final : public Sketch {
 public:
  BoundDefault(const std::vector<BlockInfo>& blocks, const target::Target& target)
      : target_(target) {
    const int64_t most = target.machine.launch.group_threads;
    for (const BlockInfo& block : blocks) {
      if (!block.plain || block.iters.empty()) continue;
      const KnobAdder knob = Adder(block.name);
      std::vector<int64_t> threads = {0};
      for (int64_t n = 16; n <= most; n *= 2) threads.push_back(n);
      const bool two = std::count_if(block.iters.begin(), block.iters.end(), [](const auto& iter) {
                         return !iter.reduce && iter.extent > 1;
                       }) > 1;
      blocks_.push_back({block.name, knob("threads", threads), knob("vectors", {0, 2, 4, 8, 16}),
                         knob("rows", two && block.has_init ? std::vector<int64_t>{0, 2, 4, 7, 8}
                                                            : std::vector<int64_t>{0})});
    }
  }
  bool usable() const { return !knobs_.empty(); }
  std::string name() const override { return "bound_default"; }
  std::optional<std::vector<int>> DefaultChoices() const override { return FirstChoices(); }

  bool Feasible(const Point& point) const override {
    return std::all_of(blocks_.begin(), blocks_.end(),
                       [&](const Block& block) { return Fits(point, block); });
  }

  absl::Status Apply(const Point& point, schedule::Schedule* s) const override {
    Choices choices;
    for (const Block& block : blocks_) {
      BlockChoice& choice = choices[block.name];
      choice.threads = Value(point, block.threads);
      choice.vectors = Value(point, block.vectors);
      choice.rows = Value(point, block.rows);
    }
    ApplyDefaultSchedule(target_, choices, s);
    return absl::OkStatus();
  }

 private:
  struct Block {
    std::string name;
    size_t threads, vectors, rows;  // knobs
  };

  bool Fits(const Point& point, const Block& block) const {
    const target::LaunchLimits& limits = target_.machine.launch;
    const int64_t vectors = std::max<int64_t>(1, Value(point, block.vectors));
    const int64_t rows = std::max<int64_t>(1, Value(point, block.rows));
    const int64_t chosen = Value(point, block.threads);
    const int64_t threads = chosen > 0 ? chosen : limits.usual_threads;
    return vectors * rows <= limits.registers &&
           IsFullEnough(limits, limits.group_threads, threads, 0,
                        target::TileRegisters(vectors * rows, vectors + rows));
  }

  target::Target target_;
  std::vector<Block> blocks_;
};

}  // namespace

std::vector<std::unique_ptr<Sketch>> MakeBoundDefault(const ir::Function& function,
                                                      const target::Target& target) {
  std::vector<std::unique_ptr<Sketch>> out;
  auto sketch = std::make_unique<BoundDefault>(DescribeBlocks(function), target);
  if (sketch->usable()) out.push_back(std::move(sketch));
  return out;
}

}  // namespace tilewright::space
