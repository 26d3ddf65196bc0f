// The space rules, one file each: a rule looks at a function and a target and makes the sketches
// that fit, or none. To add one: a file here with its Make function, a row in rules.cc, a test.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/ir/ir.h"
#include "compiler/space/space.h"
#include "compiler/target/target.h"

namespace tilewright::space {

struct Rule {
  std::string_view name;
  std::vector<std::unique_ptr<Sketch>> (*make)(const ir::Function& function,
                                               const target::Target& target);
  // Knows the stages of another algorithm than an operator's usual one; the other rules are not
  // asked about those.
  bool of_variants = false;
  // Adds its sketches to those of the first other rule that applies.
  bool beside = false;
};
// Whether the point of all first values is legal for the function: facts of blocks do not say all
// that a primitive asks.
bool FirstPointApplies(const Sketch& sketch, const ir::Function& function);
// Those of the target's kind, in order of preference.
std::span<const Rule> Rules(const target::Target& target);

// One reduction block, alone or followed by one element-wise consumer: multi-level tiles, the
// reduction computed in registers within the consumer's tile (multi_level_tiling.cc).
std::vector<std::unique_ptr<Sketch>> MakeMultiLevelTiling(const ir::Function& function,
                                                          const target::Target& target);
// The default schedule with its decisions as knobs; the default itself is the point of all first
// values (around_default.cc).
std::vector<std::unique_ptr<Sketch>> MakeAroundDefault(const ir::Function& function,
                                                       const target::Target& target);
// The default schedule of a device of groups and threads with its decisions as knobs
// (bound_default.cc).
std::vector<std::unique_ptr<Sketch>> MakeBoundDefault(const ir::Function& function,
                                                      const target::Target& target);
// A product on a matrix unit: its tile, the steps of the sum that are loaded together, threads that
// hide each other's loads (matrix_tiles_rule.cc).
std::vector<std::unique_ptr<Sketch>> MakeMatrixTiles(const ir::Function& function,
                                                     const target::Target& target);
// One reduction block on a device of groups and threads: tiles of groups and threads, operands
// through shared memory (thread_tiles.cc).
std::vector<std::unique_ptr<Sketch>> MakeThreadTiles(const ir::Function& function,
                                                     const target::Target& target);
// A product of matrices on a machine whose warps multiply fragments: tiles of groups, warps and
// fragments, operands through shared memory (tensor_tiles.cc).
std::vector<std::unique_ptr<Sketch>> MakeTensorTiles(const ir::Function& function,
                                                     const target::Target& target);
// Reductions to few results on a device of groups and threads: a group for each result, in a tree
// (tree_reduction.cc).
std::vector<std::unique_ptr<Sketch>> MakeTreeReduction(const ir::Function& function,
                                                       const target::Target& target);
// A long reduction to few results, in parts that threads share (split_reduction.cc).
std::vector<std::unique_ptr<Sketch>> MakeSplitReduction(const ir::Function& function,
                                                        const target::Target& target);
// The stages of Winograd's convolution on channel blocks (winograd_stages.cc).
std::vector<std::unique_ptr<Sketch>> MakeWinograd(const ir::Function& function,
                                                  const target::Target& target);
// The stages of depthwise convolutions of bytes as dot products (depthwise_stages.cc).
std::vector<std::unique_ptr<Sketch>> MakeDepthwiseDots(const ir::Function& function,
                                                       const target::Target& target);
// Products of fields of words with fixed-point activations (field_sums_rule.cc).
std::vector<std::unique_ptr<Sketch>> MakeFieldSums(const ir::Function& function,
                                                   const target::Target& target);
// Everything else: each block's nest is vectorised along its innermost loop, unrolled a little and
// run in parallel over its outer loops (parallel_vectorize_unroll.cc).
std::vector<std::unique_ptr<Sketch>> MakeParallelVectorizeUnroll(const ir::Function& function,
                                                                 const target::Target& target);

}  // namespace tilewright::space
