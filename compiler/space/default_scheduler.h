// The default schedule's parts, for default_*.cc only. One owner.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/schedule/loop_tree.h"
#include "compiler/schedule/schedule.h"
#include "compiler/space/default_schedule.h"
#include "compiler/space/dot_product.h"
#include "compiler/space/field_sums.h"
#include "compiler/space/lane_axes.h"
#include "compiler/space/matrix_tiles.h"
#include "compiler/space/space.h"
#include "compiler/space/trace.h"

namespace tilewright::space {

using schedule::BlocksIn;
using schedule::BlockSite;
using schedule::kInfer;
using schedule::Reads;
using schedule::Schedule;
using schedule::Step;
using schedule::StepKind;
using schedule::Steps;

using SketchMaker = std::vector<std::unique_ptr<Sketch>>(const ir::Function&,
                                                         const target::Target&);

// Steps that a block takes for each of its results; 1 where it reduces nothing.
int64_t ReductionSteps(const ir::StmtNode& block);
// Steps that it takes for all of them.
int64_t WorkOf(const ir::StmtNode& block);

class DefaultScheduler {
 public:
  // With a trace, says in it what is decided and what is refused.
  DefaultScheduler(Schedule* schedule, const target::Target& target, const Choices& choices,
                   Trace* trace = nullptr, const Sizes& typical = {})
      : schedule_(*schedule),
        target_(target),
        choices_(choices),
        trace_(trace),
        typical_(typical) {}

  void Run();
  // The same for a device of groups and threads.
  void RunBound();
  // The same for a matrix unit. A function of another form gets no steps.
  void RunMatrix();

 private:
  std::vector<int> SplitTile(const BlockChoice& choice, std::vector<int>* loops);
  int BindResults(const std::string& name, const BlockChoice& choice);
  std::string PackByteRows(const std::string& name, int64_t* vectors);
  std::string SumInParts(const std::string& name);
  void BindReduction(const std::string& name);
  // Applies a step that may be refused; false, and a line of the trace, if it is.
  bool Try(Step step);
  // While it lives, decisions and refusals are those of `rule` about `block`.
  class Within {
   public:
    Within(DefaultScheduler* scheduler, std::string_view rule, std::string block);
    ~Within();
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

   private:
    DefaultScheduler& scheduler_;
    std::string_view rule_;
    std::string block_;
  };
  bool explains() const { return trace_ != nullptr; }
  // REQUIRES: explains(). The texts cost time, and searches make defaults by the thousand.
  void Decide(std::string decision, std::string reason = "") const {
    trace_->Decide(block_, rule_, std::move(decision), std::move(reason));
  }
  ir::Stmt BlockOf(std::string_view name) const {
    return schedule_.StmtOf(schedule_.BlockHandle(name));
  }
  const BlockChoice& ChoiceOf(std::string_view name) const {
    static const BlockChoice kOwn;
    const auto it = choices_.find(name);
    return it == choices_.end() ? kOwn : it->second;
  }
  bool IsDone(const std::string& name) const {
    return std::find(done_.begin(), done_.end(), name) != done_.end();
  }

  // Of RunMatrix: the blocks that fill the unit's memories.
  struct MatrixCopy {
    std::string block;
    std::string_view memory;
  };
  struct MatrixCopies {
    std::string inputs, weights;       // of the product
    std::vector<MatrixCopy> operands;  // that stages read
  };
  std::string MatrixWord(std::string_view part) const;
  bool CacheOperand(const std::string& block, int read, std::string_view memory, std::string* copy);
  bool CacheMatrixProduct(const MatrixProblem& problem, MatrixCopies* copies);
  bool CacheMatrixOperands(const MatrixProblem& problem, MatrixCopies* copies);
  int TileMatrixResult(const MatrixProblem& problem, const MatrixTile& tile);
  int LanesOf(const std::vector<int>& loops, bool image);
  bool PlaceMatrixStage(const std::string& name, int at, bool image);
  bool PlaceMatrixProduct(const MatrixProblem& problem, const MatrixTile& tile, int at,
                          const MatrixCopies& copies);
  // The maxima of windows, or false if a step was refused.
  bool PlaceMatrixPool(const MatrixProblem& problem, const std::string& inputs, int at);
  void RunMatrixPool(const MatrixProblem& problem, const MatrixTile& tile);
  bool PlaceMatrixLoad(const std::string& name, int at, std::string_view memory, bool image);
  void InlineCheapStages();
  // Whether a stage makes a number for each row with a division or a call, and the blocks are to be
  // placed in the rows: inlined, it would be computed for every vector of the row.
  bool MakesRowNumber(const ir::StmtNode& block) const;
  // Whether every product has operands of its own, as those of a depthwise convolution's windows.
  bool HasOwnWindows(const ir::StmtNode& reduction) const;
  // Whether all steps of a reduction may be written out.
  bool IsShort(const ir::StmtNode& reduction) const;
  bool FeedsFromReduction(const ir::StmtNode& block) const;
  std::optional<std::string> EpilogueOf(const ir::StmtNode& reduction) const;
  // Which of a reduction's spatial iterators get lanes, rows and planes (positions in `spatial`,
  // -1 = none).
  struct Plan {
    std::vector<size_t> spatial;  // indices into the block's iterators
    int vector_at = -1, row_at = -1, plane_at = -1;
    std::vector<bool> moves_lanes;  // per spatial iterator
    int64_t width = 1;              // lanes
    Tile tile;
    bool is_short = false;         // its steps may be written out
    int64_t most_written_out = 0;  // vector operations of a body that is
    BlockChoice choice;
    std::optional<DotProduct> dot;   // of four bytes: its reduction loop stays inside of the lanes
    std::optional<DotTile> squares;  // the instruction for several rows and groups of `dot`
  };
  struct TileLoops {
    std::vector<int> outer;
    int plane = -1, row = -1, vector = -1, lane = -1;
    int dot = -1;                     // of the reduction itself only
    int square_row = -1, group = -1;  // of plan.squares only: what is inside of its instruction
  };
  std::string TargetOf(const ir::StmtNode& reduction);
  Plan PlanTile(const ir::StmtNode& reduction) const;
  std::optional<int64_t> TypicalExtent(const ir::StmtNode& reduction, int axis) const;
  bool IsSmallImage(const ir::StmtNode& reduction, int row_axis, int plane_axis) const;
  int NextBlock(const ir::StmtNode& reduction, const std::optional<DotProduct>& dot,
                int vector_axis, const Tile& tile) const;
  void PlanSquares(const ir::StmtNode& reduction, int row_axis, Plan* plan) const;
  std::string LaneCosts(const ir::StmtNode& block, int lanes, bool count_store) const;
  void ExplainTile(const ir::StmtNode& reduction, int row_axis, int plane_axis,
                   const Plan& plan) const;
  bool CutSquares(const Plan& plan, int* group, TileLoops* tile);
  bool TileTarget(const Plan& plan, const std::vector<int>& loops, size_t shared, TileLoops* tile);
  void TileReduction(const Plan& plan, const ir::StmtNode& reduction, TileLoops* tile);
  void MapTile(const Plan& plan, const TileLoops& tile);
  void ScheduleReduction(const std::string& name);
  bool ScheduleAlongReduction(const std::string& name);
  void ScheduleWithinScan(const std::string& name, const Plan& plan);
  // A block of `count` partial results of a reduction, one for each iteration of the loop `lane`
  // under `loops`, in vectors of `width`.
  struct Partial {
    int block, lane;
    int64_t count, width;
    std::vector<int> loops;
  };
  void PlacePartial(const Partial& partial, const std::vector<int>& outer);
  void ScheduleElementwise(const std::string& name);
  void ParallelOuter(std::vector<int> loops, int64_t work, int64_t count);
  void UnrollReduction(const Plan& plan, const ir::StmtNode& reduction, std::vector<int>* loops);
  void PlaceStages();
  void PlaceInRows();
  bool RunFieldSums();
  // Takes the default of the first of these rules that fits and has one; false where none does.
  bool RunRules(std::initializer_list<SketchMaker*> rules);
  void ScheduleFieldSums(const FieldSums& fields);
  std::vector<int> SplitColumns(int loop, int64_t blocks, const FieldSums& fields);
  void PlaceFieldSums(const FieldSums& fields, int groups);
  bool IsNest() const;
  void RunNest();
  size_t SharedLoops(const std::string& name) const;
  void ChooseNestTile(const std::string& name);
  bool TurnNestStage(const ir::StmtNode& block, const std::vector<int>& loops, size_t shared);
  void ScheduleNestStage(const std::string& name);
  bool IsInRows(const std::string& name) const {
    return std::find(in_rows_.begin(), in_rows_.end(), name) != in_rows_.end();
  }
  std::vector<int> OwnLoops(const std::string& name) const;
  void VectorizeInner(int loop);

  int Lanes(const ir::StmtNode& block) const {
    return std::max(
        2, target_.machine.vector_bytes / std::max(1, block.writes[0].buffer->dtype.bytes()));
  }

  Schedule& schedule_;
  const target::Target& target_;
  Choices choices_;
  Trace* trace_;
  Sizes typical_;
  std::string_view rule_;
  std::string block_;
  std::vector<std::string> done_, tiled_;
  bool serial_ = false;               // no loops in parallel
  std::vector<std::string> in_rows_;  // blocks placed within the last one's rows
};

}  // namespace tilewright::space
