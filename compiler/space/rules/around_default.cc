// around_default: the default schedule with its decisions as knobs. The first value of every knob
// leaves the decision to the heuristics, so the default is a point of the space, and a search
// starts among its neighbours. For any number of blocks of any kind: pooling, softmax and
// normalisation, transposed convolutions, products of few rows.
#include <algorithm>
#include <optional>

#include "compiler/space/block_info.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/rules/rules.h"

namespace tilewright::space {
namespace {

constexpr size_t kMaxBlocksAroundDefault = 12;

class AroundDefault final : public Sketch {
 public:
  AroundDefault(const std::vector<BlockInfo>& blocks, const target::Target& target, bool over_rows)
      : target_(target), over_rows_(over_rows) {
    for (const BlockInfo& block : blocks) {
      if (!block.plain || block.iters.empty()) continue;
      if (block.has_init) {
        AddReduction(block);
      } else {
        AddStage(block, &block != &blocks.back());
      }
    }
  }
  bool usable() const { return !knobs_.empty(); }
  std::string name() const override { return "around_default"; }
  std::optional<std::vector<int>> DefaultChoices() const override { return FirstChoices(); }

  bool Feasible(const Point& point) const override {
    for (const Reduction& r : reductions_) {
      const int64_t rows = std::max<int64_t>(1, Value(point, r.rows));
      const int64_t planes = std::max<int64_t>(1, Value(point, r.planes));
      const int64_t vectors = std::max<int64_t>(1, Value(point, r.vectors));
      const target::Machine& machine = target_.machine;
      if (rows * planes * vectors + vectors + 1 > machine.vector_registers) return false;
      const int64_t unroll = Value(point, r.unroll);
      const int64_t steps = unroll < 0 ? r.innermost : std::max<int64_t>(1, unroll);
      const int64_t most = r.calls ? machine.searched_body_calls : machine.searched_body_ops;
      if (rows * planes * vectors * steps > most) return false;
      const bool along = Value(point, r.along) == 1;
      const bool tiled = point.choices[r.rows] != 0 || point.choices[r.planes] != 0 ||
                         point.choices[r.vectors] != 0 || point.choices[r.lane_axis] != 0;
      if (along && tiled) return false;
    }
    return true;
  }

  absl::Status Apply(const Point& point, schedule::Schedule* s) const override {
    Choices choices;
    const auto axis = [&](size_t knob) { return static_cast<int>(Value(point, knob)) - 1; };
    for (const Reduction& r : reductions_) {
      BlockChoice& choice = choices[r.block];
      choice.lane_axis = axis(r.lane_axis);
      choice.row_axis = axis(r.row_axis);
      choice.along_reduction = axis(r.along);
      choice.vectors = Value(point, r.vectors);
      choice.rows = Value(point, r.rows);
      choice.planes = Value(point, r.planes);
      choice.unroll = Value(point, r.unroll);
      choice.swap_outer = Value(point, r.swap) != 0;
      choice.parallel = Value(point, r.parallel);
    }
    for (const Stage& stage : stages_) {
      BlockChoice& choice = choices[stage.block];
      choice.lane_axis = axis(stage.lane_axis);
      choice.vectors = Value(point, stage.vectors);
      choice.parallel = Value(point, stage.parallel);
      choice.place = static_cast<int>(Value(point, stage.place));
      if (stage.in_rows.has_value()) choice.in_rows = axis(*stage.in_rows);
    }
    ApplyDefaultSchedule(target_, choices, s);
    return absl::OkStatus();
  }

 private:
  // Knobs; 0 stands for the heuristics' own decision, axes are numbered from 1.
  struct Reduction {
    std::string block;
    size_t lane_axis, row_axis, along, vectors, rows, planes, unroll, swap, parallel;
    int64_t innermost = 1;  // extent of the innermost reduction iterator
    bool calls = false;     // exp and its like, tens of instructions each
  };
  struct Stage {
    std::string block;
    size_t lane_axis, vectors, parallel, place;
    std::optional<size_t> in_rows;  // of the last one
  };

  std::vector<int64_t> Axes(const BlockInfo& block) const {
    std::vector<int64_t> axes = {0};
    for (size_t i = 0; i < block.iters.size(); ++i) {
      if (!block.iters[i].reduce && block.iters[i].extent > 1) {
        axes.push_back(static_cast<int64_t>(i) + 1);
      }
    }
    return axes;
  }
  std::vector<int64_t> Parallel() const {
    return target_.threads > 1 ? std::vector<int64_t>{0, 1, 2, 3} : std::vector<int64_t>{0};
  }

  void AddReduction(const BlockInfo& block) {
    const KnobAdder knob = Adder(block.name);
    const std::vector<int64_t> axes = Axes(block);
    int64_t longest = 1;
    for (const int64_t axis : axes) {
      if (axis > 0) longest = std::max(longest, block.iters[static_cast<size_t>(axis) - 1].extent);
    }
    const bool two = axes.size() > 2, three = axes.size() > 3;
    std::vector<int64_t> rows = {0}, planes = {0};
    const int64_t most_rows = std::min(longest, target_.machine.searched_tile.rows);
    for (int64_t r = 1; two && r <= most_rows; ++r) rows.push_back(r);
    for (const int64_t p : {1, 2, 3, 4, 5, 7}) {
      if (three && p <= longest) planes.push_back(p);
    }
    Reduction r;
    r.block = block.name;
    r.calls = block.calls;
    r.innermost = block.iters.empty() ? 1 : block.iters.back().extent;
    r.lane_axis = knob("lanes_along", axes);
    r.row_axis = knob("rows_along", two ? axes : std::vector<int64_t>{0});
    r.along = knob("lanes_along_sum", {0, 1, 2});
    r.vectors = knob("vectors", {0, 1, 2, 3, 4, 5, 6, 8});
    r.rows = knob("rows", rows);
    r.planes = knob("planes", planes);
    r.unroll = knob("unroll", {0, 1, 2, 4, 8, -1});
    r.swap = knob("swap_outer", {0, 1});
    r.parallel = knob("parallel", Parallel());
    reductions_.push_back(std::move(r));
  }

  void AddStage(const BlockInfo& block, bool feeds) {
    const KnobAdder knob = Adder(block.name);
    Stage stage;
    stage.block = block.name;
    stage.lane_axis = knob("lanes_along", Axes(block));
    stage.vectors = knob("vectors", {0, 2, 4, 8});
    stage.parallel = knob("parallel", Parallel());
    stage.place = knob("place", feeds ? std::vector<int64_t>{0, 1, 2, BlockChoice::kInlined}
                                      : std::vector<int64_t>{0});
    if (!feeds && over_rows_) stage.in_rows = knob("in_rows", {0, 1, 2});
    stages_.push_back(std::move(stage));
  }

  target::Target target_;
  std::vector<Reduction> reductions_;
  std::vector<Stage> stages_;
  bool over_rows_;  // ReducesRows
};

}  // namespace

std::vector<std::unique_ptr<Sketch>> MakeAroundDefault(const ir::Function& function,
                                                       const target::Target& target) {
  const std::vector<BlockInfo> blocks = DescribeBlocks(function);
  std::vector<std::unique_ptr<Sketch>> out;
  if (blocks.empty() || blocks.size() > kMaxBlocksAroundDefault) return out;
  auto sketch =
      std::make_unique<AroundDefault>(blocks, target, ReducesRows(function, target.machine));
  if (sketch->usable()) out.push_back(std::move(sketch));
  return out;
}

}  // namespace tilewright::space
