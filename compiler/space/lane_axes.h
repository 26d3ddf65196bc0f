// Which axes of a block its lanes and its register tile should run along, judged by how its
// accesses move: what default_schedule decides with. For this folder only; pure functions,
// thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/target/target.h"

namespace tilewright::space {

// In place of an extent that is known only at run time.
inline constexpr int64_t kSymbolicExtent = 1 << 20;
int64_t ExtentOf(const ir::Expr& extent);

// Elements between neighbours along `var`, the other variables at zero; nothing = irregular.
std::optional<int64_t> AccessStride(const ir::Buffer& buffer, const std::vector<ir::Expr>& indices,
                                    const ir::Var& var);
// Cost of one vector of iterations along iterator `axis`, in contiguous loads.
int64_t LaneCost(const target::Machine& machine, const ir::StmtNode& block, size_t axis, int lanes,
                 bool count_store);
// The spatial iterator along which lanes should run, -1 when scalars are as good.
int VectorAxis(const target::Machine& machine, const ir::StmtNode& block, int lanes,
               bool count_store);
// A second spatial axis along which the loads that differ between lanes stay the same; -1 = none.
int RowAxis(const ir::StmtNode& block, int vector_axis);
// Where one vector has all of the lanes' axis: a spatial axis that continues it. Every load
// moves along both or along neither, and one along neither: the next block of channels. -1 = none.
int BlockAxis(const ir::StmtNode& block, int vector_axis);
// Whether the loads that differ between lanes move along `axis` too.
bool MovesLanes(const ir::StmtNode& block, int vector_axis, int axis);
// Whether neighbours along `axis` read some of the same elements in every step.
bool SharesLoads(const ir::StmtNode& block, int axis);
// Whether neighbours along `axis` read the same elements in different steps of the reduction: the
// windows of a convolution of stride 1, or of any stride that is shorter than they are.
bool WindowsOverlap(const ir::StmtNode& block, int axis, bool at_any_stride = false);
// A third spatial axis that a tile may take when it has all of the row axis; -1 = none. Where every
// axis moves one of the operands (depthwise convolutions), one that leaves another in place. One of
// open length only if it may be.
int SecondRowAxis(const ir::StmtNode& block, int vector_axis, int row_axis, bool may_be_open);
// Of bytes: the axis whose four elements lie between two of the lanes', [.., w, 4] with lanes along
// w; written out, its stores fill whole vectors. -1 = none.
int BetweenLanes(const ir::StmtNode& block, int vector_axis);
// Of words in whole vectors: the axis along which the result is contiguous where the lanes' axis
// leaves gaps, as in a transpose. `rows` of its steps side by side are stored as such, not lane by
// lane. -1 = none, or not a multiple.
int AcrossLanes(const ir::StmtNode& block, int vector_axis, int lanes, int64_t rows);
// Whether the innermost reduction iterator is the only one along which loads are contiguous.
bool RunsAlongReduction(const target::Machine& machine, const ir::StmtNode& block, int lanes);

// A register tile: `vectors` of the lanes' axis, `rows` of the second and `planes` of the third,
// where it has all rows.
struct Tile {
  int64_t vectors = 1, rows = 1, planes = 1;
  double score = 0;  // about the share of the multipliers' time that it uses
};
// The register tile that multiplies most per load. Accumulators, the vectors being multiplied and
// one broadcast must fit the registers. `panel_bytes`: what one vector along the lanes' axis reads
// in the whole reduction. Extents may be kSymbolicExtent; such an axis is taken as short and long.
// Vectors come in blocks of `block`, which divides their extent.
Tile ChooseTile(int64_t vector_extent, int64_t row_extent, int64_t plane_extent,
                int64_t panel_bytes, const target::Target& target, int64_t block = 1);

}  // namespace tilewright::space
