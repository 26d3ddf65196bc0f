// What rules need to know of a function's blocks: their iterators' extents and how their accesses
// move along them. Plain values.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/schedule/dot_product.h"

namespace tilewright::search {

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
  // store_stride[i]: elements between neighbours along iterator i in the written buffer.
  std::vector<int64_t> store_strides;
  std::vector<std::vector<int64_t>> load_strides;  // per load of another buffer
  std::optional<schedule::DotProduct> dot;         // its last iterator is the sum of four products
  bool identity_store = false;  // writes its buffer at exactly its spatial iterators, in order
};
// In program order.
std::vector<BlockInfo> DescribeBlocks(const ir::Function& function);

// 1, and every number of the menu kind up to `limit`: all divisors of `extent`, and the numbers
// 2..8, 10, 12, 14, 16 even where they do not divide it.
std::vector<int64_t> TileMenu(int64_t extent, int64_t limit);

}  // namespace tilewright::search
