// thread_tiles: one reduction block P, alone or followed by one element-wise block O over the same
// points, on devices of groups and threads. A group computes a tile of the result, each thread a
// part of it in registers:
//   for tiles (blockIdx.x):
//     for steps of the reduction:                    if anything comes through shared memory
//       all threads fetch what the tile reads of an operand, in vectors
//       for threads (threadIdx.x), terms of a step: register tile += ...
//     for threads (threadIdx.x): O over the register tile
// An operand that does not come through shared memory is read where it is; terms that are
// neighbours in it come in vectors, into registers. A group may do several tiles, one after the
// other. Where tiles are too few for the machine, sums may be cut into parts, whose results a
// second launch adds up, with O behind it: of all tiles, or of the last wave's. Parts lie as the
// result does, or so that neighbouring threads write neighbours. Stages in front of
// P (padding) are a launch of their own, fetched like an operand, or inlined. A thread's vectors
// are neighbours, or a group's width apart, one for each virtual thread, so that neighbouring
// threads touch neighbouring memory. Sums of products of four bytes may be dot products.
//
// What comes through shared memory may have two versions, so that a step is fetched while the one
// before it is used: half the barriers, twice the memory. Its rows may be padded, or turned (a
// swizzle, which needs no memory), so that threads which read a column do not wait for one bank; of
// channels in blocks, the blocks may lie apart.
//
// GPUs want many threads, narrow vectors and shared memory. Drivers for processors run the threads
// of a group one after the other and want few threads, wide vectors and seldom a barrier. The space
// holds both; measurements decide. Tiles divide their extents: a space of conditions is slower than
// any remainder is worth, and bound_default has the extents without divisors.
#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "compiler/ir/structural.h"
#include "compiler/schedule/loop_tree.h"
#include "compiler/space/rules/bound_nest.h"
#include "compiler/space/rules/rules.h"
#include "compiler/space/rules/thread_tile_loops.h"
#include "compiler/space/rules/tile_operands.h"
#include "compiler/space/rules/work_shares.h"
#include "compiler/space/step_maker.h"

namespace tilewright::space {
namespace {

constexpr int64_t kDotLanes = 4;  // the fewest of a tensor intrinsic for dot products
constexpr size_t kMaxBlocks = 6;
constexpr int64_t kMostParts = 64;

// What P reads through shared memory if a knob says so: an operand, or a stage in front of P.
struct Source {
  std::string buffer;
  std::string stage;  // that makes it; empty: an operand
  size_t knob;
  int64_t element_bytes;
  std::vector<ir::Range> region;  // that one instance of P reads
  bool terms_inside = false;      // neighbours in it are terms of P's innermost sum
};

class ThreadTiles final : public Sketch {
 public:
  ThreadTiles(BlockInfo producer, ir::Stmt block, std::string consumer,
              const std::vector<BlockInfo>& before, const std::vector<BlockInfo>& behind,
              const target::Target& target)
      : p_(std::move(producer)),
        block_(std::move(block)),
        consumer_(std::move(consumer)),
        machine_(target.machine),
        limits_(machine_.launch) {
    for (size_t i = 0; i < p_.iters.size(); ++i) {
      if (p_.iters[i].reduce) {
        reduce_.push_back(p_.iters[i].extent);
      } else {
        spatial_.push_back(i);
        extents_.push_back(p_.iters[i].extent);
      }
    }
    lane_axes_ = LaneAxes(p_, spatial_, extents_);
    if (lane_axes_.empty()) return;  // one result: no threads
    AddDotAxis();
    FindCut();
    AddTileKnobs();
    AddSources(before);
    const KnobAdder add = Adder();
    for (const BlockInfo& stage : before) before_.emplace_back(stage, target, add);
    for (const BlockInfo& stage : behind) behind_.emplace_back(stage, target, add);
  }
  bool usable() const { return !lane_axes_.empty(); }
  std::string name() const override { return "thread_tiles"; }

  bool Feasible(const Point& point) const override {
    const Tile t = Read(point);
    int64_t threads = 1, rows = 1, terms = 1;
    for (size_t a = 0; a < extents_.size(); ++a) {
      const bool lanes = a == t.lane_axis;
      if (extents_[a] % t.extent(a) != 0) return false;
      if (lanes && t.rows[a] != 1) return false;  // `vectors` says it
      threads *= t.threads[a];
      if (!lanes) rows *= t.rows[a];
    }
    if (threads > limits_.group_threads) return false;
    if (rows * t.vectors * t.lanes > limits_.registers) return false;
    if (t.dots && !FitsDots(t)) return false;
    if (t.held > 0 && (t.dots || t.steps.back() % 2 != 0)) return false;
    // Of a dot product the last reduction loop is inside the instruction.
    const size_t loops = reduce_.size() - (t.dots ? 1 : 0);
    if (loops == 0 && (t.unroll || t.staged)) return false;
    if (t.unroll) terms = t.steps[loops - 1];
    if (t.unroll && (terms == 1 || terms > machine_.short_reduction)) return false;
    if (rows * t.vectors * terms > machine_.searched_body_ops) return false;
    // Knobs without effect stay at their first value, so that points and programs correspond.
    if (t.virtual_threads && (t.vectors == 1 || t.threads[t.lane_axis] == 1)) return false;
    if (!t.staged && std::any_of(steps_.begin(), steps_.end(),
                                 [&](size_t knob) { return point.choices[knob] != 0; })) {
      return false;
    }
    for (size_t i = 0; i < before_.size(); ++i) {
      if (PlaceOf(point, before_[i]) != kOwnLaunch && !before_[i].Untouched(point)) return false;
    }
    if (t.double_buffer && !(t.staged && TermsOf(t, loops - 1) > t.steps[loops - 1])) return false;
    if (t.parts > 1 && !CanCut(point, t)) return false;
    if (t.parts_by_threads && !CanLieByThreads(t)) return false;
    if (t.padding != 0 && !t.rows_apart) return false;
    return t.shared_bytes() <= limits_.shared_bytes &&
           IsFullEnough(limits_, WholeThreads(extents_, limits_.group_threads), threads,
                        t.shared_bytes(), Registers(t)) &&
           CanShareOut(Tiles(t), t.tiles_of_group, Groups(t));
  }

  absl::Status Apply(const Point& point, schedule::Schedule* s) const override {
    const Tile t = Read(point);
    StepMaker make(s);
    for (const BoundNest& stage : before_) {
      if (PlaceOf(point, stage) == kOwnLaunch) stage.Apply(*this, point, *s, &make);
      if (PlaceOf(point, stage) == kInlined) make.Inline(s->BlockHandle(stage.block().name));
    }
    for (const BoundNest& stage : behind_) stage.Apply(*this, point, *s, &make);
    TW_TRY(make.status());
    const int p = s->BlockHandle(p_.name);
    const int o = consumer_.empty() ? -1 : s->BlockHandle(consumer_);
    if (t.last_wave) {
      ApplyLastWave(point, t, p, o, *s, &make);
    } else if (t.parts > 1) {
      ApplyTiles(point, t, AddUp(t, p, o, extents_[0], *s, &make), -1, *s, &make);
    } else {
      ApplyTiles(point, t, p, o, *s, &make);
    }
    return make.status();
  }

 private:
  // Where a stage in front of P is computed; of an operand, kOwnLaunch: read where it is.
  enum Place : int64_t { kOwnLaunch, kShared, kInlined, kRegisters };
  using Tile = ThreadTile;

  // The last wave's tiles have nests of their own, with their sums in parts.
  void ApplyLastWave(const Point& point, const Tile& t, int p, int o, const schedule::Schedule& s,
                     StepMaker* make) const {
    const int64_t first = WholeRows(t) * t.extent(0);
    const LastWave cut = CutLastWave(first, p, o, p_.iters.size(), s, make);
    if (cut.p < 0) return;
    Tile whole = t, rest = t;
    whole.parts = 1;
    rest.tiles_of_group = 1;
    make->Mark(ApplyTiles(point, whole, cut.p, cut.o, s, make), "with_next");
    const int64_t rows = extents_[0] - first;
    ApplyTiles(point, rest, AddUp(t, cut.p_rest, cut.o_rest, rows, s, make), -1, s, make);
  }

  // `rows`: of the first axis, where only the last ones are in parts.
  int AddUp(const Tile& t, int p, int o, int64_t rows, const schedule::Schedule& s,
            StepMaker* make) const {
    std::vector<int64_t> extents = extents_;
    extents[0] = rows;
    return AddUpParts(t.parts, p, o, ReduceIters()[cut_],
                      WholeThreads(extents, limits_.usual_threads),
                      t.parts_by_threads ? ThreadOrder(t) : std::vector<AxisDigit>(), s, make);
  }

  // P in tiles, with O behind it (-1: a copy of the result). Returns the loop over the tiles of a
  // group.
  int ApplyTiles(const Point& point, const Tile& t, int p, int o, const schedule::Schedule& s,
                 StepMaker* make) const {
    if (!make->status().ok()) return -1;
    std::vector<std::pair<int, const Source*>> fetched;
    std::vector<int> held;
    for (const Source& source : sources_) {
      const int64_t place = Value(point, source.knob);
      if (place == kShared && !source.stage.empty()) {
        fetched.emplace_back(s.BlockHandle(source.stage), &source);
        make->SetScope(fetched.back().first, "shared");
      } else if (place == kShared || place == kRegisters) {
        const std::vector<int> copy = make->CacheRead(p, ReadIndex(s, p, source.buffer),
                                                      place == kShared ? "shared" : "local");
        if (copy.empty()) return -1;
        if (place == kShared) fetched.emplace_back(copy[0], &source);
        if (place == kRegisters) held.push_back(copy[0]);
      }
    }
    const bool copies = o < 0;
    if (copies) {
      const std::vector<int> copy = make->CacheWrite(p);
      if (copy.empty()) return -1;
      o = copy[0];
    }
    const int group = TileConsumer(t, s.LoopsOf(o), Groups(t), make);
    if (!make->status().ok()) return -1;
    const std::vector<int> loops = make->ComputeAt(p, group);
    if (loops.empty()) return -1;
    if (!copies) make->SetScope(p, "local");
    const SumLoops producer = TileProducer(t, loops, make);
    if (!make->status().ok()) return -1;
    for (const int block : held)
      HoldInRegisters(block, producer.outer_term, limits_.load_bytes, s, make);
    for (const auto& [block, source] : fetched) {
      FetchByThreads(block, producer.step, t.group(), FetchLanes(*source), s, make);
      if (t.double_buffer) make->DoubleBuffer(block);
      RowsOf(t, *source).Place(block, make);
    }
    if (t.parts_by_threads) make->TransformLayout(o, PartsLayout(ThreadOrder(t)));
    return group;
  }

  // Lanes of dot products run along their axis only.
  void AddDotAxis() {
    if (!p_.dot.has_value() || p_.dot->data.is_float()) return p_.dot.reset();
    const auto at = std::find(spatial_.begin(), spatial_.end(), DotLaneIter());
    dot_axis_ = static_cast<size_t>(at - spatial_.begin());
    if (std::find(lane_axes_.begin(), lane_axes_.end(), dot_axis_) == lane_axes_.end())
      lane_axes_.push_back(dot_axis_);
  }
  // Sums are cut along their longest loop, other reductions are not. Machines whose threads run one
  // after the other have few units, which few tiles fill.
  void FindCut() {
    const ir::Expr& value = block_->body->value;
    const ir::Stmt& init = block_->init;
    const bool sums = limits_.warp > 1 && block_->body->kind == ir::StmtKind::kStore &&
                      value->kind == ir::ExprKind::kAdd && init->kind == ir::StmtKind::kStore &&
                      ir::StructuralEqual(init->value, ir::Zero(value->dtype));
    const size_t loops = reduce_.size() - (p_.dot.has_value() ? 1 : 0);
    parts_menu_ = {1};
    if (!sums || loops == 0) return;
    const auto longest =
        std::max_element(reduce_.begin(), reduce_.begin() + static_cast<std::ptrdiff_t>(loops));
    cut_ = static_cast<size_t>(longest - reduce_.begin());
    parts_menu_ = PartsMenu(limits_, kMostParts);
    std::erase_if(parts_menu_, [&](int64_t parts) {
      return *longest % PartsOf(parts) != 0 || (parts != 1 && *longest == PartsOf(parts));
    });
  }
  // Terms of a part of the sum along its j-th loop.
  int64_t TermsOf(const Tile& t, size_t j) const {
    return j == cut_ ? reduce_[j] / t.parts : reduce_[j];
  }
  // All sums are in parts where tiles of whole ones are less than a wave. Else rows of tiles are
  // divided, which are the outermost loop, of blocks that nobody else uses.
  bool CanCut(const Point& point, const Tile& t) const {
    if (TermsOf(t, cut_) % t.steps[cut_] != 0) return false;
    if (!t.last_wave) return Tiles(t) < t.parts * Groups(t);
    const bool shares_stage =
        std::any_of(sources_.begin(), sources_.end(), [&](const Source& source) {
          return !source.stage.empty() && Value(point, source.knob) == kShared;
        });
    return !shares_stage && behind_.empty() && p_.identity_store && spatial_[0] == 0 &&
           WholeRows(t) > 0 && t.tiles_of_group <= 1 &&
           (!t.swap_groups || WholeRows(t) > 1 || extents_[0] / t.extent(0) > 2);
  }
  // Of all tiles alike, where neighbouring threads do not write neighbours anyway.
  bool CanLieByThreads(const Tile& t) const {
    if (t.parts == 1 || t.last_wave || !p_.identity_store || t.group() == 1) return false;
    const std::vector<AxisDigit> order = ThreadOrder(t);
    const std::span written = std::span(order).last(t.lanes > 1 ? 2 : 1);  // threads, lanes
    return written.back().axis + 1 != extents_.size() || written.back().div > 1 ||
           written.front().axis + 1 != extents_.size() || written.front().div > t.lanes;
  }
  size_t DotLaneIter() const { return static_cast<size_t>(p_.dot->lane_axis); }

  bool FitsDots(const Tile& t) const {
    return t.lane_axis == dot_axis_ && t.lanes >= kDotLanes && t.steps.back() == reduce_.back();
  }

  void AddTileKnobs() {
    std::vector<int64_t> axes(lane_axes_.size());
    std::iota(axes.begin(), axes.end(), int64_t{0});
    lane_axis_ = AddKnob("lane_axis", axes);
    lanes_ = AddKnob("lanes", {1, 2, 4, 8, 16});
    vectors_ = AddKnob("vectors", {1, 2, 3, 4, 6, 8});
    for (size_t a = 0; a < extents_.size(); ++a) {
      const std::string& name = p_.iters[spatial_[a]].name;
      threads_.push_back(
          AddKnob("threads_" + name, Divisors(extents_[a], 1, limits_.usual_threads)));
      rows_.push_back(
          AddKnob("rows_" + name, Divisors(extents_[a], 1, machine_.searched_tile.rows)));
    }
    for (const size_t i : ReduceIters()) {
      steps_.push_back(AddKnob("step_" + p_.iters[i].name,
                               Divisors(p_.iters[i].extent, 1, machine_.searched_tile.steps)));
    }
    unroll_ = AddKnob("unroll", {0, 1});
    virtual_threads_ = AddKnob("virtual_threads", {0, 1});
    dots_ =
        AddKnob("dots", p_.dot.has_value() ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0});
    swap_groups_ = AddKnob("swap_groups", {0, 1});
    const bool last = lane_axes_.size() > 1 || lane_axes_[0] + 1 != extents_.size();
    last_axis_inside_ =
        AddKnob("last_axis_inside", last ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0});
    double_buffer_ = AddKnob("double_buffer", {0, 1});
    padding_ = AddKnob("row_padding", {0, 1, 4, kSwizzled, kBlocksApart});
    tiles_of_group_ = AddKnob("tiles_of_group", TilesOfGroupMenu(limits_, 4));
    parts_ = AddKnob("parts", parts_menu_);
    if (parts_menu_.size() > 1) parts_by_threads_ = AddKnob("parts_by_threads", {0, 1});
  }

  // One knob for each buffer that P reads and that somebody may fetch.
  void AddSources(const std::vector<BlockInfo>& before) {
    for (const ir::BufferRegion& read : block_->reads) {
      if (read.buffer == p_.writes) continue;
      const bool seen = std::any_of(sources_.begin(), sources_.end(), [&](const Source& source) {
        return source.buffer == read.buffer->name;
      });
      if (seen) continue;
      const auto stage = std::find_if(before.begin(), before.end(), [&](const BlockInfo& block) {
        return block.writes == read.buffer;
      });
      const bool made = stage != before.end();
      const bool given = read.buffer->role != ir::Role::kIntermediate;
      if (!made && !given) continue;
      const bool terms = !made && HasTermsInside(read);
      std::vector<int64_t> menu = {terms ? kRegisters : kOwnLaunch, kShared};
      if (made) menu.push_back(kInlined);
      const size_t knob = AddKnob((made ? "place_" : "fetch_") + read.buffer->name, menu);
      sources_.push_back({read.buffer->name, made ? stage->name : "", knob,
                          read.buffer->dtype.bytes(), read.region, terms});
    }
  }

  // Whether the last index is the innermost of several loops of the sum: its terms are a vector.
  // Threads in step that read them one by one would touch the same memory again and again.
  bool HasTermsInside(const ir::BufferRegion& read) const {
    const std::vector<size_t> terms = ReduceIters();
    return limits_.warp > 1 && terms.size() > 1 && reduce_.back() % 2 == 0 &&
           !read.region.empty() && read.region.back().min == block_->iters[terms.back()].var &&
           ir::IsInt(read.region.back().extent, 1);
  }

  std::vector<size_t> ReduceIters() const {
    std::vector<size_t> out;
    for (size_t i = 0; i < p_.iters.size(); ++i) {
      if (p_.iters[i].reduce) out.push_back(i);
    }
    return out;
  }

  int64_t PlaceOf(const Point& point, const BoundNest& stage) const {
    for (const Source& source : sources_) {
      if (source.stage == stage.block().name) return Value(point, source.knob);
    }
    return kOwnLaunch;
  }

  Tile Read(const Point& point) const {
    Tile t;
    t.lane_axis = lane_axes_[static_cast<size_t>(Value(point, lane_axis_))];
    t.lanes = Value(point, lanes_);
    t.vectors = Value(point, vectors_);
    for (const size_t knob : threads_) t.threads.push_back(Value(point, knob));
    for (const size_t knob : rows_) t.rows.push_back(Value(point, knob));
    t.unroll = Value(point, unroll_) != 0;
    t.virtual_threads = Value(point, virtual_threads_) != 0;
    t.dots = Value(point, dots_) != 0;
    t.swap_groups = Value(point, swap_groups_) != 0;
    t.last_axis_inside = Value(point, last_axis_inside_) != 0;
    t.staged = std::any_of(sources_.begin(), sources_.end(), [&](const Source& source) {
      return Value(point, source.knob) == kShared;
    });
    t.parts = PartsOf(Value(point, parts_));
    t.last_wave = Value(point, parts_) < 0;
    t.parts_by_threads = parts_by_threads_.has_value() && Value(point, *parts_by_threads_) != 0;
    for (size_t j = 0; j < reduce_.size(); ++j)
      t.steps.push_back(t.staged ? Value(point, steps_[j]) : TermsOf(t, j));
    t.double_buffer = Value(point, double_buffer_) != 0;
    t.padding = Value(point, padding_);
    t.tiles_of_group = Value(point, tiles_of_group_);
    for (const Source& source : sources_) {
      if (Value(point, source.knob) == kRegisters) t.held += t.steps.back();
      if (Value(point, source.knob) != kShared) continue;
      const SharedRows rows = RowsOf(t, source);
      t.rows_apart = t.rows_apart || rows.apart();
      t.staged_bytes += rows.bytes();
    }
    return t;
  }

  // Of a thread.
  int64_t Registers(const Tile& t) const {
    int64_t rows = 1;
    for (size_t a = 0; a < extents_.size(); ++a) {
      if (a != t.lane_axis) rows *= t.rows[a];
    }
    const int64_t wide = t.vectors * t.lanes;
    return target::TileRegisters(rows * wide, rows + wide + rows * t.held);
  }
  int64_t Groups(const Tile& t) const {
    return GroupsAtOnce(limits_, t.group(), t.shared_bytes(), Registers(t));
  }

  // Tiles of the first launch: of all parts, or those in front of the last wave.
  int64_t Tiles(const Tile& t) const {
    if (t.last_wave) return WholeRows(t) * TilesInRow(t);
    return t.parts * TilesInRow(t) * (extents_[0] / t.extent(0));
  }
  int64_t TilesInRow(const Tile& t) const {
    int64_t tiles = 1;
    for (size_t a = 1; a < extents_.size(); ++a) tiles *= extents_[a] / t.extent(a);
    return tiles;
  }
  int64_t WholeRows(const Tile& t) const {
    return WholeWaveRows(extents_[0] / t.extent(0), TilesInRow(t), Groups(t));
  }

  // Most elements that one access of a thread fetches.
  int64_t FetchLanes(const Source& source) const {
    return std::max<int64_t>(1, limits_.load_bytes / source.element_bytes);
  }
  // What a group reads of a source in one step, in shared memory. Vectors of what is fetched, and
  // of what a thread reads, stay whole. Dot products take no turned rows.
  SharedRows RowsOf(const Tile& t, const Source& source) const {
    std::vector<int64_t> tile;
    for (size_t i = 0, a = 0, j = 0; i < p_.iters.size(); ++i) {
      if (p_.iters[i].reduce) {
        tile.push_back(t.steps[j++]);
      } else {
        tile.push_back(t.extent(a++));
      }
    }
    return SharedRows(BoxOf(p_, *block_, source.region, tile), source.element_bytes,
                      t.dots && t.padding == kSwizzled ? 0 : t.padding,
                      std::max(t.lanes, FetchLanes(source)), limits_);
  }

  // The nest of P within a group. `loops`: one for each iterator. Sums in parts have the part, then
  // spatial ones, then others.
  SumLoops TileProducer(const Tile& t, const std::vector<int>& loops, StepMaker* make) const {
    const bool cut = t.parts > 1;
    const std::vector<size_t> reduce = ReduceIters();
    std::vector<int> axes, terms;
    for (size_t a = 0; a < spatial_.size(); ++a) axes.push_back(loops[cut ? 1 + a : spatial_[a]]);
    for (size_t j = 0; j < reduce.size(); ++j)
      terms.push_back(loops[cut ? 1 + spatial_.size() + j : reduce[j]]);
    return TileSums(t, axes, terms, p_.dot.has_value() ? std::string(p_.dot->intrinsic) : "", make);
  }

  BlockInfo p_;
  ir::Stmt block_;        // P
  std::string consumer_;  // empty: cache_write makes the consumer
  const target::Machine machine_;
  const target::LaunchLimits& limits_;
  std::vector<BoundNest> before_, behind_;
  std::vector<Source> sources_;
  std::vector<size_t> spatial_;   // P's iterators that are spatial
  std::vector<int64_t> extents_;  // of those
  std::vector<int64_t> reduce_;
  std::vector<size_t> lane_axes_;
  size_t lane_axis_ = 0, lanes_ = 0, vectors_ = 0, unroll_ = 0, virtual_threads_ = 0,
         swap_groups_ = 0, last_axis_inside_ = 0, double_buffer_ = 0, padding_ = 0, dots_ = 0,
         dot_axis_ = 0, tiles_of_group_ = 0, parts_ = 0;
  std::vector<size_t> threads_, rows_, steps_;
  size_t cut_ = 0;                          // the reduction loop that parts are made of
  std::optional<size_t> parts_by_threads_;  // where there are parts
  std::vector<int64_t> parts_menu_;
};

}  // namespace

std::vector<std::unique_ptr<Sketch>> MakeThreadTiles(const ir::Function& function,
                                                     const target::Target& target) {
  const std::vector<BlockInfo> blocks = DescribeBlocks(function);
  std::vector<std::unique_ptr<Sketch>> out;
  const auto found = FindTiledReduction(blocks, kMaxBlocks);
  if (!found.has_value()) return out;
  const auto binds = [](const BlockInfo& block) { return BoundNest::Fits(block); };
  if (!std::all_of(found->before.begin(), found->before.end(), binds) ||
      !std::all_of(found->behind.begin(), found->behind.end(), binds)) {
    return out;
  }
  auto sketch = std::make_unique<ThreadTiles>(
      found->reduction, schedule::FindBlock(function.body, found->reduction.name).back(),
      found->consumer, found->before, found->behind, target);
  if (!sketch->usable()) return out;
  // Whether P has other readers than its consumer, for example: the first point tells.
  if (FirstPointApplies(*sketch, function)) out.push_back(std::move(sketch));
  return out;
}

}  // namespace tilewright::space
