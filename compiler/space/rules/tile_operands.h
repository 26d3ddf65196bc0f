// What a tile reads, on devices of groups and threads: the box of an operand, how its rows lie in
// shared memory, who fetches it. Used by thread_tiles. Plain values; pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "compiler/space/block_info.h"
#include "compiler/space/step_maker.h"
#include "compiler/target/machine.h"

namespace tilewright::space {

// Returns the extents of the box around what a tile reads of a region that one instance of the
// block reads. `tile[i]` is how many values iterator i has in a tile. The box is the largest of the
// first and the second tile's.
std::vector<int64_t> BoxOf(const BlockInfo& info, const ir::StmtNode& block,
                           const std::vector<ir::Range>& region, const std::vector<int64_t>& tile);

// In place of a padding: the rows are turned; or blocks of rows lie apart by a row.
inline constexpr int64_t kSwizzled = -1, kBlocksApart = -2;

// How the rows of a box lie in shared memory: as they are, padded (which keeps neighbouring rows
// apart), or turned (a swizzle, which needs no memory). Its rows are those of the innermost
// dimensions of more than one element. Where several blocks of rows follow, threads that read the
// same row of neighbouring blocks (channels in blocks) want the blocks to lie apart.
class SharedRows {
 public:
  // `padding`: of the rows, in elements, or kSwizzled or kBlocksApart. `vector`: so many elements
  // stay together.
  SharedRows(const std::vector<int64_t>& box, int64_t element_bytes, int64_t padding,
             int64_t vector, const target::LaunchLimits& limits);

  int64_t bytes() const { return bytes_; }
  // The padding or the swizzle applies.
  bool apart() const { return pads_ || turns_; }
  // Applies it to what the block writes.
  void Place(int block, StepMaker* make) const;

 private:
  void PadBlocks(const std::vector<int64_t>& box);

  int dim_ = -1;        // whose stride is a row's, or a block's; -1: the box is one row
  int64_t stride_ = 1;  // elements of a row
  int64_t padding_, vector_, align_;
  int64_t bytes_ = 0;
  bool pads_ = false, turns_ = false;
};

// The number of a buffer among those that a block reads, as cache_read counts.
int64_t ReadIndex(const schedule::Schedule& s, int block, const std::string& buffer);

// Places a copy at loop `step`, fetched by all `threads` of the group, each some vectors of at most
// `most_lanes` elements.
void FetchByThreads(int block, int step, int64_t threads, int64_t most_lanes,
                    const schedule::Schedule& s, StepMaker* make);

// Places a copy at loop `outer_term` of a thread, which reads it in vectors of up to `most_bytes`.
void HoldInRegisters(int block, int outer_term, int64_t most_bytes, const schedule::Schedule& s,
                     StepMaker* make);

}  // namespace tilewright::space
