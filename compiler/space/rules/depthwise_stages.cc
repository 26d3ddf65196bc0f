// depthwise_stages: the stages of op::ComputeDepthwiseDots, [pad,] windows, taps, sums, the result
// and at most one element-wise block behind it.
//
//   for n, channel blocks, blocks of rows (parallel):
//     windows of the rows that these read (the padding guarded where it is read, or kept)
//     for register tiles of rows x windows:
//       sums: one dot product for each row of the kernel, window and place (in registers, unrolled)
//       result, epilogue
// The taps depend on weights only and are made once (transform/split_prepare).
#include <algorithm>
#include <optional>

#include "compiler/schedule/legality.h"
#include "compiler/space/block_info.h"
#include "compiler/space/rules/rules.h"
#include "compiler/space/step_maker.h"

namespace tilewright::space {
namespace {

struct DepthwiseStages {
  std::string pad, windows, taps, sums, result, epilogue;
  int64_t height = 0, windows_across = 0, places = 0, lanes = 0;
  int64_t row_bytes = 0;           // of windows
  int64_t stride = 1, kernel = 1;  // rows that one more result reads, and that the first does
  int64_t images = 1;              // channel blocks of all images
};

class DepthwiseDotsSketch final : public Sketch {
 public:
  DepthwiseDotsSketch(DepthwiseStages stages, const target::Target& target)
      : s_(std::move(stages)), target_(target) {
    const target::SearchedTile& most = target_.machine.searched_tile;
    block_ = AddKnob("block_rows", TileMenu(s_.height, most.block_rows));
    tile_h_ = AddKnob("register_rows", TileMenu(s_.height, most.planes));
    tile_w_ = AddKnob("register_windows", TileMenu(s_.windows_across, most.windows));
    pad_ =
        AddKnob("keep_pad", s_.pad.empty() ? std::vector<int64_t>{0} : std::vector<int64_t>{0, 1});
    per_tile_ = AddKnob("windows_per_tile", {0, 1});
    fused_ = AddKnob("parallel_loops",
                     target_.threads > 1 ? std::vector<int64_t>{3, 2} : std::vector<int64_t>{3});
  }
  std::string name() const override { return "depthwise_dots"; }

  // A few results of one row, as many as hide the latency of an instruction, from windows of
  // as many rows as stay in the first cache.
  std::optional<std::vector<int>> DefaultChoices() const override {
    std::vector<int> choices = FirstChoices();
    int& windows = choices[tile_w_];
    for (size_t i = 0; i < knobs_[tile_w_].menu.size(); ++i) {
      const int64_t across = knobs_[tile_w_].menu[i];
      if (s_.windows_across % across != 0 || !Feasible({0, With(choices, tile_w_, i)})) continue;
      windows = static_cast<int>(i);
      if (across * s_.places >= target_.machine.tile.windows_in_flight) break;
    }
    for (size_t i = 0; i < knobs_[block_].menu.size(); ++i) {
      const int64_t rows = knobs_[block_].menu[i];
      const int64_t tasks = s_.images * ((s_.height + rows - 1) / rows);
      const bool enough =
          target_.threads <= 1 || tasks >= target_.machine.tiles_per_thread * target_.threads;
      if (enough && Feasible({0, With(choices, block_, i)})) choices[block_] = static_cast<int>(i);
    }
    return choices;
  }

  bool Feasible(const Point& point) const override {
    const int64_t rows = Value(point, tile_h_), block = Value(point, block_);
    const int64_t sums = rows * Value(point, tile_w_) * s_.places;
    if (block % rows != 0 || sums + s_.places + 2 > target_.machine.vector_registers) return false;
    // A block of its own means nothing to windows of one tile; others stay in the first cache.
    if (block == rows) return true;
    const int64_t read = (block - 1) * s_.stride + s_.kernel;
    return Value(point, per_tile_) == 0 && read * s_.row_bytes <= target_.machine.l1.bytes;
  }

  absl::Status Apply(const Point& point, schedule::Schedule* s) const override {
    StepMaker make(s);
    if (!s_.epilogue.empty()) make.Inline(s->BlockHandle(s_.result));
    const std::string& last = s_.epilogue.empty() ? s_.result : s_.epilogue;
    const std::vector<int> loops = s->LoopsOf(s->BlockHandle(last));  // n oc oh ow ob
    const int64_t rows = Value(point, tile_h_);
    const std::vector<int> h =
        make.Split(loops[2], {schedule::kInfer, Value(point, block_) / rows, rows}, true);
    const std::vector<int> w =
        make.Split(loops[3], {schedule::kInfer, Value(point, tile_w_), s_.places}, true);
    TW_TRY(make.status());
    make.Reorder({loops[0], loops[1], h[0], h[1], w[0], h[2], w[1], w[2], loops[4]});
    Sum(w[0], s, &make);
    Windows(point, Value(point, per_tile_) != 0 ? w[0] : h[0], s, &make);
    make.Vectorize(loops[4]);
    for (const int loop : {h[2], w[1], w[2]}) make.Unroll(loop);
    if (target_.threads > 1) {
      std::vector<int> outer = {loops[0], loops[1], h[0]};
      outer.resize(static_cast<size_t>(Value(point, fused_)));
      make.Parallel(make.Fuse(std::move(outer)));
    }
    return make.status();
  }

 private:
  static std::vector<int> With(std::vector<int> choices, size_t knob, size_t choice) {
    choices[knob] = static_cast<int>(choice);
    return choices;
  }
  // The sums of one register tile, written out.
  void Sum(int tile, schedule::Schedule* s, StepMaker* make) const {
    const int sums = s->BlockHandle(s_.sums);
    const std::vector<int> own = make->ComputeAt(sums, tile);  // n c oh g p b kh k
    if (own.size() != 8) return;
    make->SetScope(sums, "local");
    make->Reorder({own[6], own[2], own[3], own[4], own[5], own[7]});
    for (const int loop : {own[6], own[2], own[3], own[4]}) make->Unroll(loop);
    make->Tensorize(own[5], "generic.dot4_lanes." + std::to_string(s_.lanes));
  }

  void Windows(const Point& point, int at, schedule::Schedule* s, StepMaker* make) const {
    if (!s_.pad.empty() && Value(point, pad_) == 0) make->Inline(s->BlockHandle(s_.pad));
    const std::vector<int> own = make->ComputeAt(s->BlockHandle(s_.windows), at);  // n c ih g b k
    if (own.size() != 6) return;
    make->Reorder({own[5], own[4]});
    make->Unroll(own[5]);
    make->Vectorize(own[4]);
    if (s_.pad.empty() || Value(point, pad_) == 0) return;
    const std::vector<int> pad = make->ComputeAt(s->BlockHandle(s_.pad), at);
    if (!pad.empty()) make->Vectorize(pad.back());
  }

  DepthwiseStages s_;
  target::Target target_;
  size_t block_ = 0, tile_h_ = 0, tile_w_ = 0, pad_ = 0, per_tile_ = 0, fused_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Sketch>> MakeDepthwiseDots(const ir::Function& function,
                                                       const target::Target& target) {
  std::vector<std::unique_ptr<Sketch>> out;
  if (!HasStage(function, "_windows")) return out;
  const std::vector<BlockInfo> blocks = DescribeBlocks(function);
  std::optional<StageBlocks> known = StageBlocks::Around(blocks, "_sums");
  if (!known.has_value() || known->reduction().iters.size() != 8) return out;
  const BlockInfo* sums = &known->reduction();
  DepthwiseStages stages;
  known->Take("_sums", &stages.sums);
  const BlockInfo* windows = known->Take("_windows");
  const bool whole =
      windows != nullptr && known->Take("_taps", &stages.taps) && known->Take("", &stages.result);
  if (!whole) return out;
  stages.windows = windows->name;
  known->Take("_pad", &stages.pad);
  const std::optional<std::string> epilogue = known->Epilogue(5);
  if (!epilogue.has_value()) return out;
  stages.epilogue = *epilogue;
  stages.images = sums->iters[0].extent * sums->iters[1].extent;
  stages.height = sums->iters[2].extent;
  stages.windows_across = sums->iters[3].extent;
  stages.places = sums->iters[4].extent;
  stages.lanes = sums->iters[5].extent;
  stages.kernel = sums->iters[6].extent;
  stages.row_bytes = stages.windows_across * stages.lanes * windows->iters.back().extent;
  if (stages.height > 1) {
    stages.stride = (windows->iters[2].extent - stages.kernel) / (stages.height - 1);
  }
  if (stages.lanes != 4 && stages.lanes != 8 && stages.lanes != 16) return out;
  out.push_back(std::make_unique<DepthwiseDotsSketch>(std::move(stages), target));
  return out;
}

}  // namespace tilewright::space
