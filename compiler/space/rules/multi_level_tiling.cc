// multi_level_tiling: one reduction block P (convolution, matrix product, pooling), alone or
// followed by one element-wise block O over the same points. Stages in front of P (padding) are
// kept whole, inlined, or computed for each outer tile; element-wise stages behind that have other
// points than P are nests of their own.
//
//   for outer tiles (fused, parallel):        S0
//     for cache tiles, in some order:         S1
//       init of a register tile               } P, computed at the innermost cache tile,
//       for reduction, in some order:    R0,R1 } its accumulators in registers
//         register tile += ...           S2    }
//       O over the register tile              the epilogue, while the tile is still in registers
//
// The register tile is bounded by the target's registers (mr * nv accumulators, nv vectors of the
// streamed operand, one broadcast: BLIS, TOMS 2016). Sums of products of four bytes become dot
// products (tensor intrinsics): their lanes are fixed, and the four terms lie inside of them. The
// body is bounded by what unrolls without drowning the instruction cache, the tails by the share of
// wasted work.
#include <algorithm>
#include <numeric>

#include "compiler/space/rules/plain_nest.h"
#include "compiler/space/rules/rules.h"
#include "compiler/space/step_maker.h"
#include "deploy/support/strings.h"

namespace tilewright::space {
namespace {

constexpr size_t kMaxOrders = 12;
constexpr size_t kMaxTiledBlocks = 6;

int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::vector<std::vector<size_t>> Permutations(size_t n, size_t limit) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<std::vector<size_t>> out;
  do {
    out.push_back(order);
  } while (out.size() < limit && std::next_permutation(order.begin(), order.end()));
  return out;
}

std::vector<int64_t> Iota(size_t n) {
  std::vector<int64_t> values(n);
  std::iota(values.begin(), values.end(), int64_t{0});
  return values;
}

class TilingSketch final : public Sketch {
 public:
  // `before`: the stages that P reads; `behind`: what follows P (and O).
  TilingSketch(BlockInfo producer, std::string consumer, const std::vector<BlockInfo>& before,
               const std::vector<BlockInfo>& behind, const target::Target& target)
      : p_(std::move(producer)), consumer_(std::move(consumer)), target_(target) {
    TakeDotProduct();
    for (size_t i = 0; i < p_.iters.size(); ++i) {
      if (InsideOfLanes(i)) continue;
      if (p_.iters[i].reduce) {
        reduce_.push_back(p_.iters[i].extent);
      } else {
        spatial_.push_back(i);
        extents_.push_back(p_.iters[i].extent);
      }
    }
    vector_axes_ = LaneAxes(p_, spatial_, extents_);
    if (p_.dot.has_value()) {
      const auto lane = static_cast<size_t>(p_.dot->lane_axis);
      vector_axes_ = {static_cast<size_t>(std::find(spatial_.begin(), spatial_.end(), lane) -
                                          spatial_.begin())};
    }
    if (!usable()) return;  // one result: nothing to tile
    AddKnobs();
    const KnobAdder add = Adder();
    const std::vector<int64_t> places = {kKeep, kPerTile, kInline};
    for (const BlockInfo& block : before) {
      before_.push_back({AddKnob("place_" + block.name, places), PlainNest(block, target, add)});
    }
    for (const BlockInfo& block : behind) behind_.emplace_back(block, target, add);
  }
  bool usable() const { return !vector_axes_.empty(); }
  std::string name() const override { return "multi_level_tiling"; }

  bool Feasible(const Point& point) const override {
    for (const Stage& stage : before_) {
      if (!stage.nest.Feasible(*this, point)) return false;
      if (Value(point, stage.place) != kKeep && !stage.nest.Untouched(point)) return false;
      // Of padding, each row would be read under a condition of its own.
      if (Value(point, stage.place) == kInline && Read(point).squares) return false;
    }
    for (const PlainNest& nest : behind_) {
      if (!nest.Feasible(*this, point)) return false;
    }
    const Tile t = Read(point);
    int64_t rows = 1, body = 1;
    double waste = 1;
    bool ragged = false, outside = false;
    size_t outers = 0, mids = 0;
    for (size_t a = 0; a < extents_.size(); ++a) {
      const Axis& axis = t.axes[a];
      if (axis.inner > RoundUp(extents_[a], a == t.vector_axis ? t.lanes : 1)) return false;
      if (axis.mid > CeilDiv(extents_[a], axis.inner)) return false;
      if (a != t.vector_axis) rows *= axis.inner;
      waste *= static_cast<double>(axis.outer * axis.mid * axis.inner) /
               static_cast<double>(extents_[a]);
      ragged = ragged || axis.outer * axis.mid * axis.inner != extents_[a];
      outers += axis.outer > 1;
      mids += axis.mid > 1;
      outside = outside || axis.outer > 1 || axis.mid > 1;
    }
    for (const int64_t k : t.reduction) body *= k;
    const int64_t registers = rows * t.vectors + t.vectors + 1;
    if (registers > target_.machine.vector_registers || !outside) return false;
    if (rows * t.vectors * (t.unroll ? body : 1) > target_.machine.body_ops) return false;
    if (waste > target_.machine.searched_tile.waste) return false;
    // Knobs without effect stay at their first value, so that points and programs correspond.
    if (!ragged && t.peel) return false;
    if (body == 1 && t.unroll) return false;
    if (p_.dot.has_value() && !IsWhole(t, t.vector_axis)) return false;
    if (t.squares && !WholeSquares(t)) return false;
    if (mids < 2 && point.choices[mid_order_] != 0) return false;
    return t.fused_outers <=
           std::max<int64_t>(static_cast<int64_t>(outers), target_.threads > 1 ? 1 : 0);
  }

  absl::Status Apply(const Point& point, schedule::Schedule* s) const override {
    const Tile t = Read(point);
    StepMaker make(s);
    for (const Stage& stage : before_) {
      if (Value(point, stage.place) == kKeep) TW_TRY(stage.nest.Apply(*this, point, s));
      if (Value(point, stage.place) == kInline)
        make.Inline(s->BlockHandle(stage.nest.block().name));
    }
    for (const PlainNest& nest : behind_) TW_TRY(nest.Apply(*this, point, s));
    const int p = s->BlockHandle(p_.name);
    int o = -1;
    if (consumer_.empty()) {
      const std::vector<int> made = make.CacheWrite(p);
      TW_TRY(make.status());
      o = made[0];
    } else {
      o = s->BlockHandle(consumer_);
    }
    Levels levels = SplitConsumer(t, s->LoopsOf(o), &make);
    TW_TRY(make.status());
    const int anchor = OrderConsumer(t, &levels, &make);
    const std::vector<int> loops = make.ComputeAt(p, anchor);
    TW_TRY(make.status());
    if (!consumer_.empty()) make.SetScope(p, "local");
    TileProducer(t, p, loops, &make);
    TW_TRY(make.status());
    for (const int loop : levels.inner) make.Unroll(loop);
    if (levels.lanes >= 0) make.Vectorize(levels.lanes);
    for (const Stage& stage : before_) {
      if (Value(point, stage.place) != kPerTile) continue;
      const int outermost = s->LoopsOf(p).front();
      const std::vector<int> own =
          make.ComputeAt(s->BlockHandle(stage.nest.block().name), outermost);
      if (!own.empty()) VectorizeRows(own.back(), *s, &make);
    }
    return make.status();
  }

 private:
  // Where a stage in front of P is computed: once, for each outermost tile, or at each load.
  enum Place : int64_t { kKeep, kPerTile, kInline };
  struct Stage {
    size_t place;  // a knob
    PlainNest nest;
  };
  struct Axis {
    int64_t outer = 1, mid = 1, inner = 1;
  };
  struct Tile {
    std::vector<Axis> axes;
    size_t vector_axis = 0;
    int64_t lanes = 1, vectors = 1;
    std::vector<int64_t> reduction;  // inner extents
    bool unroll = false, peel = false;
    bool squares = false;  // the instruction for several rows of a dot product
    int64_t fused_outers = 0;
    const std::vector<size_t>* mid_order = nullptr;        // axes, outermost first
    const std::vector<size_t>* reduction_order = nullptr;  // reduction iterators, outermost first
  };
  // Handles of the consumer's loops by level; missing levels (extent 1) have none.
  struct Levels {
    std::vector<int> outer;
    std::vector<int> mid;    // by axis, -1 = none
    std::vector<int> inner;  // without the lanes
    int lanes = -1;
  };

  // Lanes along the innermost loop of a stage.
  void VectorizeRows(int loop, const schedule::Schedule& s, StepMaker* make) const {
    const int64_t* extent = ir::AsInt(s.StmtOf(loop)->range.extent);
    const int64_t lanes = target_.machine.vector_bytes / std::max(p_.writes->dtype.bytes(), 1);
    if (extent == nullptr || *extent < lanes) return;
    const std::vector<int> parts = make->Split(loop, {schedule::kInfer, lanes}, true);
    if (!parts.empty()) make->Vectorize(parts.back());
  }

  int64_t WholeVector() const {
    return target_.machine.vector_bytes / std::max(p_.writes->dtype.bytes(), 1);
  }

  // Only whole vectors are one instruction.
  void TakeDotProduct() {
    if (!p_.dot.has_value()) return;
    const int64_t extent = p_.iters[static_cast<size_t>(p_.dot->lane_axis)].extent;
    if (extent % WholeVector() != 0) p_.dot.reset();
  }

  // Where the machine has an instruction for several rows of the dot product, and groups of its
  // terms: along which axis (of `spatial_`) and which loop (of `reduce_`) they are.
  void TakeSquares() {
    if (!p_.dot.has_value() || p_.dot->group_axis < 0 || p_.dot->row_axes.empty()) return;
    squares_ = FindDotTile(*p_.dot, target_.machine);
    if (squares_.has_value() && squares_->columns != WholeVector()) squares_.reset();
    if (!squares_.has_value()) return;
    const auto row = static_cast<size_t>(p_.dot->row_axes.back());
    for (size_t i = 0; i < row; ++i) square_axis_ += p_.iters[i].reduce ? 0 : 1;
    for (int i = 0; i < p_.dot->group_axis; ++i) {
      square_group_ += p_.iters[static_cast<size_t>(i)].reduce ? 1 : 0;
    }
    squares_knob_ = AddKnob("squares", {0, 1});
  }

  // Whether the tiles of an axis cover it without a remainder.
  bool IsWhole(const Tile& t, size_t axis) const {
    const Axis& a = t.axes[axis];
    return a.outer * a.mid * a.inner == extents_[axis];
  }

  bool WholeSquares(const Tile& t) const {
    return IsWhole(t, square_axis_) && t.axes[square_axis_].inner % squares_->rows == 0 &&
           t.reduction[square_group_] % squares_->groups == 0 &&
           reduce_[square_group_] % t.reduction[square_group_] == 0;
  }

  // The iterator over the terms of a dot product.
  bool InsideOfLanes(size_t iter) const {
    return p_.dot.has_value() && iter + 1 == p_.iters.size();
  }

  static int64_t RoundUp(int64_t value, int64_t step) { return CeilDiv(value, step) * step; }

  void AddKnobs() {
    vector_axis_ = AddKnob("vector_axis", Iota(vector_axes_.size()));
    std::vector<int64_t> lanes;
    int64_t longest = 1;
    for (const size_t a : vector_axes_) longest = std::max(longest, extents_[a]);
    const int64_t narrowest = p_.dot.has_value() ? WholeVector() : 4;
    for (int64_t n = WholeVector(); n >= narrowest; n /= 2) {
      if (n < 2 * longest && lanes.size() < 3) lanes.push_back(n);
    }
    if (lanes.empty()) lanes.push_back(4);
    lanes_ = AddKnob("lanes", lanes);
    vectors_ = AddKnob("vectors", {1, 2, 3, 4, 5, 6, 8, 12});
    for (size_t a = 0; a < extents_.size(); ++a) {
      register_.push_back(AddKnob("register_" + p_.iters[spatial_[a]].name,
                                  TileMenu(extents_[a], target_.machine.searched_tile.rows)));
      std::vector<int64_t> mid;
      for (int64_t m = 1; m <= extents_[a]; m = m < 4 ? m + 1 : m * 2) mid.push_back(m);
      if (mid.back() != extents_[a]) mid.push_back(extents_[a]);
      mid_.push_back(AddKnob("cache_" + p_.iters[spatial_[a]].name, std::move(mid)));
    }
    for (size_t j = 0; j < reduce_.size(); ++j) {
      reduction_.push_back(AddKnob(support::StrCat("reduction_", j),
                                   TileMenu(reduce_[j], target_.machine.searched_tile.steps)));
    }
    unroll_ = AddKnob("unroll_reduction", {0, 1});
    peel_ = AddKnob("peel_tails", {0, 1});
    mid_orders_ = Permutations(extents_.size(), kMaxOrders);
    mid_order_ = AddKnob("cache_order", Iota(mid_orders_.size()));
    reduction_orders_ = Permutations(reduce_.size(), kMaxOrders);
    reduction_order_ = AddKnob("reduction_order", Iota(reduction_orders_.size()));
    std::vector<int64_t> fused;
    for (int64_t n = target_.threads > 1 ? 1 : 0;
         n <= (target_.threads > 1 ? static_cast<int64_t>(extents_.size()) : 0); ++n) {
      fused.push_back(n);
    }
    if (fused.empty()) fused.push_back(0);
    fused_outers_ = AddKnob("parallel_loops", fused);
    TakeSquares();
  }

  Tile Read(const Point& point) const {
    Tile t;
    t.vector_axis = vector_axes_[static_cast<size_t>(Value(point, vector_axis_))];
    t.lanes = Value(point, lanes_);
    t.vectors = Value(point, vectors_);
    for (size_t a = 0; a < extents_.size(); ++a) {
      Axis axis;
      axis.inner = a == t.vector_axis ? t.lanes * t.vectors : Value(point, register_[a]);
      axis.mid = Value(point, mid_[a]);
      axis.outer = CeilDiv(extents_[a], axis.mid * axis.inner);
      t.axes.push_back(axis);
    }
    for (const size_t knob : reduction_) t.reduction.push_back(Value(point, knob));
    t.unroll = Value(point, unroll_) != 0;
    t.squares = squares_.has_value() && Value(point, squares_knob_) != 0;
    t.peel = Value(point, peel_) != 0;
    t.fused_outers = Value(point, fused_outers_);
    t.mid_order = &mid_orders_[static_cast<size_t>(Value(point, mid_order_))];
    t.reduction_order = &reduction_orders_[static_cast<size_t>(Value(point, reduction_order_))];
    return t;
  }

  Levels SplitConsumer(const Tile& t, const std::vector<int>& loops, StepMaker* make) const {
    Levels levels;
    for (size_t a = 0; a < extents_.size() && a < loops.size(); ++a) {
      const Axis& axis = t.axes[a];
      const bool vector = a == t.vector_axis;
      std::vector<int64_t> factors;
      if (axis.outer > 1) factors.push_back(schedule::kInfer);
      if (axis.mid > 1) factors.push_back(axis.mid);
      const int64_t rows = vector ? t.vectors : axis.inner;
      if (rows > 1) factors.push_back(rows);
      if (vector) factors.push_back(t.lanes);
      std::vector<int> parts = {loops[a]};
      const bool exact =
          factors.size() == 1 && (factors[0] == extents_[a] || factors[0] == schedule::kInfer);
      if (!factors.empty() && !exact) parts = make->Split(loops[a], factors, t.peel);
      if (parts.size() < factors.size()) return levels;  // an error, kept by `make`
      size_t next = 0;
      if (axis.outer > 1) levels.outer.push_back(parts[next++]);
      levels.mid.push_back(axis.mid > 1 ? parts[next++] : -1);
      if (rows > 1) levels.inner.push_back(parts[next++]);
      if (vector) levels.lanes = parts[next++];
      // A loop of extent 1 belongs to the tile.
      if (factors.empty()) levels.inner.push_back(loops[a]);
    }
    return levels;
  }

  // Orders the levels, makes the outermost parallel; returns the loop that P is computed at.
  int OrderConsumer(const Tile& t, Levels* levels, StepMaker* make) const {
    std::vector<int> mids;
    for (const size_t a : *t.mid_order) {
      if (levels->mid[a] >= 0) mids.push_back(levels->mid[a]);
    }
    std::vector<int> order = levels->outer;
    order.insert(order.end(), mids.begin(), mids.end());
    order.insert(order.end(), levels->inner.begin(), levels->inner.end());
    if (levels->lanes >= 0) order.push_back(levels->lanes);
    make->Reorder(order);
    const size_t fused = std::min(static_cast<size_t>(t.fused_outers), levels->outer.size());
    int anchor = mids.empty() ? (levels->outer.empty() ? -1 : levels->outer.back()) : mids.back();
    if (fused > 0) {
      const bool anchor_is_fused = mids.empty() && fused == levels->outer.size();
      const int parallel = make->Fuse(
          {levels->outer.begin(), levels->outer.begin() + static_cast<std::ptrdiff_t>(fused)});
      make->Parallel(parallel);
      if (anchor_is_fused) anchor = parallel;
    }
    return anchor;
  }

  // Cuts `inside` iterations off a loop, which becomes the outer part; returns the inner one.
  static int CutInner(int64_t inside, int* loop, StepMaker* make) {
    const std::vector<int> parts = make->Split(*loop, {schedule::kInfer, inside}, false);
    if (parts.size() != 2) return -1;
    *loop = parts[0];
    return parts[1];
  }

  void TileProducer(const Tile& t, int p, const std::vector<int>& loops, StepMaker* make) const {
    std::vector<int> rows, reduce_loops, outer, inner;
    int lanes = -1, vectors = -1, terms = -1, square_row = -1, group = -1;
    for (size_t i = 0, a = 0; i < p_.iters.size(); ++i) {
      if (InsideOfLanes(i)) {
        terms = loops[i];
      } else if (p_.iters[i].reduce) {
        reduce_loops.push_back(loops[i]);
      } else if (a++ == t.vector_axis) {
        lanes = loops[i];
      } else {
        rows.push_back(loops[i]);
        if (t.squares && a - 1 == square_axis_) {
          square_row = CutInner(squares_->rows, &rows.back(), make);
        }
      }
    }
    if (t.vectors > 1) {
      const std::vector<int> parts = make->Split(lanes, {t.vectors, t.lanes}, false);
      if (parts.size() != 2) return;
      vectors = parts[0];
      lanes = parts[1];
    }
    for (const size_t j : *t.reduction_order) {
      const int64_t k = t.reduction[j];
      if (k == 1) {
        outer.push_back(reduce_loops[j]);
      } else if (k >= reduce_[j]) {
        inner.push_back(reduce_loops[j]);
      } else {
        const std::vector<int> parts = make->Split(reduce_loops[j], {schedule::kInfer, k}, t.peel);
        if (parts.size() != 2) return;
        outer.push_back(parts[0]);
        inner.push_back(parts[1]);
      }
      if (t.squares && j == square_group_) group = CutInner(squares_->groups, &inner.back(), make);
    }
    if (!make->status().ok()) return;
    std::vector<int> order = outer;
    order.insert(order.end(), inner.begin(), inner.end());
    const int first_reduction = order.empty() ? -1 : order[0];
    order.insert(order.end(), rows.begin(), rows.end());
    for (const int loop : {vectors, square_row, lanes, group, terms}) {
      if (loop >= 0) order.push_back(loop);
    }
    make->Reorder(order);
    const std::vector<int> init = make->DecomposeReduction(p, first_reduction);
    if (init.empty()) return;
    for (size_t i = 1; i + 1 < init.size(); ++i) make->Unroll(init[i]);
    if (init.size() > 1) make->Vectorize(init.back());
    for (const int loop : rows) make->Unroll(loop);
    if (vectors >= 0) make->Unroll(vectors);
    if (square_row >= 0) {
      make->Tensorize(square_row, squares_->intrinsic);
    } else if (terms >= 0) {
      make->Tensorize(lanes, support::StrCat(p_.dot->intrinsic, t.lanes));
    } else {
      make->Vectorize(lanes);
    }
    if (t.unroll) {
      for (const int loop : inner) make->Unroll(loop);
    }
  }

  BlockInfo p_;
  std::string consumer_;  // empty: cache_write makes the consumer
  std::vector<Stage> before_;
  std::vector<PlainNest> behind_;
  target::Target target_;
  std::vector<size_t> spatial_;   // P's iterators that are spatial
  std::vector<int64_t> extents_;  // of those
  std::vector<int64_t> reduce_;
  std::vector<size_t> vector_axes_;
  std::vector<std::vector<size_t>> mid_orders_, reduction_orders_;
  size_t vector_axis_ = 0, lanes_ = 0, vectors_ = 0, unroll_ = 0, peel_ = 0, mid_order_ = 0,
         reduction_order_ = 0, fused_outers_ = 0;
  std::vector<size_t> register_, mid_, reduction_;
  std::optional<DotTile> squares_;
  size_t squares_knob_ = 0, square_axis_ = 0, square_group_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Sketch>> MakeMultiLevelTiling(const ir::Function& function,
                                                          const target::Target& target) {
  const std::vector<BlockInfo> blocks = DescribeBlocks(function);
  std::vector<std::unique_ptr<Sketch>> out;
  const auto found = FindTiledReduction(blocks, kMaxTiledBlocks);
  if (!found.has_value()) return out;
  auto sketch = std::make_unique<TilingSketch>(found->reduction, found->consumer, found->before,
                                               found->behind, target);
  if (sketch->usable()) out.push_back(std::move(sketch));
  return out;
}

}  // namespace tilewright::space
