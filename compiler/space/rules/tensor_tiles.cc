// tensor_tiles: a product of matrices P, alone or followed by one element-wise block O over the
// same points, on machines whose warps multiply fragments (TensorOp::kMma):
//   for tiles (blockIdx.x):
//     for steps of the sum:
//       all threads fetch what the tile reads of A and of B into shared memory, in vectors
//       for warps (threadIdx.y), fragments of a step:
//         fragments of A and of B from shared memory; sums += A * B for each pair
//     for warps (threadIdx.y): O over the warp's sums, in registers
// The rows of what is shared lie apart, so that a warp's loads of fragments meet different banks.
// Where a group of four warps multiplies what is in shared memory (Fragments::reads_shared), a warp
// is such a group, and there are no fragments of A and B.
// With several versions of it, steps are fetched while those before them are used; by a unit next
// to the threads where the machine has one (FragmentUnit::bulk_copies).
//
// A group may do several tiles, one after the other, or its share of them. The sum may be cut into
// parts, whose results a second launch adds up, with O behind it: of all tiles, or only of those
// that would be the last wave, where most of the machine has nothing to do.
//
// Tiles divide extents that are multiples of a fragment's. Others are padded (pad_einsum) to whole
// tiles, with zeros in what is shared, as far as that adds no more than a quarter.
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "compiler/ir/tensor_intrinsics.h"
#include "compiler/schedule/loop_tree.h"
#include "compiler/space/block_info.h"
#include "compiler/space/lane_axes.h"
#include "compiler/space/rules/bound_nest.h"
#include "compiler/space/rules/rules.h"
#include "compiler/space/rules/tensor_product.h"
#include "compiler/space/rules/work_shares.h"
#include "compiler/space/step_maker.h"
#include "deploy/support/strings.h"

namespace tilewright::space {
namespace {

// Neighbours in a row of sums that a thread stores at a time.
constexpr int64_t kRun = 2;

class TensorTiles final : public Sketch {
 public:
  TensorTiles(BlockInfo block, TensorProduct product, std::string consumer,
              const target::Target& target)
      : p_(std::move(block)),
        product_(std::move(product)),
        consumer_(std::move(consumer)),
        limits_(target.machine.launch) {
    const Fragments& f = product_.fragments;
    const auto powers = [&](size_t iter, int64_t part, int64_t most) {
      std::vector<int64_t> menu = Menu(iter, part, most);
      std::erase_if(menu, [](int64_t n) { return (n & (n - 1)) != 0; });
      return menu;
    };
    warps_m_ = AddKnob("warps_rows", powers(product_.rows, f.rows, kMostWarps));
    warps_n_ = AddKnob("warps_columns", powers(product_.columns, f.columns, kMostWarps));
    rows_ = AddKnob("fragments_rows", Menu(product_.rows, f.rows, kMostFragments));
    columns_ = AddKnob("fragments_columns", Menu(product_.columns, f.columns, 2 * kMostFragments));
    steps_ = AddKnob("fragments_step", powers(product_.terms, f.terms, kMostSteps));
    stages_ = AddKnob("stages", {1, 2, 3, 4, 5});
    const bool bulk = f.reads_shared() && target.machine.fragments.bulk_copies &&
                      IsParameter(product_.a) && IsParameter(product_.b);
    if (bulk) bulk_ = AddKnob("bulk_copies", {0, 1});
    swap_groups_ = AddKnob("swap_groups", {0, 1});
    tiles_of_group_ = AddKnob("tiles_of_group", TilesOfGroupMenu(limits_, 8));
    parts_ = AddKnob("parts", PartsMenu(limits_, 8));
  }
  std::string name() const override {
    const Fragments& f = product_.fragments;
    return f.reads_shared() ? support::StrCat("tensor_tiles_", f.rows, "x", f.columns)
                            : "tensor_tiles";
  }

  bool Feasible(const Point& point) const override {
    const Tile t = Read(point);
    if (!Fits(product_.rows, t.f.rows, t.rows()) ||
        !Fits(product_.columns, t.f.columns, t.columns()) ||
        !Fits(product_.terms, t.f.terms, t.terms()) || t.threads() > limits_.group_threads) {
      return false;
    }
    // Knobs without effect stay at their first value, so that points and programs correspond.
    const bool one_group = Padded(product_.rows, t.f.rows, t.rows()) == t.rows() ||
                           Padded(product_.columns, t.f.columns, t.columns()) == t.columns();
    if (t.swap_groups && one_group) return false;
    const int64_t steps = Padded(product_.terms, t.f.terms, t.terms()) / t.terms();
    if (steps % t.parts != 0 || t.stages > steps / t.parts) return false;
    if (t.parts > 1 && Pads(t)) return false;
    if (t.bulk && (t.stages == 1 || Pads(t) || !FitsBox(t, product_.a, t.rows()) ||
                   !FitsBox(t, product_.b, t.columns()))) {
      return false;
    }
    if (t.last_wave && !CanDivide(t)) return false;
    if (Lanes(t, product_.a, t.rows()) == 0 || Lanes(t, product_.b, t.columns()) == 0) return false;
    const int64_t shared = SharedBytes(t);
    if (t.sums() > limits_.registers || shared > limits_.most_shared_bytes()) return false;
    // With fewer registers the compiler spills, and lets products wait for each other.
    if (limits_.unit_registers > 0 && Registers(t) * t.threads() > limits_.unit_registers)
      return false;
    return CanShareOut(Tiles(t), t.tiles_of_group, Groups(t)) &&
           IsFullEnough(limits_, limits_.group_threads, t.threads(), shared,
                        target::TileRegisters(t.sums(), Factors(t)));
  }

  absl::Status Apply(const Point& point, schedule::Schedule* s) const override {
    const Tile t = Read(point);
    StepMaker make(s);
    const int p = s->BlockHandle(p_.name);
    const Copies copies = Pad(t, p, &make);
    TW_TRY(make.status());
    const int o = consumer_.empty() ? copies.result : s->BlockHandle(consumer_);
    if (!consumer_.empty() && copies.result >= 0) make.Inline(copies.result);
    if (t.last_wave) {
      ApplyLastWave(t, p, o, *s, &make);
    } else if (t.parts > 1) {
      ApplyTiles(t, AddUp(t, p, o, Rows(), *s, &make), -1, copies, *s, &make);
    } else {
      ApplyTiles(t, p, o, copies, *s, &make);
    }
    return make.status();
  }

 private:
  static constexpr int64_t kMostWarps = 8, kMostFragments = 8, kMostSteps = 4;
  // Registers of a thread that copies while products of its factors in shared memory are under way.
  static constexpr int64_t kCopies = 32;
  static constexpr int64_t kRowBytes = 16;  // what a thread names of a fragment in shared memory
  // Most rows of a tile that is copied at once; bytes where a group notes which have come.
  static constexpr int64_t kMostBoxRows = 256, kNotes = 64;

  struct Tile {
    int64_t warps_m = 1, warps_n = 1, fragments_m = 1, fragments_n = 1, steps = 1;
    int64_t stages = 1, tiles_of_group = 1;
    int64_t parts = 1;       // of the sum
    bool last_wave = false;  // only that of the last wave's tiles
    bool swap_groups = false;
    bool bulk = false;  // a unit copies the tiles of factors
    Fragments f;
    int64_t rows() const { return warps_m * fragments_m * f.rows; }
    int64_t columns() const { return warps_n * fragments_n * f.columns; }
    int64_t terms() const { return steps * f.terms; }
    int64_t warps() const { return warps_m * warps_n; }
    int64_t threads() const { return warps() * f.threads; }
    // Registers of a thread.
    int64_t sums() const { return fragments_m * fragments_n * f.rows * f.columns / f.threads; }
  };
  // The blocks that fill padded operands and that take the result out of its padding; -1: none.
  struct Copies {
    int a = -1, b = -1, result = -1;
  };

  Tile Read(const Point& point) const {
    return {.warps_m = Value(point, warps_m_),
            .warps_n = Value(point, warps_n_),
            .fragments_m = Value(point, rows_),
            .fragments_n = Value(point, columns_),
            .steps = Value(point, steps_),
            .stages = Value(point, stages_),
            .tiles_of_group = Value(point, tiles_of_group_),
            .parts = PartsOf(Value(point, parts_)),
            .last_wave = Value(point, parts_) < 0,
            .swap_groups = Value(point, swap_groups_) != 0,
            .bulk = bulk_.has_value() && Value(point, *bulk_) != 0,
            .f = product_.fragments};
  }

  static bool IsParameter(const Operand& operand) {
    return operand.buffer->role != ir::Role::kIntermediate;
  }
  static bool FitsBox(const Tile& t, const Operand& operand, int64_t own) {
    return own * t.terms() / RowOf(t, operand, own) <= kMostBoxRows;
  }

  // Elements of a row of an operand's tile, which lies in memory as the operand does.
  static int64_t RowOf(const Tile& t, const Operand& operand, int64_t own) {
    return operand.inner() == operand.terms ? t.terms() : own;
  }
  // Most elements that one access fetches, so that all threads fetch as many; 0: none.
  int64_t Lanes(const Tile& t, const Operand& operand, int64_t own) const {
    int64_t lanes = limits_.load_bytes / operand.bytes();
    const auto fits = [&] {
      return RowOf(t, operand, own) % lanes == 0 && own * t.terms() % (t.threads() * lanes) == 0;
    };
    while (lanes > 0 && !fits()) lanes /= 2;
    return lanes;
  }
  // Rows begin `offset` elements behind multiples of `factor`: at odd multiples of what a thread
  // names. Terms that are rows of words are loaded word by word, eight of each of four rows, which
  // meet all banks.
  struct RowPlace {
    int64_t factor, offset;
  };
  static RowPlace PlaceOfRows(const Operand& operand) {
    if (operand.bytes() == 4 && operand.inner() != operand.terms) return {32, 8};
    return {2 * kRowBytes / operand.bytes(), kRowBytes / operand.bytes()};
  }
  static int64_t SharedBytes(const Tile& t, const Operand& operand, int64_t own) {
    const int64_t row = RowOf(t, operand, own);
    if (t.f.reads_shared()) return own * t.terms() * operand.bytes();
    const RowPlace place = PlaceOfRows(operand);
    const int64_t padded =
        row + ((place.offset - row) % place.factor + place.factor) % place.factor;
    return own * t.terms() / row * padded * operand.bytes();
  }

  int64_t SharedBytes(const Tile& t) const {
    const int64_t notes = t.bulk ? kNotes : 0;
    return (SharedBytes(t, product_.a, t.rows()) + SharedBytes(t, product_.b, t.columns())) *
               t.stages +
           notes;
  }
  // Registers of a thread: of its factors, and all that it needs.
  int64_t Factors(const Tile& t) const {
    if (t.f.reads_shared()) return 0;
    return (t.fragments_m * t.f.rows * product_.a.bytes() +
            t.fragments_n * t.f.columns * product_.b.bytes()) *
           t.f.terms / (4 * t.f.threads);
  }
  int64_t Registers(const Tile& t) const {
    const bool copies = t.f.reads_shared() && !t.bulk;
    return target::TileRegisters(t.sums(), Factors(t)) + (copies ? kCopies : 0);
  }
  int64_t Groups(const Tile& t) const {
    return GroupsAtOnce(limits_, t.threads(), SharedBytes(t), Registers(t));
  }

  // An extent that a tile of so many is made of: padded where the fragment does not divide it.
  int64_t Padded(size_t iter, int64_t part, int64_t tile) const {
    const int64_t extent = p_.iters[iter].extent;
    return extent % part == 0 ? extent : (extent + tile - 1) / tile * tile;
  }
  bool Fits(size_t iter, int64_t part, int64_t tile) const {
    const int64_t extent = p_.iters[iter].extent, padded = Padded(iter, part, tile);
    const int64_t least = (extent + part - 1) / part * part;
    return padded % tile == 0 && (padded == least || 4 * padded <= 5 * extent);
  }
  // Parts of a tile: divisors of the fragments, or any number where the extent is padded anyway.
  std::vector<int64_t> Menu(size_t iter, int64_t part, int64_t most) const {
    const int64_t extent = p_.iters[iter].extent;
    if (extent % part == 0) return Divisors(extent / part, 1, most);
    std::vector<int64_t> menu(static_cast<size_t>(std::min(most, (extent + part - 1) / part)));
    std::iota(menu.begin(), menu.end(), int64_t{1});
    return menu;
  }

  bool Pads(const Tile& t) const {
    const auto ragged = [&](size_t iter, int64_t part) {
      return p_.iters[iter].extent % part != 0;
    };
    return ragged(product_.rows, t.f.rows) || ragged(product_.columns, t.f.columns) ||
           ragged(product_.terms, t.f.terms);
  }
  int64_t Rows() const { return p_.iters[product_.rows].extent; }
  int64_t TileRows(const Tile& t) const {
    return Padded(product_.rows, t.f.rows, t.rows()) / t.rows();
  }
  int64_t TileColumns(const Tile& t) const {
    return Padded(product_.columns, t.f.columns, t.columns()) / t.columns();
  }
  // Tiles of the first launch: of all parts, or those in front of the last wave.
  int64_t Tiles(const Tile& t) const {
    if (t.last_wave) return WholeRows(t) * TileColumns(t);
    int64_t tiles = t.parts * TileRows(t) * TileColumns(t);
    for (size_t i = 0; i < product_.rows; ++i) tiles *= p_.iters[i].extent;
    return tiles;
  }
  int64_t WholeRows(const Tile& t) const {
    return WholeWaveRows(TileRows(t), TileColumns(t), Groups(t));
  }
  // Rows of tiles are divided, which are the outermost loop.
  bool CanDivide(const Tile& t) const {
    if (product_.rows != 0 || WholeRows(t) == 0 || t.tiles_of_group > 1) return false;
    // One row of tiles in each launch has one order only.
    return !t.swap_groups || WholeRows(t) > 1 || TileRows(t) > 2;
  }

  // The last wave's tiles have nests of their own, with their sums in parts.
  void ApplyLastWave(const Tile& t, int p, int o, const schedule::Schedule& s,
                     StepMaker* make) const {
    const int64_t first = WholeRows(t) * t.rows();
    const LastWave cut = CutLastWave(first, p, o, p_.iters.size(), s, make);
    if (cut.p < 0) return;
    Tile whole = t, rest = t;
    whole.parts = 1;
    rest.tiles_of_group = 1;
    make->Mark(ApplyTiles(whole, cut.p, cut.o, {}, s, make), "with_next");
    ApplyTiles(rest, AddUp(t, cut.p_rest, cut.o_rest, Rows() - first, s, make), -1, {}, s, make);
  }

  // A product P in tiles, with O behind it. Returns the loop over the tiles of a group.
  int ApplyTiles(const Tile& t, int p, int o, const Copies& copies, const schedule::Schedule& s,
                 StepMaker* make) const {
    if (!make->status().ok()) return -1;
    if (o < 0) {
      const std::vector<int> copy = make->CacheWrite(p);
      if (copy.empty()) return -1;
      o = copy[0];
    }
    make->SetScope(p, "wmma.acc");
    const auto read = [&](bool of_a, const char* scope) {
      const std::vector<int> copy = make->CacheRead(p, of_a == product_.a_first ? 0 : 1, scope);
      return copy.empty() ? -1 : copy[0];
    };
    const auto share = [&](bool of_a, int padded) {
      if (padded < 0) return read(of_a, "shared");
      make->SetScope(padded, "shared");
      return padded;
    };
    const int a_shared = share(true, copies.a), b_shared = share(false, copies.b);
    int a = -1, b = -1;  // fragments
    if (!t.f.reads_shared()) {
      a = read(true, "local"), b = read(false, "local");
      make->SetScope(a, "wmma.a");
      make->SetScope(b, "wmma.b");
    }
    if (!make->status().ok()) return -1;
    const Steps steps = TileProducer(t, s.LoopsOf(p), make);
    TileConsumer(t, o, steps.group, make);
    if (!make->status().ok()) return -1;
    make->Bind(make->Fuse(steps.warps), "threadIdx.y");
    if (!t.f.reads_shared()) {
      LoadFragments(a, steps.fragment, product_.a, t.f.rows, t.f.load_a, /*own_first=*/true, make);
      LoadFragments(b, steps.fragment, product_.b, t.f.columns, t.f.load_b, /*own_first=*/false,
                    make);
    }
    make->Tensorize(steps.product, t.f.product);
    Fetch(t, a_shared, steps.shared, product_.a, t.rows(), make);
    Fetch(t, b_shared, steps.shared, product_.b, t.columns(), make);
    if (t.stages > 1) make->PipelineAsync(steps.shared, {1, 1, t.stages});
    return steps.group;
  }

  // `rows`: of the result, where only the last ones are in parts.
  int AddUp(const Tile& t, int p, int o, int64_t rows, const schedule::Schedule& s,
            StepMaker* make) const {
    std::vector<int64_t> extents;
    for (const IterInfo& iter : p_.iters) {
      if (!iter.reduce) extents.push_back(iter.extent);
    }
    extents[product_.rows] = rows;
    return AddUpParts(t.parts, p, o, product_.terms, WholeThreads(extents, limits_.usual_threads),
                      {}, s, make);
  }

  Copies Pad(const Tile& t, int p, StepMaker* make) const {
    std::vector<int64_t> factors(p_.iters.size(), 1);
    const auto pads = [&](size_t iter, int64_t part, int64_t tile) {
      const bool ragged = p_.iters[iter].extent % part != 0;
      if (ragged) factors[iter] = tile;
      return ragged;
    };
    const bool rows = pads(product_.rows, t.f.rows, t.rows());
    const bool columns = pads(product_.columns, t.f.columns, t.columns());
    const bool terms = pads(product_.terms, t.f.terms, t.terms());
    Copies copies;
    if (!rows && !columns && !terms) return copies;
    const std::vector<int> made = make->PadEinsum(p, factors);
    size_t next = 0;  // each block is followed by its loops
    const auto take = [&](bool is, const ir::Buffer& buffer) {
      if (!is || next >= made.size()) return -1;
      const int block = made[next];
      next += 1 + buffer->shape.size();
      return block;
    };
    if (product_.a_first) copies.a = take(rows || terms, product_.a.buffer);
    copies.b = take(columns || terms, product_.b.buffer);
    if (!product_.a_first) copies.a = take(rows || terms, product_.a.buffer);
    copies.result = take(rows || columns, p_.writes);
    return copies;
  }

  struct Steps {
    int group = -1, shared = -1, fragment = -1, product = -1;  // loops
    std::vector<int> warps = {};
  };
  Steps TileProducer(const Tile& t, const std::vector<int>& loops, StepMaker* make) const {
    const Fragments& f = t.f;
    // Parts of the sum are a loop in front of its terms.
    const size_t behind = product_.terms + (t.parts > 1 ? 1 : 0);
    if (loops.size() != behind + 1) return {};
    const auto rows = make->Split(loops[product_.rows],
                                  {schedule::kInfer, t.warps_m, t.fragments_m, f.rows}, false);
    const auto columns = make->Split(
        loops[product_.columns], {schedule::kInfer, t.warps_n, t.fragments_n, f.columns}, false);
    const auto terms = make->Split(loops[behind], {schedule::kInfer, t.steps, f.terms}, false);
    if (rows.size() != 4 || columns.size() != 4 || terms.size() != 3) return {};
    std::vector<int> groups(loops.begin(),
                            loops.begin() + static_cast<std::ptrdiff_t>(product_.rows));
    if (t.parts > 1) groups.push_back(loops[product_.terms]);
    groups.push_back(t.swap_groups ? columns[0] : rows[0]);
    groups.push_back(t.swap_groups ? rows[0] : columns[0]);
    std::vector<int> order = groups;
    order.insert(order.end(), {terms[0], rows[1], columns[1], terms[1], rows[2], columns[2],
                               rows[3], columns[3], terms[2]});
    make->Reorder(order);
    const int group = BindGroups(make->Fuse(groups), t.tiles_of_group, Groups(t), make);
    return {group, terms[0], terms[1], rows[3], {rows[1], columns[1]}};
  }

  // What follows the product of a tile, on its sums.
  void TileConsumer(const Tile& t, int block, int group, StepMaker* make) const {
    const Fragments& f = t.f;
    const std::vector<int> loops = make->ReverseComputeAt(block, group);
    if (loops.size() < 2) return;
    const auto rows =
        make->Split(loops[loops.size() - 2], {t.warps_m, t.fragments_m, f.rows}, false);
    const auto columns =
        make->Split(loops.back(), {t.warps_n, t.fragments_n, f.columns / kRun, kRun}, false);
    if (rows.size() != 3 || columns.size() != 4) return;
    make->Reorder({rows[0], columns[0], rows[1], columns[1], rows[2], columns[2], columns[3]});
    make->Bind(make->Fuse({rows[0], columns[0]}), "threadIdx.y");
    make->Mark(rows[2], ir::kFragmentKey);
    make->Vectorize(columns[3]);
  }

  // The fragments of a step, one after the other.
  static void LoadFragments(int block, int at, const Operand& operand, int64_t extent,
                            const std::string& load, bool own_first, StepMaker* make) {
    const std::vector<int> loops = make->ComputeAt(block, at);
    if (loops.empty()) return;
    const auto own = make->Split(loops[operand.own], {schedule::kInfer, extent}, false);
    if (own.size() != 2) return;
    const int terms = loops[operand.terms];
    const int first = own_first ? own[1] : terms, second = own_first ? terms : own[1];
    make->Reorder({own[0], first, second});
    make->Tensorize(first, load);
  }

  // All threads of the group, each some vectors.
  void Fetch(const Tile& t, int block, int at, const Operand& operand, int64_t own,
             StepMaker* make) const {
    const std::vector<int> loops = make->ComputeAt(block, at);
    if (loops.empty()) return;
    if (t.bulk) return make->Mark(loops[operand.outer()], ir::kBulkCopyKey);
    const int64_t lanes = Lanes(t, operand, own);
    const auto parts =
        make->Split(make->Fuse(loops), {schedule::kInfer, t.warps(), t.f.threads, lanes}, false);
    if (parts.size() != 4) return;
    make->Reorder({parts[1], parts[2], parts[0], parts[3]});
    make->Bind(parts[1], "threadIdx.y");
    make->Bind(parts[2], "threadIdx.x");
    if (lanes > 1) make->Vectorize(parts[3]);
    if (t.f.reads_shared()) return;  // the code generator places what such products read
    const RowPlace place = PlaceOfRows(operand);
    make->StorageAlign(block, static_cast<int>(operand.outer()), place.factor, place.offset);
  }

  BlockInfo p_;
  TensorProduct product_;
  std::string consumer_;  // empty: cache_write makes the consumer
  const target::LaunchLimits limits_;
  size_t warps_m_ = 0, warps_n_ = 0, rows_ = 0, columns_ = 0, steps_ = 0, stages_ = 0,
         swap_groups_ = 0, tiles_of_group_ = 0, parts_ = 0;
  std::optional<size_t> bulk_;  // only where the machine has such copies
};

}  // namespace

std::vector<std::unique_ptr<Sketch>> MakeTensorTiles(const ir::Function& function,
                                                     const target::Target& target) {
  std::vector<std::unique_ptr<Sketch>> out;
  if (target.machine.fragments.half_products <= 0) return out;
  const std::vector<BlockInfo> blocks = DescribeBlocks(function);
  if (blocks.empty() || blocks.size() > 2 || !IsTileable(blocks[0])) return out;
  std::string consumer;
  if (blocks.size() == 2) {
    if (!FollowsPointwise(blocks[0], blocks[1])) return out;
    consumer = blocks[1].name;
  }
  const ir::StmtNode& block = *schedule::FindBlock(function.body, blocks[0].name).back();
  for (const TensorProduct& product : FindTensorProducts(block, target.machine)) {
    auto sketch = std::make_unique<TensorTiles>(blocks[0], product, consumer, target);
    // Whether P has other readers than its consumer, for example: the first point tells.
    if (FirstPointApplies(*sketch, function)) out.push_back(std::move(sketch));
  }
  return out;
}

}  // namespace tilewright::space
