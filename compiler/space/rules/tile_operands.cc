#include "compiler/space/rules/tile_operands.h"

#include <algorithm>
#include <utility>

#include "compiler/analysis/analyzer.h"
#include "compiler/space/rules/bound_nest.h"

namespace tilewright::space {
namespace {

constexpr int64_t kBankBytes = 4;
constexpr int64_t kMaxAlign = 64;  // elements, of storage_align

// The largest power of two of lanes, up to `most`, that divides an extent.
int64_t LanesOf(int64_t extent, int64_t most) {
  int64_t lanes = 1;
  while (2 * lanes <= most && extent % (2 * lanes) == 0) lanes *= 2;
  return lanes;
}

}  // namespace

std::vector<int64_t> BoxOf(const BlockInfo& info, const ir::StmtNode& block,
                           const std::vector<ir::Range>& region, const std::vector<int64_t>& tile) {
  std::vector<int64_t> box(region.size(), 1);
  for (const int64_t at : {0, 1}) {
    analysis::Analyzer analyzer;
    for (size_t i = 0; i < info.iters.size(); ++i) {
      const int64_t first = std::min(at * tile[i], info.iters[i].extent - tile[i]);
      analyzer.Set(block.iters[i].var, {first, first + tile[i] - 1});
    }
    for (size_t d = 0; d < box.size(); ++d) {
      const analysis::Interval min = analyzer.Values(region[d].min);
      const int64_t extent = analyzer.Values(region[d].extent).max;
      box[d] = std::max(box[d], min.max - min.min + extent);
    }
  }
  return box;
}

SharedRows::SharedRows(const std::vector<int64_t>& box, int64_t element_bytes, int64_t padding,
                       int64_t vector, const target::LaunchLimits& limits)
    : padding_(padding),
      vector_(vector),
      align_(limits.shared_banks * kBankBytes / element_bytes) {  // rows begin at one bank
  for (size_t d = box.size(); d-- > 0 && dim_ < 0;) {
    if (box[d] == 1) continue;
    if (stride_ > 1) dim_ = static_cast<int>(d);
    if (stride_ == 1) stride_ = box[d];
  }
  if (padding == kBlocksApart) PadBlocks(box);
  pads_ = padding_ > 0 && (padding_ & (padding_ - 1)) == 0 && dim_ >= 0 && align_ > padding_ &&
          align_ <= kMaxAlign && stride_ % align_ != padding_;
  const int64_t vectors = stride_ / vector;
  turns_ = padding == kSwizzled && dim_ >= 0 && vectors > 1 && vectors * vector == stride_ &&
           (vectors & (vectors - 1)) == 0;
  bytes_ = element_bytes;
  for (const int64_t extent : box) bytes_ *= extent;
  const int64_t padded = stride_ + ((padding_ - stride_) % align_ + align_) % align_;
  if (pads_) bytes_ = bytes_ / stride_ * padded;
}

// Takes the dimension outside of the rows, and a row as its padding.
void SharedRows::PadBlocks(const std::vector<int64_t>& box) {
  padding_ = stride_;
  for (int d = std::exchange(dim_, -1); d >= 0 && dim_ < 0; --d) {
    const int64_t extent = box[static_cast<size_t>(d)];
    if (stride_ > padding_ && extent > 1) dim_ = d;
    if (stride_ == padding_) stride_ *= extent;
  }
}

void SharedRows::Place(int block, StepMaker* make) const {
  if (pads_) make->StorageAlign(block, dim_, align_, padding_);
  if (turns_) make->Swizzle(block, dim_, vector_);
}

int64_t ReadIndex(const schedule::Schedule& s, int block, const std::string& buffer) {
  std::vector<std::string> seen;
  const ir::Stmt stmt = s.StmtOf(block);
  for (const ir::BufferRegion& read : stmt->reads) {
    if (read.buffer == stmt->writes[0].buffer) continue;
    if (read.buffer->name == buffer) break;
    if (std::find(seen.begin(), seen.end(), read.buffer->name) == seen.end())
      seen.push_back(read.buffer->name);
  }
  return static_cast<int64_t>(seen.size());
}

void FetchByThreads(int block, int step, int64_t threads, int64_t most_lanes,
                    const schedule::Schedule& s, StepMaker* make) {
  const std::vector<int> loops = make->ComputeAt(block, step);
  if (loops.empty()) return;
  std::vector<int64_t> extents;
  for (const int loop : loops) extents.push_back(*ir::AsInt(s.StmtOf(loop)->range.extent));
  const int64_t lanes = LanesOf(extents.back(), most_lanes);
  extents.back() /= lanes;
  const std::vector<int> parts = make->Split(
      make->Fuse(loops), {schedule::kInfer, WholeThreads(extents, threads), lanes}, false);
  if (parts.size() != 3) return;
  make->Bind(parts[1], "threadIdx.x");
  if (lanes > 1) make->Vectorize(parts[2]);
}

void HoldInRegisters(int block, int outer_term, int64_t most_bytes, const schedule::Schedule& s,
                     StepMaker* make) {
  const std::vector<int> loops = make->ComputeAt(block, outer_term);
  if (loops.empty()) return;
  const int64_t bytes = s.StmtOf(block)->writes[0].buffer->dtype.bytes();
  const int64_t terms = *ir::AsInt(s.StmtOf(loops.back())->range.extent);
  const int64_t lanes = LanesOf(terms, most_bytes / bytes);
  const std::vector<int> parts = lanes == terms
                                     ? std::vector<int>{loops.back()}
                                     : make->Split(loops.back(), {schedule::kInfer, lanes}, false);
  if (lanes > 1 && !parts.empty()) make->Vectorize(parts.back());
}

}  // namespace tilewright::space
