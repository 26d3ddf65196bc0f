// The stages of Winograd's form of a convolution, for every layout of its data. A stage is a tensor
// of named axes; the layout says in which order they lie. Internal to compiler/op. Pure functions;
// thread-safe.
#pragma once

#include <string_view>
#include <vector>

#include "compiler/op/conv_shape.h"
#include "compiler/op/op_rows.h"
#include "compiler/op/winograd_form.h"

namespace tilewright::op {

// The axes of each stage, outermost first:
//   a, b      products along the two sides of a tile; s, i: the same before or after one transform
//   n, th, tw the image, and the row and column of a tile in it; p: one number for all three
//   ic, oc    channels, or their blocks; ib, ob: channels in a block
//   oh, ow    results
struct WinogradLayout {
  std::string_view filter_rows, filter, tile_rows, tile, products, out_rows, result;
};
// Lanes along tiles, for channels in their order. Sizes are fixed.
inline constexpr WinogradLayout kNumberedTiles = {"a s ic oc", "a b ic oc", "a s ic p",  "a b ic p",
                                                  "a b oc p",  "i b oc p",  "n oc oh ow"};
// Lanes along channels, for blocks of them. Tiles keep their row and column, so that schedules can
// work on a few rows of tiles; the image has a stage of padding; n, th and tw may be open.
inline constexpr WinogradLayout kGridOfTiles = {
    "a s oc ic ib ob",   "a b oc ic ib ob",   "n th tw ic a s ib", "a b n th tw ic ib",
    "a b n th tw oc ob", "n oc th tw i b ob", "n oc oh ow ob"};

// Adds the stages NAME_pad (where there is padding, in a grid), NAME_filter_rows, NAME_filter,
// NAME_tile_rows, NAME_tile, NAME_products, NAME_out_rows and NAME. The filter stages depend on the
// weights only. REQUIRES: stride and dilation 1, one group; the layout of `c`.
std::vector<ir::Buffer> ComputeWinogradStages(const ComputeArgs& args, const ConvShape& c,
                                              const WinogradForm& form);

}  // namespace tilewright::op
