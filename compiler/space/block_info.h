// What rules need to know of a function's blocks: their iterators' extents and how their accesses
// move along them. Plain values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/space/dot_product.h"

namespace tilewright::space {

struct IterInfo {
  std::string name;
  int64_t extent = 0;
  bool reduce = false;
};
struct BlockInfo {
  std::string name;
  std::vector<IterInfo> iters;
  bool has_init = false;
  bool calls = false;         // exp and its like, tens of instructions each
  bool perfect_nest = false;  // every iterator is bound to a loop of its own, in iterator order
  bool plain = true;          // constant extents, only spatial and reduction iterators
  ir::Buffer writes;
  std::vector<ir::Buffer> reads;  // without the written buffer
  // Those of them that it reads elsewhere than at its iterators, in order: moved or turned.
  std::vector<ir::Buffer> moved_reads;
  // store_stride[i]: elements between neighbours along iterator i in the written buffer.
  std::vector<int64_t> store_strides;
  std::vector<std::vector<int64_t>> load_strides;  // per load of another buffer
  std::optional<DotProduct> dot;                   // its last iterator is the sum of four products
  bool identity_store = false;  // writes its buffer at exactly its spatial iterators, in order
};
// In program order.
std::vector<BlockInfo> DescribeBlocks(const ir::Function& function);

// Returns the axes that vector lanes may run along, as indices into `spatial` (P's spatial
// iterators, of these extents): those along which every operand is contiguous or constant and one
// is contiguous; else those with a contiguous operand; else the last axis of more than one point.
std::vector<size_t> LaneAxes(const BlockInfo& p, const std::vector<size_t>& spatial,
                             const std::vector<int64_t>& extents);
// Returns whether `o` is element by element over exactly the points of P's result.
bool FollowsPointwise(const BlockInfo& p, const BlockInfo& o);
// Returns whether the block is a reduction whose loops may be cut into tiles of any kind.
bool IsTileable(const BlockInfo& p);

// A function's one reduction, whose loops may be tiled, and the blocks around it. `consumer`: the
// block right behind it that is element by element over its results, "" if there is none; `behind`
// has the others.
struct TiledReduction {
  BlockInfo reduction;
  std::vector<BlockInfo> before, behind;
  std::string consumer;
};
// Returns nullopt where there is another number of reductions, or more than `most` blocks.
std::optional<TiledReduction> FindTiledReduction(const std::vector<BlockInfo>& blocks, size_t most);

// Returns whether a block's name ends so, without a look at any: most functions have no stages, and
// default schedules are made by the thousand.
bool HasStage(const ir::Function& function, std::string_view suffix);

// The blocks of an algorithm in stages, each named after the result with a suffix ("y_tiles",
// "y_products", "y"), and one element-wise block behind them at most. REQUIRES: `blocks` outlives
// it.
class StageBlocks {
 public:
  // Around the reduction whose name ends in `suffix`; nothing where there is none.
  static std::optional<StageBlocks> Around(const std::vector<BlockInfo>& blocks,
                                           std::string_view suffix);
  const BlockInfo& reduction() const { return *reduction_; }
  // The stage of this suffix; null where there is none. Each is asked for once.
  const BlockInfo* Take(std::string_view suffix);
  // Its name too, "" where there is none.
  bool Take(std::string_view suffix, std::string* name);
  // After all stages are taken: the name of the block behind them, "" without one; nothing where
  // other blocks are left or that one is not element by element over `rank` iterators.
  std::optional<std::string> Epilogue(size_t rank) const;

 private:
  StageBlocks(const std::vector<BlockInfo>& blocks, const BlockInfo* reduction, std::string result)
      : blocks_(blocks), reduction_(reduction), result_(std::move(result)) {}

  const std::vector<BlockInfo>& blocks_;
  const BlockInfo* reduction_;
  std::string result_;
  size_t taken_ = 0;
};

// Returns the divisors of `extent` from `least` to `most`.
std::vector<int64_t> Divisors(int64_t extent, int64_t least, int64_t most);

// 1, and every number of the menu kind up to `limit`: all divisors of `extent`, and the numbers
// 2..8, 10, 12, 14, 16 even where they do not divide it.
std::vector<int64_t> TileMenu(int64_t extent, int64_t limit);

}  // namespace tilewright::space
