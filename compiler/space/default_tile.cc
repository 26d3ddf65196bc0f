// The register tile of a reduction: along which axes, how large, and the loops that make it.
#include "compiler/ir/bind_sizes.h"
#include "compiler/ir/interp.h"
#include "compiler/ir/visit.h"
#include "compiler/space/default_scheduler.h"
#include "deploy/support/strings.h"

namespace tilewright::space {

using ir::StmtNode;
using support::StrCat;

int64_t ReductionSteps(const StmtNode& block) {
  int64_t steps = 1;
  for (const ir::IterVar& iter : block.iters) {
    if (iter.type == ir::IterType::kSpatial) continue;
    steps = std::min(kSymbolicExtent, steps * ExtentOf(iter.domain.extent));
  }
  return steps;
}

bool DefaultScheduler::HasOwnWindows(const StmtNode& reduction) const {
  const int lanes = VectorAxis(target_.machine, reduction, Lanes(reduction), /*count_store=*/false);
  return MovesLanes(reduction, lanes, RowAxis(reduction, lanes));
}

bool DefaultScheduler::IsShort(const StmtNode& reduction) const {
  const int64_t steps = ReductionSteps(reduction);
  return steps <= (HasOwnWindows(reduction) ? target_.machine.short_windows
                                            : target_.machine.short_reduction);
}

// Where the machine has an instruction for several rows of a dot product: a tile of whole ones with
// the fewest other instructions for each. It holds the sums, and the columns' factors twice: as
// loaded and as the instruction takes them.
void DefaultScheduler::PlanSquares(const StmtNode& reduction, int row_axis, Plan* plan) const {
  if (!plan->dot.has_value()) return;
  const DotProduct& dot = *plan->dot;
  const std::optional<DotTile> squares = FindDotTile(dot, target_.machine);
  const bool has_rows =
      std::find(dot.row_axes.begin(), dot.row_axes.end(), row_axis) != dot.row_axes.end();
  if (!squares.has_value() || squares->columns != plan->width || !has_rows || dot.group_axis < 0) {
    return;
  }
  const auto extent = [&](int axis) {
    return ExtentOf(reduction.iters[static_cast<size_t>(axis)].domain.extent);
  };
  if (extent(dot.group_axis) % squares->groups != 0) return;
  const int64_t rows = extent(row_axis), vectors = extent(dot.lane_axis) / plan->width;
  const Tile given = plan->tile;
  const target::TileWeights& weights = target_.machine.tile;
  double least = 0;
  const auto consider = [&](int64_t v, int64_t r) {
    const bool whole = vectors % v == 0 && rows % r == 0 && r % squares->rows == 0;
    if (!whole || v * r + 2 * v + 2 > target_.machine.vector_registers) return;
    const double cost = weights.square_column / static_cast<double>(r) +
                        weights.square_row / static_cast<double>(v);
    if (plan->squares.has_value() && cost >= least) return;
    plan->squares = squares;
    plan->tile = {.vectors = v, .rows = r, .planes = 1};
    least = cost;
  };
  const BlockChoice& choice = plan->choice;
  if (choice.rows > 0) return consider(given.vectors, given.rows);
  for (int64_t v = 1; v <= vectors; ++v) {
    if (choice.vectors > 0 && v != given.vectors) continue;
    for (int64_t r = squares->rows; r <= std::min(rows, weights.max_rows); r += squares->rows) {
      consider(v, r);
    }
  }
}

// Lanes that are one vector have their neighbours in the next block of channels, along this axis;
// -1 = none, or not worth a tile. With one block alone every product of a tile of bytes would load
// a factor of its own. Where a broadcast is a load, weights that several rows of a small image
// share are worth more.
int DefaultScheduler::NextBlock(const StmtNode& reduction, const std::optional<DotProduct>& dot,
                                int vector_axis, const Tile& tile) const {
  if (dot.has_value()) return dot->block_axis;
  const bool shared = target_.machine.multiplies_broadcasts && tile.planes > 1;
  return shared ? -1 : BlockAxis(reduction, vector_axis);
}

std::optional<int64_t> DefaultScheduler::TypicalExtent(const StmtNode& reduction, int axis) const {
  const absl::StatusOr<int64_t> extent =
      ir::EvalIntExpr(reduction.iters[static_cast<size_t>(axis)].domain.extent,
                      ir::SizeValues(schedule_.function(), typical_));
  return extent.ok() ? std::optional(*extent) : std::nullopt;
}

// Whether both axes are open, and a tile along one of them alone would have few rows: images are as
// high as wide, but a batch next to long sentences is none.
bool DefaultScheduler::IsSmallImage(const StmtNode& reduction, int row_axis, int plane_axis) const {
  const auto& row = reduction.iters[static_cast<size_t>(row_axis)].domain.extent;
  if (ir::AsInt(row) != nullptr) return false;
  const std::optional<int64_t> rows = TypicalExtent(reduction, row_axis);
  const std::optional<int64_t> planes = TypicalExtent(reduction, plane_axis);
  if (!rows || !planes) return WindowsOverlap(reduction, row_axis, /*at_any_stride=*/true);
  return *planes > 1 && *rows <= target_.machine.tile.long_row;
}

DefaultScheduler::Plan DefaultScheduler::PlanTile(const StmtNode& reduction) const {
  Plan plan;
  for (size_t i = 0; i < reduction.iters.size(); ++i) {
    if (reduction.iters[i].type == ir::IterType::kSpatial) plan.spatial.push_back(i);
  }
  auto position = [&](int axis) {
    auto at = std::find(plan.spatial.begin(), plan.spatial.end(), static_cast<size_t>(axis));
    return axis < 0 ? -1 : static_cast<int>(at - plan.spatial.begin());
  };
  auto extent = [&](int axis) {
    return axis < 0 ? int64_t{1}
                    : ExtentOf(reduction.iters[static_cast<size_t>(axis)].domain.extent);
  };
  const int lanes = Lanes(reduction);
  plan.choice = ChoiceOf(reduction.name);
  auto chosen = [&](int axis) {
    return axis >= 0 && position(axis) < static_cast<int>(plan.spatial.size());
  };
  plan.dot = FindDotProduct(reduction);
  int vector_axis = chosen(plan.choice.lane_axis)
                        ? plan.choice.lane_axis
                        : VectorAxis(target_.machine, reduction, lanes, /*count_store=*/false);
  // Only whole vectors are one instruction.
  if (plan.dot.has_value() && extent(plan.dot->lane_axis) % lanes != 0) plan.dot.reset();
  if (plan.dot.has_value()) vector_axis = plan.dot->lane_axis;
  const bool row_chosen = chosen(plan.choice.row_axis) && plan.choice.row_axis != vector_axis;
  int row_axis = row_chosen ? plan.choice.row_axis : RowAxis(reduction, vector_axis);
  plan.vector_at = position(vector_axis);
  plan.width = vector_axis < 0 ? 1 : std::min<int64_t>(lanes, extent(vector_axis));
  // Of a dot product's operand the word of a lane is one term.
  int64_t panel =
      plan.width * (plan.dot.has_value() ? 1 : reduction.writes[0].buffer->dtype.bytes());
  for (const ir::IterVar& iter : reduction.iters) {
    if (iter.type != ir::IterType::kSpatial) {
      panel = std::min(kSymbolicExtent * kSymbolicExtent, panel * ExtentOf(iter.domain.extent));
    }
  }
  int plane_axis = SecondRowAxis(reduction, vector_axis, row_axis, /*may_be_open=*/true);
  if (extent(plane_axis) == kSymbolicExtent && !IsSmallImage(reduction, row_axis, plane_axis)) {
    plane_axis = SecondRowAxis(reduction, vector_axis, row_axis, /*may_be_open=*/false);
  }
  const bool open = extent(vector_axis) == kSymbolicExtent;
  const int64_t vectors =
      open ? kSymbolicExtent : (extent(vector_axis) + plan.width - 1) / plan.width;
  plan.tile = ChooseTile(vectors, extent(row_axis), extent(plane_axis), panel, target_);
  const bool may_block = !row_chosen && vector_axis >= 0 && extent(vector_axis) == lanes;
  int next = may_block ? NextBlock(reduction, plan.dot, vector_axis, plan.tile) : -1;
  if (next == row_axis) next = -1;  // of a single pixel
  if (next >= 0) {
    // Where a broadcast is a load, a second block is enough.
    const bool second =
        !plan.dot.has_value() && target_.machine.multiplies_broadcasts && extent(next) % 2 == 0;
    const int64_t blocks = second ? 2 : extent(next);
    const Tile tile = ChooseTile(blocks, extent(row_axis), 1, panel, target_);
    if (plan.dot.has_value() || tile.score > plan.tile.score) {
      plan.tile = {.vectors = 1, .rows = tile.vectors, .planes = tile.rows};
      plane_axis = std::exchange(row_axis, next);
    }
  }
  plan.row_at = position(row_axis);
  const bool windows = plane_axis >= 0 && HasOwnWindows(reduction);
  plan.most_written_out = windows ? target_.machine.windows_body_ops : target_.machine.body_ops;
  if (windows && ReductionSteps(reduction) <= target_.machine.tile.held_factors &&
      WindowsOverlap(reduction, row_axis)) {
    plan.tile = {.vectors = 1,
                 .rows = std::min(target_.machine.tile.windows_in_row, extent(row_axis)),
                 .planes = 1};
  }
  plan.is_short = IsShort(reduction);
  if (row_axis >= 0 && !plan.is_short && !SharesLoads(reduction, row_axis)) {
    plan.tile.rows =
        std::min(plan.tile.rows, plan.tile.vectors > 1 ? int64_t{1} : target_.machine.tile.streams);
  }
  // Short sums that share nothing are no faster side by side. What an open axis leaves of a tile
  // would be masked vectors of nothing.
  const bool alone = row_axis >= 0 && plan.is_short && !SharesLoads(reduction, row_axis) &&
                     !WindowsOverlap(reduction, row_axis);
  if (alone && extent(row_axis) == kSymbolicExtent) plan.tile.rows = 1;
  if (alone && open) plan.tile.vectors = 1;
  const BlockChoice& choice = plan.choice;
  if (choice.vectors > 0) plan.tile.vectors = std::min(choice.vectors, vectors);
  // A vector that hangs over the end is no whole one.
  while (plan.dot.has_value() && vectors % plan.tile.vectors != 0) --plan.tile.vectors;
  if (choice.rows > 0) plan.tile.rows = std::min(choice.rows, extent(row_axis));
  if (choice.planes > 0) plan.tile.planes = std::min(choice.planes, extent(plane_axis));
  if (next < 0) PlanSquares(reduction, row_axis, &plan);
  if (plan.tile.planes > 1) plan.plane_at = position(plane_axis);
  if (explains()) ExplainTile(reduction, row_axis, plane_axis, plan);
  for (size_t axis : plan.spatial) {
    plan.moves_lanes.push_back(MovesLanes(reduction, vector_axis, static_cast<int>(axis)));
  }
  return plan;
}

void DefaultScheduler::ExplainTile(const StmtNode& reduction, int row_axis, int plane_axis,
                                   const Plan& plan) const {
  const auto name = [&](int axis) {
    return axis < 0 ? "no axis" : reduction.iters[static_cast<size_t>(axis)].var->name;
  };
  const int lanes =
      plan.vector_at < 0 ? -1 : static_cast<int>(plan.spatial[static_cast<size_t>(plan.vector_at)]);
  Decide(StrCat("lanes along ", name(lanes), ", ", plan.width, " wide"),
         plan.dot.has_value() ? "dot products"
                              : LaneCosts(reduction, Lanes(reduction), /*count_store=*/false));
  const int64_t sums = plan.tile.vectors * plan.tile.rows * plan.tile.planes;
  Decide(StrCat(plan.tile.vectors, " vectors x ", plan.tile.rows, " of ", name(row_axis), " x ",
                plan.tile.planes, " of ", name(plane_axis)),
         StrCat(sums, " sums in ", target_.machine.vector_registers, " registers, ",
                ReductionSteps(reduction), " steps each",
                plan.squares.has_value() ? ", by " + plan.squares->intrinsic : ""));
}

// The target's loops (the reduction's spatial iterators in order) become outer loops, then the
// tile's: rows, vectors, lanes. The first `shared` of them stay where they are.
bool DefaultScheduler::TileTarget(const Plan& plan, const std::vector<int>& loops, size_t shared,
                                  TileLoops* tile) {
  for (size_t i = shared; i < loops.size(); ++i) {
    Step split{.kind = StepKind::kSplit, .handles = {loops[i]}, .options = {{"tail", "peel"}}};
    if (static_cast<int>(i) == plan.vector_at) {
      split.factors = {kInfer, plan.tile.vectors, plan.width};
    } else if (static_cast<int>(i) == plan.row_at) {
      split.factors = {kInfer, plan.tile.rows};
    } else if (static_cast<int>(i) == plan.plane_at) {
      split.factors = {kInfer, plan.tile.planes};
    } else {
      tile->outer.push_back(loops[i]);
      continue;
    }
    if (!Try(split)) return false;
    const std::vector<int>& made = schedule_.LastResults();
    tile->outer.push_back(made[0]);
    if (made.size() == 3) {
      tile->vector = made[1];
      tile->lane = made[2];
    } else {
      (static_cast<int>(i) == plan.row_at ? tile->row : tile->plane) = made[1];
    }
  }
  // The lanes' operand (weights) stays close while the rows go by.
  std::vector<int> order;
  for (bool moves : {!plan.choice.swap_outer, plan.choice.swap_outer}) {
    for (size_t i = 0; i < tile->outer.size(); ++i) {
      if (plan.moves_lanes[shared + i] == moves) order.push_back(tile->outer[i]);
    }
  }
  tile->outer = order;
  for (int loop : {tile->plane, tile->row, tile->vector, tile->lane}) {
    if (loop >= 0) order.push_back(loop);
  }
  Try({.kind = StepKind::kReorder, .handles = order});
  return true;
}

namespace {

// Multiplications of one step.
int64_t ProductsOf(const StmtNode& reduction) {
  int64_t products = 0;
  ir::VisitStmts(reduction.body, [&](const ir::Stmt& s) {
    if (s->kind != ir::StmtKind::kStore) return true;
    ir::VisitExprs(s->value, [&](const ir::Expr& e) {
      products += e->kind == ir::ExprKind::kMul && e->dtype.is_float();
      return true;
    });
    return true;
  });
  return std::max<int64_t>(products, 1);
}

}  // namespace

// Writes short reductions out, so that what their steps share is loaded once.
void DefaultScheduler::UnrollReduction(const Plan& plan, const StmtNode& reduction,
                                       std::vector<int>* loops) {
  const Within rule(this, "unroll", block_);
  int64_t steps = 1, innermost = 1;
  for (size_t i = 0; i + (plan.dot.has_value() ? 1 : 0) < reduction.iters.size(); ++i) {
    const ir::IterVar& iter = reduction.iters[i];
    if (iter.type == ir::IterType::kSpatial) continue;
    innermost = ExtentOf(iter.domain.extent);
    const bool groups = plan.squares.has_value() && plan.dot->group_axis == static_cast<int>(i);
    if (groups) innermost /= plan.squares->groups;
    steps = std::min(kSymbolicExtent, steps * innermost);
  }
  const int64_t sums = plan.tile.vectors * plan.tile.rows * plan.tile.planes;
  int64_t wanted = plan.choice.unroll;
  const bool small = plan.is_short && steps * sums <= plan.most_written_out;
  if (wanted == 0 && steps > 1 && small) wanted = -1;
  // A block of channels in another loop: its end is a branch that is often foretold wrong. Steps
  // that share what they load are not worth it where few registers are left to keep it in, and a
  // multiplication would load it for nothing.
  const auto overlaps = [&](int at) {
    return at >= 0 &&
           WindowsOverlap(reduction, static_cast<int>(plan.spatial[static_cast<size_t>(at)]),
                          /*at_any_stride=*/true);
  };
  const bool crowded = target_.machine.multiplies_broadcasts &&
                       2 * sums > target_.machine.vector_registers &&
                       (overlaps(plan.row_at) || overlaps(plan.plane_at));
  const bool short_end = innermost >= target_.machine.tile.least_steps && innermost < steps &&
                         !crowded && innermost * sums <= target_.machine.body_ops;
  if (wanted == 0 && !plan.dot.has_value() && short_end) wanted = innermost;
  const int64_t of_one_row = target_.machine.tile.steps_of_one_row;
  const bool fits = of_one_row * sums * ProductsOf(reduction) <= target_.machine.body_ops;
  if (wanted == 0 && plan.row_at < 0 && plan.vector_at >= 0 && fits) wanted = of_one_row;
  if (wanted != 0 && explains()) {
    Decide(wanted < 0 ? "all steps written out" : StrCat(wanted, " steps written out"),
           StrCat(steps, " steps of ", sums, " sums"));
  }
  if (wanted < 0 && steps <= target_.machine.body_ops) {
    for (int loop : *loops) Try({.kind = StepKind::kUnroll, .handles = {loop}});
  } else if (wanted > 1 && innermost <= wanted) {
    Try({.kind = StepKind::kUnroll, .handles = {loops->back()}});
  } else if (wanted > 1 && innermost % wanted == 0 &&
             Try({.kind = StepKind::kSplit,
                  .handles = {loops->back()},
                  .factors = {kInfer, wanted}})) {
    loops->back() = schedule_.LastResults()[0];
    loops->push_back(schedule_.LastResults()[1]);
    Try({.kind = StepKind::kUnroll, .handles = {loops->back()}});
  }
}

// Cuts the loops that lie inside of an instruction for several rows and groups off the reduction's.
bool DefaultScheduler::CutSquares(const Plan& plan, int* group, TileLoops* tile) {
  const auto cut = [&](int* loop, int64_t inside, int* inner) {
    if (!Try({.kind = StepKind::kSplit, .handles = {*loop}, .factors = {kInfer, inside}})) {
      return false;
    }
    *loop = schedule_.LastResults()[0];
    *inner = schedule_.LastResults()[1];
    return true;
  };
  return cut(group, plan.squares->groups, &tile->group) &&
         cut(&tile->row, plan.squares->rows, &tile->square_row);
}

// The reduction's own loops at the tile: reduction loops outside, then rows, vectors, lanes.
void DefaultScheduler::TileReduction(const Plan& plan, const StmtNode& reduction, TileLoops* tile) {
  std::vector<int> own = schedule_.LoopsOf(schedule_.BlockHandle(reduction.name));
  own.erase(own.begin(), own.end() - static_cast<std::ptrdiff_t>(reduction.iters.size()));
  std::vector<int> order;
  if (plan.squares.has_value()) {
    tile->row = own[plan.spatial[static_cast<size_t>(plan.row_at)]];
    if (!CutSquares(plan, &own[static_cast<size_t>(plan.dot->group_axis)], tile)) return;
  }
  for (size_t i = 0; i < reduction.iters.size(); ++i) {
    if (reduction.iters[i].type != ir::IterType::kSpatial) order.push_back(own[i]);
  }
  if (plan.dot.has_value()) {
    tile->dot = order.back();
    order.pop_back();
  }
  if (!order.empty()) UnrollReduction(plan, reduction, &order);
  for (size_t i = 0; i < plan.spatial.size(); ++i) {
    int loop = own[plan.spatial[i]];
    if (static_cast<int>(i) == plan.row_at) {
      if (!plan.squares.has_value()) tile->row = loop;
    } else if (static_cast<int>(i) == plan.plane_at) {
      tile->plane = loop;
    } else if (static_cast<int>(i) != plan.vector_at) {
      order.push_back(loop);
    } else if (plan.tile.vectors > 1 && Try({.kind = StepKind::kSplit,
                                             .handles = {loop},
                                             .factors = {plan.tile.vectors, plan.width}})) {
      tile->vector = schedule_.LastResults()[0];
      tile->lane = schedule_.LastResults()[1];
    } else {
      tile->lane = loop;
    }
  }
  for (int loop : {tile->plane, tile->row, tile->vector, tile->square_row, tile->lane, tile->group,
                   tile->dot}) {
    if (loop >= 0) order.push_back(loop);
  }
  Try({.kind = StepKind::kReorder, .handles = order});
}

void DefaultScheduler::MapTile(const Plan& plan, const TileLoops& tile) {
  if (tile.square_row >= 0) {
    Try({.kind = StepKind::kTensorize,
         .handles = {tile.square_row},
         .options = {{"intrin", plan.squares->intrinsic}}});
  } else if (tile.dot >= 0) {
    Try({.kind = StepKind::kTensorize,
         .handles = {tile.lane},
         .options = {{"intrin", plan.dot->intrinsic + std::to_string(plan.width)}}});
  } else if (tile.lane >= 0 && plan.width > 1) {
    Try({.kind = StepKind::kVectorize, .handles = {tile.lane}});
  }
  for (int loop : {tile.plane, tile.row, tile.vector}) {
    if (loop >= 0) Try({.kind = StepKind::kUnroll, .handles = {loop}});
  }
}

}  // namespace tilewright::space
