// nest_groups: stages that share outer loops, with a scan inside of them (attention with an online
// softmax), as one launch on devices of groups and threads that go in step. A group has one
// iteration of the shared loops, and each stage has all of its threads:
//   for nest (blockIdx.x) {
//     …; for t { for T threads: a copy of the block of keys
//                for T threads: x[4,4] = Σ …; s[4,4] = f(x)
//                for rows (threadIdx.x): largest[r] = max over s[r, …]; … } … }
// What a stage reads of the operands is copied by neighbouring threads; what it makes of tiles has
// a register tile in each thread; rows have a thread each. Between stages everything lies in shared
// memory, but what only tiles of one shape touch, which stays in the registers of its thread.
#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <set>

#include "compiler/ir/visit.h"
#include "compiler/schedule/loop_tree.h"
#include "compiler/space/rules/bound_nest.h"
#include "compiler/space/rules/rules.h"
#include "compiler/space/step_maker.h"

namespace tilewright::space {
namespace {

using schedule::BlockSite;

enum class Role : uint8_t { kFlat, kRows, kTile };

struct Stage {
  std::string block;
  Role role = Role::kRows;
  bool is_sum = false;
  std::vector<size_t> own = {};       // of the block's loops: its own spatial ones of several turns
  std::vector<int64_t> extents = {};  // of these
  ir::Buffer writes = nullptr;
  std::vector<ir::Buffer> reads = {};
  size_t along = 0;         // of a flat one: which of `own` moves along neighbours of the operand
  std::string reader = {};  // of a tile's sum: the tile that it is computed in
};

// How many of the outermost loops each of the blocks has.
size_t CommonLoops(const std::vector<BlockSite>& sites) {
  size_t common = sites[0].loops.size();
  for (const BlockSite& site : sites) {
    const auto end = std::ranges::mismatch(sites[0].loops, site.loops).in1;
    common = std::min(common, static_cast<size_t>(end - sites[0].loops.begin()));
  }
  return common;
}

// Whether another block is in the loop, too.
bool IsShared(const std::vector<BlockSite>& sites, const ir::Stmt& loop) {
  return std::ranges::count_if(sites, [&](const BlockSite& site) {
           return std::ranges::find(site.loops, loop) != site.loops.end();
         }) > 1;
}

// Whether the last index of an operand that the block reads or writes moves with the loop.
bool GoesAlong(const ir::StmtNode& block, const ir::Var& loop) {
  bool found = false;
  const auto look = [&](const ir::Buffer& buffer, const std::vector<ir::Expr>& indices) {
    if (buffer->role == ir::Role::kIntermediate || indices.empty()) return;
    for (const ir::IterVar& iter : block.iters) {
      found = found || (ir::UsesVar(iter.binding, loop) && ir::UsesVar(indices.back(), iter.var));
    }
  };
  ir::VisitExprsIn(block.body, [&](const ir::Expr& e) {
    if (e->kind == ir::ExprKind::kLoad) look(e->buffer, e->args);
    return true;
  });
  if (block.body->kind == ir::StmtKind::kStore) look(block.body->buffer, block.body->indices);
  return found;
}

std::optional<Stage> StageOf(const std::vector<BlockSite>& sites, const BlockSite& site) {
  const ir::StmtNode& block = *site.block;
  if (block.writes.size() != 1) return std::nullopt;
  Stage stage{
      .block = block.name, .is_sum = block.init != nullptr, .writes = block.writes[0].buffer};
  for (size_t i = 0; i < site.loops.size(); ++i) {
    if (IsShared(sites, site.loops[i])) continue;
    const int64_t* extent = ir::AsInt(site.loops[i]->range.extent);
    if (extent == nullptr) return std::nullopt;
    if (*extent == 1 || schedule::FeedsOf(block, site.loops[i]->var).reduce) continue;
    if (GoesAlong(block, site.loops[i]->var)) stage.along = stage.own.size();
    stage.own.push_back(i);
    stage.extents.push_back(*extent);
  }
  bool reads_operand = false, reads_stage = false;
  for (const ir::BufferRegion& read : block.reads) {
    stage.reads.push_back(read.buffer);
    (read.buffer->role == ir::Role::kIntermediate ? reads_stage : reads_operand) = true;
  }
  const bool gives_result = stage.writes->role != ir::Role::kIntermediate;
  if ((reads_operand && !reads_stage) || (gives_result && stage.own.size() == 3)) {
    stage.role = Role::kFlat;
  } else if (stage.own.size() == 2) {
    stage.role = Role::kTile;
  }
  const bool fits = stage.own.size() <= 2 || stage.role == Role::kFlat;
  return fits && !(stage.is_sum && stage.role == Role::kFlat) ? std::optional(stage) : std::nullopt;
}

class NestGroups final : public Sketch {
 public:
  NestGroups(const ir::Function& function, const target::Target& target)
      : limits_(target.machine.launch) {
    const std::vector<BlockSite> sites = schedule::BlocksIn(function.body);
    if (sites.size() < 3) return;
    shared_loops_ = CommonLoops(sites);
    if (shared_loops_ == 0) return;
    for (const BlockSite& site : sites) {
      std::optional<Stage> stage = StageOf(sites, site);
      if (!stage.has_value()) return;
      stages_.push_back(*std::move(stage));
    }
    for (Stage& stage : stages_) FindReader(sites, &stage);
    for (const Stage& stage : stages_) {
      if (stage.role == Role::kTile && stage.is_sum && stage.reader.empty()) return;
    }
    threads_ = AddKnob(
        "threads", {limits_.usual_threads, limits_.usual_threads / 2, 2 * limits_.usual_threads});
    lanes_ = AddKnob("lanes", {4, 2, 8, 1});
    if (!Feasible(Point{0, FirstChoices()})) knobs_.clear();
  }
  bool usable() const { return !knobs_.empty(); }
  std::string name() const override { return "nest_groups"; }
  std::optional<std::vector<int>> DefaultChoices() const override { return FirstChoices(); }

  bool Feasible(const Point& point) const override {
    const int64_t threads = Value(point, threads_), lanes = Value(point, lanes_);
    if (threads < 1 || threads > limits_.group_threads) return false;
    int64_t shared_bytes = 0, sums = 0;
    std::set<const ir::BufferNode*> seen;
    for (const Stage& stage : stages_) {
      int64_t elements = 1;
      for (const int64_t extent : stage.extents) elements *= extent;
      if (IsPadded(stage)) elements += stage.extents[0] * Vector(stage);
      if (stage.role == Role::kTile && stage.extents.back() % lanes != 0) return false;
      if (stage.role == Role::kRows && stage.own.size() == 1 && stage.extents[0] > threads)
        return false;
      if (stage.writes->role != ir::Role::kIntermediate) continue;
      if (!seen.insert(stage.writes.get()).second) continue;
      if (IsInRegisters(stage)) {
        sums += (elements + threads - 1) / threads;
      } else {
        shared_bytes += elements * stage.writes->dtype.bytes();
      }
    }
    return shared_bytes <= limits_.shared_bytes && sums <= limits_.registers;
  }

  absl::Status Apply(const Point& point, schedule::Schedule* s) const override {
    StepMaker make(s);
    const int64_t threads = Value(point, threads_), lanes = Value(point, lanes_);
    std::map<std::string, int> thread_of;  // the loop over threads of each tile
    std::vector<int> nest = s->LoopsOf(s->BlockHandle(stages_[0].block));
    nest.resize(shared_loops_);
    for (const Stage& stage : stages_) {
      if (!make.status().ok()) return make.status();
      const int block = s->BlockHandle(stage.block);
      const std::vector<int> all = s->LoopsOf(block);
      std::vector<int> own;
      for (const size_t i : stage.own) own.push_back(all[i]);
      if (stage.role == Role::kFlat) {
        Flat(stage, block, own, threads, &make);
      } else if (stage.role == Role::kRows) {
        if (!own.empty()) make.Bind(own[0], "threadIdx.x");
      } else if (!stage.is_sum) {
        thread_of[stage.block] = Tile(stage, own, threads, lanes, &make);
      }
    }
    for (const Stage& stage : stages_) {
      if (!make.status().ok()) return make.status();
      if (stage.role == Role::kTile && stage.is_sum)
        Sum(*s, stage, thread_of[stage.reader], lanes, &make);
    }
    std::set<const ir::BufferNode*> placed;
    for (const Stage& stage : stages_) {
      if (stage.writes->role != ir::Role::kIntermediate || !make.status().ok()) continue;
      if (placed.insert(stage.writes.get()).second)
        make.SetScope(s->BlockHandle(stage.block), IsInRegisters(stage) ? "local" : "shared");
    }
    make.Bind(make.Fuse(nest), "blockIdx.x");
    return make.status();
  }

 private:
  // Neighbouring threads have neighbours of the operand, vectors of them where they stay
  // neighbours.
  void Flat(const Stage& stage, int block, std::vector<int> own, int64_t threads,
            StepMaker* make) const {
    if (own.empty()) return;
    std::vector<int64_t> extents = stage.extents;
    const bool is_turned = stage.along + 1 < own.size();
    if (is_turned) {
      const auto turn = [&](auto* of) {
        std::rotate(of->begin() + static_cast<std::ptrdiff_t>(stage.along),
                    of->begin() + static_cast<std::ptrdiff_t>(stage.along) + 1, of->end());
      };
      turn(&own);
      turn(&extents);
      make->Reorder(own);
    }
    if (IsPadded(stage)) {
      make->StorageAlign(block, static_cast<int>(stage.writes->shape.size()) - 2,
                         limits_.shared_banks, Vector(stage));
    }
    const int64_t lanes = Vector(stage);
    if (IsPadded(stage) && !is_turned && extents[1] % lanes == 0) {
      const std::vector<int> parts = make->Split(own[1], {schedule::kInfer, lanes}, false);
      if (parts.size() != 2) return;
      make->Vectorize(parts[1]);
      own[1] = parts[0];
      extents[1] /= lanes;
    }
    int64_t elements = 1;
    for (const int64_t extent : extents) elements *= extent;
    int loop = make->Fuse(own);
    if (elements > threads) {
      const std::vector<int> parts =
          make->Split(loop, {schedule::kInfer, WholeThreads(extents, threads)}, false);
      if (parts.size() != 2) return;
      loop = parts[1];
    }
    make->Bind(loop, "threadIdx.x");
  }

  // Elements that one access of a thread moves at most.
  int64_t Vector(const Stage& stage) const {
    return limits_.load_bytes / stage.writes->dtype.bytes();
  }

  // Copies whose rows threads of a warp read side by side: a vector apart, they are in several
  // banks.
  static bool IsPadded(const Stage& stage) {
    return stage.role == Role::kFlat && stage.own.size() == 2 &&
           stage.writes->role == ir::Role::kIntermediate;
  }

  // Returns the loop over threads. Vectors lie along what is contiguous: the last loop, but in a
  // result that lies otherwise.
  int Tile(const Stage& stage, const std::vector<int>& own, int64_t threads, int64_t lanes,
           StepMaker* make) const {
    const int64_t across = std::min(threads, stage.extents[1] / lanes);
    const int64_t rows = stage.extents[0] / WholeThreads({stage.extents[0]}, threads / across);
    const std::vector<int> lane = make->Split(own[1], {schedule::kInfer, lanes}, false);
    const std::vector<int> row = make->Split(own[0], {schedule::kInfer, rows}, false);
    if (lane.size() != 2 || row.size() != 2) return -1;
    const bool turned = stage.writes->role != ir::Role::kIntermediate && stage.along == 0;
    const int inner = turned ? row[1] : lane[1], outer = turned ? lane[1] : row[1];
    const int64_t width = turned ? rows : lanes;
    make->Reorder({row[0], lane[0], outer, inner});
    const int thread = make->Fuse({row[0], lane[0]});
    make->Bind(thread, "threadIdx.x");
    if ((turned ? lanes : rows) > 1) make->Unroll(outer);
    const bool is_vector = width * stage.writes->dtype.bytes() <= limits_.load_bytes;
    if (width > 1)
      Lanes(inner, !is_vector || !std::has_single_bit(static_cast<uint64_t>(width)), make);
    return thread;
  }

  // Each element that is loaded serves the whole tile, whose sums stay in registers.
  static void Sum(const schedule::Schedule& s, const Stage& stage, int thread, int64_t lanes,
                  StepMaker* make) {
    const int block = s.BlockHandle(stage.block);
    const std::vector<int> loops = make->ComputeAt(block, thread);
    std::vector<int> order, tile;
    for (size_t i = 0; i < loops.size(); ++i) {
      const bool reduces = s.StmtOf(block)->iters[i].type == ir::IterType::kReduce;
      if (ir::IsInt(s.StmtOf(loops[i])->range.extent, 1)) continue;
      (reduces ? order : tile).push_back(loops[i]);
    }
    order.insert(order.end(), tile.begin(), tile.end());
    make->Reorder(order);
    for (const int loop : tile) Lanes(loop, loop != tile.back() || lanes == 1, make);
  }

  static void Lanes(int loop, bool one_by_one, StepMaker* make) {
    if (one_by_one) {
      make->Unroll(loop);
    } else {
      make->Vectorize(loop);
    }
  }

  // The tile right behind a sum that reads each of its results once, at its own iterators.
  void FindReader(const std::vector<BlockSite>& sites, Stage* stage) const {
    if (stage->role != Role::kTile || !stage->is_sum) return;
    for (size_t i = 0; i < sites.size(); ++i) {
      if (!schedule::Reads(*sites[i].block, stage->writes) || stages_[i].block == stage->block)
        continue;
      const bool fits = stages_[i].role == Role::kTile && !stages_[i].is_sum &&
                        stages_[i].extents == stage->extents && stage->reader.empty();
      stage->reader = fits ? stages_[i].block : "";
      if (!fits) return;
    }
  }

  // Whether only tiles of one shape touch it.
  bool IsInRegisters(const Stage& stage) const {
    if (stage.role != Role::kTile) return false;
    if (stage.is_sum) return true;
    bool is_carried = false;  // what has one writer is read by others
    for (const Stage& other : stages_) {
      const bool reads = std::ranges::find(other.reads, stage.writes) != other.reads.end();
      const bool writes = other.writes == stage.writes;
      if (!reads && !writes) continue;
      if (other.role != Role::kTile || other.is_sum || other.extents != stage.extents) return false;
      is_carried = is_carried || (writes && other.block != stage.block);
    }
    return is_carried;
  }

  const target::LaunchLimits limits_;
  size_t shared_loops_ = 0;
  std::vector<Stage> stages_;
  size_t threads_ = 0, lanes_ = 0;
};

}  // namespace

std::vector<std::unique_ptr<Sketch>> MakeNestGroups(const ir::Function& function,
                                                    const target::Target& target) {
  std::vector<std::unique_ptr<Sketch>> out;
  if (target.machine.launch.warp < 2) return out;
  auto sketch = std::make_unique<NestGroups>(function, target);
  if (sketch->usable() && FirstPointApplies(*sketch, function)) out.push_back(std::move(sketch));
  return out;
}

}  // namespace tilewright::space
