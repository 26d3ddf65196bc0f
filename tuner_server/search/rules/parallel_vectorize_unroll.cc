// parallel_vectorize_unroll: for programs of any number of blocks, block by block in program order.
// The nest of a block is cut into [parallel: outer spatial loops][serial: the rest][vector]: lanes
// along the innermost spatial loop where the block has no reduction inside it, the outermost
// spatial loops fused and run in parallel.
#include <algorithm>

#include "tuner_server/search/rules/block_info.h"
#include "tuner_server/search/rules/rules.h"
#include "tuner_server/search/rules/step_maker.h"

namespace tilewright::search {
namespace {

constexpr size_t kMaxBlocks = 8;

class PlainSketch final : public Sketch {
 public:
  PlainSketch(std::vector<BlockInfo> blocks, const ir::Target& target)
      : blocks_(std::move(blocks)), target_(target) {
    for (const BlockInfo& block : blocks_) AddKnobs(block);
  }
  std::string name() const override { return "parallel_vectorize_unroll"; }

  bool Feasible(const Point& point) const override {
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const Choice c = Read(point, b);
      const size_t outer = Outer(blocks_[b]);
      if (c.parallel > static_cast<int64_t>(outer)) return false;
      if (c.lanes > 1 && c.lanes * c.unroll > 2 * InnerExtent(blocks_[b])) return false;
      if (c.lanes == 1 && c.unroll > 1) return false;
    }
    return true;
  }

  absl::Status Apply(const Point& point, schedule::Schedule* s) const override {
    for (size_t b = 0; b < blocks_.size(); ++b) {
      TW_TRY(ApplyBlock(blocks_[b], Read(point, b), s));
    }
    return absl::OkStatus();
  }

 private:
  struct Knobs {
    size_t lanes, unroll, parallel;
  };
  struct Choice {
    int64_t lanes, unroll, parallel;
  };

  static bool Reduces(const BlockInfo& block) {
    return std::any_of(block.iters.begin(), block.iters.end(),
                       [](const IterInfo& iter) { return iter.reduce; });
  }
  static int64_t InnerExtent(const BlockInfo& block) {
    return block.iters.empty() ? 1 : block.iters.back().extent;
  }
  // Spatial loops outside the innermost loop and outside every reduction loop.
  static size_t Outer(const BlockInfo& block) {
    size_t n = 0;
    while (n < block.iters.size() && !block.iters[n].reduce) ++n;
    return n == block.iters.size() && n > 0 ? n - 1 : n;
  }

  void AddKnobs(const BlockInfo& block) {
    std::vector<int64_t> lanes = {1}, unroll = {1}, parallel = {0};
    const bool simple = block.plain && block.perfect_nest && !block.iters.empty();
    if (simple && !Reduces(block) && InnerExtent(block) >= 4) {
      const int64_t most = target_.vector_bytes / std::max(block.writes->dtype.bytes(), 1);
      for (int64_t n = most; n >= 4; n /= 2) lanes.push_back(n);
      unroll = {1, 2, 4, 8};
    }
    if (simple && target_.threads > 1) {
      for (size_t n = 1; n <= Outer(block); ++n) parallel.push_back(static_cast<int64_t>(n));
    }
    knobs_of_.push_back({AddKnob("lanes_" + block.name, lanes),
                         AddKnob("unroll_" + block.name, unroll),
                         AddKnob("parallel_" + block.name, parallel)});
  }

  Choice Read(const Point& point, size_t b) const {
    return {Value(point, knobs_of_[b].lanes), Value(point, knobs_of_[b].unroll),
            Value(point, knobs_of_[b].parallel)};
  }

  static absl::Status ApplyBlock(const BlockInfo& block, const Choice& c, schedule::Schedule* s) {
    StepMaker make(s);
    std::vector<int> loops = s->LoopsOf(s->BlockHandle(block.name));
    if (c.lanes > 1) {
      std::vector<int64_t> factors = {schedule::kInfer};
      if (c.unroll > 1) factors.push_back(c.unroll);
      factors.push_back(c.lanes);
      const std::vector<int> parts = make.Split(loops.back(), factors, true);
      if (!parts.empty()) {
        if (c.unroll > 1) make.Unroll(parts[1]);
        make.Vectorize(parts.back());
      }
    }
    if (c.parallel > 0) {
      make.Parallel(
          make.Fuse({loops.begin(), loops.begin() + static_cast<std::ptrdiff_t>(c.parallel)}));
    }
    return make.status();
  }

  std::vector<BlockInfo> blocks_;
  ir::Target target_;
  std::vector<Knobs> knobs_of_;
};

}  // namespace

std::vector<std::unique_ptr<Sketch>> MakeParallelVectorizeUnroll(const ir::Function& function,
                                                                 const ir::Target& target) {
  std::vector<BlockInfo> blocks = DescribeBlocks(function);
  std::vector<std::unique_ptr<Sketch>> out;
  if (blocks.empty() || blocks.size() > kMaxBlocks) return out;
  out.push_back(std::make_unique<PlainSketch>(std::move(blocks), target));
  return out;
}

}  // namespace tilewright::search
