// winograd: the stages of op::ComputeWinogradStages in a grid, [pad,] filter_rows, filter,
// tile_rows, tile, products, out_rows, the result and at most one element-wise block behind it.
//
// In blocks of rows of tiles, so that transformed tiles and products stay in the second cache:
//   for n, blocks of rows (parallel):
//     for each tile and channel block:  tile_rows, tile          (in registers, unrolled)
//     for each of the m+2 squared products: a matrix product in register tiles
//     for each channel block and tile:  out_rows, result, epilogue  (in registers, unrolled)
// or stage by stage, each parallel in its own way, where the transformed weights are what is large.
// The filter stages depend on weights only and run once (transform/split_prepare).
#include <algorithm>
#include <optional>

#include "compiler/ir/buffer_bytes.h"
#include "compiler/space/block_info.h"
#include "compiler/space/lane_axes.h"
#include "compiler/space/rules/rules.h"
#include "compiler/space/step_maker.h"

namespace tilewright::space {
namespace {

struct WinogradStages {
  std::string pad, filter_rows, filter, tile_rows, tile, products, out_rows, result, epilogue;
  int64_t form = 0;               // outputs of a tile along each side
  int64_t rows = 0, columns = 0;  // of tiles
  int64_t out_blocks = 0;
  // Of what is transformed: weights, inputs and products of the whole image (0 where its size is
  // open), and the weights that a vector of products reads.
  int64_t weight_bytes = 0, input_bytes = 0, product_bytes = 0, panel_bytes = 0;
  int64_t block_vectors = 1;  // of the machine, in a block of channels
};

class WinogradSketch final : public Sketch {
 public:
  WinogradSketch(WinogradStages stages, const target::Target& target)
      : s_(std::move(stages)), target_(target) {
    const target::SearchedTile& most = target_.machine.searched_tile;
    by_stage_ = AddKnob("by_stage", {0, 1});
    rows_ = AddKnob("tile_rows", Divisors(s_.rows, 1, s_.rows));
    tile_h_ = AddKnob("register_th", TileMenu(s_.rows, most.planes));
    tile_w_ = AddKnob("register_tw", TileMenu(s_.columns, most.windows));
    vectors_ = AddKnob("vectors", TileMenu(s_.out_blocks, 6));
    pad_ =
        AddKnob("place_pad", s_.pad.empty() ? std::vector<int64_t>{0} : std::vector<int64_t>{0, 1});
  }
  std::string name() const override { return "winograd"; }

  // In blocks of rows whose tiles and products stay in the second cache; of all rows where the
  // weights are larger than these, as they would come anew for each block.
  std::optional<std::vector<int>> DefaultChoices() const override {
    if (s_.product_bytes == 0) return std::nullopt;  // of an open size
    std::vector<int> choices = FirstChoices();
    // The largest value of a knob's menu that is not above `most`.
    const auto choose = [&](size_t knob, int64_t most) {
      const std::vector<int64_t>& menu = knobs_[knob].menu;
      const auto above = std::upper_bound(menu.begin(), menu.end(), std::max(most, menu[0]));
      choices[knob] = static_cast<int>(above - menu.begin()) - 1;
      return *std::prev(above);
    };
    const bool all = s_.weight_bytes > s_.product_bytes;
    const bool by_stage = all && target_.threads > 1;
    choose(by_stage_, by_stage ? 1 : 0);
    int64_t rows = s_.rows;
    if (!by_stage) {
      const double second_cache = target_.machine.l2.ReachableBytes(target_.threads);
      const auto bytes = static_cast<double>(s_.input_bytes + s_.product_bytes);
      // Small images stay there whole, their padded copies, too. A block leaves room for the
      // weights, and for what the next one reads.
      const double share = second_cache / 4 / bytes;
      const bool whole = all || bytes <= second_cache / 2;
      const auto most = static_cast<int64_t>(whole ? rows : share * static_cast<double>(rows));
      rows = choose(rows_, most / target_.threads);
      choose(pad_, rows < s_.rows ? 1 : 0);
    }
    const Tile tile = MoreUses(ChooseTile(s_.out_blocks * s_.block_vectors, s_.columns, rows,
                                          s_.panel_bytes, target_, s_.block_vectors),
                               rows);
    choose(tile_h_, tile.planes);
    choose(tile_w_, tile.rows);
    choose(vectors_, tile.vectors / s_.block_vectors);
    return choices;
  }

  std::string DecidedOn(const schedule::Schedule& s) const override {
    return RunsByRow(s) ? "tile_rows 1, place_pad 1: rows of an open size, near weights" : "";
  }

  bool Feasible(const Point& point) const override {
    const int64_t sums = Value(point, tile_h_) * Value(point, tile_w_);
    const int64_t vectors = Value(point, vectors_) * s_.block_vectors;
    const bool by_stage = Value(point, by_stage_) != 0;
    // Knobs without effect stay at their first value.
    if (by_stage && (point.choices[rows_] != 0 || point.choices[pad_] != 0)) return false;
    if (!by_stage && Value(point, tile_h_) > Value(point, rows_)) return false;
    return sums * vectors + vectors + 1 <= target_.machine.vector_registers;
  }

  absl::Status Apply(const Point& point, schedule::Schedule* s) const override {
    StepMaker make(s);
    const bool by_row = RunsByRow(*s), by_stage = Value(point, by_stage_) != 0 && !by_row;
    for (const std::string& name : {s_.filter_rows, s_.filter}) {
      make.Vectorize(s->LoopsOf(s->BlockHandle(name)).back());
    }
    const int64_t rows = by_row ? 1 : by_stage ? s_.rows : Value(point, rows_);
    const int block = TransformOutput(rows, by_stage, s, &make);
    TW_TRY(make.status());
    const int place = by_stage ? -1 : block;
    if (IsOpen(*s, s->LoopsOf(s->BlockHandle(s_.products))[4])) {
      // What a block of rows needs is known before its tiles are numbered.
      if (!by_stage) make.ComputeAt(s->BlockHandle(s_.products), block);
      TransformInput(place, s, &make);
      TW_TRY(make.status());
      MultiplyOpen(point, place, s, &make);
      TW_TRY(make.status());
      for (const std::string& name : {s_.tile, s_.products}) KeepTiles(s->BlockHandle(name), &make);
    } else {
      Multiply(point, place, s, &make);
      TW_TRY(make.status());
      AlignPoints(s->BlockHandle(s_.tile), &make);
      TransformInput(place, s, &make);
    }
    TW_TRY(make.status());
    if (!s_.pad.empty()) {
      const int pad = s->BlockHandle(s_.pad);
      std::vector<int> loops = s->LoopsOf(pad);
      if (Value(point, pad_) != 0 || by_row) {
        loops = make.ComputeAt(pad, block);
      } else if (target_.threads > 1) {
        make.Parallel(make.Fuse({loops[0], loops[1]}));
      }
      if (!loops.empty()) make.Vectorize(loops.back());
    }
    return make.status();
  }

 private:
  // The tile with more rows of Winograd's tiles, and fewer vectors, where weights from behind the
  // second cache must be used more often and these tiles are enough for that.
  Tile MoreUses(Tile tile, int64_t rows) const {
    const target::Machine& machine = target_.machine;
    const double second_cache = machine.l2.ReachableBytes(target_.threads) / 2;
    if (static_cast<double>(s_.weight_bytes) <= second_cache) return tile;
    const int64_t planes = (machine.tile.far_uses + tile.rows - 1) / tile.rows;
    const int64_t uses = tile.rows * planes;
    const int64_t blocks = (machine.vector_registers - 1) / ((uses + 1) * s_.block_vectors);
    if (planes <= tile.planes || planes > rows || blocks == 0) return tile;
    return {std::min(tile.vectors, blocks * s_.block_vectors), tile.rows, planes};
  }

  // Whether each block of rows finds its weights in the second cache.
  bool HasNearWeights() const {
    const target::Machine& machine = target_.machine;
    return static_cast<double>(s_.weight_bytes) <=
           machine.estimate.cache_share * machine.l2.ReachableBytes(target_.threads);
  }
  // With near weights a block of an open size is one row at any point: it stays near however long
  // it is, which typical sizes do not tell, and no tile's place takes a division. ResNet-18's first
  // stage has 1.03 to 1.07 of the speed of other blocks, a U-Net's layers of 16 channels 1.1 to 1.4
  // (Zen 5).
  bool RunsByRow(const schedule::Schedule& s) const {
    return HasNearWeights() && IsOpen(s, s.LoopsOf(s.BlockHandle(s_.result))[2]);
  }

  // Results and epilogue over tiles; returns the loop over blocks of rows of tiles.
  int TransformOutput(int64_t rows, bool by_stage, schedule::Schedule* s, StepMaker* make) const {
    if (!s_.epilogue.empty()) make->Inline(s->BlockHandle(s_.result));
    const std::string& last = s_.epilogue.empty() ? s_.result : s_.epilogue;
    const std::vector<int> loops = s->LoopsOf(s->BlockHandle(last));  // n oc oh ow ob
    // What is larger, the weights or the tiles, passes by once: all rows of tiles are all then,
    // however many an open size makes of them. Otherwise a block of rows stays near.
    const bool all = rows == s_.rows && s_.weight_bytes > s_.product_bytes && !HasNearWeights() &&
                     IsOpen(*s, loops[2]);
    std::vector<int64_t> factors = {schedule::kInfer, rows, s_.form};
    if (all) factors.erase(factors.begin() + 1);
    std::vector<int> h = make->Split(loops[2], factors, false);
    const std::vector<int> w = make->Split(loops[3], {schedule::kInfer, s_.form}, false);
    if (!make->status().ok()) return -1;
    std::vector<int> outer = {loops[0]};
    if (!all) {
      outer.push_back(h[0]);
      h.erase(h.begin());
    }
    std::vector<int> order = outer;
    for (const int loop : {loops[1], h[0], w[0], h[1], w[1], loops[4]}) order.push_back(loop);
    make->Reorder(order);
    const int half = s->BlockHandle(s_.out_rows);
    const std::vector<int> own = make->ComputeAt(half, w[0]);  // n oc th tw i b ob
    if (own.empty()) return -1;
    make->SetScope(half, "local");
    for (const int loop : {own[4], own[5], h[1], w[1]}) make->Unroll(loop);
    make->Vectorize(own[6]);
    make->Vectorize(loops[4]);
    int block = outer.back();
    if (target_.threads > 1) {
      // Outer loops are independent, but the blocks of rows are what a thread keeps.
      if (by_stage) outer.push_back(loops[1]);
      if (outer.size() > 1) block = make->Fuse(outer);
      make->Parallel(block);
    }
    return block;
  }

  // What a block writes for each point of a tile lies in an odd number of lines, so that not all of
  // them are in one set of the cache for a power of two of tiles.
  static void AlignPoints(int block, StepMaker* make) {
    make->StorageAlign(block, /*dim=*/1, /*factor=*/32, /*offset=*/16);
  }

  // The points of a tile lie next to each other: so they are at fixed distances also where a row of
  // tiles is of open size. Each tile has an odd number of lines, too.
  static void KeepTiles(int block, StepMaker* make) {
    make->TransformLayout(block, "(2,3,4,0,1,5,6)");  // a b n th tw c cb → n th tw a b c cb
    make->StorageAlign(block, /*dim=*/2, /*factor=*/32, /*offset=*/16);
  }

  // The products in register tiles, at `block` or (-1) as a nest of its own.
  void Multiply(const Point& point, int block, schedule::Schedule* s, StepMaker* make) const {
    const int products = s->BlockHandle(s_.products);
    const std::vector<int> written = make->CacheWrite(products);
    if (written.empty()) return;
    AlignPoints(written[0], make);
    // a b n th tw oc ob
    std::vector<int> l(written.begin() + 1, written.end());
    if (block >= 0) l = make->ComputeAt(written[0], block);
    if (l.size() != 7) return;
    const std::vector<int> h = make->Split(l[3], {schedule::kInfer, Value(point, tile_h_)}, true);
    const std::vector<int> w = make->Split(l[4], {schedule::kInfer, Value(point, tile_w_)}, true);
    const std::vector<int> v = make->Split(l[5], {schedule::kInfer, Value(point, vectors_)}, true);
    if (!make->status().ok()) return;
    make->Reorder({l[0], l[1], v[0], l[2], h[0], w[0], h[1], w[1], v[1], l[6]});
    const std::vector<int> p = make->ComputeAt(products, w[0]);  // a b n th tw oc ob ic ib
    if (p.size() != 9) return;
    make->Reorder({p[0], p[1], p[2], p[7], p[8], p[3], p[4], p[5], p[6]});
    for (const int loop : {p[3], p[4], p[5], h[1], w[1], v[1]}) make->Unroll(loop);
    make->Vectorize(p[6]);
    make->Vectorize(l[6]);
    if (block < 0 && target_.threads > 1) make->Parallel(make->Fuse({l[0], l[1]}));
  }

  // A row of tiles of an open size may be shorter than a register tile. So that goes along the
  // tiles of all rows, one after the other, which are no box: local_sums makes the sums local.
  void MultiplyOpen(const Point& point, int block, schedule::Schedule* s, StepMaker* make) const {
    std::vector<int> l = s->LoopsOf(s->BlockHandle(s_.products));
    l.erase(l.begin(), l.end() - 9);  // a b n th tw oc ob ic ib
    // A remainder gets code of its own for each number of tiles, if these are few
    // (partition_loops).
    constexpr int64_t kMostTiles = 8;
    const int64_t tiles = std::min(kMostTiles, Value(point, tile_h_) * Value(point, tile_w_));
    const std::vector<int> t =
        make->Split(make->Fuse({l[3], l[4]}), {schedule::kInfer, tiles}, true);
    const std::vector<int> v = make->Split(l[5], {schedule::kInfer, Value(point, vectors_)}, true);
    if (!make->status().ok()) return;
    make->Reorder({l[0], l[1], v[0], l[2], t[0], l[7], l[8], t[1], v[1], l[6]});
    make->Annotate(t[0], "local_sums", 1);
    for (const int loop : {t[1], v[1]}) make->Unroll(loop);
    make->Vectorize(l[6]);
    if (block < 0 && target_.threads > 1) make->Parallel(make->Fuse({l[0], l[1]}));
  }

  static bool IsOpen(const schedule::Schedule& s, int loop) {
    return ir::AsInt(s.StmtOf(loop)->range.extent) == nullptr;
  }

  void TransformInput(int block, schedule::Schedule* s, StepMaker* make) const {
    const int tile = s->BlockHandle(s_.tile), half = s->BlockHandle(s_.tile_rows);
    std::vector<int> l = s->LoopsOf(tile);  // a b n th tw ic ib
    if (block >= 0) l = make->ComputeAt(tile, block);
    if (l.size() != 7) return;
    make->Reorder({l[2], l[3], l[4], l[5], l[0], l[1], l[6]});
    const std::vector<int> own = make->ComputeAt(half, l[5]);  // n th tw ic a s ib
    if (own.size() != 7) return;
    make->SetScope(half, "local");
    for (const int loop : {own[4], own[5], l[0], l[1]}) make->Unroll(loop);
    make->Vectorize(own[6]);
    make->Vectorize(l[6]);
    if (block < 0 && target_.threads > 1) make->Parallel(make->Fuse({l[2], l[3], l[4]}));
  }

  WinogradStages s_;
  target::Target target_;
  size_t by_stage_ = 0, rows_ = 0, tile_h_ = 0, tile_w_ = 0, vectors_ = 0, pad_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Sketch>> MakeWinograd(const ir::Function& function,
                                                  const target::Target& target) {
  std::vector<std::unique_ptr<Sketch>> out;
  if (!HasStage(function, "_filter_rows")) return out;
  const std::vector<BlockInfo> blocks = DescribeBlocks(function);
  std::optional<StageBlocks> known = StageBlocks::Around(blocks, "_products");
  if (!known.has_value() || known->reduction().iters.size() != 9) return out;
  const BlockInfo* products = &known->reduction();
  WinogradStages stages;
  const bool whole = known->Take("_filter_rows", &stages.filter_rows) &&
                     known->Take("_tile_rows", &stages.tile_rows) &&
                     known->Take("_tile", &stages.tile) &&
                     known->Take("_products", &stages.products);
  const BlockInfo* filter = known->Take("_filter");
  if (!whole || filter == nullptr) return out;
  stages.filter = filter->name;
  stages.weight_bytes = ir::ConstantBytes(*filter->writes).value_or(0);
  stages.product_bytes = ir::ConstantBytes(*products->writes).value_or(0);
  const BlockInfo *half = known->Take("_out_rows"), *result = known->Take("");
  if (half == nullptr || result == nullptr) return out;
  stages.out_rows = half->name;
  stages.result = result->name;
  known->Take("_pad", &stages.pad);
  const std::optional<std::string> epilogue = known->Epilogue(result->iters.size());
  if (!epilogue.has_value()) return out;
  stages.epilogue = *epilogue;
  const int64_t lanes = products->iters[6].extent;
  stages.form = half->iters[4].extent;
  stages.rows = products->iters[3].extent;
  stages.columns = products->iters[4].extent;
  stages.out_blocks = products->iters[5].extent;
  const int64_t terms = products->iters[7].extent * products->iters[8].extent;
  stages.input_bytes = stages.product_bytes / (stages.out_blocks * lanes) * terms;
  const int64_t block_bytes = lanes * products->writes->dtype.bytes();
  stages.block_vectors = std::max<int64_t>(1, block_bytes / target.machine.vector_bytes);
  stages.panel_bytes = terms * block_bytes / stages.block_vectors;
  out.push_back(std::make_unique<WinogradSketch>(std::move(stages), target));
  return out;
}

}  // namespace tilewright::space
