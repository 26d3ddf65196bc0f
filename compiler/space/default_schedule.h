// The schedule that a function gets when nothing has been measured: correct for every operator, in
// the same language as tuned ones, with register tiles, vector lanes and parallel outer loops where
// they fit. Pure function; deterministic.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule/step.h"
#include "compiler/space/trace.h"
#include "compiler/target/target.h"
#include "deploy/support/dim.h"

namespace tilewright::space {

// What may be decided otherwise, for one block of the function; the first value of each leaves the
// decision to the heuristics. What does not fit a block is ignored.
struct BlockChoice {
  int lane_axis = -1;        // the iterator that lanes run along
  int row_axis = -1;         // and the one of the register tile's rows
  int along_reduction = -1;  // 1: lanes along the innermost reduction iterator; 0: not
  int64_t vectors = 0;       // of a register tile (of a reduction), or unrolled (of other blocks)
  int64_t rows = 0;          // of a register tile
  int64_t planes = 0;        // and along a third axis
  int64_t unroll = 0;        // steps of the innermost reduction loop; -1: all reduction loops
  bool swap_outer = false;   // tiles along rows outside of those along lanes, or the reverse
  int64_t parallel = 0;      // outer loops run in parallel together
  // Of a group, on devices of groups and threads; virtual threads of a matrix unit. Of a matrix
  // unit, `rows` are those of a tile, `planes` its width in an image, `vectors` its columns in
  // blocks. There, `unroll` counts the steps of the sum, in blocks, whose operands are loaded
  // together.
  int64_t threads = 0;
  // Of a stage before a reduction: made anew in each turn of the reduction's first (1) or second
  // (2) outer loop of more than one turn, or in each use (kInlined).
  int place = 0;
  static constexpr int kInlined = 3;
  // Of the last block: 1: all blocks before it are computed within its rows, the iterations of all
  // its loops but the innermost; 0: not. Ignored unless ReducesRows.
  int in_rows = -1;
};
using Choices = std::map<std::string, BlockChoice, std::less<>>;  // by block name
// At which open sizes are judged, by the names of size parameters.
using support::Sizes;

// Whether the last block is of rows, and the reductions before it reduce rows of that length, as in
// softmax and normalisations. The rows must be short enough to stay in the machine's nearest cache.
bool ReducesRows(const ir::Function& function, const target::Machine& machine);

// Steps that Schedule(function).ApplyAll accepts. Never fails: what a primitive refuses is left
// out.
schedule::Steps DefaultSchedule(const ir::Function& function, const target::Target& target,
                                const Choices& choices = {});
// Returns the algorithms between which the estimate chooses, by position: those that are not much
// less exact; one alone where no estimate is asked. REQUIRES: not empty.
std::vector<size_t> ComparedVariants(std::span<const schedule::Variant> variants,
                                     const target::Target& target);
// What the analytical estimate (compiler/estimate) says of an algorithm's default schedule.
struct VariantEstimate {
  size_t variant = 0;
  double ns = 0;  // of a run; of open sizes the geometric mean around the typical ones
};
// Returns those of the compared algorithms; nothing where one alone is left, and where sizes have
// no typical values. An algorithm whose program cannot be estimated takes forever.
std::vector<VariantEstimate> EstimateVariants(std::span<const schedule::Variant> variants,
                                              const target::Target& target,
                                              const Sizes& typical = {});
// Returns which of a task's algorithms it gets without measurements: the one that the estimate
// expects to be done first, the first of equals; none that is much less exact. One of dot products
// of bytes is taken where the machine begins enough of these in a cycle. Of open sizes without a
// typical value each, and on devices that are no processors, it is the first. REQUIRES: not empty.
size_t DefaultVariant(std::span<const schedule::Variant> variants, const target::Target& target,
                      const Sizes& typical = {});
// That of a task with several algorithms: of its DefaultVariant, which a first step names if it is
// not the first one. REQUIRES: not empty.
schedule::Steps DefaultSchedule(std::span<const schedule::Variant> variants,
                                const target::Target& target, const Sizes& typical = {});
// Those of one function, applied to `schedule`; says why in the trace. REQUIRES: a schedule without
// steps, or whose only step chose an algorithm.
void ApplyDefaultSchedule(const target::Target& target, const Choices& choices,
                          schedule::Schedule* schedule, Trace* trace = nullptr,
                          const Sizes& typical = {});

// stream_writes for the blocks of a schedule that write more than half of the target's last cache
// (eight cores' slices), where it is legal and not done: such a result would not stay there.
void StreamLargeOutputs(const target::Target& target, schedule::Schedule* schedule);

}  // namespace tilewright::space
