// parallel_vectorize_unroll: for programs of any number of blocks, block by block in program order:
// the nest of a block is cut into [parallel: outer spatial loops][serial: the rest][vector].
#include "compiler/space/rules/plain_nest.h"
#include "compiler/space/rules/rules.h"
#include "deploy/support/status.h"

namespace tilewright::space {
namespace {

constexpr size_t kMaxLoopBlocks = 8;

class PlainSketch final : public Sketch {
 public:
  PlainSketch(const std::vector<BlockInfo>& blocks, const target::Target& target) {
    for (const BlockInfo& block : blocks) nests_.emplace_back(block, target, Adder());
  }
  std::string name() const override { return "parallel_vectorize_unroll"; }

  bool Feasible(const Point& point) const override {
    for (const PlainNest& nest : nests_) {
      if (!nest.Feasible(*this, point)) return false;
    }
    return true;
  }

  absl::Status Apply(const Point& point, schedule::Schedule* s) const override {
    for (const PlainNest& nest : nests_) TW_TRY(nest.Apply(*this, point, s));
    return absl::OkStatus();
  }

 private:
  std::vector<PlainNest> nests_;
};

}  // namespace

std::vector<std::unique_ptr<Sketch>> MakeParallelVectorizeUnroll(const ir::Function& function,
                                                                 const target::Target& target) {
  const std::vector<BlockInfo> blocks = DescribeBlocks(function);
  std::vector<std::unique_ptr<Sketch>> out;
  if (blocks.empty() || blocks.size() > kMaxLoopBlocks) return out;
  out.push_back(std::make_unique<PlainSketch>(blocks, target));
  return out;
}

}  // namespace tilewright::space
