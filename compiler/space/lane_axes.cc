#include "compiler/space/lane_axes.h"

#include <algorithm>
#include <array>

#include "compiler/ir/numeric.h"
#include "compiler/ir/type_rules.h"
#include "compiler/ir/visit.h"
#include "compiler/schedule/legality.h"

namespace tilewright::space {
namespace {

using ir::Expr;
using ir::StmtNode;

// Calls `visit` with each load of a value that the block does not itself write.
template <typename Visit>
void VisitOperands(const StmtNode& block, Visit visit) {
  if (block.body->kind != ir::StmtKind::kStore) return;
  ir::VisitExprs(block.body->value, [&](const Expr& e) {
    if (e->kind == ir::ExprKind::kLoad && !schedule::Writes(block, e->buffer)) visit(e);
    return true;
  });
}

template <typename Matches>
bool AnyOperand(const StmtNode& block, Matches matches) {
  bool any = false;
  VisitOperands(block, [&](const Expr& load) { any = any || matches(load); });
  return any;
}

}  // namespace

int64_t ExtentOf(const Expr& e) {
  const int64_t* value = ir::AsInt(e);
  return value == nullptr ? kSymbolicExtent : *value;
}

namespace {

// An integer expression where only `var` differs from zero; false where that is no constant.
bool ValueAt(const Expr& e, const ir::Var& var, int64_t value, int64_t* out) {
  if (e->dtype.is_vector() || e->dtype.is_float()) return false;
  switch (e->kind) {
    case ir::ExprKind::kIntImm:
      *out = e->int_value;
      return true;
    case ir::ExprKind::kVar:
      *out = e == var ? ir::WrapInt(value, e->dtype) : 0;
      return true;
    case ir::ExprKind::kCast:
    case ir::ExprKind::kNot:
      if (!ValueAt(e->args[0], var, value, out)) return false;
      *out = e->kind == ir::ExprKind::kNot ? *out == 0 : ir::CastIntToInt(*out, e->dtype);
      return true;
    case ir::ExprKind::kMin:
    case ir::ExprKind::kMax:
      // A bound elsewhere than at the beginning.
      for (size_t side : {size_t{0}, size_t{1}}) {
        if (ir::UsesVar(e->args[side], var) && !ir::UsesVar(e->args[1 - side], var)) {
          return ValueAt(e->args[side], var, value, out);
        }
      }
      break;
    default:
      break;
  }
  int64_t a = 0, b = 0;
  return ir::IsBinary(e->kind) && ValueAt(e->args[0], var, value, &a) &&
         ValueAt(e->args[1], var, value, &b) &&
         ir::EvalIntBinary(e->kind, e->args[0]->dtype, a, b, out);
}

// Of the element where only `var` differs from zero; nothing where that is no constant.
std::optional<int64_t> AddressAt(const ir::Buffer& buffer, const std::vector<Expr>& indices,
                                 const ir::Var& var, int64_t value) {
  // Open extents count as large ones: their product need not fit.
  constexpr int64_t kMostRow = int64_t{1} << 42;
  int64_t at = 0, row = 1, index = 0;
  for (size_t d = indices.size(); d-- > 0;) {
    if (!ValueAt(indices[d], var, value, &index)) return std::nullopt;
    at += index * row;
    const int64_t extent = std::max<int64_t>(1, ExtentOf(buffer->shape[d]));
    row = row > kMostRow / extent ? kMostRow : row * extent;
  }
  return at;
}

// Whether the stride at the beginning of `iter` is that within every vector along it: those of a
// grouped convolution's channels may lie across two groups, which read other inputs.
bool HoldsInVectors(const ir::Buffer& buffer, const std::vector<Expr>& indices,
                    const ir::IterVar& iter, int64_t stride, int lanes) {
  constexpr int64_t kVectors = 64;
  bool divides = false;
  for (const Expr& index : indices) {
    ir::VisitExprs(index, [&](const Expr& e) {
      divides = divides || e->kind == ir::ExprKind::kFloorDiv || e->kind == ir::ExprKind::kFloorMod;
      return !divides;
    });
  }
  const int64_t extent = std::min(ExtentOf(iter.domain.extent), kVectors * lanes);
  for (int64_t first = lanes; divides && first + lanes <= extent; first += lanes) {
    const auto begin = AddressAt(buffer, indices, iter.var, first);
    const auto end = AddressAt(buffer, indices, iter.var, first + lanes - 1);
    if (!begin.has_value() || !end.has_value() || *end - *begin != stride * (lanes - 1)) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::optional<int64_t> AccessStride(const ir::Buffer& buffer, const std::vector<Expr>& indices,
                                    const ir::Var& var) {
  // Indices of blocked layouts divide, so two points tell more than coefficients.
  const std::optional<int64_t> at0 = AddressAt(buffer, indices, var, 0);
  const std::optional<int64_t> at1 = AddressAt(buffer, indices, var, 1);
  const std::optional<int64_t> at7 = AddressAt(buffer, indices, var, 7);
  if (!at0.has_value() || !at1.has_value() || !at7.has_value()) return std::nullopt;
  const int64_t stride = *at1 - *at0;
  return *at7 - *at0 == 7 * stride ? std::optional(stride) : std::nullopt;
}

int64_t LaneCost(const target::Machine& machine, const StmtNode& block, size_t axis, int lanes,
                 bool count_store) {
  const ir::IterVar& iter = block.iters[axis];
  int64_t cost = 0;
  auto access = [&](const ir::Buffer& buffer, const std::vector<Expr>& indices, bool load) {
    const std::optional<int64_t> stride = AccessStride(buffer, indices, iter.var);
    const int64_t most = load ? machine.shuffled_stride : 1;
    const bool regular = stride.has_value() && *stride >= 0 && *stride <= most &&
                         HoldsInVectors(buffer, indices, iter, *stride, lanes);
    cost += !regular ? machine.gathered_lane_loads * lanes : *stride > 1 ? 2 * *stride : 1;
  };
  VisitOperands(block, [&](const Expr& load) { access(load->buffer, load->args, /*load=*/true); });
  if (count_store) access(block.body->buffer, block.body->indices, /*load=*/false);
  return cost;
}

int VectorAxis(const target::Machine& machine, const StmtNode& block, int lanes, bool count_store) {
  if (block.body->kind != ir::StmtKind::kStore) return -1;
  int best = -1;
  double best_cost = 0;
  for (size_t i = block.iters.size(); i-- > 0;) {
    const ir::IterVar& iter = block.iters[i];
    int64_t extent = ExtentOf(iter.domain.extent);
    if (iter.type != ir::IterType::kSpatial || extent < 2) continue;
    // Per iteration: idle lanes count.
    double vectors = static_cast<double>((extent + lanes - 1) / lanes);
    double cost = static_cast<double>(LaneCost(machine, block, i, lanes, count_store)) * vectors /
                  static_cast<double>(extent);
    if (extent == kSymbolicExtent && block.init != nullptr) cost *= machine.tile.open_lanes;
    // Of equals the outer one: along the inner axes of a convolution, windows overlap.
    if (best < 0 || cost <= best_cost) {
      best = static_cast<int>(i);
      best_cost = cost;
    }
  }
  return best;
}

namespace {

// Whether neighbours along iterator `axis` read different elements.
bool Moves(const StmtNode& block, const Expr& load, int axis) {
  if (axis < 0) return false;
  const ir::Var& var = block.iters[static_cast<size_t>(axis)].var;
  std::optional<int64_t> stride = AccessStride(load->buffer, load->args, var);
  return !stride.has_value() || *stride != 0;
}

}  // namespace

bool MovesLanes(const StmtNode& block, int vector_axis, int axis) {
  return AnyOperand(block, [&](const Expr& load) {
    return Moves(block, load, vector_axis) && Moves(block, load, axis);
  });
}

int BlockAxis(const StmtNode& block, int vector_axis) {
  if (block.body->kind != ir::StmtKind::kStore || vector_axis < 0) return -1;
  for (int i = 0; i < static_cast<int>(block.iters.size()); ++i) {
    const ir::IterVar& iter = block.iters[static_cast<size_t>(i)];
    if (i == vector_axis || iter.type != ir::IterType::kSpatial ||
        ExtentOf(iter.domain.extent) < 2) {
      continue;
    }
    const bool differs = AnyOperand(block, [&](const Expr& load) {
      return Moves(block, load, vector_axis) != Moves(block, load, i);
    });
    const bool shares = AnyOperand(block, [&](const Expr& load) {
      return !Moves(block, load, vector_axis) && !Moves(block, load, i);
    });
    if (shares && !differs) return i;
  }
  return -1;
}

bool SharesLoads(const StmtNode& block, int axis) {
  return axis >= 0 &&
         AnyOperand(block, [&](const Expr& load) { return !Moves(block, load, axis); });
}

bool WindowsOverlap(const StmtNode& block, int axis, bool at_any_stride) {
  if (axis < 0) return false;
  const ir::Var& var = block.iters[static_cast<size_t>(axis)].var;
  return AnyOperand(block, [&](const Expr& load) {
    const std::optional<int64_t> stride = AccessStride(load->buffer, load->args, var);
    return stride.has_value() && *stride != 0 &&
           std::any_of(block.iters.begin(), block.iters.end(), [&](const ir::IterVar& iter) {
             if (iter.type != ir::IterType::kReduce) return false;
             const std::optional<int64_t> step = AccessStride(load->buffer, load->args, iter.var);
             if (!step || *step == 0) return false;
             if (!at_any_stride) return *step == *stride;
             return *stride % *step == 0 && *stride / *step < ExtentOf(iter.domain.extent);
           });
  });
}

int SecondRowAxis(const StmtNode& block, int vector_axis, int row_axis, bool may_be_open) {
  if (block.body->kind != ir::StmtKind::kStore || vector_axis < 0 || row_axis < 0) return -1;
  const bool any = MovesLanes(block, vector_axis, row_axis);
  auto stays = [&](int axis) {
    return !MovesLanes(block, vector_axis, axis) ||
           (any && AnyOperand(block, [&](const Expr& load) {
              return Moves(block, load, vector_axis) && !Moves(block, load, axis);
            }));
  };
  for (int i = static_cast<int>(block.iters.size()); i-- > 0;) {
    const ir::IterVar& iter = block.iters[static_cast<size_t>(i)];
    const int64_t* extent = ir::AsInt(iter.domain.extent);
    if (i != vector_axis && i != row_axis && iter.type == ir::IterType::kSpatial &&
        (extent == nullptr ? may_be_open : *extent > 1) && stays(i)) {
      return i;
    }
  }
  return -1;
}

int RowAxis(const StmtNode& block, int vector_axis) {
  if (block.body->kind != ir::StmtKind::kStore) return -1;
  auto between_lanes = [&](const Expr& load) { return Moves(block, load, vector_axis); };
  int best = -1, best_shared = -1;
  for (size_t i = block.iters.size(); i-- > 0;) {
    const ir::IterVar& iter = block.iters[i];
    if (static_cast<int>(i) == vector_axis || iter.type != ir::IterType::kSpatial ||
        ExtentOf(iter.domain.extent) < 2) {
      continue;
    }
    int shared = 0;
    VisitOperands(block, [&](const Expr& load) {
      std::optional<int64_t> stride = AccessStride(load->buffer, load->args, iter.var);
      if (stride.has_value() && *stride == 0) shared += between_lanes(load) ? 2 : 1;
    });
    if (shared > best_shared) {
      best = static_cast<int>(i);
      best_shared = shared;
    }
  }
  return best;
}

namespace {

std::optional<int64_t> WrittenStride(const StmtNode& block, size_t axis) {
  return AccessStride(block.body->buffer, block.body->indices, block.iters[axis].var);
}

// Whether each step along the axis goes over rows of an open size: it counts one of the dimensions
// before the last.
bool IsOpenStride(const StmtNode& block, size_t axis) {
  const std::vector<Expr>& indices = block.body->indices;
  size_t uses = 0, at = 0;
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!ir::UsesVar(indices[d], block.iters[axis].var)) continue;
    at = d;
    uses += indices[d] == block.iters[axis].var ? 1 : 2;
  }
  return uses == 1 && at + 1 < indices.size();
}

}  // namespace

int BetweenLanes(const StmtNode& block, int vector_axis) {
  constexpr int64_t kRow = 4;
  if (vector_axis < 0 || block.body->kind != ir::StmtKind::kStore) return -1;
  if (block.body->buffer->dtype.bytes() != 1) return -1;
  if (WrittenStride(block, static_cast<size_t>(vector_axis)) != kRow) return -1;
  for (size_t i = 0; i < block.iters.size(); ++i) {
    const ir::IterVar& iter = block.iters[i];
    if (ExtentOf(iter.domain.extent) == kRow && WrittenStride(block, i) == 1) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

int AcrossLanes(const StmtNode& block, int vector_axis, int lanes, int64_t rows) {
  if (vector_axis < 0 || block.body->kind != ir::StmtKind::kStore) return -1;
  // What is left of an open extent is cut off.
  auto divides = [&](size_t axis, int64_t by) {
    const int64_t* extent = ir::AsInt(block.iters[axis].domain.extent);
    return extent == nullptr || *extent % by == 0;
  };
  const auto at = static_cast<size_t>(vector_axis);
  if (block.body->buffer->dtype.bytes() != 4 || !divides(at, lanes)) return -1;
  const std::optional<int64_t> gap = WrittenStride(block, at);
  if (gap.has_value() ? *gap < 2 : !IsOpenStride(block, at)) return -1;
  for (size_t i = 0; i < block.iters.size(); ++i) {
    if (i == at || WrittenStride(block, i) != 1) continue;
    return divides(i, rows) ? static_cast<int>(i) : -1;
  }
  return -1;
}

bool RunsAlongReduction(const target::Machine& machine, const StmtNode& block, int lanes) {
  if (block.iters.empty() || block.body->kind != ir::StmtKind::kStore) return false;
  const ir::IterVar& last = block.iters.back();
  if (last.type != ir::IterType::kReduce || ExtentOf(last.domain.extent) < 2 * lanes) return false;
  int64_t loads = 0, contiguous = 0;
  VisitOperands(block, [&](const Expr& load) {
    ++loads;
    std::optional<int64_t> stride = AccessStride(load->buffer, load->args, last.var);
    if (stride == 1) ++contiguous;
    if (!stride.has_value() || *stride > 1 || *stride < 0) contiguous = INT16_MIN;
  });
  if (contiguous < 1) return false;
  const int axis = VectorAxis(machine, block, lanes, /*count_store=*/false);
  return axis < 0 || LaneCost(machine, block, static_cast<size_t>(axis), lanes, false) > loads;
}

namespace {

// What is asked of an open axis: the tile is good on average over these.
constexpr std::array<int64_t, 12> kOpenExtents = {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64};

// What the register tiles of a reduction are worth.
class TileWorth {
 public:
  TileWorth(int64_t panel_bytes, const target::Target& target)
      : machine_(target.machine),
        panel_bytes_(panel_bytes),
        near_bytes_(machine_.l1.ReachableBytes(target.threads) / 2),
        far_bytes_(machine_.l2.ReachableBytes(target.threads) / 2) {}

  // Whether the weights of a vector stay in the first cache.
  bool IsNear(double bytes) const { return bytes <= near_bytes_; }

  // Of `r` rows: the share of the multipliers' time that it uses.
  double Share(int64_t v, int64_t r) const {
    const target::TileWeights& weights = machine_.tile;
    const double per_load = machine_.fma_per_cycle / machine_.loads_per_cycle;
    const auto panel = static_cast<double>(v * panel_bytes_);
    const double panel_weight = IsNear(panel)         ? weights.load
                                : panel <= far_bytes_ ? weights.second_cache_load
                                                      : weights.far_load;
    const auto sums = static_cast<double>(v * r);
    const double loads =
        per_load * (static_cast<double>(v) * panel_weight + static_cast<double>(r) * weights.load);
    return std::min(1.0, sums / machine_.sums_in_flight) * sums / (sums + loads);
  }

  // What an axis leaves of it: its last tile may hang over the end.
  double Used(int64_t extent, int64_t tile) const {
    const double share =
        static_cast<double>(extent) / static_cast<double>((extent + tile - 1) / tile * tile);
    return extent % tile == 0 ? share : share * machine_.tile.ragged_share;
  }

  // The same of an open axis. What its tiles leave is a smaller tile of its own, which uses
  // `share(size)`.
  template <typename ShareOf>
  double UsedOpen(int64_t tile, ShareOf share) const {
    double sum = 0;
    for (const int64_t extent : kOpenExtents) {
      const int64_t left = extent % tile;
      double time = static_cast<double>(extent - left);
      if (left > 0) time += static_cast<double>(left) * share(tile) / share(left);
      sum += static_cast<double>(extent) / time;
    }
    return sum / static_cast<double>(kOpenExtents.size());
  }

 private:
  const target::Machine& machine_;
  const int64_t panel_bytes_;
  const double near_bytes_, far_bytes_;
};

}  // namespace

Tile ChooseTile(int64_t vector_extent, int64_t row_extent, int64_t plane_extent,
                int64_t panel_bytes, const target::Target& target, int64_t block) {
  const target::TileWeights& weights = target.machine.tile;
  const TileWorth worth(panel_bytes, target);
  Tile best;
  auto consider = [&](Tile t) {
    const int64_t v = t.vectors, r = t.rows * t.planes;
    // With one row each vector is used once, straight from memory.
    if (v * r + (r > 1 ? v : 1) + 1 > target.machine.vector_registers) return;
    const auto used = [&](int64_t extent, int64_t tile, auto share) {
      return extent == kSymbolicExtent ? worth.UsedOpen(tile, share) : worth.Used(extent, tile);
    };
    t.score =
        used(vector_extent, v, [&](int64_t size) { return worth.Share(size, r); }) *
        used(row_extent, t.rows, [&](int64_t size) { return worth.Share(v, size * t.planes); }) *
        used(plane_extent, t.planes, [&](int64_t size) { return worth.Share(v, t.rows * size); }) *
        worth.Share(v, r);
    if (t.score > best.score) best = t;
  };
  // Several rows of an image of open size share weights that come from afar. What the tile leaves
  // of both axes is much code, so not for near ones.
  const bool open_image = row_extent == kSymbolicExtent && plane_extent == kSymbolicExtent &&
                          !worth.IsNear(static_cast<double>(panel_bytes));
  for (int64_t v = block; v <= std::min(vector_extent, weights.max_vectors); v += block) {
    for (int64_t r = 1; r <= std::min(row_extent, weights.max_rows); ++r) {
      consider({v, r, 1});
      if (r < row_extent && !open_image) continue;
      for (int64_t p = 2; p <= plane_extent && r * p <= 2 * weights.max_rows; ++p) {
        consider({v, r, p});
      }
    }
  }
  return best;
}

}  // namespace tilewright::space
