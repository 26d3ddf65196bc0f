// Graph passes, each `StatusOr<Graph>(Graph, const GraphPassContext&)`, and the memory plan. Order:
// the table in graph_passes.cc. Passes are pure: they take a graph that verifies and return one
// that does and computes the same outputs (up to rounding where constants are folded). Thread-safe.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/graph/graph.h"

namespace tilewright::graph {

// How fuse_attention cuts a kernel of attention, and where it makes one.
struct AttentionCut {
  int64_t rows = 0;  // queries of a block; 0: attention stays in operators
  int64_t keys = 32;
  int64_t from_keys = 256;  // so many make it worth it where the tokens are fixed and many
  int64_t few_tokens = 1;   // up to so many, lanes lie along the elements of a head
  double half_cost = 1;     // time of half the rows, for the same work
  // Of devices of groups: tokens, which are fixed there, that make it worth it, and what a block of
  // rows and one of keys may take; 0: another kind of device.
  int64_t from_tokens = 0, shared_bytes = 0;
};

struct GraphPassContext {
  std::string dump_dir;  // NN_<pass>.graph after each pass; none where empty
  // Names of passes to leave out (--disable-pass); graph.pass.* where one is unknown or required.
  std::vector<std::string> disabled;
  // Names of optional passes that run (--enable-pass, or who found that they pay).
  std::vector<std::string> enabled;
  // Gets the names of the optional passes that found something to change, where it is not null.
  std::vector<std::string>* changed = nullptr;
  // Of block_layouts: lanes of one vector or more; those of the matrix unit if there is one.
  int64_t channel_block = 8;
  // The same, of convolutions of bytes: so many channels at most are one block of their own, and
  // zeros fill a last block up to this part of all channels.
  int64_t whole_block = 16, filled_part = 3;
  // Of layout_weights: blocks of a weight, at least, whose last one zeros may fill.
  int64_t padded_blocks = 8;
  // Of mark_cold_weights: a network with so many bytes of weights finds none in a cache; 0 = never.
  int64_t cold_weights_bytes = 0;
  int64_t cold_weight_bytes = 0;  // the least of one weight that it marks
  // Lanes of a matrix unit that computes with signed bytes only; 0: there is none. With one, values
  // of i8 stay signed, sums become bytes in integers, and weights lie in squares of so many lanes.
  int64_t matrix_block = 0;
  // Of view_moves: storage in the arena begins at multiples of so many bytes; 0: no views.
  int64_t view_alignment = 0;
  // Of pack_weights: the most rows of data for which a layer reads its weights as bytes, and twice
  // the most for which it reads 4-bit integers; 0: no layer does.
  int64_t packed_weight_rows = 0;
  // Of half_products: the 16-bit floats whose matrices the machine multiplies faster than others,
  // and those that it widens so fast that dense layers read weights of them as they are.
  std::vector<ir::DType> half_products, half_weights;
  // Of half_products: those of which one instruction adds the products of two vectors to f32.
  std::vector<ir::DType> half_factors;
  // Of layout_weights: so it multiplies matrices of f32, whose factors it may round.
  bool rounded_products = false;
  // Of half_products and layout_weights: it multiplies matrices of bytes, signed ones by any.
  bool byte_products = false;
  // Of half_products and layout_weights: those of which the machine has dot products of pairs,
  // which dense layers with constant weights use.
  std::vector<ir::DType> half_pairs;
  // Of drop_roundings: 16-bit floats whose operators the machine computes in f32, and those of them
  // whose elementwise operators it computes as they are.
  std::vector<ir::DType> computed_in_f32, half_arithmetic;
  AttentionCut attention = {};
  // Of fuse_norms: elements of the longest row that stays in the first cache; 0: norms stay in
  // operators. Whether it pays for RMS norms of all sizes, too.
  int64_t near_row = 0;
  bool all_rms_norms = false;
  // Of join_products: layers of one operand are faster as one. Not measured on devices.
  bool join_products = false;
  // Nodes with more operations or larger results are left to run time.
  double fold_max_flops = 1e8;
  int64_t fold_max_bytes = int64_t{64} << 20;
};
// Types of all values from the inputs' (also checks types an import claimed).
absl::StatusOr<Graph> InferTypes(Graph g, const GraphPassContext& ctx);
// identity and no-op reshape removal, reshapes of reshapes, dead nodes, constants only used by dead
// nodes.
absl::StatusOr<Graph> Clean(Graph g, const GraphPassContext& ctx);
// Around quantised values: i8 that is only dequantised becomes u8, moves and maxima happen on
// bytes, conversions back and forth and bounds that saturation implies go away.
absl::StatusOr<Graph> QuantizedMoves(Graph g, const GraphPassContext& ctx);
// Convolutions and dense layers of dequantised values, and of bytes widened to i32, become sums of
// products of bytes; zero points and biases one i32 per output channel.
absl::StatusOr<Graph> IntegerLayers(Graph g, const GraphPassContext& ctx);
// The scale that a value is quantised with goes into those it was dequantised with; scales and zero
// points are written out for each channel.
absl::StatusOr<Graph> FoldRequantize(Graph g, const GraphPassContext& ctx);
// Only for a matrix unit: quantize(dequantize(sums)) of a product or a convolution that the unit
// can do becomes cast(requantize(sums)), which has no floats. So does the sum of two images of
// bytes, each times a whole number. A result may differ by one quantum.
absl::StatusOr<Graph> RequantizeSums(Graph g, const GraphPassContext& ctx);
// Taps of convolutions that meet only zeros around the image go, with their padding.
absl::StatusOr<Graph> CropKernels(Graph g, const GraphPassContext& ctx);
// Maxima of large windows become maxima of columns, then of rows.
absl::StatusOr<Graph> SeparateMaxima(Graph g, const GraphPassContext& ctx);
// Only for a matrix unit: maxima of blocks of signed bytes are computed in stages that the unit
// has, where padding is zeros.
absl::StatusOr<Graph> StagePools(Graph g, const GraphPassContext& ctx);
// Dense layers of floats and few rows read weights that were dequantised as packed integers with a
// scale for each group, instead of as floats.
absl::StatusOr<Graph> PackWeights(Graph g, const GraphPassContext& ctx);
// Products with heads that are repeated for several query heads read each head once: the query
// heads become rows of one product.
absl::StatusOr<Graph> ShareHeads(Graph g, const GraphPassContext& ctx);
// Means, differences, squares and roots over the last dimension that make a layer norm or an RMS
// norm become one operator; so do the maximum, exponentials, sum and quotient of a softmax.
absl::StatusOr<Graph> FuseNorms(Graph g, const GraphPassContext& ctx);
// Products of queries with keys, softmax and the product with values become one operator, which
// reads keys and values where a cache has them and keeps no matrix of scores.
absl::StatusOr<Graph> FuseAttention(Graph g, const GraphPassContext& ctx);
// Dense layers of one operand whose results become heads that are transposed become one layer.
absl::StatusOr<Graph> JoinProducts(Graph g, const GraphPassContext& ctx);
// Where the machine multiplies 16-bit floats: products of matrices that were cast to f32 read them
// as they are, with sums f32. So do products with constants that 16 bits hold. Where it only widens
// them fast, dense layers of f32 read constant weights as they are.
absl::StatusOr<Graph> HalfProducts(Graph g, const GraphPassContext& ctx);
// Roundings to 16-bit floats between operators that compute in f32 go, if the model did not ask for
// them: results are more exact.
absl::StatusOr<Graph> DropRoundings(Graph g, const GraphPassContext& ctx);
// Nodes whose inputs are all constants are evaluated by op::Reference (bounded work and size).
absl::StatusOr<Graph> FoldConstants(Graph g, const GraphPassContext& ctx);
// Local algebraic rules from a table (simplify_algebra.cc): neutral elements, chains of constants,
// negations, nested bounds, transposes and slices of each other, operators that move nothing.
absl::StatusOr<Graph> SimplifyAlgebra(Graph g, const GraphPassContext& ctx);
// Equal nodes compute once; equal constants stand once.
absl::StatusOr<Graph> EliminateCommon(Graph g, const GraphPassContext& ctx);
// Batch normalisation with constant parameters goes into the weights of the convolution before it,
// else it becomes a multiplication and an addition.
absl::StatusOr<Graph> FoldBatchNorm(Graph g, const GraphPassContext& ctx);
// Multiplications by constants per channel go into the constant weights of the convolution or dense
// operator beside them.
absl::StatusOr<Graph> FoldScales(Graph g, const GraphPassContext& ctx);
// A (transposed) convolution with a bias → one without and an addition, so that the bias is part of
// the fused epilogue.
absl::StatusOr<Graph> SplitBias(Graph g, const GraphPassContext& ctx);
// Optional. Images between convolutions in blocks of channels, transforms only where producer and
// consumer disagree. Weights of convolutions that a matrix unit computes are in squares.
absl::StatusOr<Graph> BlockLayouts(Graph g, const GraphPassContext& ctx);
// Convolutions of single pixels in groups, and what follows them element by element, work on images
// of one long row.
absl::StatusOr<Graph> FlattenImages(Graph g, const GraphPassContext& ctx);
// Constant weights move to the layout kernels read contiguously (conv OIHW → OIHW16o or IHWO,
// dense [N,K] → NK16n or KN); the operator's `weight_layout` attribute says which. Weights that are
// not constants stay.
absl::StatusOr<Graph> LayoutWeights(Graph g, const GraphPassContext& ctx);
// Every graph output gets storage that a kernel of its own writes: outputs that are inputs,
// constants or views of these or of another output become copies. Outputs without elements are
// constants.
absl::StatusOr<Graph> MaterializeOutputs(Graph g, const GraphPassContext& ctx);
// Slices and concats of neighbouring bytes become views, which no kernel computes: the bytes stay
// where the operand has them, and operands of a concat are written to their place in it.
absl::StatusOr<Graph> ViewMoves(Graph g, const GraphPassContext& ctx);
// Complex-out-fusable / reduction anchors take their elementwise epilogues (post-dominator rule:
// all paths from the anchor end in one node); reductions also take what is cheap in front of them,
// groups what widens numbers for them; remaining injective chains fuse. Bodies list data inputs
// first, then weights. Nodes that nothing joins stay as they are.
absl::StatusOr<Graph> FuseOperators(Graph g, const GraphPassContext& ctx);
// Every remaining operator becomes a fused node of its own, so each node of the result is one
// kernel = one task use, except views (IsView), which have no kernel.
absl::StatusOr<Graph> WrapOperators(Graph g, const GraphPassContext& ctx);
// Weights of kernels that come from memory at every call, since the network has more of them than
// the last-level cache holds: `cold_weight` in the text of a task, and measured that way.
absl::StatusOr<Graph> MarkColdWeights(Graph g, const GraphPassContext& ctx);

struct GraphPass {
  std::string_view name;
  absl::StatusOr<Graph> (*run)(Graph, const GraphPassContext&);
  enum class Use : uint8_t {
    kStandard,  // runs unless disabled
    kRequired,  // later steps need what it establishes: cannot be disabled
    kOptional,  // runs only if enabled: whether it pays depends on the target
  };
  Use use = Use::kStandard;
  bool open = false;  // runs on graphs with size variables, too
};
std::span<const GraphPass> GraphPasses();
// Whether a pass is among those that a context enables, disables or has changed by.
bool IsNamed(const std::vector<std::string>& names, std::string_view pass);
// Runs the table; verifies after each pass.
absl::StatusOr<Graph> RunGraphPasses(Graph g, const GraphPassContext& ctx = {});

// One arena for all intermediates: lifetimes from the node order, 64-byte aligned offsets, the best
// of several placement orders. A result takes the place of an operand that dies with it where the
// kernel allows that.
struct MemoryPlan {
  std::vector<int64_t> offset;  // per value; -1 = not in the arena (inputs, outputs, constants)
  // Of a graph with size variables, per value: those that are still needed while it is and lie
  // below it. At any sizes it may begin at the largest of their ends.
  std::vector<std::vector<ValueId>> after;
  std::vector<int> in_place;  // per node: the operand whose storage its result takes; -1 = none
  int64_t arena_bytes = 0;
  int64_t liveness_bound = 0;  // the largest sum of live bytes: no plan can be smaller
};
inline constexpr int64_t kArenaAlignment = 64;
// Per node: positions of the operands that its result may overwrite (nodes without: empty, or a
// shorter list).
using InPlaceOperands = std::vector<std::vector<int>>;
// Views share their root's offset; offsets are multiples of `alignment`. REQUIRES:
// Verify(fused).ok().
// `maxima` are those of the size variables: offsets are for them.
absl::StatusOr<MemoryPlan> PlanMemory(const Graph& fused, const InPlaceOperands& may = {},
                                      int64_t alignment = kArenaAlignment,
                                      const op::Sizes& maxima = {});

}  // namespace tilewright::graph
