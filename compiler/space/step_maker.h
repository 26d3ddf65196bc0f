// Applies steps to a schedule one by one and hands out the handles they create: what rules are
// written with. The first error stays; later calls do nothing. One owner.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "compiler/schedule/schedule.h"

namespace tilewright::space {

class StepMaker {
 public:
  explicit StepMaker(schedule::Schedule* schedule) : schedule_(schedule) {}

  const absl::Status& status() const { return status_; }
  const std::vector<int>& results() const { return schedule_->LastResults(); }

  // The new loops, outermost first; empty after an error.
  std::vector<int> Split(int loop, std::vector<int64_t> factors, bool peel) {
    schedule::Step step{schedule::StepKind::kSplit, {loop}, std::move(factors), "", {}};
    if (peel) step.options["tail"] = "peel";
    return Do(std::move(step));
  }
  int Fuse(std::vector<int> loops) {
    if (loops.size() == 1) return loops[0];
    const std::vector<int> made = Do({schedule::StepKind::kFuse, std::move(loops), {}, "", {}});
    return made.empty() ? -1 : made[0];
  }
  void Reorder(std::vector<int> loops) {
    if (loops.size() > 1) Do({schedule::StepKind::kReorder, std::move(loops), {}, "", {}});
  }
  void Vectorize(int loop) { Do({schedule::StepKind::kVectorize, {loop}, {}, "", {}}); }
  void Tensorize(int loop, std::string intrinsic) {
    Do({schedule::StepKind::kTensorize, {loop}, {}, "", {{"intrin", std::move(intrinsic)}}});
  }
  void Unroll(int loop) { Do({schedule::StepKind::kUnroll, {loop}, {}, "", {}}); }
  void Parallel(int loop) { Do({schedule::StepKind::kParallel, {loop}, {}, "", {}}); }
  void VirtualThread(int loop) { Do({schedule::StepKind::kVirtualThread, {loop}, {}, "", {}}); }
  // A launch axis: "blockIdx.x" to "threadIdx.z".
  void Bind(int loop, std::string axis) {
    Do({schedule::StepKind::kBind, {loop}, {}, std::move(axis), {}});
  }
  // The copy's block, then its loops.
  std::vector<int> CacheRead(int block, int64_t read, std::string scope) {
    schedule::Step step{schedule::StepKind::kCacheRead, {block}, {}, "", {}};
    if (read > 0) step.options["read"] = std::to_string(read);
    step.options["scope"] = std::move(scope);
    return Do(std::move(step));
  }
  std::vector<int> CacheWrite(int block) {
    return Do({schedule::StepKind::kCacheWrite, {block}, {}, "", {}});
  }
  void SetScope(int block, std::string scope) {
    Do({schedule::StepKind::kSetScope, {block}, {}, std::move(scope), {}});
  }
  std::vector<int> ComputeAt(int block, int loop) {
    return Do({schedule::StepKind::kComputeAt, {block, loop}, {}, "", {}});
  }
  // The blocks that fill padded operands and that take the result out, each with its loops.
  std::vector<int> PadEinsum(int block, std::vector<int64_t> factors) {
    return Do({schedule::StepKind::kPadEinsum, {block}, std::move(factors), "", {}});
  }
  // Nests of the loop's body in stages; those of the first one are copies that nothing waits for.
  void PipelineAsync(int loop, std::vector<int64_t> stages) {
    Do({schedule::StepKind::kSoftwarePipeline, {loop}, std::move(stages), "", {{"async", "1"}}});
  }
  std::vector<int> ReverseComputeAt(int block, int loop) {
    return Do({schedule::StepKind::kReverseComputeAt, {block, loop}, {}, "", {}});
  }
  // Two versions of what the block writes, one read while the other is written.
  void DoubleBuffer(int block) { Do({schedule::StepKind::kDoubleBuffer, {block}, {}, "", {}}); }
  // The stride of a dimension of what the block writes: `offset` modulo `factor`, in elements.
  void StorageAlign(int block, int dim, int64_t factor, int64_t offset) {
    schedule::Step step{schedule::StepKind::kStorageAlign, {block}, {}, "", {}};
    SetOption("dim", dim, &step);
    SetOption("factor", factor, &step);
    SetOption("offset", offset, &step);
    Do(std::move(step));
  }
  // Another shape for what the block writes (schedule/step.h: an index map).
  void TransformLayout(int block, std::string map) {
    Do({schedule::StepKind::kTransformLayout, {block}, {}, std::move(map), {}});
  }
  // Rows of a dimension of what the block writes are turned, vector by vector.
  void Swizzle(int block, int dim, int64_t vector) {
    schedule::Step step{schedule::StepKind::kSwizzle, {block}, {}, "", {}};
    SetOption("dim", dim, &step);
    SetOption("vector", vector, &step);
    Do(std::move(step));
  }
  // A hint of value 1.
  void Mark(int loop, std::string hint) { Annotate(loop, std::move(hint), 1); }
  void Annotate(int loop, std::string hint, int64_t value) {
    Do({schedule::StepKind::kAnnotate, {loop}, {}, "", {{std::move(hint), std::to_string(value)}}});
  }
  void Inline(int block) { Do({schedule::StepKind::kInline, {block}, {}, "", {}}); }
  // The block of partial results, then the other block's new loops.
  std::vector<int> Rfactor(int block, int loop, std::string axis) {
    return Do({schedule::StepKind::kRfactor, {block, loop}, {}, "", {{"axis", std::move(axis)}}});
  }
  // The last iterations of the nests' outermost loops as nests of their own: of each the block,
  // then its loops.
  std::vector<int> Divide(std::vector<int> loops, int64_t first) {
    return Do({schedule::StepKind::kDivide, std::move(loops), {first}, "", {}});
  }
  std::vector<int> DecomposeReduction(int block, int loop) {
    return Do({schedule::StepKind::kDecomposeReduction, {block, loop}, {}, "", {}});
  }

 private:
  // The default of an option is not written.
  static void SetOption(const char* option, int64_t value, schedule::Step* step) {
    if (std::to_string(value) != step->Option(option))
      step->options[option] = std::to_string(value);
  }
  std::vector<int> Do(schedule::Step step) {
    if (!status_.ok()) return {};
    status_ = schedule_->Apply(step);
    return status_.ok() ? schedule_->LastResults() : std::vector<int>();
  }

  schedule::Schedule* schedule_;
  absl::Status status_;
};

}  // namespace tilewright::space
